"""What changes fairseq's training, and nothing of what is trained: the fast step (:mod:`.fast`) and its parts,
checkpoints, divergence, invariants, histories, progress.

Nothing is imported here, since :mod:`.products` has to be at work before torch is loaded.
"""
