"""A trained model in a folder of its own: ``load(folder).translate(text)``, ``.perplexity(text)``, ``.write(text)``.

``model.safetensors`` holds the parameters, ``config.json`` the model, its text processing and the checksum of every
other file; ``dict*.txt`` and ``codes.txt`` or ``sentencepiece.model`` are fairseq's and the segmentation's own files.
Nothing is unpickled, so a folder of a stranger's runs no code. ``scripts/export.py`` writes such folders.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpam_fairseq  # noqa: F401  (before fairseq)
from gpam_fairseq.config import attention_and_options
from gpam_fairseq.install import check_attention

import torch
from fairseq.models import build_model
from fairseq.tasks.translation import TranslationTask
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from omegaconf import OmegaConf
from safetensors.torch import load as load_tensors
from torch import Tensor

from gpam.errors import UsageError
from gpam_suite.common import strict_json
from gpam_suite.common.tasks import LM, NMT
from gpam_suite.config.trust import refuse_code
from gpam_suite.data.binarise import load_dictionary
from gpam_suite.data.kinds.characters import symbol
from gpam_suite.data.options import check_preprocessing
from gpam_suite.data.text.encoding import Encoder
from gpam_suite.data.text.lines import sha256
from gpam_suite.data.text.segmentation import BPE_FILES, Tokenizer, undo_segmentation
from gpam_suite.evaluate.language_model import token_nll
from gpam_suite.evaluate.translation import decoding_options, sentences_of, translate_sentences

__all__ = ["CONFIG", "FORMAT", "WEIGHTS", "Pretrained", "Score", "load", "unshared"]

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
_FILE = {"type": "string", "pattern": r"^[\w-][\w.-]*$"}  # of the folder itself
_POSITIVE = {"type": "integer", "minimum": 1, "maximum": 1 << 31}
_CONFIG = Draft202012Validator(
    {
        "required": ["task", "unit", "languages", "preprocessing", "evaluation", "dictionaries", "fairseq", "files"],
        "properties": {
            "task": {"enum": [LM.name, NMT.name]},
            "unit": {"enum": ["word", "character"]},
            "languages": {"type": "array", "items": {"type": "string", "pattern": "^[A-Za-z]"}, "minItems": 1},
            "preprocessing": {"type": "object"},
            "evaluation": {
                "type": "object",
                "required": ["max_tokens"],
                "properties": {
                    "max_tokens": _POSITIVE,
                    "beam": _POSITIVE,
                    "length_penalty": {"type": "number"},
                    "context_window": {"type": ["integer", "null"], "minimum": 0},
                },
            },
            "dictionaries": {"type": "array", "items": _FILE, "minItems": 1, "maxItems": 2},
            "fairseq": {
                "type": "object",
                "required": ["task", "model"],
                "properties": {"task": {"type": "object"}, "model": {"type": "object"}},
            },
            "files": {"type": "object", "propertyNames": _FILE, "additionalProperties": {"type": "string"}},
        },
    }
)


@dataclass(frozen=True)
class Score:
    """Negative log-likelihood of a text in nats, and what it is divided by."""

    nll: float
    words: int
    tokens: int

    @property
    def perplexity(self) -> float:
        """``exp(NLL / words)``, a line's end counted as a word (for a model by character: a byte is a word)."""
        return math.exp(self.nll / self.words)


