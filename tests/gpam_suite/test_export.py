"""An exported model gives what its run's evaluation gave; a folder that is not whole is refused in one sentence."""

import shutil
from pathlib import Path

import pytest
import torch
from runs import composed, places, run_here, tiny

from gpam.errors import UsageError
from gpam_suite.common import strict_json
from gpam_suite.config.compose import folder_of
from gpam_suite.records.folder import read_record
from gpam_suite.tools.export import export
from gpam_suite.tools.pretrained import CONFIG, WEIGHTS, _drawn, load


def exported(base: Path, task: str, *overrides: str) -> tuple[Path, Path]:
    """A tiny trained run and its exported folder."""
    cfg = tiny(base, *overrides, task=task)
    run_here(cfg)
    output = base / "model"
    export(composed(f"run={folder_of(cfg)}", f"output={output}", *places(base), root="export"))
    return folder_of(cfg), output


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    own = ["model=dagpam_trainable", "++fairseq.model.share_decoder_input_output_embed=true"]
    return exported(tmp_path_factory.mktemp("export_lm"), "lm", *own)


@pytest.fixture(scope="module")
def nmt(tmp_path_factory):
    longer = ["++fairseq.optimization.max_update=150", "++fairseq.lr_scheduler.warmup_updates=10"]
    longer += ["++fairseq.dataset.validate_interval_updates=150", "++fairseq.checkpoint.save_interval_updates=150"]
    own = ["model=dagpam", "preprocessing.tokenizer=moses"]
    return exported(tmp_path_factory.mktemp("export_nmt"), "nmt", *longer, *own)


def test_language_model_gives_the_perplexity_of_its_run(lm):
    folder, output = lm
    text = (output.parent / "text-lm" / "test.txt").read_text(encoding="utf-8")
    metrics = read_record(folder)["metrics"]
    model = load(output)
    assert model.perplexity(text) == pytest.approx(metrics["test_perplexity"], rel=1e-6)
    score = model.score(text)
    assert score.nll / score.words == pytest.approx(metrics["test_loss"], rel=1e-6)
    assert model.perplexity(text.removesuffix("\n")) == model.perplexity(text)


