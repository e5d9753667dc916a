"""Read perturbed input with trained runs, and draw what was found. Options: configs/perturb.yaml."""

from gpam_suite.inside.perturb.perturb_runs import perturb
from gpam_suite.run.command_line import run_hydra

if __name__ == "__main__":
    run_hydra("perturb", perturb)
