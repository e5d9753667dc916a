"""The theory, measured: what attention does in trained and in untrained models, as numbers and as figures of them.

``observe`` looks into a model while it reads a text, ``measures`` and ``lemma_checks`` make numbers of what was seen,
``runs``, ``initialisation``, ``depth`` and ``hulls`` leave them as JSON under ``<results>/analysis/`` (``store``), and
the
``draw_*`` modules and ``findings`` make figures and a page of the JSON alone.
"""
