"""What all tests share: the same drawn cases each time, however slow the machine; nothing of the user's environment,
nothing in the home folder; a logging that none leaves, and no backends that a test's training chose by."""

import gc
import logging
import os
import sys

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("here", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")  # `make soak` draws others every time
gc.set_threshold(50_000)  # composing makes 10,000s of objects, none of them garbage: a seventh of its time is that look
_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SUBMITIT_EXECUTOR")
_TERMINALS = ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "COLUMNS", "LINES")
for name in [*os.environ]:
    if name in ("GPAM_FAST", *_LAUNCHERS, *_TERMINALS) or name.startswith(("SLURM_", "GIT_", "TQDM_")):
        del os.environ[name]


@pytest.fixture(scope="session", autouse=True)
def _wandb_writes_elsewhere(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wandb")
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("DATA", "CACHE", "CONFIG"):
            patch.setenv(f"WANDB_{kind}_DIR", str(folder / kind.lower()))
        patch.setenv("WANDB__SERVICE_WAIT", "300")
        yield


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    root = logging.getLogger()
    handlers, level, disabled = list(root.handlers), root.level, root.manager.disable
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.disable(disabled)


@pytest.fixture(autouse=True)
def _drawn_alike():
    """Whatever ran before."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _backends_of_the_machine():
    yield
    if calibration := sys.modules.get("gpam.attention.backends.calibration"):
        calibration.use(None)


@pytest.fixture
def poisoned_memory(monkeypatch):
    """Memory that nobody has written holds NaN."""
    import torch

    def poisoned(make):
        def wrapper(*args, **kwargs):
            out = make(*args, **kwargs)
            return out.fill_(float("nan")) if out.is_floating_point() else out

        return wrapper

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))
    assert torch.empty(2).isnan().all()
