"""fairseq's commands with the plugin: corpora in, scores out, and one sentence for a mistake."""

import argparse
import io
import logging
import os
import re
import shutil
import subprocess
import sys

from gpam_fairseq.install import attention_classes

import pytest
import torch
import toy
from fairseq import checkpoint_utils

from gpam.errors import UsageError

TRAINED = {
    "gpam_lm": {},
    "gpam_lm_wiki103": {
        "criterion": "adaptive_loss",
        "ddp_backend": "legacy_ddp",
        "adaptive_input_cutoff": "8,16",
        "adaptive_softmax_cutoff": "8,16",
        "decoder_input_dim": 32,
        "decoder_output_dim": 32,
    },
    "gpam_nmt": {},
    "gpam_wmt_en_de": {"activation_fn": "gelu"},
}


@pytest.fixture(scope="module")
def lm_checkpoint(lines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm")
    assert toy.train(lines, folder, "gpam_lm", attention="dagpam", lambda_neg=0.7, max_update=60) == 0
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize("arch", TRAINED)
def test_presets_train_with_dagpam(arch, lines, parallel, tmp_path):
    settings, data = TRAINED[arch], lines if "_lm" in arch else parallel
    dagpam = {"attention": "dagpam", "lambda_neg": 0.5, "query_neg_heads": "per_head"}
    assert toy.train(data, tmp_path, arch, max_update=3, **dagpam, **settings) == 0
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "checkpoint_last.pt"))
    model = state["cfg"]["model"]
    assert (model._name, model.attention, model.lambda_neg) == (arch, "dagpam", 0.5)
    assert model.activation_fn == settings.get("activation_fn", "relu")
    own = {name: tensor for name, tensor in state["model"].items() if ".mechanism." in name}
    assert len(own) == (2 if "_lm" in arch else 6)
    assert {tuple(tensor.shape) for tensor in own.values()} == {(4, 8, 8)}
    (loaded,), _, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(tmp_path / "checkpoint_last.pt")], arg_overrides={"data": str(data)}
    )
    assert set(attention_classes(loaded).values()) == {"DaGPAM"}


def test_generate_translates(dagpam_checkpoint, parallel, capfd):
    """A hundred updates are half the way to the rule of the corpus: reversed, word for word."""
    capfd.readouterr()
    arguments = {"path": dagpam_checkpoint, "beam": 4, "gen_subset": "train", "num_workers": 0, "max_tokens": 600}
    assert toy.gpam("generate", parallel, *toy.flags(arguments), "--scoring", "sacrebleu") == 0
    out = capfd.readouterr().out
    assert float(re.search(r"BLEU = ([\d.]+)", out).group(1)) > 20
    assert len(re.findall(r"^H-\d+\t", out, re.M)) == 160


def test_interactive_translates_a_file(dagpam_checkpoint, parallel, tmp_path, capfd):
    lines = ["sun moon star", "sea", "bird fish rain snow wind"]
    (tmp_path / "input").write_text("".join(f"{line}\n" for line in lines))
    arguments = toy.flags({"path": dagpam_checkpoint, "beam": 2, "input": tmp_path / "input", "buffer_size": 3})
    assert toy.gpam("interactive", parallel, *arguments) == 0
    out = capfd.readouterr().out
    assert re.findall(r"^S-\d\t(.*)$", out, re.M) == lines
    assert len(re.findall(r"^H-\d\t-[\d.]+\t.*'", out, re.M)) == len(lines)


def test_validate_is_the_validation_of_training(dagpam_checkpoint, parallel, caplog, monkeypatch):
    state = checkpoint_utils.load_checkpoint_to_cpu(str(dagpam_checkpoint))
    arguments = toy.flags({"path": dagpam_checkpoint, "task": "translation", "max_tokens": 400, "num_workers": 0})
    logger, said = logging.getLogger("fairseq.logging.progress_bar"), []
    caplog.set_level(logging.INFO, logger.name)
    monkeypatch.setattr(logger, "disabled", False)
    listener = logging.Handler(logging.INFO)
    listener.emit = lambda record: said.append(record.getMessage())
    logger.addHandler(listener)
    try:
        assert toy.gpam("validate", parallel, *arguments) == 0
    finally:
        logger.removeHandler(listener)
    (loss,) = (float(found[1]) for line in said if (found := re.search(r"loss ([\d.]+)", line)))
    assert loss == pytest.approx(state["extra_state"]["val_loss"], abs=1e-3)


