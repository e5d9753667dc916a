"""Figures of what is inside the models."""
