"""Scores of a trained model: perplexity by word, and BLEU."""
