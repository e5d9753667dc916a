"""One run from its configuration to its record, in its own process, on a small text of one's own."""

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import shutil
import statistics
from pathlib import Path
from unittest import mock

from gpam_fairseq.trainer import fast
from gpam_fairseq.trainer.divergence import Diverged

import pytest
import sacrebleu
import torch
from fairseq.trainer import Trainer
from omegaconf import OmegaConf
from runs import TINY, composed, places, run_here, start_here, tiny, train_here, write_text

from gpam.attention.backends.calibration import FILE, Choices
from gpam.attention.backends.compiled import library
from gpam.errors import UsageError
from gpam_suite.common.files import file_sha256
from gpam_suite.common.lock import locked
from gpam_suite.common.stopping import Preempted
from gpam_suite.config.compose import folder_of
from gpam_suite.data import prepare
from gpam_suite.data.store import atomic
from gpam_suite.evaluate import language_model
from gpam_suite.evaluate.language_model import passages, perplexity, score_language_model, token_nll
from gpam_suite.evaluate.rescore import evaluate_again
from gpam_suite.evaluate.trained import checkpoint_of, open_trained
from gpam_suite.records import environment
from gpam_suite.records.folder import read_record, write_record
from gpam_suite.records.lines import read_history, read_scores
from gpam_suite.run import processes, worker
from gpam_suite.run import run as run_module
from gpam_suite.run.outcomes import TRAINED, RunFailed
from gpam_suite.run.progress import last_record
from gpam_suite.run.run import run
from gpam_suite.stats.curves import scored_update


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    """A finished tiny daGPAM language model: its configuration and folder."""
    cfg = tiny(tmp_path_factory.mktemp("lm"), "model=dagpam_trainable")
    run(cfg)
    return cfg, folder_of(cfg)


@pytest.fixture(scope="module")
def nmt(tmp_path_factory):
    cfg = tiny(tmp_path_factory.mktemp("nmt"), "model=dagpam", task="nmt")
    run_here(cfg)
    return cfg, folder_of(cfg)


def test_language_model_record_says_what_happened(lm):
    _, folder = lm
    record = read_record(folder)
    assert record["status"] == "finished"
    assert [record[name] for name in ("model", "dataset", "seed")] == ["dagpam_trainable", "local_lm", 1]
    assert set(record["attention_modules"].values()) == {"DaGPAM"}
    assert record["updates"] == 4
    assert record["protocol"]["context_window"] == 6
    assert 2**27 < record["memory"]["peak_bytes"] < 2**36  # torch alone takes more than the first
    assert record["parameters"]["mechanism"] == 2 * (8 * 8 + 2)  # two layers, W_Q^- of 8 x 8 and two lambdas
    assert sum(record["parameters"].values()) == 2 * record["parameters"]["total"]
    documents = read_scores(folder)
    total, words = sum(row["nll"] for row in documents), sum(row["words"] for row in documents)
    assert record["metrics"]["test_perplexity"] == pytest.approx(math.exp(total / words), rel=1e-6)
    history = read_history(folder)
    assert [row["update"] for row in history if row["split"] == "train"] == [1, 2, 3, 4]
    assert [row["update"] for row in history if row["split"] == "valid"] == [2, 4]
    paces = [row["tokens_per_second"] for row in history if row["split"] == "train" and row.get("tokens_per_second")]
    assert record["speed"]["train_tokens_per_second"] == statistics.median(paces)
    assert "paths" not in OmegaConf.load(folder / "config.yaml")
    for name in ("record.json", "metrics.jsonl", "scores.jsonl"):
        assert str(folder.parents[4]) not in (folder / name).read_text(encoding="utf-8"), "it gets published"


