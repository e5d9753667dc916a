"""Read perturbed input with trained runs, and draw what was found. Options: configs/perturb.yaml."""

from pathlib import Path

from gpam_suite.inside.perturb.perturb_runs import perturb
from gpam_suite.report.page import build, refuse_other_pages
from gpam_suite.run.command_line import run_hydra

if __name__ == "__main__":
    run_hydra("perturb", lambda cfg: (refuse_other_pages(Path(cfg.results)), perturb(cfg), build(Path(cfg.results))))
