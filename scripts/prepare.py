"""Download or generate a data set, segment and binarise it. Options: configs/prepare.yaml."""

from gpam_suite.data import prepare
from gpam_suite.run.command_line import run_hydra

if __name__ == "__main__":
    run_hydra("prepare", lambda cfg: prepare(cfg.dataset, cfg.preprocessing, cfg.paths))
