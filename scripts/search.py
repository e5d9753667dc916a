"""Look for a mechanism's options on the validation set, by Optuna. Options: configs/search.yaml."""

from gpam_suite.run.command_line import run_hydra
from gpam_suite.run.search import search

if __name__ == "__main__":
    run_hydra("search", search)