class Pretrained:
    """A model for use: fairseq's ``model`` in evaluation mode, its ``dictionaries`` and its ``config``."""

    def __init__(self, model: Any, dictionaries: Sequence[Any], config: dict[str, Any], folder: Path) -> None:
        self.model, self.config, self.folder = model, config, folder
        self.source_dictionary, self.target_dictionary = dictionaries[0], dictionaries[-1]
        options, languages = config["preprocessing"], config["languages"]
        self._encoder = Encoder(options, languages[0], config["unit"], self.source_dictionary, folder)
        self._target_tokenizer = Tokenizer(options, languages[-1])

    def translate(self, text: str | Sequence[str], beam: int | None = None) -> Any:
        """The translation of one sentence, or a list of translations of as many; of a blank one, a blank.

        Beam, length penalty and batches are those of the published score unless ``beam`` says otherwise.

        Raises:
            UsageError: a language model, or a sentence that is longer than the model reads.
        """
        if self.config["task"] != NMT.name:
            raise UsageError(f"{self.folder} is a language model: it gives perplexity and writes, no translations")
        sentences = [text] if isinstance(text, str) else list(text)
        ids = [self._encode(line, number) for number, line in enumerate(sentences, start=1)]
        places = [index for index, line in enumerate(sentences) if line.strip()]
        translated = [""] * len(sentences)
        if places:
            for index, line in zip(places, self._translate([ids[index] for index in places], beam), strict=True):
                translated[index] = self._plain(line)
        return translated[0] if isinstance(text, str) else translated

    def _translate(self, ids: list[Tensor], beam: int | None) -> list[str]:
        evaluation = self.config["evaluation"]
        longest = min(self.model.max_positions()[0], evaluation["max_tokens"])
        for number, line in enumerate(ids, start=1):
            if len(line) > longest:
                raise UsageError(
                    f"sentence {number} (blank ones left out) has {len(line)} sub-words, the model reads at most "
                    f"{longest}; split it"
                )
        task = TranslationTask(
            OmegaConf.create(self.config["fairseq"]["task"]), self.source_dictionary, self.target_dictionary
        )
        options = decoding_options(evaluation) | ({"beam": beam} if beam else {})
        return translate_sentences(self.model, task, sentences_of(ids, task), **options)

    def _plain(self, segmented: str) -> str:
        return self._target_tokenizer.detokenize(undo_segmentation(segmented, self.config["preprocessing"]["bpe"]))

    def perplexity(self, text: str) -> float:
        """Perplexity of a text by the protocol of the published score; see :meth:`score`."""
        return self.score(text).perplexity

    def score(self, text: str) -> Score:
        r"""Negative log-likelihood of a text, its lines ended by ``\n`` and read one after another.

        Raises:
            UsageError: a translation model, or an empty text.
        """
        if self.config["task"] != LM.name:
            raise UsageError(f"{self.folder} is a translation model: it translates, and gives no perplexity")
        if not text:
            raise UsageError("the text is empty, wanted at least one line")
        if self.config["unit"] == "character":
            stream = self._encoder.ids(text)
        else:
            text = text.removesuffix("\n") + "\n"
            stream = torch.cat(
                [self._encode(line, number) for number, line in enumerate(text.split("\n")[:-1], start=1)]
            )
        evaluation = self.config["evaluation"]
        nll = token_nll(
            self.model,
            stream,
            eos=self.source_dictionary.eos(),
            tokens_per_sample=self.config["fairseq"]["task"]["tokens_per_sample"],
            context_window=evaluation["context_window"],
            max_tokens=evaluation["max_tokens"],
        )
        return Score(float(nll.double().sum()), self._encoder.words(text), len(stream))

    def write(
        self, prompt: str = "", tokens: int = 100, temperature: float = 1.0, top_k: int = 0, seed: int = 1
    ) -> str:
        r"""``prompt``, as the model reads it, and ``tokens`` more tokens, drawn one after another by ``seed``.

        Each is drawn from ``p(token | what precedes it) ** (1 / temperature)``, normalised, over the ``top_k``
        likeliest (0: all); temperature 0 takes the likeliest. What the training text had not is never written; a line's
        end is a token.

        Raises:
            UsageError: a translation model, or a number that is out of range.
        """
        if self.config["task"] != LM.name:
            raise UsageError(f"{self.folder} is a translation model: it translates, and writes no text of its own")
        if tokens < 1 or top_k < 0 or not (temperature >= 0 and math.isfinite(temperature)):
            raise UsageError(
                f"got {tokens} tokens, temperature {temperature:g}, top-k {top_k}; wanted at least 1, 0 and 0"
            )
        words, stream = self.source_dictionary, self._encoder.ids(prompt)
        if (stream < words.eos()).any():
            raise UsageError("the prompt holds <s> or <pad>, which fairseq reserves; write it differently")
        stream = torch.cat([stream.new_tensor([words.eos()]), stream])
        never = [words.bos(), words.pad(), words.unk()] + [words.eos()] * (self.config["unit"] == "character")
        never += [
            index for index, count in enumerate(words.count) if not count
        ]  # with which fairseq fills dictionaries
        longest = self.config["fairseq"]["task"]["tokens_per_sample"]
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(tokens):
                log_p = self.model.get_normalized_probs(self.model(stream[None, -longest:]), log_probs=True)[0, -1]
                log_p = log_p.float().index_fill(0, log_p.new_tensor(never).long(), float("-inf"))
                stream = torch.cat([stream, _drawn(log_p, temperature, top_k, generator)])
        return self._text(stream[1:])

    def _text(self, ids: Tensor) -> str:
        names = [self.source_dictionary[int(index)] for index in ids]
        if self.config["unit"] == "character":
            bytes_of = {symbol(byte): byte for byte in range(256)}
            return bytes(bytes_of[name] for name in names if name in bytes_of).decode("utf-8", "replace")
        lines: list[list[str]] = [[]]
        for name in names:
            if name == self.source_dictionary.eos_word:
                lines.append([])
            else:
                lines[-1].append(name)
        return "\n".join(self._plain(" ".join(line)) for line in lines)

    def _encode(self, line: str, number: int) -> Tensor:
        """Ids of one line, its end included."""
        if "\n" in line:
            raise UsageError(f"sentence {number} holds a line feed; give one sentence a line")
        ids = self._encoder.ids(line)
        if (ids < self.source_dictionary.unk()).any():
            raise UsageError(f"line {number} holds <s>, <pad> or </s>, which fairseq reserves; write it differently")
        return torch.cat([ids, ids.new_tensor([self.source_dictionary.eos()])])


