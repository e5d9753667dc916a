"""Write a trained model as a folder that can be given away. Options: configs/export.yaml."""

from gpam_suite.run.command_line import run_hydra
from gpam_suite.tools.export import export

if __name__ == "__main__":
    run_hydra("export", export)
