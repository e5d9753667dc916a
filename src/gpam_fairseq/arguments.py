"""Mistakes on fairseq's command lines that fairseq answers with a traceback: found before it starts, or in words."""

import argparse
import json
import linecache
import re
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpam_fairseq.config import attention_fields
from gpam_fairseq.untrusted import are_betas, literal, load_without_executing

import torch
from fairseq.data.data_utils import infer_language_pair
from fairseq.data.encoders import TOKENIZER_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqLanguageModel
from omegaconf import ValidationError

from gpam.attention import mechanism_class
from gpam.errors import UsageError, did_you_mean, in_a_line

_NEED_A_CHECKPOINT = ("generate", "interactive", "eval-lm", "validate")
_LOOKED_AT = ("--task", "--path", "--attention", "--model-overrides", "--input", "--restore-file", "--adam-betas")
_LOOKED_AT += ("--best-checkpoint-metric", "--continue-once", "--lr-scheduler", "--lm-path")
_LOOKED_AT += ("--eval-bleu-args", "--eval-bleu-detok", "--eval-bleu-detok-args")
_LAST = "checkpoint_last.pt"  # what a training goes on with where it is there
_TOLD = (Exception, ValueError, AssertionError, NotImplementedError)  # what fairseq raises in so many words
_LONG = 12  # choices that a sentence may list
_AT_LEAST_ONE = ("--beam", "--nbest", "--order", "--tokens-per-sample", "--workers", "--max-tokens", "--batch-size")
_AT_LEAST_ONE += ("--max-sentences", "--update-freq", "--log-interval", "--required-batch-size-multiple")
_AT_LEAST_ONE += ("--encoder-layers", "--decoder-layers")
_AT_LEAST_ZERO = ("--seed", "--num-workers", "--warmup-updates", "--context-window")
_SHARES = ("--dropout", "--attention-dropout", "--activation-dropout")
_NUMBERS = (*_AT_LEAST_ONE, *_AT_LEAST_ZERO, *_SHARES)
_TASK_OF = {"generate": "translation", "interactive": "translation", "eval-lm": "language_modeling"}
"""Commands that read a checkpoint to the task that they take it for unless they are told."""


def check_arguments(command: str, words: Sequence[str]) -> None:
    """Raise UsageError where ``command`` misses an option that it cannot do without, two do not go together, or a value
    is one that fairseq divides by."""
    if {"-h", "--help"} & set(words):
        return
    given = _given(words)
    for name in _NUMBERS:
        _check_number(name, getattr(given, name[2:].replace("-", "_")) or "")
    if command in _NEED_A_CHECKPOINT:
        if given.path is None:
            raise UsageError("no model; give --path CHECKPOINT, for instance --path checkpoints/checkpoint_best.pt")
        ours = own_options()
        if own := [word for word in words if word.partition("=")[0] in ours]:
            raise UsageError(f"{own[0]}: the checkpoint says which attention its model has, with its options; drop it")
        if not isinstance(literal(given.model_overrides or "{}"), dict):
            raise UsageError(f"--model-overrides: got {given.model_overrides}, wanted a dict, as in {{'dropout': 0.1}}")
    if command == "eval-lm":
        window, length = given.context_window or "0", given.tokens_per_sample or "1024"
        if window.isdecimal() and length.isdecimal() and int(window) >= int(length):
            raise UsageError(f"--context-window: got {window}, wanted less than {length}, the --tokens-per-sample")
    if command == "interactive" and given.input not in (None, "-") and not Path(given.input).is_file():
        raise UsageError(f"--input: there is no file '{given.input}'")
    if command == "validate" and given.task is None:
        raise UsageError("no task; give --task, the one of the training: language_modeling or translation")
    if command == "train":
        _check_architecture(given.arch, given.task or "translation")
        if given.attention is not None:
            mechanism_class(given.attention)
        if given.adam_betas is not None and not are_betas(given.adam_betas):
            raise UsageError(
                f"--adam-betas: got {given.adam_betas}, wanted two numbers from 0 to below 1, as in '(0.9, 0.98)'"
            )
        if given.lr_scheduler == "inverse_sqrt" and given.warmup_updates == "0":
            raise UsageError("--warmup-updates: got 0, wanted at least 1 with --lr-scheduler inverse_sqrt")
        _check_bleu_of_validation(given)
        if given.best_checkpoint_metric == "bleu" and "--eval-bleu" not in words:
            raise UsageError("--best-checkpoint-metric bleu: nothing computes BLEU in validation; add --eval-bleu")
        for name, restored in (("--restore-file", given.restore_file), ("--continue-once", given.continue_once)):
            elsewhere = restored in (None, _LAST) or "://" in restored or "--checkpoint-suffix" in words
            if not elsewhere and not Path(restored).is_file():
                raise UsageError(f"{name}: there is no file '{restored}', and training would begin anew")
        flat = not {"--fp16-no-flatten-grads", "--memory-efficient-fp16"} & set(words)
        if "--fp16" in words and flat and not torch.cuda.is_available():
            raise UsageError("--fp16 needs a GPU, and none is visible: leave it out, or give --bf16 --cpu")


