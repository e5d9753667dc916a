"""Look into trained and untrained models, and draw what was found. Options: configs/analyse.yaml."""

from pathlib import Path

from gpam_suite.inside.analyse import analyse
from gpam_suite.report.page import build, refuse_other_pages
from gpam_suite.run.command_line import run_hydra

if __name__ == "__main__":
    run_hydra("analyse", lambda cfg: (refuse_other_pages(Path(cfg.results)), analyse(cfg), build(Path(cfg.results))))
