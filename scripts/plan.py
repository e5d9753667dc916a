"""Price a training before it is run: parameters, FLOPs, memory, hours, dollars. Options: configs/plan.yaml."""

from gpam_suite.run.command_line import run_hydra
from gpam_suite.tools.cost import plan

if __name__ == "__main__":
    run_hydra("plan", plan)
