"""One run: prepare, train and evaluate in a process of its own, record."""

from gpam_suite.run.run import run

__all__ = ["run"]