def test_translation_model_gives_the_hypotheses_of_its_run(nmt):
    folder, output = nmt
    sentences = (output.parent / "text-nmt" / "test.cs").read_text(encoding="utf-8").split("\n")[:-1]
    wanted = (folder / "hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
    model = load(output)
    assert len(set(wanted)) > 1
    assert model.translate(sentences) == wanted
    assert model.translate(sentences[0]) == wanted[0]
    assert model.translate(["", sentences[1]]) == ["", wanted[1]]


def test_the_folder_names_no_place_and_its_card_says_what_it_is(lm, nmt):
    for folder, output in (lm, nmt):
        record = read_record(folder)
        card = (output / "README.md").read_text(encoding="utf-8")
        assert len({path.stat().st_mode for path in output.iterdir()}) == 1, "all may be read by whom it is given to"
        for part in (record["model_label"], record["dataset_label"], f"seed {record['seed']}", "Licence of the data"):
            assert part in card
        assert all(name in card for name in record["metrics"])
        for path in output.iterdir():
            assert str(output.parent).encode() not in path.read_bytes(), path.name


def test_command_line(lm, nmt, command):
    text = (lm[1].parent / "text-lm" / "test.txt").read_bytes()
    _, printed, _ = command("use.py", "perplexity", lm[1], given=text)
    assert printed.startswith(f"perplexity {read_record(lm[0])['metrics']['test_perplexity']:.2f} by word")
    text = (nmt[1].parent / "text-nmt" / "test.cs").read_bytes()
    _, printed, _ = command("use.py", "translate", nmt[1], given=text)
    assert printed == (nmt[0] / "hypotheses.txt").read_text(encoding="utf-8")
    code, printed, said = command("use.py", "translate")
    assert (code, printed) == (2, "") and "the following arguments are required: folder" in said
    words = ["--tokens", 30, "--temperature", 0.8, "--top-k", 5, "--seed", 3]
    code, printed, _ = command("use.py", "write", lm[1], *words, given=b"kan\n")
    assert (code, printed) == (0, load(lm[1]).write("kan", 30, 0.8, 5, seed=3) + "\n")


def test_a_language_model_writes_by_its_own_probabilities(lm):
    """The likeliest text, token by token against the model's scores; a seed decides all of a drawn one."""
    model = load(lm[1])
    words = model.source_dictionary
    greedy = model.write("", tokens=8, temperature=0)
    assert greedy == model.write("", tokens=8, temperature=2, top_k=1, seed=9)
    assert greedy == model.write("", tokens=8, temperature=1e-320)
    stream, filling = torch.tensor([words.eos()]), [i for i, name in enumerate(words.symbols) if "madeup" in name]
    for _ in range(8):
        logits = model.model(stream[None])[0][0, -1].detach()
        logits[[words.bos(), words.pad(), words.unk(), *filling]] = -torch.inf
        stream = torch.cat([stream, logits.argmax()[None]])
    names = [words[index] for index in stream[1:]]
    text = " ".join("\n" if name == "</s>" else name for name in names) + " "
    assert "".join(greedy.split()) == "".join(text.replace("@@ ", "").split())
    drawn = [model.write("kan", tokens=60, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0].startswith("kan") and "<" not in drawn[0] and filling and "madeup" not in "".join(drawn)
    flat = torch.log_softmax(torch.zeros(4), 0)
    draw = torch.Generator().manual_seed(0)
    assert {int(_drawn(flat + torch.tensor([2.0, 1.0, 0.0, -1.0]), 1.0, 2, draw)) for _ in range(200)} == {0, 1}
    for wrong in ({"tokens": 0}, {"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}):
        with pytest.raises(UsageError, match="wanted at least 1, 0, 0 and 0"):
            model.write(**wrong)


def test_what_a_model_cannot_do_is_said(lm, nmt):
    with pytest.raises(UsageError, match="is a translation model: it translates, and writes"):
        load(nmt[1]).write("a")
    with pytest.raises(UsageError, match="is a language model: it gives perplexity"):
        load(lm[1]).translate("a")
    with pytest.raises(UsageError, match="is a translation model: it translates"):
        load(nmt[1]).perplexity("a")
    with pytest.raises(UsageError, match="nowhere holds no exported model"):
        load("nowhere")
    with pytest.raises(UsageError, match="the text is empty"):
        load(lm[1]).perplexity("")
    with pytest.raises(UsageError, match=r"sentence 1 has \d+ sub-words"):
        load(nmt[1]).translate("a " * 5000)


def change(folder: Path, act) -> None:
    """Let ``act`` change the configuration of a folder, as somebody does who makes a new checksum too."""
    config = strict_json.read_summed((folder / CONFIG).read_text(encoding="utf-8"))
    act(config)
    (folder / CONFIG).write_text(strict_json.summed(config), encoding="utf-8")


def other_lambdas(folder: Path) -> None:
    text = (folder / CONFIG).read_text(encoding="utf-8")
    assert text.count('"lambda_neg": 0.5') == 1
    (folder / CONFIG).write_text(text.replace('"lambda_neg": 0.5', '"lambda_neg": 0.6'), encoding="utf-8")


def cut(folder: Path) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (cut, "model.safetensors is cut off or not the file that was exported"),
        (lambda folder: (folder / "dict.txt").write_text("a 1\n"), "dict.txt is cut off or not the file"),
        (lambda folder: (folder / "codes.txt").unlink(), "codes.txt is missing"),
        (
            lambda folder: change(folder, lambda config: config["fairseq"]["model"].update(decoder_layers=1)),
            "parameters differ from config.json",
        ),
        (
            lambda folder: change(folder, lambda config: config["evaluation"].pop("context_window")),
            "config.json has at evaluation: 'context_window' is a required property",
        ),
        (
            lambda folder: change(folder, lambda config: config["evaluation"].update(context_window=16)),
            "has a context_window of 16, wanted less than tokens_per_sample=16",
        ),
        (
            lambda folder: change(folder, lambda config: config.update(task="nmt")),
            "config.json has at evaluation: 'beam' is a required property",
        ),
        (lambda folder: change(folder, lambda config: config.update(format=99)), "is not of format 2"),
        (other_lambdas, "config.json: its checksum is not the one it was written with"),
        (lambda folder: (folder / CONFIG).write_text("{"), "config.json is not JSON"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(lm, tmp_path, spoil, sentence):
    folder = tmp_path / "model"
    shutil.copytree(lm[1], folder)
    spoil(folder)
    with pytest.raises(UsageError, match=sentence) as refused:
        load(folder)
    assert "\n" not in str(refused.value)


def test_a_folder_that_is_not_empty_is_not_written_into(lm):
    with pytest.raises(UsageError, match="is not an empty folder"):
        export(composed(f"run={lm[0]}", f"output={lm[1]}", root="export"))
