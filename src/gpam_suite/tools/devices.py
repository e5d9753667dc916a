"""Facts of the devices that a training is planned for, each with its source; what is assumed is marked so.

Peaks are of dense matrix products (no sparsity) in FLOP/s, two a multiply-add. ``fp32`` is without TF32, which torch
leaves off for matrix products and fairseq does not switch on.
"""

import time
from dataclasses import dataclass

import torch
from torch.utils.benchmark import Timer

from gpam.errors import UsageError
from gpam_suite.common.formatting import plural
from gpam_suite.records.environment import hardware

UTILISATION = {"fp32": 0.5, "fp16": 0.25, "bf16": 0.25}
"""The share of the peak that a training update of fairseq's transformers reaches. **For GPUs it is an assumption**: no
GPU run of this suite has been published; a far larger model with kernels of its own reached 0.46 of the half-precision
peak (PaLM, arXiv 2204.02311, table 3). On a CPU, where the peak is measured, it is what the first published runs that
had their cores alone (``lm_laptop``, ``nmt_laptop``) reached: 0.44 to 0.58, the median by experiment and model; one
half is the round number for all."""
GPU_LAUNCH_SECONDS = 1e-5  # assumed: the time in which Python and torch start one operation on a GPU


@dataclass(frozen=True)
class Device:
    """Peaks in FLOP/s (``half``: fp16 and bf16; None: not planned), ``memory`` in bytes, ``dollars`` an hour (None: not
    known), and the seconds in which an operation is started."""

    label: str
    fp32: float
    half: float | None
    memory: float
    dollars: float | None
    launch_seconds: float = GPU_LAUNCH_SECONDS

    def peak(self, precision: str) -> float:
        """In that precision.

        Raises:
            UsageError: the device has none there.
        """
        peak = self.fp32 if precision == "fp32" else self.half
        if peak is None:
            raise UsageError(f"{self.label} is not planned in {precision}; wanted gpu.precision=fp32")
        return peak


# Prices are an assumption: the middle of the on-demand range of specialised clouds in May 2026, for one device,
# https://www.mercatus-ai.com/blog/cloud-gpu-pricing (A100 1.10 to 1.50, H100 2.50 to 3.50, H200 3.50 to 4.50 dollars).
GPUS = {
    # NVIDIA A100 80GB SXM data sheet: FP32 19.5, FP16 and BF16 tensor 312 TFLOP/s, 80 GB
    "a100": Device("NVIDIA A100 SXM 80 GB", 19.5e12, 312e12, memory=80e9, dollars=1.30),
    # NVIDIA H100 SXM data sheet: FP32 67, FP16 and BF16 tensor 989 TFLOP/s dense (1,979 with sparsity), 80 GB; the same
    # at https://glennklockwood.com/garden/processors/h100
    "h100": Device("NVIDIA H100 SXM 80 GB", 67e12, 989e12, memory=80e9, dollars=3.00),
    # NVIDIA H200 SXM data sheet: the arithmetic of the H100 SXM, 141 GB; the same at
    # https://www.mercatus-ai.com/blog/a100-vs-h100-vs-h200
    "h200": Device("NVIDIA H200 SXM 141 GB", 67e12, 989e12, memory=141e9, dollars=4.00),
    # NVIDIA Ada architecture paper, as repeated at https://vast.ai/pricing/gpu/RTX-4090: FP32 82.6, FP16 and BF16
    # tensor with FP32 accumulation 165.2 TFLOP/s, 24 GB. No price found.
    "rtx4090": Device("NVIDIA GeForce RTX 4090", 82.6e12, 165.2e12, memory=24e9, dollars=None),
}


def measured_cpu(threads: int, rows: int, inner: int, columns: int) -> Device:
    """This processor, one process of it, from the three float32 products of a linear layer (forward, and both
    gradients): the median of half a second's repeats. Starting operations is part of its utilisation.

    One thread is timed by the processor time that it gets, so that other processes that take turns with it do not
    count; what they take from a shared core, cache and memory does.
    """
    given = {"x": torch.randn(rows, inner), "w": torch.randn(columns, inner), "g": torch.randn(rows, columns)}
    clock = time.thread_time if threads == 1 else time.perf_counter
    timer = Timer("x @ w.t(); g @ w; g.t() @ x", globals=given, timer=clock, num_threads=threads)
    products = 6 * rows * inner * columns / timer.blocked_autorange(min_run_time=0.5).median
    found = hardware()
    label = f"{found['processor']}, {plural(threads, 'thread')}, measured now"
    return Device(label, products, half=None, memory=found["memory_bytes"], dollars=None, launch_seconds=0.0)