def _drawn(log_p: Tensor, temperature: float, top_k: int, generator: torch.Generator) -> Tensor:
    """One index, ``[1]``."""
    if temperature == 0:
        return log_p.argmax()[None]
    if 0 < top_k < len(log_p):
        log_p = log_p.masked_fill(log_p < log_p.topk(top_k).values[-1], float("-inf"))
    return torch.multinomial((log_p / temperature).softmax(0), 1, generator=generator)


def load(folder: str | Path) -> Pretrained:
    """The exported model in ``folder``, on the CPU, for use.

    Raises:
        UsageError: not such a folder, or a file that is missing, cut off, exchanged or another model's.
    """
    folder = Path(folder)
    config = _read_config(folder)
    files = {name: _verified(folder / name, wanted) for name, wanted in config["files"].items()}
    dictionaries = [load_dictionary(folder / name) for name in config["dictionaries"]]
    try:
        found = load_tensors(files[WEIGHTS])
        sections = OmegaConf.create(config["fairseq"])
        refuse_code(sections)
        if any(sections.model.get(f"{stack}_layers", 0) > len(found) for stack in ("encoder", "decoder")):
            raise _broken(folder, f"{CONFIG} has more layers than there are parameters")
        task = SimpleNamespace(source_dictionary=dictionaries[0], target_dictionary=dictionaries[-1])
        model = build_model(sections.model, task)
    except UsageError:
        raise
    except Exception as error:  # fairseq's builders say what is wrong with a model's settings by any exception
        raise _broken(folder, " ".join(str(error).split())[:200] or type(error).__name__) from None
    wanted = unshared(model.state_dict())
    differing = [name for name in wanted if name not in found or found[name].shape != wanted[name].shape]
    differing += [name for name in found if name not in wanted]
    if differing:
        raise _broken(folder, f"{len(differing)} parameters differ from {CONFIG}, the first is {differing[0]}")
    model.load_state_dict(found, strict=False)
    check_attention(model, *attention_and_options(sections.model))
    return Pretrained(model.eval(), dictionaries, config, folder)


def unshared(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """``state`` with each tensor under its first name only: tied parameters have several."""
    seen: dict[tuple[int, torch.Size], str] = {}
    for name, tensor in state.items():
        seen.setdefault((tensor.data_ptr() if tensor.numel() else -len(seen) - 1, tensor.shape), name)
    return {name: state[name] for name in seen.values()}


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = strict_json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{folder} holds no exported model (no {CONFIG}); make one with scripts/export.py") from None
    except ValueError:
        raise _broken(folder, f"{CONFIG} is not JSON") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise UsageError(f"{path} is not of format {FORMAT}, which this version reads; export the model again")
    if complaint := _complaint(config):
        raise _broken(folder, f"{CONFIG} {complaint}")
    return config | {"preprocessing": check_preprocessing(config["preprocessing"])}


def _complaint(config: dict[str, Any]) -> str | None:
    """What is wrong with the content of an exported model's configuration."""
    error = best_match(_CONFIG.iter_errors(config))
    if error is not None:
        return f"has at {'.'.join(map(str, error.absolute_path)) or 'the top'}: {error.message[:200]}"
    wanted = {WEIGHTS, *config["dictionaries"]}
    kind = config["preprocessing"].get("bpe")
    wanted |= {BPE_FILES[kind]} if kind in BPE_FILES else set()
    missing = sorted(wanted - set(config["files"]))
    return f"lists no checksum of {missing[0]}" if missing else None


def _verified(path: Path, wanted: str) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise _broken(path.parent, f"{path.name} is missing") from None
    if sha256(content) != wanted:
        raise _broken(path.parent, f"{path.name} is cut off or not the file that was exported: its checksum differs")
    return content


def _broken(folder: Path, what: str) -> UsageError:
    return UsageError(f"{folder} cannot be used: {what}; get the folder again, or export the model again")
