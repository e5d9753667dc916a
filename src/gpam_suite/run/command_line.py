"""Entry points: a command whose user's mistakes are one sentence and exit code 2, never a traceback."""

import argparse
import contextlib
import io
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gpam.commands import UNREAD_EXIT, ctrl_c_raises, nobody_reads
from gpam.errors import UsageError, did_you_mean
from gpam_suite.common.failures import to_mend
from gpam_suite.common.markup import shown
from gpam_suite.common.options import nonempty
from gpam_suite.common.places import CONFIGS
from gpam_suite.common.stopping import ASKED_BY, Preempted, asked_by, members_save_alone, stopped_with_parent
from gpam_suite.config.trust import guarded_composition
from gpam_suite.run.outcomes import RunFailed

log = logging.getLogger(__name__)
USAGE_ERROR = 2
_TEXTS = ("run", "output", "results", "only", "evaluation.checkpoint", "dataset.folder")
_TEXTS += ("paths.results", "paths.data", "paths.mirror")
"""Options that name a folder, a file or an experiment."""


def run_hydra(config_name: str, work: Callable[[DictConfig], Any]) -> None:
    """Compose ``configs/<config_name>.yaml`` with the command line and do ``work``, once or as a multirun.

    Exits with 0, with 2 after a user's mistake (one sentence on stderr), with 1 when a run failed, and with 128
    plus the signal's number when it was stopped.
    """
    _register_resolvers()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra passes exceptions on instead of printing them
    sweeps_models = any(word.startswith("model=") and "," in word for word in sys.argv)
    words = [as_hydra_takes_it(word, sweeps_models=sweeps_models) for word in sys.argv[1:]]
    sys.argv[1:] = sorted(words, key=lambda word: word not in ("-m", "--multirun"))  # argparse wants them at one end
    codes: list[int] = []

    def task(cfg: DictConfig) -> Any:
        logging.getLogger("fairseq").setLevel(logging.WARNING)
        if "SUBMITIT_EXECUTOR" in os.environ:
            # The state that the job came with is pickled when it is queued again. fairseq adds dataclasses to it, which
            # a process that has yet to load our repairs of fairseq could not read: so it adds them to a copy.
            Singleton.set_state(Singleton.get_state())
        if HydraConfig.get().mode == RunMode.MULTIRUN:  # the other members go on, then Hydra raises the first failure
            with stopped_with_parent(), _told_of_a_member():
                return work(_with_folders(cfg))
        codes.append(guarded(lambda: work(_with_folders(cfg)), config_name))
        return None

    def application() -> None:
        if "launcher=submitit_slurm" in sys.argv and shutil.which("srun") is None:
            raise UsageError(
                "launcher=submitit_slurm needs SLURM, and this machine has no srun; run it where sbatch works"
            )
        for word in (word for word in sys.argv[1:] if word.startswith("--")):
            name = word[2:].partition("=")[0]
            if name in _groups() or name in OmegaConf.load(CONFIGS / f"{config_name}.yaml"):
                raise UsageError(f"got '{word}', wanted {name}=VALUE, without dashes")
        if rerun := [word for word in sys.argv[1:] if word.startswith("--experimental-rerun")]:
            raise UsageError(f"{rerun[0]} would unpickle a file, which could run any code; give the options themselves")
        multirun = any(word in ("-m", "--multirun") or word.startswith("sweep=") for word in sys.argv)
        if not multirun and (launcher := [word for word in sys.argv[1:] if word.startswith("launcher=")]):
            raise UsageError(f"{launcher[0]} starts the members of a multirun: add -m, or leave it out")
        if "hydra.launcher.n_jobs=0" in sys.argv:
            raise UsageError("hydra.launcher.n_jobs: got 0, wanted at least 1, or -1 for one a core")
        if multirun and {"--cfg", "-c", "--info", "-i"} & {word.partition("=")[0] for word in sys.argv}:
            raise UsageError("a configuration is shown of one run: leave out -m, --multirun or sweep=")
        with guarded_composition(), members_save_alone() if multirun else contextlib.nullcontext():
            hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(task)()

    sys.exit(guarded(application, config_name) or max(codes, default=0))


def _with_folders(cfg: DictConfig) -> DictConfig:
    """``cfg``, after making sure that those of these folders which it knows have a name."""
    for name in ("results", "paths.results", "paths.data"):
        if name.partition(".")[0] in cfg:
            nonempty(OmegaConf.select(cfg, name), name)
    return cfg


@contextlib.contextmanager
def _told_of_a_member() -> Iterator[None]:
    """Of several failures in a multirun Hydra tells the first alone."""
    try:
        yield
    except (UsageError, RunFailed) as error:
        log.error("%s: %s", " ".join(HydraConfig.get().overrides.task), shown(" ".join(str(error).split())))
        raise


def _register_resolvers() -> None:
    """What ``configs/launcher`` computes of a run's devices."""
    resolvers = {"gpus_of": lambda cpu, devices: None if cpu else devices, "product": lambda one, other: one * other}
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def as_hydra_takes_it(word: str, *, sweeps_models: bool = False) -> str:
    """``fairseq.a.b=1`` may name any of fairseq's options, not only those that a recipe sets (fairseq's own
    dataclasses check it); Hydra calls that ``++``. So may ``model.x=1`` where several models are swept, which Hydra
    would compare with the default one (the registry checks it). A folder is a text, though it be called 2024, or like a
    run's with ``=`` in its name: Hydra wants it quoted, and no shell has put a home in the place of ``~`` behind a
    dotted name. (Several, for a multirun, are left as they are.)"""
    name, _, value = word.partition("=")
    if name in _TEXTS:
        plain = value in ("", "null", "best", "last")
        as_it_is = plain or value.startswith(("'", '"')) or ("," in value and "=" not in value)
        folder = value.rstrip("/") or value  # with a stroke at its end it is the same
        quoted = os.path.expanduser(folder).replace("'", "\\'")
        return word if as_it_is else f"{name}='{quoted}'"
    return f"++{word}" if word.startswith("fairseq.") or (sweeps_models and word.startswith("model.")) else word


