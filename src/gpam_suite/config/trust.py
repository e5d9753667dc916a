"""What a configuration of a stranger's may not do: run code, or read what the environment keeps secret.

A configuration is data. But Hydra makes an object of any class that ``hydra.callbacks`` names, Python's logging of any
that ``hydra.job_logging`` names, and a variable set by ``hydra.job.env_set`` can make another program load a library.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gpam.errors import UsageError

PLUGINS = ("hydra_plugins.", "hydra._internal.core_plugins.")  # where Hydra itself looks for sweepers and launchers
_LOGGING = re.compile(r"logging\.(handlers\.)?\w+")
_STREAMS = ("ext://sys.stdout", "ext://sys.stderr")
_SHELL = tuple(f"hydra.launcher.{key}" for key in ("setup", "python", "srun_args"))  # a batch system's script
KNOWN = ("colorlog.ColoredFormatter",)  # hydra/job_logging=colorlog
_VARIABLES = re.compile(r"GPAM_\w+|SLURM_\w+|HOME|USER|TMPDIR|SCRATCH|WORK")
_UNSET = object()


def refuse_code(cfg: DictConfig) -> None:
    """Refuse a composed configuration, Hydra's own node included, that names code to be run.

    Raises:
        UsageError: it does; nothing of it was resolved or run.
    """
    for path, value in _leaves(OmegaConf.to_container(cfg, resolve=False), ""):
        key = path.rpartition(".")[2]
        if key in ("_target_", "()") and value is not None:
            if not str(value).startswith(PLUGINS) and value not in KNOWN:
                raise _refusal(path, value, "would make an object of a class of its choice")
        elif path.startswith("hydra.job.env_"):
            raise _refusal(path, value, "would change the environment of other programs; set the variable yourself")
        elif path.startswith(_SHELL) and value is not None:
            raise _refusal(path, value, "would be words of a shell's")
        elif path.startswith(("hydra.job_logging.", "hydra.hydra_logging.")):
            if key == "class" and not _LOGGING.fullmatch(str(value)):
                raise _refusal(path, value, "would make an object of a class of its choice")
            if isinstance(value, str) and "ext://" in value and value not in _STREAMS:
                raise _refusal(path, value, "would import a module of its choice")


def _refusal(path: str, value: Any, why: str) -> UsageError:
    return UsageError(f"{path}: got '{value}', which {why}; a configuration may not: leave it out")


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


@contextlib.contextmanager
def guarded_composition() -> Iterator[None]:
    """Whatever Hydra composes meanwhile, each member of a multirun too, goes through :func:`refuse_code` first."""
    stock = ConfigLoaderImpl.load_configuration

    def load_configuration(self: ConfigLoaderImpl, *args: Any, **kwargs: Any) -> DictConfig:
        try:
            cfg = stock(self, *args, **kwargs)
        except (UsageError, HydraException, OmegaConfBaseException):
            raise
        except Exception as error:  # Hydra's own slips over odd words, such as model=1
            reason = " ".join(str(error).split())[:200]
            raise UsageError(f"Hydra cannot read the options: {reason or type(error).__name__}; correct them") from None
        refuse_code(cfg)
        return cfg

    ConfigLoaderImpl.load_configuration = load_configuration
    try:
        yield
    finally:
        ConfigLoaderImpl.load_configuration = stock


def _variable(name: str, default: Any = _UNSET) -> Any:
    """``${oc.env:NAME,default}`` for names that hold no secret: no token gets into a record by a configuration."""
    if not _VARIABLES.fullmatch(name):
        raise UsageError(
            f"${{oc.env:{name}}} is not read: a configuration may read GPAM_*, SLURM_*, HOME, USER, TMPDIR, SCRATCH "
            "and WORK only, so that no token gets into a record"
        )
    if name in os.environ:
        return os.environ[name]
    if default is _UNSET:
        raise UsageError(f"${{oc.env:{name}}}: the environment has no variable {name}; set it, or give the value")
    return None if default is None else str(default)


OmegaConf.register_new_resolver("oc.env", _variable, replace=True)
