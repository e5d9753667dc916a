"""Scores of a trained model, perplexity by word, BLEU or answers recalled, and of n-gram models."""
