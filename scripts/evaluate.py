"""Evaluate a trained run again, by its own protocol or another. Options: configs/evaluate.yaml."""

from gpam_suite.evaluate.rescore import evaluate_again
from gpam_suite.run.command_line import run_hydra

if __name__ == "__main__":
    run_hydra("evaluate", evaluate_again)
