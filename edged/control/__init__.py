"""What an operator asks of a running device: which bundles to serve (`desired/models`), and commands (`cmd/<verb>`)."""
