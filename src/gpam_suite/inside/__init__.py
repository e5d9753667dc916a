"""The theory, measured: what attention does in trained and in untrained models, as numbers.

``observe`` looks into a model while it reads a text, ``measures`` and ``lemma_checks`` make numbers of what was seen,
``analyse``, ``depth`` and ``hulls`` leave them as JSON under ``<results>/analysis/`` (``store``), which ``stats`` and
``report`` read. ``perturb`` does likewise with what trained models make of perturbed input.
"""
