"""fairseq's commands with the plugin: ``python -m gpam_fairseq train DATA --arch gpam_iwslt_de_en --attention dagpam``.

They take the options of fairseq-train, fairseq-generate and so on. Those scripts themselves import fairseq before
they look at ``--user-dir``, which fails on Python 3.11 (docs/fairseq.md). Training takes the fast step
(docs/performance.md); GPAM_FAST=0 in the environment leaves fairseq's own as it is.
"""

import argparse
import importlib
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NoReturn

from gpam_fairseq.arguments import (
    check_arguments,
    missing_sentence,
    of_its_task,
    own_options,
    parser_sentence,
    sentence_for,
    unread_sentence,
)
from gpam_fairseq.compat import lists_for_sacrebleu
from gpam_fairseq.trainer.replacing import replaced
from gpam_fairseq.trainer.steps import distributed_main, steps

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from gpam.commands import UNREAD_EXIT, ctrl_c_raises, nobody_reads
from gpam.errors import UsageError, did_you_mean

COMMANDS = ("train", "generate", "eval-lm", "preprocess", "interactive", "validate", "score")


def _help() -> str:
    """fairseq's own ``--help`` ends before it comes to a model's options, so ours stand here."""
    options = "".join(f"\n  {option}  {help_}" for option, help_ in own_options().items())
    return (
        f"{__doc__}\nCommands: {', '.join(COMMANDS)}. fairseq's options of one: python -m gpam_fairseq COMMAND --help"
        f"\n\nOptions of the models gpam_lm and gpam_nmt and of their presets, besides those of fairseq's "
        f"transformers:{options}"
    )


def _wrong_arguments(_: argparse.ArgumentParser, message: str) -> NoReturn:
    """argparse itself prints several hundred options above it."""
    raise UsageError(parser_sentence(message))


def _of_something(eval_lm: Callable[..., dict[str, float]]) -> Callable[..., dict[str, float]]:
    """fairseq's ``eval_lm`` gives a perplexity of 1 where it skipped every sample."""

    def evaluated(*args: Any, **kwargs: Any) -> dict[str, float]:
        found = eval_lm(*args, **kwargs)
        if not found["loss"]:
            raise UsageError(
                "not one token was evaluated, as the samples are longer than the model reads; give the "
                "--tokens-per-sample of its training"
            )
        return found

    return evaluated


def main() -> int:
    ctrl_c_raises()
    try:
        return _main(sys.argv[1:])
    except BrokenPipeError:
        if not nobody_reads():
            raise
        return UNREAD_EXIT


def _main(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_help(), flush=True)
        return 0 if words else 2
    command = sys.argv.pop(1)
    if command not in COMMANDS:
        wanted = f"wanted one of {', '.join(COMMANDS)}"
        print(f"gpam_fairseq: unknown command '{command}'{did_you_mean(command, COMMANDS)} ({wanted})", file=sys.stderr)
        return 2
    sys.argv[0] = f"gpam_fairseq {command}"
    try:
        started = replaced(distributed_utils, distributed_main=distributed_main)
        with replaced(argparse.ArgumentParser, error=_wrong_arguments), started, steps():
            check_arguments(command, words[1:])
            loads = of_its_task(command, words[1:], checkpoint_utils.load_checkpoint_to_cpu)
            module = importlib.import_module(f"fairseq_cli.{command.replace('-', '_')}")
            ours = {"eval_lm": _of_something(module.eval_lm)} if command == "eval-lm" else {}
            reads = replaced(checkpoint_utils, load_checkpoint_to_cpu=loads)
            with reads, replaced(module, **ours), lists_for_sacrebleu() if command == "score" else nullcontext():
                module.cli_main()
    except BrokenPipeError:
        raise
    except UsageError as error:
        return _complain(command, str(error))
    except Exception as error:
        missing = isinstance(error, OSError)  # fairseq tells of a missing corpus or checkpoint by one
        sentence = unread_sentence(error) or (missing_sentence(command, error) if missing else sentence_for(error))
        if sentence is None:
            raise
        return _complain(command, sentence)
    except KeyboardInterrupt:
        print(f"gpam_fairseq {command}: stopped by Ctrl-C", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def _complain(command: str, sentence: str) -> int:
    print(f"gpam_fairseq {command}: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
