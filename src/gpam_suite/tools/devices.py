"""Facts of the devices that a training is planned for, each with its source; what is assumed is marked so.

Peaks are of dense matrix products (no sparsity) in FLOP/s, two a multiply-add. ``fp32`` is without TF32, which torch
leaves off for matrix products and fairseq does not switch on. ``link`` is what a device sends in one direction.

Utilisation is the share of the peak that a training update of fairseq's transformers reaches. **For GPUs it is an
assumption**: no GPU run of this suite has been published. 0.5 of the float32 peak and 0.25 of the half-precision peak
are guesses; a far larger model with kernels of its own reached 0.46 (PaLM, arXiv 2204.02311, table 3).
For the CPU it is measured, see :data:`CPU_UTILISATION`.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpam.errors import UsageError, did_you_mean

GPU_UTILISATION = {"fp32": 0.5, "fp16": 0.25, "bf16": 0.25}  # assumed
GPU_LAUNCH_SECONDS = 1e-5  # assumed: the time in which Python and torch start one operation on a GPU

CPU_UTILISATION = 0.5
"""Training FLOP/s over matrix-product FLOP/s of one thread. The first published runs that had their cores alone
(``lm_laptop``, ``nmt_laptop``) reach 0.44 to 0.58 of the rate that :func:`measured_cpu` found on their machine (median
by experiment and model); one half is the round number for all."""


@dataclass(frozen=True)
class Device:
    """``peak`` by precision in FLOP/s, ``memory`` in bytes, ``bandwidth`` of that memory and ``link`` in bytes a
    second, ``dollars`` an hour (None: not known)."""

    name: str
    label: str
    peak: Mapping[str, float]
    memory: float
    bandwidth: float
    link: float
    utilisation: Mapping[str, float]
    launch_seconds: float
    dollars: float | None


def _gpu(name: str, label: str, peak: Mapping[str, float], **facts: float | None) -> Device:
    return Device(name, label, peak, utilisation=GPU_UTILISATION, launch_seconds=GPU_LAUNCH_SECONDS, **facts)


# Prices are an assumption: the middle of the on-demand range of specialised clouds in May 2026, for one device,
# https://www.mercatus-ai.com/blog/cloud-gpu-pricing (A100 1.10 to 1.50, H100 2.50 to 3.50, H200 3.50 to 4.50 dollars).
GPUS = {
    gpu.name: gpu
    for gpu in (
        # NVIDIA A100 80GB SXM data sheet: FP32 19.5, FP16 and BF16 tensor 312 TFLOP/s, 80 GB, 2,039 GB/s, NVLink
        # 600 GB/s (both directions together, as for the others)
        _gpu(
            "a100",
            "NVIDIA A100 SXM 80 GB",
            {"fp32": 19.5e12, "fp16": 312e12, "bf16": 312e12},
            memory=80e9,
            bandwidth=2.039e12,
            link=300e9,
            dollars=1.30,
        ),
        # NVIDIA H100 SXM data sheet: FP32 67, FP16 and BF16 tensor 989 TFLOP/s dense (1,979 with sparsity), 80 GB,
        # 3.35 TB/s, NVLink 900 GB/s; the same at https://glennklockwood.com/garden/processors/h100
        _gpu(
            "h100",
            "NVIDIA H100 SXM 80 GB",
            {"fp32": 67e12, "fp16": 989e12, "bf16": 989e12},
            memory=80e9,
            bandwidth=3.35e12,
            link=450e9,
            dollars=3.00,
        ),
        # NVIDIA H200 SXM data sheet: the arithmetic of the H100 SXM, 141 GB, 4.8 TB/s, NVLink 900 GB/s; the same at
        # https://www.mercatus-ai.com/blog/a100-vs-h100-vs-h200
        _gpu(
            "h200",
            "NVIDIA H200 SXM 141 GB",
            {"fp32": 67e12, "fp16": 989e12, "bf16": 989e12},
            memory=141e9,
            bandwidth=4.8e12,
            link=450e9,
            dollars=4.00,
        ),
        # NVIDIA Ada architecture paper, as repeated at https://vast.ai/pricing/gpu/RTX-4090: FP32 82.6, FP16 and BF16
        # tensor with FP32 accumulation 165.2 TFLOP/s, 24 GB, 1,008 GB/s; no NVLink, PCI Express 4.0 x16: 32 GB/s. No
        # price found.
        _gpu(
            "rtx4090",
            "NVIDIA GeForce RTX 4090",
            {"fp32": 82.6e12, "fp16": 165.2e12, "bf16": 165.2e12},
            memory=24e9,
            bandwidth=1.008e12,
            link=32e9,
            dollars=None,
        ),
    )
}


def find_device(name: str, threads: int, product: tuple[int, int, int]) -> Device:
    """A GPU by its name, or ``cpu``: this machine, measured with a ``product`` (rows, inner width, columns).

    Raises:
        UsageError: no such device.
    """
    if name == "cpu":
        return measured_cpu(threads, *product)
    if name not in GPUS:
        known = [*GPUS, "cpu"]
        raise UsageError(f"device: got '{name}'{did_you_mean(name, known)}, wanted one of {', '.join(known)}")
    return GPUS[name]


def cpu(products: float, bandwidth: float, memory: float, label: str) -> Device:
    """One CPU process with ``products`` FLOP/s in matrix products and ``bandwidth`` bytes a second."""
    return Device(
        "cpu",
        label,
        {"fp32": products},
        memory=memory,
        bandwidth=bandwidth,
        link=bandwidth,
        utilisation={"fp32": CPU_UTILISATION},
        launch_seconds=0.0,  # part of the measured utilisation
        dollars=None,
    )


def measured_cpu(threads: int, rows: int, inner: int, columns: int) -> Device:
    """This processor, from the three float32 products of a linear layer (forward, and both gradients) and from a sum of
    two long vectors; the medians of a second's repeats.

    One thread is timed by the processor time that it gets, so that other processes that take turns with it do not
    count; what they take from a shared core, cache and memory does.
    """
    import torch

    from gpam_suite.records.environment import hardware

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x, w, g = torch.randn(rows, inner), torch.randn(columns, inner), torch.randn(rows, columns)
        seconds = _median_seconds(lambda: (x @ w.t(), g @ w, g.t() @ x), threads)
        a, b = torch.randn(1 << 24), torch.randn(1 << 24)
        out = torch.empty_like(a)
        sum_seconds = _median_seconds(lambda: torch.add(a, b, out=out), threads)
    finally:
        torch.set_num_threads(before)
    found = hardware()
    label = f"{found['processor']}, {threads} thread{'' if threads == 1 else 's'}, measured now"
    return cpu(6 * rows * inner * columns / seconds, 12 * (1 << 24) / sum_seconds, found["memory_bytes"], label)


def _median_seconds(work: Callable[[], object], threads: int) -> float:
    clock = time.thread_time if threads == 1 else time.perf_counter
    work()
    seconds: list[float] = []
    began = time.perf_counter()
    while len(seconds) < 5 or time.perf_counter() - began < 0.5:
        start = clock()
        work()
        seconds.append(clock() - start)
    return statistics.median(seconds)
