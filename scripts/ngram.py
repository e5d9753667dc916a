"""Score a Kneser-Ney n-gram on a data set, as a reference row beside its table. Options: configs/ngram.yaml."""

from gpam_suite.evaluate.kneser_ney import evaluate_ngram
from gpam_suite.run.command_line import run_hydra

if __name__ == "__main__":
    run_hydra("ngram", evaluate_ngram)
