"""The ways to compute a weighted sum of softmaxes; ``gpam.attention.functional`` is their front door.

``choice`` says which one is taken, ``problem`` is what each is called with, ``masks``, ``dropout``, ``tiling`` and
``workspace`` are what several share.
"""
