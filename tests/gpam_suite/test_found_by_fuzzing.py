"""What fuzzing found once: each is one clear sentence now, which says what is wrong."""

import pytest
import torch
from archives import zipped
from omegaconf import OmegaConf
from runs import composed

from gpam_suite.config.compose import check, stored
from gpam_suite.config.trust import guarded_composition
from gpam_suite.data.binarise import load_dictionary
from gpam_suite.data.text.segmentation import segmenter
from gpam_suite.evaluate.checkpoint import read_checkpoint
from gpam_suite.run.command_line import guarded


@pytest.fixture
def sentence(capsys):
    """Does some work and gives the one line that a command would print before it exits with 2."""

    def said(work):
        assert guarded(work) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return said


def merges(path):
    return segmenter("subword_nmt", path)


@pytest.mark.parametrize(
    ("read", "content"),
    [
        *((merges, content) for content in ("", "\n", "a\n", "#version: 0.2\na b c\n", "#version: 0.2\na\n")),
        *((load_dictionary, content) for content in ("a\n", "a -1\n", "a 1e3\n", "a 1\na 2\n", "a 1\n\n")),
        *((stored, content) for content in ("", "[1, 2]", "a: *b", "\x00")),
    ],
)
def test_a_file_that_is_none_of_its_kind(read, content, sentence, tmp_path):
    path = tmp_path / "file"
    path.write_text(content)
    assert str(path) in sentence(lambda: read(path))


def test_an_empty_list_of_merges(tmp_path):
    """subword-nmt itself ends the process over it."""
    (tmp_path / "codes.txt").write_text("#version: 0.2\n")
    assert segmenter("subword_nmt", tmp_path / "codes.txt")("ab c") == "a@@ b c"


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["model=1"], "must be a string or a list"),
        (["model=dagpam", "model.lambda_neg={a: b}"], "lambda_neg"),
        (["seed='1\n2'"], "seed"),
        (["model=soft\nmax"], "model"),
    ],
)
def test_overrides_that_hydra_or_its_users_trip_over(words, wrong, sentence):
    """A number for the name of a group ended in a traceback of Hydra's, and a line break in a value broke the
    sentence."""

    def work():
        with guarded_composition():
            check(composed(*words))

    assert wrong in sentence(work)


@pytest.mark.parametrize(
    "node", ["dataset", "model", "fairseq", "evaluation", "preprocessing", "gpu", "checks", "tracking"]
)
def test_a_part_of_a_configuration_that_is_nothing(node, sentence):
    tree = OmegaConf.to_container(composed(), resolve=True)
    assert node in sentence(lambda: check(OmegaConf.create({**tree, node: None})))


def test_a_damaged_checkpoint_brings_no_advice_to_trust_it(sentence, tmp_path):
    """torch's own message proposes weights_only=False, which would run whatever code is in the file."""
    path = tmp_path / "checkpoint.pt"
    torch.save({"model": {"weight": torch.ones(3)}, "odd": object()}, path)
    for content in (path.read_bytes(), path.read_bytes()[:-40], b"PK", b""):
        path.write_bytes(content)
        said = sentence(lambda: read_checkpoint(path))
        assert str(path) in said and "weights_only" not in said


def test_a_checkpoint_that_holds_something_else(sentence, tmp_path):
    path = tmp_path / "checkpoint.pt"
    for state in ({}, {"model": None}, {"model": {"weight": 1.0}}, [1]):
        torch.save(state, path)
        assert str(path) in sentence(lambda: read_checkpoint(path))
    path.write_bytes(zipped({"data.pkl": b"no pickle"}))
    assert str(path) in sentence(lambda: read_checkpoint(path))