def _given(words: Sequence[str]) -> argparse.Namespace:
    """What is looked at here of a command line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--arch", "-a")
    for name in (*_LOOKED_AT, *_NUMBERS):
        parser.add_argument(name)
    return parser.parse_known_args(list(words))[0]


def _check_number(name: str, given: str) -> None:
    """Refuse a number that fairseq divides by or counts up to, or that torch refuses once training has begun."""
    try:
        number = float(given)
    except ValueError:  # argparse says so
        return
    if name in _SHARES and not 0 <= number < 1:
        raise UsageError(f"{name}: got {given}, wanted a number from 0 to below 1")
    if number < (least := 1 if name in _AT_LEAST_ONE else 0):
        raise UsageError(f"{name}: got {given}, wanted at least {least}")


def _check_bleu_of_validation(given: argparse.Namespace) -> None:
    """Refuse what fairseq reads when the data have been read, or at the first validation."""
    for name in ("--eval-bleu-args", "--eval-bleu-detok-args"):
        text = getattr(given, name[2:].replace("-", "_")) or "{}"
        try:
            options = json.loads(text)
        except ValueError:
            options = None
        if not isinstance(options, dict):
            raise UsageError(f"{name}: got '{text}', wanted JSON, as in '{{\"beam\": 5}}'")
        if name == "--eval-bleu-args":
            _check_number("--beam", str(options.get("beam", 1)))
    if (chosen := given.eval_bleu_detok) not in (None, *TOKENIZER_REGISTRY):
        known = ", ".join(TOKENIZER_REGISTRY)
        meant = did_you_mean(chosen, TOKENIZER_REGISTRY)
        raise UsageError(f"--eval-bleu-detok: got '{chosen}'{meant} (wanted one of {known})")


def of_its_task(command: str, words: Sequence[str], load: Callable[..., Any]) -> Callable[..., Any]:
    """fairseq's ``load_checkpoint_to_cpu`` as ``load``, with a UsageError where the checkpoint is of translation and
    would be read as a language model, or the other way round, which fairseq tries."""
    if command not in _TASK_OF:
        return load
    given = _given(words)
    task = given.task or _TASK_OF[command]

    def loaded(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        state = load(path, *args, **kwargs)
        if path == given.lm_path:  # a language model beside the translation
            return state
        own = (state.get("cfg") or {}).get("task")  # of fairseq's older tasks a Namespace
        trained = getattr(own, "_name", None)
        if trained != task and {trained, task} <= set(_TASK_OF.values()):
            fitting = " or ".join(name for name, of in _TASK_OF.items() if of == trained)
            raise UsageError(f"{path} was trained for the task {trained}, and is read for {task}: use {fitting}")
        return state

    return loaded


def _check_architecture(arch: str | None, task: str) -> None:
    ours = ", ".join(name for name in ARCH_MODEL_REGISTRY if name.startswith("gpam_"))
    if arch is None:
        raise UsageError(f"no architecture; give --arch, one of {ours}, or one of fairseq's own")
    if arch not in ARCH_MODEL_REGISTRY:
        raise UsageError(
            f"--arch: got '{arch}'{did_you_mean(arch, ARCH_MODEL_REGISTRY)} (wanted one of {ours}, or one of fairseq's)"
        )
    is_language_model = issubclass(ARCH_MODEL_REGISTRY[arch], FairseqLanguageModel)
    if is_language_model and task == "translation":
        raise UsageError(
            f"--arch {arch} is a language model, and fairseq's task is translation unless it is told: add "
            "--task language_modeling"
        )
    if not is_language_model and task == "language_modeling":
        raise UsageError(f"--arch {arch} is no language model: give --arch gpam_lm, or --task translation")


def parser_sentence(message: str) -> str:
    """argparse's complaint; where it lists a hundred choices, the one that was meant instead, and which of our options
    an unknown one may mean."""
    if unknown := re.fullmatch(r"unrecognized arguments: (--[^\s=]+).*", message):
        ours = own_options()
        if unknown[1] in ours:
            return f"{unknown[1]} is an option of training this plugin's models: --arch gpam_nmt, gpam_lm or the like"
        return message + did_you_mean(unknown[1], ours)
    found = re.fullmatch(r"(argument \S+): invalid choice: '(.*)' \(choose from (.*)\)", message)
    if found is None:
        return message
    known = [name.strip("'") for name in found[3].split(", ")]
    listed = f" (wanted one of {', '.join(known)})" if len(known) <= _LONG else ""
    return f"{found[1]}: got '{found[2]}'{did_you_mean(found[2], known)}{listed}"


def own_options() -> dict[str, str]:
    """What this plugin adds to the command line of training, as it is typed, and the help of each."""
    return {f"--{name.replace('_', '-')}": field.metadata["help"] for name, _, field in attention_fields()}


def sentence_for(error: Exception) -> str | None:
    """What an exception tells that fairseq raised in so many words (``raise`` or ``assert``); None of any other."""
    if str(error).startswith("Cannot load model parameters from checkpoint"):
        path = str(error).removeprefix("Cannot load model parameters from checkpoint ").partition(";")[0]
        return another_model(path, _first_difference(error.__context__))
    if isinstance(error, ValidationError):  # of --model-overrides
        return f"{error.full_key}: {str(error).splitlines()[0]}"
    if unset := re.match(r"Error merging override \w+\.(\w+)=null", str(error)):
        return f"--{unset[1].replace('_', '-')} is not given, and fairseq has no value for it; give it"
    if str(error).startswith("Error(s) in loading state_dict"):
        difference = _first_difference(error)
        if ".mechanism." in difference:
            return (
                f"the checkpoint's model has another attention than was asked for ({difference}): leave it out of "
                "--model-overrides"
            )
        return (
            f"the checkpoint's model does not fit these dictionaries ({difference}); give the prepared "
            "data of its training, or data prepared with the same dictionaries (--srcdict, --tgtdict)"
        )
    words = " ".join(str(error).split())
    for one in (error, error.__context__):  # fairseq looks for the character's beginning, before the file's
        if isinstance(one, UnicodeDecodeError):
            return f"some text is not UTF-8 ({in_a_line(one)}); convert it"
    return words if words and type(error) in _TOLD and _said_so(error) else None


def unread_sentence(error: Exception) -> str | None:
    """Which checkpoint was being read, of any of the errors that torch has for bytes that are none; else None."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is load_without_executing.__code__:
            file = frame.f_locals["file"]
            return f"{getattr(file, 'name', file)} is no checkpoint, or is cut off or damaged ({in_a_line(error)})"
    return None


