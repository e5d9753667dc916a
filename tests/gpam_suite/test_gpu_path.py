"""What is different where there is a GPU, as far as it shows without one."""

from types import SimpleNamespace

from gpam_fairseq.trainer import cross_entropy
from gpam_fairseq.trainer.divergence import located_divergence
from gpam_fairseq.trainer.invariants import _per_row

import pytest
import torch
from fairseq import utils
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from gpam.errors import UsageError
from gpam_suite.benchmark import run as benchmark
from gpam_suite.common.places import CONFIGS
from gpam_suite.config.compose import composed
from gpam_suite.run.worker import _distribute

CASES = OmegaConf.load(CONFIGS / "benchmark.yaml").defined


@pytest.mark.parametrize("max_norm", [0.0, 0.5, 100.0])
def test_gradients_on_the_cpu_are_clipped_as_where_there_is_no_gpu(max_norm, monkeypatch):
    def clipped(see_a_gpu):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: see_a_gpu)
        generator = torch.Generator().manual_seed(1)
        parameters = [torch.nn.Parameter(torch.zeros(n)) for n in (3, 5)]
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        norm = utils.clip_grad_norm_(iter(parameters), max_norm, lambda norm: 2 * norm)
        return [norm, *(parameter.grad for parameter in parameters)]

    for wanted, found in zip(clipped(False), clipped(True), strict=True):
        assert torch.equal(wanted, found)


def test_a_run_of_one_device_is_one_process_however_many_gpus_are_visible():
    own = OmegaConf.create({"distributed_training": {"distributed_world_size": 4}})
    _distribute(own, composed("experiment=lm_laptop"))
    assert own.distributed_training.distributed_world_size == 1


def test_a_batch_without_memory_ends_training(monkeypatch):
    monkeypatch.setattr(Trainer, "train_step", lambda self, samples, raise_oom=False: raise_oom)
    with located_divergence():
        assert Trainer.train_step(SimpleNamespace(get_num_updates=lambda: 0), []) is True


def test_bounds_of_weights_are_where_the_weights_are():
    assert _per_row(0.5, torch.empty(1, 2, 3, 3, device="meta")).device.type == "meta"


def test_chunks_of_the_cross_entropy_are_larger_than_a_processors():
    def chunks(device):
        hidden, weight = torch.zeros(1000, 4, device=device), torch.zeros(10_000, 4, device=device)
        return sum(1 for _ in cross_entropy._chunks(hidden, weight))

    assert chunks("cpu") == 10 and chunks("meta") == 1


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if case["kind"] == "core"])
def test_cases_of_the_benchmark_have_their_contenders_on_a_gpu(case, monkeypatch):
    settings = benchmark.Settings(threads=1, repeats=1, seed=1, device="meta")  # not the CPU
    monkeypatch.setattr(benchmark, "compare", lambda wanted, *_, **__: wanted)
    found = benchmark.measure(CASES[case], settings, [])
    assert any(name.startswith("softmax") for name in found) and any(name.startswith("dagpam") for name in found)
    with pytest.raises(UsageError, match="contenders: got 'softmax-tiled'"):
        benchmark.measure(CASES[case], settings, ["softmax-tiled"])