def test_eval_lm_is_the_perplexity_of_the_model(lm_checkpoint, lines, caplog):
    """Line by line, against the model's own probabilities of every word."""
    arguments = {"path": lm_checkpoint, "max_tokens": 300, "sample_break_mode": "eos", "num_workers": 0}
    caplog.set_level(logging.INFO)
    assert toy.gpam("eval-lm", lines, *toy.flags(arguments)) == 0
    perplexity = float(re.search(r"Perplexity: ([\d.]+)", caplog.text).group(1))
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(lm_checkpoint)], arg_overrides={"data": str(lines)}
    )
    model.eval()
    words, scores = task.source_dictionary, []
    for line in (lines.parent / "raw" / "test").read_text().splitlines():
        tokens = words.encode_line(line, add_if_not_exist=False).long()
        previous = torch.cat([tokens[-1:], tokens[:-1]])[None]
        with torch.no_grad():
            scores.append(model(previous)[0][0].log_softmax(-1).gather(1, tokens[:, None]))
    assert perplexity == pytest.approx(torch.cat(scores).mean().neg().exp().item(), abs=0.02)
    assert perplexity < 0.8 * len(words)


def test_eval_lm_of_nothing_is_no_perplexity(lm_checkpoint, lines, capfd, caplog):
    assert toy.gpam("eval-lm", lines, "--path", lm_checkpoint, "--max-tokens", 2048, "--num-workers", 0) == 2
    assert "gpam_fairseq eval-lm: not one token was evaluated" in capfd.readouterr().err.splitlines()[-1]
    assert "Perplexity" not in caplog.text


