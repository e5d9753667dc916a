"""One run (prepare, train and evaluate in a process of its own, record), and many: a plan's queue, a search."""
