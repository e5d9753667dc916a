"""fairseq runs nothing that a file or an option of a stranger's says: no pickle, no ``eval``, no shell."""

import ast
import importlib
import io
import pickle
from argparse import Namespace
from pathlib import Path

from gpam_fairseq import untrusted

import fairseq
import fairseq_cli
import pytest
import torch
import toy
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary, FastaDataset, indexed_dataset
from fairseq.models import build_model
from fairseq.models.fconv import base_architecture
from fairseq.optim import build_optimizer
from omegaconf import OmegaConf

from gpam.errors import UsageError

FOLDERS = (Path(fairseq.__file__).parent, Path(fairseq_cli.__file__).parent)
RISKY = {"exec", "os.system", "os.popen", "marshal.loads", "pickle.load", "pickle.loads", "joblib.load"}
RISKY |= {"torch.jit.load", "dill.load", "yaml.unsafe_load", "shelve.open"}


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "was_here"


@pytest.fixture
def python(trace):
    """Python that makes the trace, where it is evaluated."""
    text = f"__import__('os').mkdir({str(trace)!r})"
    eval(text)
    trace.rmdir()
    return text


def modules():
    for folder in FOLDERS:
        for path in folder.rglob("*.py"):
            if "examples" not in path.relative_to(folder).parts:
                yield path, path.read_text(encoding="utf-8")


def calls(tree):
    """Dotted name and node of every call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_fairseq_has_no_other_way_to_run_a_file():
    """Every call that could, in all of fairseq: those below are guarded or between a run's own processes."""
    found = {}
    for path, source in modules():
        for name, node in calls(ast.parse(source)):
            words = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            risky = name in RISKY
            risky |= words.get("shell") == "True" or words.get("allow_pickle") == "True"
            risky |= words.get("weights_only") == "False"
            if risky:
                found.setdefault(path.name, set()).add(name)
    assert found == {"fasta_dataset.py": {"subprocess.check_output"}, "utils.py": {"pickle.loads"}}


def test_every_torch_load_of_fairseqs_is_guarded():
    loading = [path for path, source in modules() if "torch.load(" in source]
    names = {".".join(path.relative_to(FOLDERS[0].parent).with_suffix("").parts) for path in loading}
    assert {"fairseq.checkpoint_utils", "fairseq.models.text_to_speech.vocoder"} <= names
    for name in names:
        assert importlib.import_module(name).torch.load is untrusted.load_without_executing, name


@pytest.mark.parametrize(
    "text",
    ["${oc.env:HOME}", "${oc.${y}:HOME}", r"\\${oc.env:HOME}", r"\${oc.env:HOME}", "a ${b.c}", ["${oc.decode:x}"]],
)
def test_the_configuration_of_a_checkpoint_is_plain_text(text, tmp_path):
    torch.save({"cfg": {"model": {"_name": "gpam_lm", "path": text}}, "model": {}}, tmp_path / "asking.pt")
    read = OmegaConf.create(untrusted.load_without_executing(tmp_path / "asking.pt")["cfg"])
    assert OmegaConf.to_container(read, resolve=True)["model"]["path"] == text


def test_the_arguments_of_a_checkpoint_ask_for_nothing(tmp_path):
    torch.save({"args": Namespace(arch="${oc.env:HOME}"), "model": {}}, tmp_path / "asking.pt")
    with pytest.raises(UsageError, match="which could read the environment"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "asking.pt"))