NMT = ["train", "--arch", "gpam_nmt", "--max-tokens", 300, "--max-update", 1, *toy.sizes("encoder", "decoder")]
LANGUAGE_MODEL = ["train", "--arch", "gpam_lm", "--max-tokens", 300, *toy.sizes("decoder")]
HEADS = "decoder_attention_heads: got 5 for decoder_embed_dim 32, wanted a number that divides it"
NO_MODEL = "no model; give --path CHECKPOINT, .*"
#: The command and its options, and the sentence that it ends with.
MISTAKES = {
    "attention": (
        [*NMT, "--attention", "dagpan"],
        r"unknown attention 'dagpan'; did you mean 'dagpam'\? \(wanted one of .*\)",
    ),
    "not a number": (
        [*NMT, "--attention", "dagpam", "--lambda-neg", "abc"],
        "argument --lambda-neg: invalid float value: 'abc'",
    ),
    "nan": (
        [*NMT, "--attention", "dagpam", "--lambda-neg", "nan"],
        "option 'lambda_neg' of attention 'dagpam': got 'nan', wanted a finite number, for instance 0.5",
    ),
    "no such option": (
        [*NMT, "--lambda-negg", "0.5"],
        r"unrecognized arguments: --lambda-negg 0.5; did you mean '--lambda-neg'\?",
    ),
    "an option that fairseq's own model has not": (
        ["train", "--arch", "transformer", "--max-tokens", "300", "--attention=dagpam"],
        "--attention is an option of training this plugin's models: --arch gpam_nmt, gpam_lm or the like",
    ),
    "heads": ([*NMT, "--attention", "dagpam", "--decoder-attention-heads", "5"], HEADS),
    "cross-self-attention": (
        [*NMT, "--attention", "dagpam", "--cross-self-attention"],
        "cross_self_attention is not supported by gpam attention: leave it out",
    ),
    "heads of a language model": (
        [*LANGUAGE_MODEL, "--task", "language_modeling", "--decoder-attention-heads", "5"],
        HEADS,
    ),
    "a language model without a task": (
        LANGUAGE_MODEL,
        "--arch gpam_lm is a language model, and fairseq's task is translation .*: add --task language_modeling",
    ),
    "no architecture": (["train", "--max-tokens", "300"], "no architecture; give --arch, one of gpam_lm, .*"),
    "an architecture misspelt": (
        ["train", "--arch", "gpam_nmtt"],
        r"--arch: got 'gpam_nmtt'; did you mean 'gpam_nmt'\? \(wanted one of gpam_lm, .*\)",
    ),
    "a translation model as a language model": (
        ["train", "--arch", "gpam_nmt", "--task", "language_modeling"],
        "--arch gpam_nmt is no language model: give --arch gpam_lm, or --task translation",
    ),
    "a task misspelt": (
        ["train", "--arch", "gpam_nmt", "--task", "translatoin"],
        r"argument --task: got 'translatoin'; did you mean 'translation'\?",
    ),
    "a folder of the user's": ([*NMT, "--user-dir", "mine"], "no file or folder .*/mine"),
    "a part of the data": (
        [*LANGUAGE_MODEL, "--task", "language_modeling", "--valid-subset", "vaild"],
        r"Dataset not found: vaild \(.*\)",
    ),
    "no batch": (["train", "--arch", "gpam_nmt"], "Must specify batch size .* --max-tokens or --batch-size"),
    "generate without a path": (["generate"], NO_MODEL),
    "interactive without a path": (["interactive"], NO_MODEL),
    "eval-lm without a path": (["eval-lm"], NO_MODEL),
    "validate without a path": (["validate"], NO_MODEL),
    "generate with another mechanism": (
        ["generate", "--path", "model.pt", "--arch", "gpam_nmt", "--lambda-neg=0.5"],
        "--lambda-neg=0.5: the checkpoint says which attention its model has, with its options; drop it",
    ),
    "generate with overrides that are none": (
        ["generate", "--path", "model.pt", "--model-overrides", "{'data'"],
        "fairseq option: got '{'data'', wanted a literal, .*",
    ),
    "interactive with a file that is not there": (
        ["interactive", "--path", "model.pt", "--input", "nowhere/text"],
        "--input: there is no file 'nowhere/text'",
    ),
    "no beam": (["generate", "--path", "model.pt", "--beam", "0"], "--beam: got 0, wanted at least 1"),
    "n-grams of no words": (["score", "--ref", "text", "--order", "-1"], "--order: got -1, wanted at least 1"),
    "samples of no tokens": (
        [*LANGUAGE_MODEL, "--task", "language_modeling", "--tokens-per-sample", "0"],
        "--tokens-per-sample: got 0, wanted at least 1",
    ),
    "batches of multiples of nothing": (
        [*NMT, "--required-batch-size-multiple", "0"],
        "--required-batch-size-multiple: got 0, wanted at least 1",
    ),
    "no layers": ([*NMT, "--encoder-layers", "0"], "--encoder-layers: got 0, wanted at least 1"),
    "no width": ([*NMT, "--encoder-embed-dim", "0"], "encoder_embed_dim: got 0, wanted at least 1"),
    "embeddings that are not there": (
        [*NMT, "--encoder-embed-path", "nowhere"],
        r"\[Errno 2\] No such file or directory: 'nowhere'",
    ),
    "overrides that are no dict": (
        ["generate", "--path", "model.pt", "--model-overrides", "[1]"],
        r"--model-overrides: got \[1\], wanted a dict, as in {'dropout': 0.1}",
    ),
    "BLEU by options that are no JSON": (
        [*NMT, "--eval-bleu", "--eval-bleu-args", "{"],
        "--eval-bleu-args: got '{', wanted JSON, as in .*",
    ),
    "BLEU by no beam": ([*NMT, "--eval-bleu-args", '{"beam": 0}'], "--beam: got 0, wanted at least 1"),
    "BLEU of tokens of an unknown kind": (
        [*NMT, "--eval-bleu-detok", "mosses"],
        r"--eval-bleu-detok: got 'mosses'; did you mean 'moses'\? \(wanted one of .*\)",
    ),
    "more dropped than there is": ([*NMT, "--dropout", "2"], "--dropout: got 2, wanted a number from 0 to below 1"),
    "a seed below zero": ([*NMT, "--seed", "-1"], "--seed: got -1, wanted at least 0"),
    "one of Adam's betas": ([*NMT, "--adam-betas", "0.9"], "--adam-betas: got 0.9, wanted two numbers from 0 to .*"),
    "a beta of 1.5": ([*NMT, "--adam-betas", "(0.9, 1.5)"], r"--adam-betas: got \(0.9, 1.5\), wanted two numbers .*"),
    "no update to warm up in": (
        [*NMT, "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "0"],
        "--warmup-updates: got 0, wanted at least 1 with --lr-scheduler inverse_sqrt",
    ),
    "a context as long as the sample": (
        ["eval-lm", "bin", "--path", "model.pt", "--tokens-per-sample", "64", "--context-window", "64"],
        "--context-window: got 64, wanted less than 64, the --tokens-per-sample",
    ),
    "BLEU that nobody computes": (
        [*NMT, "--best-checkpoint-metric", "bleu"],
        "--best-checkpoint-metric bleu: nothing computes BLEU in validation; add --eval-bleu",
    ),
    "a checkpoint to go on with that is not there": (
        [*NMT, "--restore-file", "nowhere.pt"],
        "--restore-file: there is no file 'nowhere.pt', and training would begin anew",
    ),
    "a schedule without its length": (
        [*NMT, "--lr-scheduler", "polynomial_decay"],
        "--total-num-update is not given, and fairseq has no value for it; give it",
    ),
    "validate without a task": (["validate", "--path", "model.pt"], "no task; give --task, .*"),
}


def sentence(stderr):
    """What stands in the error stream besides fairseq's log."""
    (line,) = (line for line in stderr.splitlines() if " | INFO | " not in line)
    return line


def test_float16_without_a_gpu_is_refused(parallel, monkeypatch, capfd):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert toy.gpam("train", parallel, *NMT[1:], "--fp16") == 2
    assert sentence(capfd.readouterr().err).startswith("gpam_fairseq train: --fp16 needs a GPU")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake, lines, parallel, tmp_path, capfd):
    (command, *more), wanted = MISTAKES[mistake]
    data = lines if "language_modeling" in more else parallel
    saved = ["--save-dir", tmp_path / "run"] if command == "train" else []
    capfd.readouterr()
    assert toy.gpam(command, data, *saved, *more) == 2
    assert re.fullmatch(f"gpam_fairseq {command}: {wanted}", sentence(capfd.readouterr().err))
    assert not list(tmp_path.glob("run/*"))


