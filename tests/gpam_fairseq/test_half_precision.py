"""Half precision, as far as a CPU shows it: what is resumed, what a loss is summed up in, what --bf16 is taken for."""

from types import SimpleNamespace

from gpam_fairseq.trainer import checkpoints
from gpam_fairseq.trainer.checkpoints import exact_checkpoints

import pytest
import torch
import toy
from fairseq import checkpoint_utils, options
from fairseq.criterions.adaptive_loss import AdaptiveLoss

PADDING = 1
DAGPAM = {"attention": "dagpam", "lambdas": "trainable", "dropout": 0.1, "bf16": True, "cpu": True}


def trained(lines, folder, *updates):
    """Our part of the last checkpoint of a training in bfloat16 that goes on from one of ``updates`` to the next."""
    for last in updates:
        with exact_checkpoints(folder):
            assert toy.train(lines, folder, "gpam_lm", max_update=last, disable_validation=True, **DAGPAM) == 0
    state = checkpoint_utils.load_checkpoint_to_cpu(str(folder / "checkpoint_last.pt"))
    return state["model"], state["extra_state"]["gpam_suite"]["float32"]


def test_a_resumed_training_goes_on_with_the_float32_parameters(lines, tmp_path):
    model, whole = trained(lines, tmp_path / "whole", 6)
    _, stopped = trained(lines, tmp_path / "stopped", 3, 6)
    assert all(torch.equal(own, own.bfloat16().to(own.dtype)) for own in model.values())  # fairseq's part is rounded
    assert any(not torch.equal(own, own.bfloat16().float()) for own in whole)
    assert all(torch.equal(own, other) for own, other in zip(whole, stopped, strict=True))


def test_a_resumed_training_knows_what_it_waited_for_and_how_far_its_losss_scale_was():
    """Early stopping's count, and in float16 the updates since the scale was last changed."""
    counts = {"_iter": 7, "_last_overflow_iter": 3, "_last_rescale_iter": 5, "_overflows_since_rescale": 1}
    kept = {"early_stop": {"best": 1.5, "num_runs": 2}, "scaler": counts}
    extra = {"gpam_suite": kept, "train_iterator": {"iterations_in_epoch": 4}}
    scaler, stops_early = SimpleNamespace(**dict.fromkeys(counts, 0)), SimpleNamespace()
    load_checkpoint = checkpoints._recalling(lambda trainer, **_: extra, stops_early)
    assert load_checkpoint(SimpleNamespace(optimizer=SimpleNamespace(scaler=scaler)), reset_meters=True) is extra
    assert not vars(stops_early) and set(vars(scaler).values()) == {0}  # of a model to start from, they are another's
    assert load_checkpoint(SimpleNamespace(optimizer=SimpleNamespace(scaler=scaler))) is extra
    assert vars(stops_early) == kept["early_stop"] and vars(scaler) == counts


def test_a_checkpoint_is_copied_where_links_are_not_to_be_had(tmp_path, monkeypatch):
    (tmp_path / "one").write_bytes(b"weights")
    monkeypatch.setattr(checkpoints.os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
    assert checkpoints._copy(str(tmp_path / "one"), str(tmp_path / "other"))
    assert (tmp_path / "other").read_bytes() == b"weights" and len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_adaptive_loss_is_summed_up_in_float32(dtype):
    """Of 20,000 tokens it is more than float16's largest number."""
    task = ["--task", "language_modeling", "--arch", "gpam_lm", *toy.sizes("decoder")]
    model = toy.build(*task, "--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "8").to(dtype).eval()
    features = 30 * torch.randn(20, 1000, 32, generator=torch.Generator().manual_seed(0)).to(dtype)
    target = torch.randint(4, 12, (20, 1000), generator=torch.Generator().manual_seed(1))
    target[0, :7] = PADDING

    def read(**_):
        return (features,)

    read.decoder, read.get_targets = model.decoder, lambda sample, _: sample["target"]
    criterion = AdaptiveLoss(SimpleNamespace(target_dictionary=toy.dictionary()), sentence_avg=False)
    loss, size, logged = criterion(read, {"net_input": {}, "target": target})
    assert loss.dtype == logged["loss"].dtype == torch.float32 and size == logged["ntokens"] == 20000 - 7
    clusters = zip(*model.decoder.adaptive_softmax(features, target.flatten()), strict=True)
    wanted = 0.0
    for logits, classes in clusters:
        counted = classes != PADDING  # in a cluster behind the first too, where it is a word: so is fairseq's formula
        logs = torch.log_softmax(logits.double(), -1)
        wanted -= float(logs[torch.arange(len(classes)), classes][counted].detach().sum())
    assert wanted > 65504 and float(loss.detach()) == pytest.approx(wanted, rel=1e-5)


def test_bfloat16_is_no_tpu():
    """As fairseq's command line has it."""
    for words, tpu in ((["--bf16"], False), (["--bf16", "--tpu"], True), ([], False)):
        parser = options.get_training_parser()
        arguments = ["data", "--task", "language_modeling", "--arch", "gpam_lm", *words]
        assert options.parse_args_and_arch(parser, arguments).tpu == tpu


def test_a_checkpoint_remembers_patience_and_what_the_scale_has_counted():
    scaler = SimpleNamespace(loss_scale=4.0, _iter=7, _last_rescale_iter=5)
    trainer = SimpleNamespace(optimizer=SimpleNamespace(fp32_params=[torch.ones(2)], scaler=scaler))
    state_dict = checkpoints._remembering(lambda _: {"extra_state": {}}, SimpleNamespace(best=1.5, num_runs=2))
    kept = state_dict(trainer)["extra_state"]["gpam_suite"]
    assert kept["early_stop"] == {"best": 1.5, "num_runs": 2}
    assert kept["scaler"] == {"_iter": 7, "_last_rescale_iter": 5}