def test_no_flipped_bit_of_a_checkpoint_gives_other_weights(tmp_path):
    written = {"model": {"a": torch.arange(6.0), "b": torch.ones(2, 3, dtype=torch.int64)}, "update": 7}
    torch.save(written, tmp_path / "whole.pt")
    whole, refused = (tmp_path / "whole.pt").read_bytes(), 0
    for bit in range(0, 8 * len(whole), 3):
        spoilt = bytearray(whole)
        spoilt[bit // 8] ^= 1 << bit % 8
        try:
            found = untrusted.load_without_executing(io.BytesIO(bytes(spoilt)))
        except Exception:
            refused += 1
            continue
        assert found["update"] == 7, bit
        assert all(torch.equal(found["model"][name], written["model"][name]) for name in "ab"), bit
    assert refused > len(whole)


def test_fairseqs_own_interpolations_stay(tmp_path):
    state = {"cfg": {"common": {"seed": 3}, "model": {"seed": "${common.seed}"}}, "model": {}, "args": None}
    state |= {"extra_state": {}, "optimizer_history": [{"num_updates": 1}]}
    torch.save(state, tmp_path / "own.pt")
    assert untrusted.load_without_executing(tmp_path / "own.pt")["cfg"]["model"]["seed"] == "${common.seed}"


@pytest.mark.parametrize(
    "text",
    ["()", "(0.9, 0.98)", "[(512, 3)] * 20", "[(512, 10, 5)] + [(512, 3, 2)] * 4", "{'a': [1, -2.5]}", "True", "None"],
)
def test_literals_are_what_python_says(text):
    assert untrusted.literal(text) == eval(text)


@pytest.mark.parametrize(
    "text", ["open('x')", "a", "[1] * 10**9", "[0] * 1000000", "'a' * 99999999", "(", "2 ** 3", "[i for i in (1,)]", ""]
)
def test_anything_else_is_refused_in_one_sentence(text):
    with pytest.raises(UsageError, match="wanted a literal") as refused:
        untrusted.literal(text)
    assert "\n" not in str(refused.value)


def an_optimiser(text):
    cfg = {"_name": "adam", "adam_betas": text, "lr": [0.1], "use_old_adam": True, "tpu": False, "adam_eps": 1e-8}
    cfg |= {"weight_decay": 0.0, "fp16_adam_stats": False}
    build_optimizer(OmegaConf.create(cfg), [torch.nn.Parameter(torch.zeros(1))])


def the_model_of_a_checkpoint(text):
    """``generate --path`` builds the model that the checkpoint's own configuration names."""
    cfg = Namespace(arch="fconv", encoder_layers=text)
    base_architecture(cfg)
    build_model(cfg, Namespace(source_dictionary=Dictionary(), target_dictionary=Dictionary()))


@pytest.mark.parametrize(
    "evaluate",
    [an_optimiser, the_model_of_a_checkpoint, utils.eval_str_list, utils.eval_str_dict, utils.eval_bool],
)
def test_options_and_checkpoints_evaluate_no_code(evaluate, python, trace):
    with pytest.raises(UsageError, match="wanted a literal"):
        evaluate(python)
    assert not trace.exists()


def test_no_path_is_given_to_a_shell(trace, tmp_path):
    name = tmp_path / f"a;mkdir {trace};.fasta"
    name.parent.mkdir(parents=True, exist_ok=True)
    with pytest.raises((UsageError, OSError)):
        FastaDataset(str(name), cache_indices=False)
    plain = tmp_path / "a.fasta"
    plain.write_text(">x\nACGT\n", encoding="utf-8")
    with pytest.raises(UsageError, match="would give a path to a shell"):
        FastaDataset(str(plain), cache_indices=False)
    assert not trace.exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # fairseq closes what it did not open
def test_indexed_data_is_not_unpickled(trace, tmp_path):
    packed = pickle.dumps(toy.Hostile(trace))
    for implementation in ("mmap", "cached", "lazy", "huffman"):
        for suffix in ("bin", "idx"):
            (tmp_path / f"data.{suffix}").write_bytes(packed)
        with pytest.raises((AssertionError, ValueError, OSError, TypeError)):
            indexed_dataset.make_dataset(str(tmp_path / "data"), implementation)[0]
    assert not trace.exists()
    pickle.load(io.BytesIO(packed))  # the trap works where somebody steps into it
    assert trace.exists()
