"""Inputs nobody would write, thousands of them: each gets one clear sentence or the right result.

``full.py`` lists what is read and by what the result is judged; ``tests/gpam_suite/test_fuzzing.py`` runs a sample,
``make soak PARTS=drawn-input`` the full count.
"""