def test_a_checkpoint_of_the_other_task_is_one_sentence(lm_checkpoint, dagpam_checkpoint, lines, parallel, capfd):
    for command, data, path, words in (
        ("generate", parallel, lm_checkpoint, "language_modeling, and is read for translation: use eval-lm"),
        ("eval-lm", lines, dagpam_checkpoint, "translation, and is read for language_modeling: use generate or inter"),
    ):
        capfd.readouterr()
        assert toy.gpam(command, data, "--path", path) == 2
        said = capfd.readouterr().err.splitlines()[-1]
        assert said.startswith(f"gpam_fairseq {command}: {path} was trained for the task {words}")


def test_an_unknown_sort_of_sub_words_is_one_sentence(dagpam_checkpoint, parallel, capfd):
    assert toy.gpam("generate", parallel, "--path", dagpam_checkpoint, "--remove-bpe", "foo") == 2
    assert capfd.readouterr().err.splitlines()[-1].endswith("Unknown post_process option: foo")


def test_generate_with_another_dictionary_is_one_sentence(dagpam_checkpoint, lines, parallel, tmp_path, capfd):
    shutil.copytree(parallel, tmp_path / "data")
    shutil.copy(lines / "dict.txt", tmp_path / "data/dict.tgt.txt")
    capfd.readouterr()
    assert toy.gpam("generate", tmp_path / "data", "--path", dagpam_checkpoint) == 2
    wanted = r"gpam_fairseq generate: the checkpoint's model does not fit these dictionaries \(size mismatch .*\); give"
    assert re.match(wanted, capfd.readouterr().err.splitlines()[-1])


