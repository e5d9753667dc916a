"""Run what is missing of docs/experiments/, and look into the models. Options: configs/evidence.yaml."""

from gpam_suite.run.command_line import run_hydra
from gpam_suite.run.evidence import evidence

if __name__ == "__main__":
    run_hydra("evidence", evidence)
