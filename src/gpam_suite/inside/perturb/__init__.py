"""Trained runs on perturbed input: noise that is the same for every model, and an adversary of each model's own."""
