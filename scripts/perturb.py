"""Read perturbed input with trained runs, and draw what was found. Options: configs/perturb.yaml."""

from gpam_suite.command_line import run_hydra
from gpam_suite.perturbation.evaluate import perturb

if __name__ == "__main__":
    run_hydra("perturb", perturb)
