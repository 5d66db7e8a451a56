"""`edged demo`: the whole path on real data, from training to a latency table, on one machine."""
