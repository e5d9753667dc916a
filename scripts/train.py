"""Train, evaluate and record one run, or a multirun with -m. Options: configs/train.yaml."""

from gpam_suite.run.command_line import run_hydra
from gpam_suite.run.run import run

if __name__ == "__main__":
    run_hydra("train", run)
