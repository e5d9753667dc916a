"""The metrics of the test set by their names in records: how they are called, counted, and which way is better."""

METRIC_LABEL = {
    "test_perplexity": "Test perplexity",
    "test_bits_per_character": "Test bits per character",
    "test_bleu": "Test BLEU",
    "test_sentence_bleu": "Test BLEU per sentence",
    "test_chrf": "Test chrF",
    "test_ter": "Test TER",
    "test_misaligned_pieces": "Pieces with a wrong number of sentences",
    "second_test_bleu": "BLEU, second test set",
    "second_test_chrf": "chrF, second test set",
    "second_test_ter": "TER, second test set",
    "test_accuracy": "Test accuracy in percent",
    "test_exact_match": "Test sequences all right in percent",
}
METRICS = {
    **{
        name: label.removeprefix("Test ") + (" on the test set" if name.startswith("test_") else "")
        for name, label in METRIC_LABEL.items()
    },
    "test_token_perplexity": "perplexity per token (sub-words where the text is cut into them) on the test set",
    "test_loss": "mean negative log-likelihood on the test set, in nats per unit",
    "valid_perplexity": "perplexity on the validation set, of the scored checkpoint",
    "valid_token_perplexity": "perplexity per token on the validation set, of the scored checkpoint",
    "valid_loss": "as `test_loss`, on the validation set",
    "valid_bits_per_character": "bits per character on the validation set",
    "valid_accuracy": "accuracy in percent on the validation set",
    "valid_exact_match": "sequences all right in percent on the validation set",
}
"""Every metric that a record may hold, and what it is."""
LOWER_IS_BETTER = {
    "test_perplexity",
    "test_bits_per_character",
    "test_ter",
    "test_misaligned_pieces",
    "second_test_ter",
}
IN_PERCENT = {"test_perplexity", "test_bits_per_character"}
"""Of these a gain is a share of the score, of others a number of points."""


def turned(metric: str, value: float) -> float:
    """``value``, of the metric or of what is correlated with it, so that more is better."""
    return -value if metric in LOWER_IS_BETTER else value
