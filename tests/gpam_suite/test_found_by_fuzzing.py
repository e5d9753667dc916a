"""What fuzzing found once: each is one clear sentence now, which says what is wrong."""

import io
import json
import zipfile

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from record_factory import make_record

from gpam_suite.config.compose import CONFIGS, check, stored
from gpam_suite.config.trust import guarded_composition
from gpam_suite.data.dataset import check_dataset
from gpam_suite.data.text.dictionary import load_dictionary
from gpam_suite.data.text.segmentation import Segmenter
from gpam_suite.evaluate.checkpoint import read_checkpoint
from gpam_suite.records.folder import HISTORY, RECORD, SCHEMA_VERSION, read_history, read_record
from gpam_suite.run.command_line import guarded


@pytest.fixture
def sentence(capsys):
    """Does some work and gives the one line that a command would print before it exits with 2."""

    def said(work):
        assert guarded(work) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return said


RECORD_TEXT = json.dumps({"schema_version": SCHEMA_VERSION, **make_record()})


@pytest.mark.parametrize(
    ("damage", "wrong"),
    [
        (lambda text: text[:-1] + ', "more": NaN}', "NaN is no number"),
        (lambda text: text[:-1] + ', "more": -Infinity}', "-Infinity is no number"),
        (lambda text: text[:-1] + ', "more": 1e999}', "1e999 is larger than any number here"),
        (lambda text: text[:-1] + ', "more": 1' + "0" * 5000 + "}", "is larger than any number here"),
        (lambda text: text[:-1] + ', "more": 1e308}', "1e308 is larger than any number here"),
        (lambda text: text.replace('"Softmax"', r'"\ud800"'), "surrogates not allowed"),
        (lambda text: text[:-1] + ', "status": "finished"}', "the key 'status' stands there twice"),
        (lambda text: "[" * 100_000, "nested too deeply"),
        (lambda text: "[]", "does not fit the schema"),
    ],
)
def test_a_record_that_no_run_wrote(damage, wrong, sentence, tmp_path):
    """Python's reader takes NaN, numbers that become infinity, and the last of two equal keys."""
    (tmp_path / RECORD).write_text(damage(RECORD_TEXT))
    assert wrong in sentence(lambda: read_record(tmp_path))


def test_a_history_with_a_number_that_is_none(sentence, tmp_path):
    (tmp_path / HISTORY).write_text('{"update": 1, "loss": NaN}\n')
    assert "NaN is no number" in sentence(lambda: read_history(tmp_path))


@pytest.mark.parametrize("content", ["", "\n", "a\n", "#version: 0.2\na b c\n", "#version: 0.2\na\n"])
def test_merges_that_are_none(content, sentence, tmp_path):
    path = tmp_path / "codes.txt"
    path.write_text(content)
    assert str(path) in sentence(lambda: Segmenter("subword_nmt", path))


def test_an_empty_list_of_merges(tmp_path):
    """subword-nmt itself ends the process over it."""
    (tmp_path / "codes.txt").write_text("#version: 0.2\n")
    assert Segmenter("subword_nmt", tmp_path / "codes.txt").segment("ab c") == "a@@ b c"


@pytest.mark.parametrize("content", ["a\n", "a -1\n", "a 1e3\n", "a 1\na 2\n", "a 1\n\n"])
def test_a_dictionary_that_is_none(content, sentence, tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text(content)
    assert str(path) in sentence(lambda: load_dictionary(path))


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["model=1"], "must be a string or a list"),
        (["dataset=null"], "must be a string or a list"),
        (["checks=null"], "checks"),
        (["fairseq=null"], "fairseq"),
        (["evaluation=null"], "evaluation"),
        (["model=dagpam", "model.lambda_neg={a: b}"], "lambda_neg"),
        (["seed='1\n2'"], "seed"),
        (["model=soft\nmax"], "model"),
    ],
)
def test_overrides_that_hydra_or_its_users_trip_over(words, wrong, sentence):
    """A number for the name of a group ended in a traceback of Hydra's, and a line break in a value broke the
    sentence."""

    def work():
        with guarded_composition(), initialize_config_dir(str(CONFIGS), version_base="1.3"):
            check(compose("train", overrides=words))

    assert wrong in sentence(work)


@pytest.mark.parametrize(
    "node", ["dataset", "model", "fairseq", "evaluation", "preprocessing", "gpu", "checks", "tracking"]
)
def test_a_part_of_a_configuration_that_is_nothing(node, sentence):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        tree = OmegaConf.to_container(compose("train"), resolve=True)
    assert node in sentence(lambda: check(OmegaConf.create({**tree, node: None})))


@pytest.mark.parametrize("field", ["name", "task", "kind"])
def test_a_data_set_without_what_it_is_known_by(field, sentence):
    dataset = OmegaConf.to_container(OmegaConf.load(CONFIGS / "dataset" / "python_docs.yaml"))
    assert field in sentence(lambda: check_dataset({**dataset, field: None}))


def test_a_stored_configuration_that_is_no_mapping(sentence, tmp_path):
    path = tmp_path / "config.yaml"
    for content in ("", "[1, 2]", "a: *b", "\x00"):
        path.write_text(content)
        assert str(path) in sentence(lambda: stored(path))


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
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", b"no pickle")
    path.write_bytes(file.getvalue())
    assert str(path) in sentence(lambda: read_checkpoint(path))