def guarded(work: Callable[[], Any], config_name: str = "train") -> int:
    """Do ``work`` and return the exit code; a mistake of the user's is printed as one sentence. ``config_name`` is the
    configuration that the command composes."""
    ctrl_c_raises()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where it is not UTF-8, a dash is shown as "?"
    try:
        work()
    except UsageError as error:
        return _complain(str(error))
    except HydraException as error:
        return _complain(_hydra_sentence(error, config_name))
    except OmegaConfBaseException as error:
        refused = error.__cause__ if isinstance(error.__cause__, UsageError) else error
        return _complain((str(refused).splitlines() or [type(refused).__name__])[0])
    except RunFailed as error:
        print(f"{Path(sys.argv[0]).name}: {shown(str(error))}", file=sys.stderr)
        return 1
    except Preempted as stopped:
        by = asked_by()
        return _complain(f"stopped by {ASKED_BY[by]}: {stopped}; the same command goes on", 128 + by)
    except KeyboardInterrupt:
        return _complain(f"stopped by {ASKED_BY[signal.SIGINT]}", 128 + signal.SIGINT)
    except BrokenPipeError:
        if not nobody_reads():
            raise
        return UNREAD_EXIT
    except Exception as error:
        if (sentence := to_mend(error)) is None:
            raise
        return _complain(sentence)
    return 0


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that raises UsageError where argparse would print its usage and leave."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; wanted {self.format_usage().removeprefix('usage: ')}")


def user_path(given: str) -> Path:
    """A path of the command line; ``~`` is home where no shell has put it there."""
    return Path(given).expanduser()


def _complain(sentence: str, code: int = USAGE_ERROR) -> int:
    """Print it as one line, whatever of a file or an option it quotes (a line feed, a terminal's control sequence)."""
    with contextlib.suppress(OSError):  # of a terminal that is gone
        print(f"{Path(sys.argv[0]).name}: {shown(' '.join(sentence.split()))}", file=sys.stderr, flush=True)
    return code


def _hydra_sentence(error: HydraException, config_name: str) -> str:
    """Hydra's complaint in one line, with the name that was meant where it lists the known ones."""
    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        known = error.options or [path.stem for path in sorted((CONFIGS / group).glob("*.yaml"))]
        return (
            f"unknown {group or 'configuration'} '{name}'{did_you_mean(name, known)} (wanted one of {', '.join(known)})"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines[0].startswith("Ambiguous value for argument"):
        return f"{lines[0]}: for a run of each value add -m; one value that is a list is written KEY=[a,b]"
    if unknown := re.match(r"Could not (?:override|delete from config\.) '(.*?)'", lines[0]):
        return f"there is no option '{unknown[1]}'{_meant_key(unknown[1], config_name)}"
    if isinstance(error, OverrideParseException) and "=" not in error.override:
        return f"got '{error.override}', wanted KEY=VALUE, for instance model=dagpam"
    reason = str(error.__cause__ or "").splitlines()[:1] if lines[0].startswith("Error merging override") else []
    return ": ".join([" ".join(lines[:2]), *reason])


def _meant_key(key: str, config_name: str) -> str:
    """What may have been meant by a key that there is not: another choice that has it, the nearest name beside it, or
    the option of that name somewhere below, as ``fairseq.optimization.lr`` for ``lr``."""
    from gpam.attention.registry import all_options

    above, _, leaf = key.rpartition(".")
    files = [CONFIGS / f"{config_name}.yaml", CONFIGS / "command.yaml", *sorted(CONFIGS.glob("*/**/*.yaml"))]
    known = {file: set(_keys(_tree(file))) for file in files}
    group = above.removeprefix("hydra.")
    if owners := [file.stem for file, keys in known.items() if file.parent.name == group and key in keys]:
        return f"; it belongs to {group}={' or '.join(sorted(owners, key=len)[:2])}"
    if above == "model" and leaf in all_options():
        return f"; its mechanism has it, and the file of configs/model leaves it out: add '{leaf}: VALUE' there"
    every = set().union(*known.values())
    if whole := [name for name in every if above and name.endswith(f".{key}")]:
        return f"; did you mean '{min(whole, key=len)}'?"
    places = [name.rpartition(".") for name in (every if above else known[files[0]]) if name != key]
    beside = {f"{above}.{name}" if above else name for place, _, name in places if place == above}
    beside |= set() if above else _groups() - {key}
    below = [name for name in every if name.endswith(f".{leaf}") and name != key]
    meant = did_you_mean(key, beside) or (did_you_mean(key, below) if above else "")
    return meant or (f"; did you mean '{min(below, key=len)}'?" if below else "")


def _groups() -> set[str]:
    """What is chosen by name, such as ``model``."""
    return {folder.name for folder in CONFIGS.iterdir() if folder.is_dir()}


def _tree(file: Path) -> dict[str, Any]:
    """A configuration file as it stands in the whole."""
    node = OmegaConf.to_container(OmegaConf.load(file))
    node.pop("defaults", None)
    is_global = file.read_text(encoding="utf-8").startswith("# @package _global_")
    return node if file.parent == CONFIGS or is_global else {file.relative_to(CONFIGS).parts[0]: node}


def _keys(tree: dict[str, Any], above: str = "") -> Iterator[str]:
    """``a``, ``a.b``, ..."""
    for key, value in tree.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{above}{key}.")