def test_translation_record_and_scores(nmt):
    """What sacreBLEU says of the hypotheses."""
    cfg, folder = nmt
    record = read_record(folder)
    assert "bpe/codes.txt" in record["checksums"]  # the sub-words
    assert set(record["attention_modules"]) == {
        "encoder.layers.0.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.encoder_attn",
    }
    prepared = prepare(cfg.dataset, cfg.preprocessing, cfg.paths)
    hypotheses = (folder / "hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(hypotheses) == len(read_scores(folder)) == 12
    references = prepared.reference("test").read_text(encoding="utf-8").split("\n")[:-1]
    for name in ("bleu", "chrf", "ter"):
        theirs = getattr(sacrebleu, f"corpus_{name}")(hypotheses, [references]).score
        assert record["metrics"][f"test_{name}"] == theirs


@pytest.mark.parametrize("changed", [True, False])
def test_a_finished_run_is_skipped(lm, changed, monkeypatch, caplog):
    """And it is said where its mechanism's code is another now."""
    cfg, folder = lm
    monkeypatch.setattr(environment, "changed", lambda file, since: changed)
    before = (folder / "record.json").stat().st_mtime_ns
    with caplog.at_level("INFO"):
        assert run(cfg) == read_record(folder)["metrics"]["test_perplexity"]
    assert (folder / "record.json").stat().st_mtime_ns == before
    assert changed == (f"mechanisms/{cfg.model.attention}.py has changed since; to train again delete" in caplog.text)


def test_the_folder_above_a_run_is_told_apart(lm):
    cfg, folder = lm
    with pytest.raises(UsageError, match=f"{folder.parent.name} is not the folder .*, for instance .*/{folder.name};"):
        open_trained(folder.parent, cfg.paths)


def test_two_processes_do_not_share_a_folder(lm):
    _, folder = lm
    with locked(folder), pytest.raises(UsageError, match="another process"), locked(folder, wait=False):
        pass
    with locked(folder, wait=False):
        pass


def test_a_lock_that_is_removed_before_it_is_had_is_made_again(tmp_path, monkeypatch):
    """As by a run that is refused while the next one waits."""
    stock = fcntl.flock

    def removed_meanwhile(*given):
        monkeypatch.setattr(fcntl, "flock", stock)
        (tmp_path / ".lock").unlink()
        stock(*given)

    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    with locked(tmp_path) as ours:
        with pytest.raises(UsageError, match="another process"), locked(tmp_path, wait=False):
            pass
        assert ours()


def test_a_lock_that_cannot_be_had_is_named(tmp_path, monkeypatch):
    """A link in its place is not opened; a file system may have none."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link, wanted a plain file; remove it"), locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "elsewhere").exists()

    def flock(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UsageError, match="a file system without locks"), locked(tmp_path):
        pass
    with pytest.raises(UsageError, match="a file system without locks"), atomic.unfinished(tmp_path, "x"):
        pass


def evaluated_again(cfg, folder, **evaluation):
    """As ``scripts/evaluate.py`` does it; what it wrote, of a run that was evaluated so once."""
    keys = ("checkpoint", "context_window", "beam", "length_penalty", "max_tokens")
    node = dict.fromkeys(keys) | evaluation
    evaluate_again(OmegaConf.create({"run": str(folder), "threads": 1, "evaluation": node, "paths": cfg.paths}))
    (found,) = folder.glob("evaluations/*/evaluation.json")
    return json.loads(found.read_text())


def test_a_run_is_evaluated_again_by_another_protocol_and_a_cut_off_checkpoint_is_not(lm, tmp_path):
    cfg, folder = lm
    mine = tmp_path / "run"
    shutil.copytree(folder, mine)
    best = mine / "checkpoints" / "checkpoint_best.pt"

    assert evaluated_again(cfg, mine, context_window=0)["protocol"]["context_window"] == 0
    with pytest.raises(UsageError, match="does not apply"):
        evaluated_again(cfg, mine, beam=4)
    best.write_bytes(best.read_bytes()[:-1000])
    with pytest.raises(UsageError, match="cannot be read"):
        evaluated_again(cfg, mine, checkpoint=str(best))
    best.unlink()
    with pytest.raises(UsageError, match="no checkpoint at"):
        evaluated_again(cfg, mine)


@pytest.fixture
def spoilt_at_last(monkeypatch):
    """The last of four updates makes the model far too sure, so that the best checkpoint is that of the second."""
    train_step = Trainer.train_step

    def spoiling(trainer, *args, **options):
        output = train_step(trainer, *args, **options)
        if trainer.get_num_updates() == 4:
            for parameter in trainer.model.parameters():
                parameter.data.mul_(10)
        return output

    monkeypatch.setattr(Trainer, "train_step", spoiling)


def test_the_last_checkpoint_is_scored_where_the_protocol_says_so(tmp_path, spoilt_at_last):
    """And the best one, which is another, afterwards."""
    cfg = tiny(tmp_path, "evaluation.checkpoint=last")
    run_here(cfg)
    metrics = read_record(folder_of(cfg))["metrics"]
    again = evaluated_again(cfg, folder_of(cfg), checkpoint="best")["metrics"]
    for split in ("valid", "test"):
        assert again[f"{split}_perplexity"] < 0.5 * metrics[f"{split}_perplexity"]


def test_a_recurrent_network_is_trained_and_scored(tmp_path):
    sizes = [f"++fairseq.model.decoder_{size}=8" for size in ("embed_dim", "hidden_size", "out_embed_dim")]
    own = ["dataset=local_lm", "recipe=ptb_lstm", "model=lstm", "++fairseq.task.tokens_per_sample=16"]
    own += ["evaluation.context_window=6"]
    text = write_text(tmp_path / "text")
    cfg = composed(*TINY, *own, *sizes, *places(tmp_path), f"dataset.folder={text}")
    run_here(cfg)
    record = read_record(folder_of(cfg))
    assert (record["status"], record["attention_modules"], record["parameters"]["attention"]) == ("finished", {}, 0)
    assert sum(row["nll"] for row in read_scores(folder_of(cfg))) > 0
    again = evaluated_again(cfg, folder_of(cfg))
    assert again["metrics"]["test_perplexity"] == record["metrics"]["test_perplexity"]


def _spoil_configuration(run, _):
    path = run / "config.yaml"
    path.write_text(path.read_text().replace("dropout: 0.1", "dropout: 0.2").replace("threads: 1", "threads: 2"))


def _spoil_weights(run, _):
    best = run / "checkpoints" / "checkpoint_best.pt"
    state = torch.load(best, weights_only=True)
    state["model"] = {name: tensor * 1.5 for name, tensor in state["model"].items()}
    torch.save(state, best)


def _spoil_text(_, text):
    lines = (text / "test.txt").read_text().splitlines(keepends=True)
    (text / "test.txt").write_text("".join(lines[1:]))


def _spoil_dictionary(run, _):
    record = read_record(run).data
    write_record(run, {**record, "checksums": {**record["checksums"], "bin/dict.txt": "0" * 64}})


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_spoil_configuration, "config.yaml was changed: its hash is"),
        (_spoil_weights, "is not the checkpoint that the numbers in"),
        (_spoil_text, "has changed since it was trained"),
        (_spoil_dictionary, "dict.txt is not the one that"),
    ],
)
def test_what_changed_under_a_run_is_not_read_again(lm, tmp_path, spoil, sentence):
    """Evaluation, export, analysis and perturbation open a run by one function."""
    cfg, folder = lm
    mine, text = tmp_path / "run", Path(cfg.dataset.folder)
    shutil.copytree(folder, mine)
    test = (text / "test.txt").read_text()
    assert open_trained(mine, cfg.paths).model() is not None
    spoil(mine, text)
    try:
        with pytest.raises(UsageError, match=sentence):
            open_trained(mine, cfg.paths).model()
    finally:
        (text / "test.txt").write_text(test)


def test_a_checkpoint_of_another_data_type_or_model_is_refused(lm, tmp_path):
    """Also where the parameters are the same."""
    cfg, folder = lm
    run, other = open_trained(folder, cfg.paths), str(tmp_path / "other.pt")
    state = torch.load(folder / "checkpoints" / "checkpoint_best.pt", weights_only=True)
    for dtype in (torch.float16, torch.float64, torch.int8, torch.complex64):
        torch.save({**state, "model": {name: tensor.to(dtype) for name, tensor in state["model"].items()}}, other)
        with pytest.raises(UsageError, match=f"as {dtype}.*, not as training wrote it"):
            run.model(other)
    torch.save({**state, "model": {name: tensor.to_sparse() for name, tensor in state["model"].items()}}, other)
    with pytest.raises(UsageError, match=r"torch\.sparse_coo"):
        run.model(other)
    for content in (None, {"decoder.embed_tokens.weight": [0.5]}):
        torch.save({**state, "model": content}, other)
        with pytest.raises(UsageError, match="it holds no model's parameters"):
            run.model(other)
    torch.save(state, other, _use_new_zipfile_serialization=False)
    with pytest.raises(UsageError, match="a format that holds no checksums"):
        run.model(other)
    for key, value in (("attention", "softmax"), ("lambda_neg", 0.3), ("decoder_normalize_before", False)):
        torch.save({**state, "cfg": {**state["cfg"], "model": {**state["cfg"]["model"], key: value}}}, other)
        with pytest.raises(UsageError, match=f"belongs to another model: its {key} is {value}"):
            run.model(other)


def test_a_cut_off_checkpoint_stops_a_resumed_run_with_one_sentence(lm):
    cfg, whole = lm
    other = OmegaConf.merge(cfg, {"seed": 7})
    folder = folder_of(other)
    (folder / "checkpoints").mkdir(parents=True)
    content = (whole / "checkpoints" / "checkpoint_last.pt").read_bytes()
    cut = folder / "checkpoints" / "checkpoint_last.pt"
    cut.write_bytes(content[: len(content) // 2])
    with pytest.raises(UsageError, match=r"checkpoint_last\.pt cannot be read, it seems cut off"):
        run_here(other)
    assert not (folder / "record.json").exists()
    cut.unlink()
    run_here(other)
    assert read_record(folder)["status"] == "finished"


def test_a_resumed_run_keeps_the_backends_that_it_began_with(lm):
    """Another choice has other last bits."""
    cfg, whole = lm
    longer = OmegaConf.merge(cfg, {"fairseq": {"optimization": {"max_update": 6}}})
    folder = folder_of(longer)
    (folder / "checkpoints").mkdir(parents=True)
    shutil.copy(whole / "checkpoints" / "checkpoint_last.pt", folder / "checkpoints")
    began_with = Choices(None, {"of another machine": ["materialised"]})
    began_with.write(folder / FILE)
    run_here(longer)
    record = read_record(folder)
    assert record["updates"] == 6 and Choices.read(folder / FILE) == began_with
    assert record["hardware"]["attention_backends"] == str(began_with)


@pytest.mark.parametrize(("built", "device"), [(object(), True), (None, True), (None, False)])
def test_a_run_on_a_cpu_says_where_its_attention_is_not_compiled(lm, built, device, monkeypatch, caplog):
    """As after an update of the code without make setup."""
    cfg = OmegaConf.merge(lm[0], {"seed": 9, "fairseq": {"common": {"cpu": device}}})
    monkeypatch.setattr(library, "load", lambda: built)
    monkeypatch.setattr(run_module, "_work", mock.Mock(side_effect=Preempted))
    with pytest.raises(Preempted):
        run_module._run(cfg, folder_of(cfg), prepare(cfg.dataset, cfg.preprocessing, cfg.paths), lambda: True)
    assert ("make setup builds it" in caplog.text) == (built is None and device)


def test_a_worker_that_crashes_behind_its_work_loses_nothing(tmp_path, monkeypatch):
    """As one that the system kills while it ends: its outcome is there."""

    def crashing(*given):
        worker = start_here(*given)
        worker.process.poll = worker.process.wait = lambda: -9
        worker.process.returncode = -9
        return worker

    monkeypatch.setattr(processes, "_start", crashing)
    cfg = tiny(tmp_path)
    assert run(cfg) == read_record(folder_of(cfg))["metrics"]["test_perplexity"]


def test_a_last_checkpoint_that_is_not_finite_is_a_diverged_run(lm, monkeypatch):
    """Its best one may be fine."""
    cfg, folder = lm
    read = worker.read_checkpoint

    def spoilt(path):
        state = read(path)
        next(iter(state["model"].values())).fill_(float("nan"))
        return state

    monkeypatch.setattr(worker, "read_checkpoint", spoilt)
    with pytest.raises(Diverged, match=r"update 4: parameter .* is not finite behind it, the last one"):
        worker.main(folder, prepare(cfg.dataset, cfg.preprocessing, cfg.paths).folder)


def test_a_model_to_start_from_that_is_not_there_is_refused(tmp_path):
    cfg = tiny(tmp_path, "++fairseq.checkpoint.finetune_from_model=nowhere")
    with pytest.raises(UsageError, match="finetune_from_model: there is no file 'nowhere'"):
        run(cfg)
    assert not folder_of(cfg).exists()


def test_what_a_model_starts_from_is_part_of_what_its_scores_are_of(lm, tmp_path):
    key, start = "fairseq.checkpoint.finetune_from_model", tmp_path / "start.pt"
    state = torch.load(checkpoint_of(lm[1], "best"), weights_only=False)
    configurations = [tiny(tmp_path, "model=dagpam_trainable", f"++{key}={start}", f"seed={seed}") for seed in (2, 3)]
    for cfg in configurations:
        torch.save({**state, "of": cfg.seed}, start)
        run_here(cfg)
        assert read_record(folder_of(cfg))["data"]["begins_from"] == {key: file_sha256(start)}
        run(cfg)  # skipped
    one, other = (read_record(folder_of(cfg)) for cfg in configurations)
    assert [name for name, *_ in one.scored_otherwise(other)] == [f"checksum of {key}"]
    with pytest.raises(UsageError, match=f"began from another file: {key} has changed since; put it back"):
        run(configurations[0])
    start.unlink()
    assert run(configurations[0]) == one.headline


@pytest.mark.parametrize("nats", [500, 1000])
def test_a_finite_model_without_a_score_is_a_diverged_run(lm, nats, monkeypatch):
    """Beyond what a record holds, and beyond float64."""
    cfg, folder = lm
    monkeypatch.setattr(worker, "evaluate", lambda *_: ({"test_perplexity": perplexity(nats, 1)}, {}))
    with pytest.raises(Diverged, match=r"update 4: test_perplexity is (1\.4\d+e\+217|inf)"):
        worker.main(folder, prepare(cfg.dataset, cfg.preprocessing, cfg.paths).folder)


def test_a_run_that_fails_or_diverges_leaves_a_record_that_says_so(lm, monkeypatch):
    cfg, _ = lm
    diverging = OmegaConf.merge(cfg, {"fairseq": {"optimization": {"lr": [1e38], "clip_norm": 0.0}}})
    with pytest.raises(RunFailed):
        run_here(diverging)
    record = read_record(folder_of(diverging))
    assert record["status"] == "diverged"
    assert re.match(r"update \d+: (parameter|the (output|gradient) of) \S+ is not finite", record["reason"])
    assert record["hardware"]["fast_products"] is None, "not known of it"
    failing = OmegaConf.merge(cfg, {"fairseq": {"dataset": {"max_tokens_valid": 2}}})
    with pytest.raises(RunFailed):
        run_here(failing)
    assert read_record(folder_of(failing))["status"] == "failed"
    found = []
    monkeypatch.setattr(run_module, "_work", lambda _, folder, *__: found.append(last_record(folder)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_here(failing)
    assert found == [None], "while it is tried again"


@pytest.mark.parametrize("wanted", [True, False])
def test_the_fast_step_is_taken_where_the_configuration_says_so(lm, monkeypatch, wanted):
    taken = []

    @contextlib.contextmanager
    def step():
        taken.append(True)
        yield

    monkeypatch.setattr(fast, "fast_step", step)
    changed = {"seed": 9, "gpu": {"fast": wanted}, "fairseq": {"optimization": {"max_update": 1}}}
    run_here(OmegaConf.merge(lm[0], changed))
    assert bool(taken) == wanted


def test_perplexity_is_what_fairseq_computes(lm):
    """Our scorer against fairseq's own eval_lm on the same checkpoint, with and without a context window."""
    from fairseq import tasks, utils
    from fairseq_cli.eval_lm import eval_lm

    cfg, folder = lm
    trained = open_trained(folder, cfg.paths)
    task, model, own = trained.task, trained.model(), trained.complete
    for context in (0, 6):
        ours = score_language_model(model, task, trained.prepared, "test", context_window=context, max_tokens=64)
        narrower = OmegaConf.merge(own.task, {"tokens_per_sample": own.task.tokens_per_sample - context})
        stock_task = tasks.setup_task(narrower)
        dataset = stock_task.load_dataset("test") or stock_task.dataset("test")
        batches = stock_task.eval_lm_dataloader(
            dataset,
            max_tokens=64,
            max_positions=utils.resolve_max_positions(model.max_positions()),
            num_workers=0,
            context_window=context,
        )
        theirs = eval_lm([model], stock_task.source_dictionary, batches)
        assert ours.nll / ours.tokens / math.log(2) == pytest.approx(float(theirs["loss"]), rel=1e-5)


def test_text_without_marked_documents_is_scored_by_passage(lm, monkeypatch):
    cfg, folder = lm
    monkeypatch.setattr(language_model, "PASSAGE", 30)
    trained = open_trained(folder, cfg.paths)
    assert trained.prepared.documents("test") == [0]
    lines = trained.prepared.words_by_line("test")
    found = score_language_model(
        trained.model(), trained.task, trained.prepared, "test", context_window=0, max_tokens=64
    )
    assert [unit["passage"] for unit in found.units] == list(range(len(passages(lines))))
    assert len(found.units) > 2 and all(unit["words"] >= 30 for unit in found.units[:-1])
    assert sum(unit["words"] for unit in found.units) == found.words
    assert math.fsum(unit["nll"] for unit in found.units) == pytest.approx(found.nll, rel=1e-12)


def test_text_with_marked_documents_is_scored_by_document(lm, monkeypatch):
    cfg, folder = lm
    trained = open_trained(folder, cfg.paths)
    monkeypatch.setattr(type(trained.prepared), "documents", lambda prepared, split: [0, 4, 9])
    given = {"context_window": 0, "max_tokens": 64}
    found = score_language_model(trained.model(), trained.task, trained.prepared, "test", **given)
    words = trained.prepared.words_by_line("test")
    assert [unit["document"] for unit in found.units] == [0, 1, 2]
    assert [unit["words"] for unit in found.units] == [sum(words[:4]), sum(words[4:9]), sum(words[9:])]
    assert sum(unit["nll"] for unit in found.units) == pytest.approx(found.nll)


def test_a_run_that_stopped_early_is_not_trained_on(tmp_path, monkeypatch):
    """Neither where it is finished, nor where it has only been trained."""
    words = ["++fairseq.checkpoint.patience=1", "++fairseq.optimization.lr=[1.0e-9]"]
    cfg = tiny(tmp_path, *words, "++fairseq.optimization.max_update=40")
    folder = train_here(cfg)
    done = read_history(folder)[-1]["update"]
    assert done < 40
    with monkeypatch.context() as patch:
        patch.setattr(worker, "_train", lambda *_: pytest.fail("it trains"))
        assert train_here(cfg) == folder and read_history(folder)[-1]["update"] == done
    for path in (folder / "checkpoints").glob("*.pt"):
        path.unlink()
    monkeypatch.setattr("fairseq.distributed.utils.call_main", lambda *_: pytest.fail("it trains"))
    with pytest.raises(pytest.fail.Exception, match="it trains"):
        train_here(cfg)
    assert not (folder / "checkpoints" / TRAINED).exists()  # or what is trained in part would be scored


def test_a_passage_has_whole_lines_and_as_few_as_make_its_words(monkeypatch):
    assert language_model.passages([400] * 6) == [0, 3]  # a thousand
    monkeypatch.setattr(language_model, "PASSAGE", 10)
    assert passages([4, 6, 5, 4, 1, 12, 3]) == [0, 2, 5, 6]
    assert passages([40]) == passages([]) == [0]


class Echo(torch.nn.Module):
    """A stand-in whose logits depend on everything it was shown; it counts what it computes."""

    def __init__(self):
        super().__init__()
        self.decoder = self
        self.table = torch.nn.Embedding(11, 11)
        self.read = self.projected = 0

    def extract_features(self, tokens, _):
        self.read += tokens.numel()
        return self.table(tokens).cumsum(1), None

    def output_layer(self, features):
        self.projected += features[..., 0].numel()
        return features

    def get_normalized_probs(self, net_output, log_probs, sample):
        return torch.log_softmax(net_output[0], -1)


@torch.no_grad()
@pytest.mark.parametrize("window", [0, 3, 7])
def test_context_window_scores_every_token_once_with_its_context(window):
    """Against one forward pass a token, each with exactly the context that the protocol gives it; without a window
    every token is computed once."""
    torch.manual_seed(0)
    model, stream, step = Echo(), torch.randint(0, 11, (37,)), 8 - window
    scores = token_nll(model, stream, eos=2, tokens_per_sample=8, context_window=window, max_tokens=20)
    assert model.projected == len(scores) == 37
    assert model.read == 37 + sum(min(start, window) for start in range(0, 37, step))
    shifted = torch.cat([torch.tensor([2]), stream[:-1]])
    for index in range(37):
        block = index // step * step
        logits, _ = model.extract_features(shifted[max(0, block - window) : index + 1][None], None)
        expected = -torch.log_softmax(logits[0, -1], -1)[stream[index]]
        assert float(scores[index]) == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("window", [-1, 8])
def test_a_context_that_leaves_a_block_nothing_to_score_is_refused(window):
    with pytest.raises(ValueError, match=f"context_window: got {window}, wanted 0 to 7"):
        token_nll(Echo(), torch.arange(3), eos=2, tokens_per_sample=8, context_window=window, max_tokens=20)


def test_the_best_checkpoint_is_scored(tmp_path, spoilt_at_last):
    cfg = tiny(tmp_path)
    run_here(cfg)
    record, best = read_record(folder_of(cfg)), folder_of(cfg) / "checkpoints" / "checkpoint_best.pt"
    assert (scored_update(record), record["updates"]) == (2, 4) and record.checkpoint == file_sha256(best)


def test_perplexity_is_by_word_and_token_perplexity_by_token(tmp_path):
    cfg = tiny(tmp_path, "preprocessing.bpe_size=5")  # words are several tokens
    run_here(cfg)
    found = read_record(folder_of(cfg))["metrics"]
    assert found["test_loss"] == pytest.approx(math.log(found["test_perplexity"]))
    assert found["test_token_perplexity"] < found["test_perplexity"]
    score = language_model.LanguageModelScore(6.0, 3, 2, [])
    assert (score.perplexity, score.token_perplexity) == pytest.approx((math.exp(3), math.exp(2)))


def test_a_run_on_the_processor_names_no_gpu(tmp_path, monkeypatch):
    """Whatever became of it."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
    monkeypatch.setattr(run_module, "_work", lambda *_: {"status": "failed", "reason": "nothing is trained here"})
    cfg = tiny(tmp_path)
    with pytest.raises(RunFailed, match="nothing is trained here"):
        run(cfg)
    hardware = read_record(folder_of(cfg))["hardware"]
    assert (hardware["gpu"], hardware["gpus"]) == (None, 0)
