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
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gpam.errors import UsageError, in_a_line
from gpam_suite.common.markup import control

_SUBMITIT, _JOBLIB = "hydra_plugins.hydra_submitit_launcher.submitit_launcher", "hydra_plugins.hydra_joblib_launcher"
_LOGGING = r"hydra\.(job|hydra)_logging"
TARGETS = {
    r"hydra\.launcher\._target_": (
        "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
        f"{_JOBLIB}.joblib_launcher.JoblibLauncher",
        f"{_SUBMITIT}.LocalLauncher",
        f"{_SUBMITIT}.SlurmLauncher",
    ),
    r"hydra\.sweeper\._target_": ("hydra._internal.core_plugins.basic_sweeper.BasicSweeper",),
    rf"{_LOGGING}\.handlers\.\w+\.class": ("logging.StreamHandler",),
    rf"{_LOGGING}\.handlers\.\w+\.stream": ("ext://sys.stdout", "ext://sys.stderr"),
}
"""Where a configuration may name a class or an object, and which."""
_OBJECT = "would make an object of its choice"
_SBATCH = "requeue|mail_user|mail-user|mail_type|mail-type|reservation|licenses|nice|hint"
_REFUSED = {
    rf"(.*\.)?_target_|.*\(\)|{_LOGGING}\.(.*\.)?(class|filename|stream)": _OBJECT,
    r"hydra\.job\.env_.*": "would change the environment of other programs; set the variable yourself",
    rf"hydra\.launcher\.((setup|python|srun_args)(\..*)?|additional_parameters(?!\.({_SBATCH})$).*)": (
        "would be words of a shell's or of sbatch's"
    ),
    r"fairseq\.common\.user_dir": "has code that fairseq would import and run (the plugin is there already)",
    r"fairseq\.common\.(log_file|tensorboard_logdir|aim_repo|plasma_path|use_plasma_view)": (
        "would write where it likes; a run's log is train.log in its folder"
    ),
}
"""Options that a configuration may not set but to :data:`TARGETS`, and what each would do."""
_HELP = ("hydra.help.", "hydra.hydra_help.")  # pages of several lines, which are only printed
_VARIABLES = re.compile(r"GPAM_\w+|SLURM_(?!JWT)\w+|HOME|USER|TMPDIR|SCRATCH|WORK")
_UNSET = object()


def refuse_code(cfg: DictConfig) -> None:
    """Refuse a composed configuration, Hydra's own node included, that names code to be run.

    Raises:
        UsageError: it does; nothing of it was resolved or run.
    """
    for path, value in _leaves(OmegaConf.to_container(cfg, resolve=False)):
        if not path.startswith(_HELP) and (sign := control(path) or control(str(value))):
            raise _refusal(
                ascii(path)[1:-1], ascii(value)[1:-1], f"holds {sign}, which a script would read as a command"
            )
        if value is None or value is False:
            continue
        why = next((why for where, why in _REFUSED.items() if re.fullmatch(where, path)), None)
        if re.match(_LOGGING, path) and "://" in str(value):
            why = _OBJECT
        if why and not any(re.fullmatch(where, path) and value in allowed for where, allowed in TARGETS.items()):
            raise _refusal(path, value, why)


def _refusal(path: str, value: Any, why: str) -> UsageError:
    return UsageError(f"{path}: got '{value}', which {why}; a configuration may not: leave it out")


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path (``a.b``, of a list ``a.0``) and value of everything in a tree that is neither mapping nor list."""
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
            raise UsageError(f"Hydra cannot read the options: {in_a_line(error)}; correct them") from None
        refuse_code(cfg)
        return cfg

    stock_append = ConfigSearchPathImpl.append

    def append(self: ConfigSearchPathImpl, provider: str, path: str, anchor: Any = None) -> None:
        if provider.startswith("hydra.searchpath") and "://" in path and not path.startswith("file://"):
            raise _refusal("hydra.searchpath", path, "would import a package of its choice; name a folder (file://...)")
        stock_append(self, provider, path, anchor)

    ConfigLoaderImpl.load_configuration, ConfigSearchPathImpl.append = load_configuration, append
    try:
        yield
    finally:
        ConfigLoaderImpl.load_configuration, ConfigSearchPathImpl.append = stock, stock_append


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
