"""What each figure shows: gains, trainings, many experiments, the formula alone, and what is inside models."""

ANALYSE = "python scripts/analyse.py"
