"""Time attention cores, layers, training steps, decoding. Options: configs/benchmark.yaml."""

from gpam_suite.benchmark.run import benchmark
from gpam_suite.run.command_line import run_hydra

if __name__ == "__main__":
    run_hydra("benchmark", benchmark)
