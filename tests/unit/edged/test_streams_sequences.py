"""Any sequence of samples, against a slow and obvious model of what stands in an unbroken row."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from support.sensorstream import bench, config

from edged.streams.continuity import BEHIND_LIMIT

STEPS = st.sampled_from(["next"] * 8 + ["skip 1", "skip 3", "same", "back 1", "back 4", "to 0", "to 1", "bad"])


def walked(steps: list[str]) -> list[int | None]:
    """Turn steps into the seq numbers sent; None is a bad sample."""
    seqs: list[int | None] = []
    at = 20
    for step in steps:
        word, _, number = step.partition(" ")
        if word == "bad":
            seqs.append(None)
            continue
        seq = {"next": at + 1, "skip": at + 1 + int(number or 0), "same": at, "back": at - int(number or 0)}.get(
            word, int(number or 0)
        )
        at = seq if seq in (0, 1) else max(seq, at)
        seqs.append(seq)
    return seqs


def segments(seqs: list[int | None]) -> tuple[list[list[int]], Counter[str]]:
    """The slow, obvious model: which samples (by position) stand in an unbroken row, and what is counted."""
    rows: list[list[int]] = [[]]
    counts: Counter[str] = Counter()
    last: int | None = None
    for position, seq in enumerate(seqs):
        if seq is None:
            counts["bad"] += 1
            continue
        if last is not None and (seq == last or (seq < last and seq not in (0, 1))):
            counts["duplicates"] += 1
            continue
        if last is not None and seq != last + 1:
            counts["gaps" if seq > last else "restarts"] += 1
            counts["missed"] += max(0, seq - last - 1)
            rows.append([])
        rows[-1].append(position)
        last = seq
    return rows, counts


@given(st.lists(STEPS, max_size=BEHIND_LIMIT - 1), st.integers(1, 4))
def test_any_sequence_makes_the_windows_of_the_obvious_model(steps: list[str], hop: int) -> None:
    """Gaps, duplicates, restarts and bad samples in any order: the same windows and counts as the slow model."""
    seqs = walked(steps)
    made = bench(config(hop=hop, seq="n"))
    for position, seq in enumerate(seqs):
        made.send_sample((position, seq or 0, hop), n="?" if seq is None else seq)
    rows, counts = segments(seqs)
    wanted = [row[begin : begin + 4] for row in rows for begin in range(0, len(row) - 3, hop)]
    assert made.windows()[:, :, 0].tolist() == wanted
    names = ("bad", "duplicates", "gaps", "restarts", "missed")
    assert made.counted(*names) == tuple(counts[name] for name in names)
    assert made.counted("windows", "samples") == (len(wanted), sum(map(len, rows)))
