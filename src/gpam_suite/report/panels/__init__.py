"""What each figure shows: gains, trainings, the formula alone, what is inside models, and cross attention."""

ANALYSE = "python scripts/analyse.py"