def missing_sentence(command: str, error: OSError) -> str:
    """What is missing, there already, or cannot be read; of its data fairseq looks for the folder or a dictionary
    first."""
    if error.filename is None:  # raised by fairseq itself: a sentence, or the path alone
        said = str(error)
        if isinstance(error, FileExistsError):
            return f"{said} exists already; give another --destdir, or delete it"
        return said if " " in said else f"no file or folder {said}"
    path = Path(str(error.filename))
    dictionary = path.match("dict*.txt")
    listed = any(frame.f_code is infer_language_pair.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))
    if command == "preprocess" or not isinstance(error, FileNotFoundError) or not (dictionary or listed):
        return str(error)
    return (
        f"no prepared data in '{path.parent if dictionary else path}'; make them with python -m gpam_fairseq "
        "preprocess, or give the folder that has them"
    )


def _first_difference(error: BaseException | None) -> str:
    """torch names all parameters that are missing, unexpected or of another size; one tells enough."""
    lines = str(error).splitlines()
    return lines[min(1, len(lines) - 1)].strip().split(', "')[0].rstrip(". ")


def another_model(path: str, difference: str) -> str:
    """What to do where a training's checkpoint is not of the model that it goes on with, or starts from."""
    return (
        f"{path} holds another model than these options describe ({difference}); give the options of its training, or "
        "start anew (another --save-dir, no --finetune-from-model)"
    )


def _said_so(error: BaseException) -> bool:
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    code = linecache.getline(frame.f_code.co_filename, line).strip()
    in_fairseq = frame.f_globals.get("__name__", "").partition(".")[0] in ("fairseq", "fairseq_cli")
    return in_fairseq and (isinstance(error, AssertionError) or code.startswith("raise "))
