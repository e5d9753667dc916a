"""Corpora and trained models that the tests of the plugin share."""

from pathlib import Path

import pytest
import torch
import toy

NMT_TRAINING = {
    "criterion": "label_smoothed_cross_entropy",
    "label_smoothing": 0.1,
    "max_tokens": 400,
    "max_update": 100,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "share_decoder_input_output_embed": True,
    "no_progress_bar": True,
}
DAGPAM = {"attention": "dagpam", "lambda_pos": 0.4, "lambda_neg": 0.7, "lambdas": "trainable_per_head"}


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """The models are too small for more, and sums keep one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def parallel(tmp_path_factory) -> Path:
    return toy.write_parallel(tmp_path_factory.mktemp("parallel"))


@pytest.fixture(scope="session")
def lines(tmp_path_factory) -> Path:
    return toy.write_lines(tmp_path_factory.mktemp("lines"))


@pytest.fixture(scope="session")
def dagpam_checkpoint(parallel, tmp_path_factory) -> Path:
    """A translation model with daGPAM, trained by the command line until it translates."""
    folder = tmp_path_factory.mktemp("dagpam")
    assert toy.train(parallel, folder, "gpam_iwslt_de_en", **NMT_TRAINING, **DAGPAM) == 0
    return folder / "checkpoint_last.pt"