def test_generate_with_another_attention_is_one_sentence(dagpam_checkpoint, parallel, capfd):
    more = ["--model-overrides", "{'query_neg_heads': 'per_head'}"]
    capfd.readouterr()
    assert toy.gpam("generate", parallel, "--path", dagpam_checkpoint, *more) == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith("gpam_fairseq generate: the checkpoint's model has another attention than was asked for")
    assert said.endswith("leave it out of --model-overrides")


def test_an_override_of_another_type_is_one_sentence(dagpam_checkpoint, parallel, capfd):
    capfd.readouterr()
    more = ["--model-overrides", "{'lambda_pos': 'x'}"]
    assert toy.gpam("generate", parallel, "--path", dagpam_checkpoint, *more) == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith("gpam_fairseq generate: ") and "lambda_pos" in said


def test_generate_beside_a_language_model(dagpam_checkpoint, parallel, tmp_path, capfd):
    """Shallow fusion: fairseq looks for the language model's dictionary, the target side's, beside the other two."""
    data = shutil.copytree(parallel, tmp_path / "data")
    for path in parallel.glob("*.src-tgt.tgt.*"):
        shutil.copy(path, data / path.name.replace(".src-tgt.tgt", ""))
    shutil.copy(parallel / "dict.tgt.txt", data / "dict.txt")
    assert toy.train(data, tmp_path / "lm", "gpam_lm", attention="dagpam", max_update=1) == 0
    arguments = {"path": dagpam_checkpoint, "beam": 2, "gen_subset": "valid", "num_workers": 0}
    own = {"lm_path": tmp_path / "lm/checkpoint_last.pt", "lm_weight": 0.1}
    capfd.readouterr()
    assert toy.gpam("generate", data, *toy.flags(arguments | own), "--scoring", "sacrebleu") == 0
    assert "BLEU = " in capfd.readouterr().out


def test_preprocess_does_not_write_over_a_dictionary(parallel, capfd):
    raw = parallel.parent / "raw"
    capfd.readouterr()
    assert toy.gpam("preprocess", "-s", "src", "-t", "tgt", "--trainpref", raw / "train", "--destdir", parallel) == 2
    said = rf"gpam_fairseq preprocess: {parallel}/dict\.src\.txt exists already; give another --destdir, or delete it"
    assert re.fullmatch(said, capfd.readouterr().err.splitlines()[-1])


def test_text_that_is_not_utf_8_is_one_sentence(tmp_path, capfd):
    (text := tmp_path / "train.src").write_bytes("Bäume\n".encode("latin-1"))
    shutil.copy(text, tmp_path / "train.tgt")
    corpus = ["-s", "src", "-t", "tgt", "--trainpref", tmp_path / "train", "--destdir", tmp_path / "bin"]
    for command, more in (("score", ["--sys", text, "--ref", text]), ("preprocess", corpus)):
        assert toy.gpam(command, *more) == 2
        assert sentence(capfd.readouterr().err).startswith(f"gpam_fairseq {command}: some text is not UTF-8 (")


