"""Words that figures and findings share."""

COMMAND = "python scripts/analyse.py"
TITLES = {
    "residual": "Relative residual",
    "cosine": "Mean cosine similarity",
    "stable_rank": "Stable rank",
    "effective_rank": "Effective rank",
}
ROLES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross attention"}
