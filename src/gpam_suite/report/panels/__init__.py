"""What each figure shows: gains, trainings, many experiments, the formula alone, and what is inside models."""

ANALYSE = "python scripts/analyse.py"
TITLES = {
    "residual": "Relative residual",
    "cosine": "Mean cosine similarity",
    "stable_rank": "Stable rank",
    "effective_rank": "Effective rank",
}