@pytest.mark.parametrize("kind", ["--sacrebleu", "--sentence-bleu"])
def test_score_by_sacrebleu_and_by_sentence(kind, tmp_path, capsys):
    """Both are tracebacks in fairseq itself, with sacrebleu 2 and at all."""
    (reference := tmp_path / "ref").write_text("sun moon star sea hill\nrain snow wind bird fish\n")
    (system := tmp_path / "sys").write_text("sun moon star sea hill\nrain snow wind bird leaf\n")
    capsys.readouterr()
    assert toy.gpam("score", "--sys", system, "--ref", reference, kind) == 0
    found = [float(score) for score in re.findall(r"BLEU\d? = ([\d.]+)", capsys.readouterr().out)]
    if kind == "--sacrebleu":  # nine words of ten, seven pairs of eight, five of six, three of four; no brevity penalty
        assert found == [pytest.approx(100 * (9 / 10 * 7 / 8 * 5 / 6 * 3 / 4) ** 0.25, abs=0.01)]
    else:  # its precisions have one added to counts, of single words to none
        assert found[0] == 100 and found[1] == pytest.approx(100 * (4 / 5 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25, abs=0.01)


@pytest.mark.parametrize("kind", [[], ["--sacrebleu"], ["--sentence-bleu"]])
@pytest.mark.parametrize(
    ("text", "wanted"), [("sun\n", "lines: got 1 of the system for 2 of"), ("\n\n", "the system's")]
)
def test_score_wants_a_line_for_each_line(text, wanted, kind, tmp_path, monkeypatch, capfd):
    """fairseq scores the lines that both texts have, and sacrebleu too, or divides by zero."""
    (reference := tmp_path / "ref").write_text("sun moon star sea hill\nrain snow wind bird fish\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert toy.gpam("score", "--ref", reference, *kind) == 2
    assert sentence(capfd.readouterr().err).startswith(f"gpam_fairseq score: {wanted}")


@pytest.mark.parametrize("content", [b"", b"\x80\x04 no pickle", b"the 3\nof 2\n", "cut off"])
def test_what_is_no_checkpoint_is_said_to_be_none(content, lines, lm_checkpoint, tmp_path, capfd):
    whole = lm_checkpoint.read_bytes()
    (path := tmp_path / "model.pt").write_bytes(whole[: len(whole) // 2] if content == "cut off" else content)
    capfd.readouterr()
    assert toy.gpam("eval-lm", lines, "--path", path) == 2
    said = f"gpam_fairseq eval-lm: {re.escape(str(path))} is no checkpoint, or is cut off or damaged \\(.+\\)"
    assert re.fullmatch(said, sentence(capfd.readouterr().err))


DAGPAM = ["--attention", "dagpam", "--lambdas", "trainable_per_head"]


@pytest.mark.parametrize("change", [[*DAGPAM, "--decoder-layers", "1"], ["--attention", "softmax"]])
def test_another_model_over_old_checkpoints_is_one_sentence(change, dagpam_checkpoint, parallel, tmp_path, capfd):
    shutil.copy(dagpam_checkpoint, tmp_path / "checkpoint_last.pt")
    more = ["--share-decoder-input-output-embed", "--optimizer", "adam", *change]
    capfd.readouterr()
    assert toy.gpam(*NMT, parallel, "--arch", "gpam_iwslt_de_en", "--save-dir", tmp_path, *more) == 2
    (complaint,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("gpam_fairseq")]
    assert complaint.startswith(f"gpam_fairseq train: {tmp_path}/checkpoint_last.pt holds another model")
    assert complaint.endswith("or start anew (another --save-dir, no --finetune-from-model)")


def test_help_ends_quietly_when_nobody_reads_on(monkeypatch, capfd):
    """As ``--help | head -1``; what is written after the reader has left would be a traceback."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        assert toy.gpam("--help") == 141
    assert not capfd.readouterr().err


@pytest.mark.parametrize(
    "command, more, wanted",
    [
        ("train", ["--arch", "gpam_nmt", "--max-tokens", 9], "no prepared data in '.*nowhere'; make them with .*"),
        (
            "train",
            ["--arch", "gpam_lm", "--task", "language_modeling", "--max-tokens", 9],
            "no prepared data in '.*nowhere'; make them with .*",
        ),
        ("generate", ["--path", "nothing.pt"], "no prepared data in '.*nowhere'; make them with .*"),
        ("eval-lm", ["--path", "nothing.pt"], "Model file not found: .*nothing.pt"),
    ],
)
def test_a_missing_corpus_or_checkpoint_is_one_sentence(command, more, wanted, lines, tmp_path, capfd):
    capfd.readouterr()
    saved = ["--save-dir", tmp_path] if command == "train" else []
    assert toy.gpam(command, lines if command == "eval-lm" else tmp_path / "nowhere", *more, *saved) == 2
    assert re.fullmatch(f"gpam_fairseq {command}: {wanted}", sentence(capfd.readouterr().err))


def test_unknown_command(capfd):
    assert toy.gpam("trian") == 2
    wanted = r"gpam_fairseq: unknown command 'trian'; did you mean 'train'\? \(wanted one of train, generate, .*\)"
    assert re.fullmatch(wanted, capfd.readouterr().err.strip())


@pytest.mark.parametrize("arguments, code", [((), 2), (("--help",), 0)])
def test_help_names_commands_and_options(arguments, code, capfd):
    assert toy.gpam(*arguments) == code
    out = capfd.readouterr().out
    assert all(word in out for word in ("train, generate, eval-lm", "--attention  ", "dagpam", "--lambda-neg  "))


def test_a_process_for_each_device_has_the_plugin_and_the_fast_step(lines, tmp_path):
    """Two, as fairseq starts them where two GPUs are seen; here they are said to be, and the processes use the CPU.
    Started again, by fairseq's own step, they go on."""
    program = """
import runpy, sys, torch
torch.cuda.device_count = lambda: 2
runpy.run_module("gpam_fairseq", run_name="__main__", alter_sys=True)
"""
    several = {
        "cpu": True,
        "distributed_world_size": 2,
        "distributed_backend": "gloo",
        "ddp_backend": "legacy_ddp",
    }
    arguments = toy.train_arguments(lines, tmp_path, "gpam_lm", attention="dagpam", **several)
    folder = tmp_path / "run"
    for fast, updates in (("1", 3), ("0", 5)):
        meeting = tmp_path / f"meeting{updates}"
        own = {"save_dir": folder, "max_update": updates, "distributed_init_method": f"file://{meeting}"}
        ran = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments), *toy.flags(own)],
            check=False,
            env={**os.environ, "GPAM_FAST": fast, "GLOO_SOCKET_IFNAME": "lo"},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        assert "training on 2 devices" in ran.stderr
        assert (folder / "backends.json").is_file() == (fast == "1")
        (folder / "backends.json").unlink(missing_ok=True)
        state = checkpoint_utils.load_checkpoint_to_cpu(str(folder / "checkpoint_last.pt"))
        assert state["optimizer_history"][-1]["num_updates"] == updates
        assert (f"Loaded checkpoint {folder}" in ran.stderr) == (updates == 5)


def test_as_a_program(parallel, tmp_path):
    """In a process of its own: the mistake's exit code, one line and no traceback; nothing was imported before, nor is
    wandb until fairseq asks for it."""
    wandb = pytest.importorskip("wandb")
    program = """
import atexit, runpy, sys
def asked():
    from fairseq.logging import progress_bar
    print("wandb" in sys.modules, progress_bar.wandb.__version__)
atexit.register(asked)
runpy.run_module("gpam_fairseq", run_name="__main__", alter_sys=True)
"""
    arguments = [*NMT, parallel, "--save-dir", tmp_path / "run", "--attention", "softmax", "--lambda-neg", 1]
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    wanted = "gpam_fairseq train: attention 'softmax' has no option 'lambda_neg' (it has no options)"
    assert sentence(done.stderr) == wanted
    assert done.stdout.split() == ["False", wandb.__version__]


@pytest.fixture
def hostile(tmp_path):
    trace, checkpoint = tmp_path / "was_here", tmp_path / "hostile.pt"
    torch.save({"model": {}, "extra": toy.Hostile(trace)}, checkpoint)
    torch.load(checkpoint, weights_only=False)  # the trap works where nobody guards it
    trace.rmdir()
    return checkpoint, trace


def test_the_loader_refuses_to_run_code(hostile, monkeypatch):
    checkpoint, trace = hostile
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # to no avail
    with pytest.raises(UsageError, match=r"hostile\.pt holds an object of type posix\.mkdir, and making it could run"):
        checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    assert not trace.exists()


@pytest.mark.parametrize("command", ["generate", "validate", "train"])
def test_fairseqs_commands_refuse_too(hostile, command, parallel, tmp_path, capfd):
    checkpoint, trace = hostile
    resumed = [*NMT, "--restore-file", checkpoint, "--save-dir", tmp_path]
    opened = [command, "--task", "translation", "--max-tokens", 300, "--path", checkpoint]
    assert toy.gpam(*(resumed if command == "train" else opened), parallel) == 2
    assert "could run any code" in capfd.readouterr().err
    assert not trace.exists()


def test_the_namespace_of_fairseqs_own_checkpoints_is_data(tmp_path):
    torch.save({"args": argparse.Namespace(arch="transformer", lr=[0.1])}, tmp_path / "stock.pt")
    loaded = checkpoint_utils.torch.load(tmp_path / "stock.pt")
    assert loaded["args"] == argparse.Namespace(arch="transformer", lr=[0.1])
