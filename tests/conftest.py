"""What all tests share: the same drawn cases each time, however slow the machine, and a logging that none leaves."""

import logging

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("here", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")  # `make soak` draws others every time


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    root = logging.getLogger()
    handlers, level, disabled = list(root.handlers), root.level, root.manager.disable
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.disable(disabled)
