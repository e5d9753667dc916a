"""Read perturbed input with trained runs, and draw what was found. Options: configs/perturb.yaml."""

from pathlib import Path

from omegaconf import DictConfig

from gpam_suite.inside.perturb.perturb_runs import perturb
from gpam_suite.report.page import build
from gpam_suite.run.command_line import run_hydra


def main(cfg: DictConfig) -> None:
    perturb(cfg)
    build(Path(cfg.results))


if __name__ == "__main__":
    run_hydra("perturb", main)
