"""One run: prepare, train and evaluate in a process of its own, record."""
