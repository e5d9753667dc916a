"""A trained model in a folder of its own: ``load(folder).translate(text)``, ``.perplexity(text)``, ``.write(text)``.

``model.safetensors`` holds the parameters, ``config.json`` the model, its text processing and the checksum of every
file, its own too. ``dict*.txt`` and ``codes.txt`` or ``sentencepiece.model`` are fairseq's and the segmentation's own.
Nothing is unpickled, so a folder of a stranger's runs no code. ``scripts/export.py`` writes such folders.
"""

import math
from collections.abc import Sequence
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
from safetensors.torch import load_model
from torch import Tensor

from gpam.errors import UsageError, in_a_line
from gpam_suite.common import strict_json
from gpam_suite.common.files import file_sha256
from gpam_suite.common.tasks import LM, NMT
from gpam_suite.config.trust import refuse_code
from gpam_suite.data.binarise import load_dictionary
from gpam_suite.data.kinds.characters import restore
from gpam_suite.data.options import check_preprocessing
from gpam_suite.data.text.encoding import Encoder
from gpam_suite.data.text.segmentation import BPE_FILES, Tokenizer, undo_segmentation
from gpam_suite.evaluate.language_model import LanguageModelScore, token_nll
from gpam_suite.evaluate.translation import sentences_of, translate_sentences

FORMAT = 2
CONFIG, WEIGHTS = "config.json", "model.safetensors"
_CAN = {
    LM.name: "a language model: it gives perplexity and writes, no translations",
    NMT.name: "a translation model: it translates, and writes no text of its own and gives no perplexity",
}
_FILE = {"type": "string", "pattern": r"^[\w-][\w.-]*$"}  # of the folder itself
_POSITIVE = {"type": "integer", "minimum": 1, "maximum": 1 << 31}
_LAYERS = {"type": "integer", "maximum": 1 << 10}  # more would be built for hours before parameters are found missing
_EVALUATION = {
    "max_tokens": _POSITIVE,
    "beam": _POSITIVE,
    "length_penalty": {"type": "number"},
    "context_window": {"type": ["integer", "null"], "minimum": 0},
}
_MODEL = {"type": "object", "properties": {"encoder_layers": _LAYERS, "decoder_layers": _LAYERS}}
_PROPERTIES = {
    "task": {"enum": [LM.name, NMT.name]},
    "unit": {"enum": ["word", "character"]},
    "languages": {"type": "array", "items": {"type": "string", "pattern": "^[A-Za-z]"}, "minItems": 1},
    "preprocessing": {"type": "object"},
    "evaluation": {"type": "object", "required": ["max_tokens"], "properties": _EVALUATION},
    "dictionaries": {"type": "array", "items": _FILE, "minItems": 1, "maxItems": 2},
    "fairseq": {
        "type": "object",
        "required": ["task", "model"],
        "properties": {"task": {"type": "object"}, "model": _MODEL},
    },
    "files": {"type": "object", "propertyNames": _FILE, "additionalProperties": {"type": "string"}},
}
_OF_A_LANGUAGE_MODEL = {
    "evaluation": {"required": ["context_window"], "properties": {"context_window": {"type": "integer"}}},
    "fairseq": {
        "properties": {"task": {"required": ["tokens_per_sample"], "properties": {"tokens_per_sample": _POSITIVE}}}
    },
}
_VALIDATOR = Draft202012Validator(
    {
        "required": list(_PROPERTIES),
        "properties": _PROPERTIES,
        "if": {"properties": {"task": {"const": LM.name}}},
        "then": {"properties": _OF_A_LANGUAGE_MODEL},
        "else": {"properties": {"evaluation": {"required": ["beam", "length_penalty"]}}},
    }
)


class Pretrained:
    """A model for use: fairseq's ``model`` in evaluation mode, its ``dictionaries`` and its ``config``."""

    def __init__(self, model: Any, dictionaries: Sequence[Any], config: dict[str, Any], folder: Path) -> None:
        self.model, self.config, self.folder = model, config, folder
        self.source_dictionary, self.target_dictionary = dictionaries[0], dictionaries[-1]
        options, languages = config["preprocessing"], config["languages"]
        self._encoder = Encoder(options, languages[0], config["unit"], self.source_dictionary, folder)
        self._target_tokenizer = Tokenizer(options, languages[-1])

    def translate(self, text: str | Sequence[str]) -> Any:
        """The translation of one sentence, or a list of translations of as many; of a blank one, a blank.

        Beam, length penalty and batches are those of the published score.

        Raises:
            UsageError: a language model, or a sentence that is longer than the model reads.
        """
        self._must_be(NMT.name)
        sentences = [text] if isinstance(text, str) else list(text)
        evaluation, end = self.config["evaluation"], torch.tensor([self.source_dictionary.eos()])
        longest = min(self.model.max_positions()[0], evaluation["max_tokens"])
        ids: dict[int, Tensor] = {}
        for number, line in enumerate(sentences, start=1):
            if "\n" in line:
                raise UsageError(f"sentence {number} holds a line feed; give one sentence a line")
            if line.strip():
                ids[number] = torch.cat([self._ids(line), end])
                if (tokens := len(ids[number])) > longest:
                    raise UsageError(
                        f"sentence {number} has {tokens} sub-words, the model reads at most {longest}; split it"
                    )
        settings = OmegaConf.create(self.config["fairseq"]["task"])
        task = TranslationTask(settings, self.source_dictionary, self.target_dictionary)
        translated: dict[int, str] = {}
        if ids:
            batches = sentences_of([*ids.values()], task)
            found = translate_sentences(self.model, task, batches, evaluation)
            translated = dict(zip(ids, map(self._plain, found), strict=True))
        lines = [translated.get(number, "") for number in range(1, len(sentences) + 1)]
        return lines[0] if isinstance(text, str) else lines

    def perplexity(self, text: str) -> float:
        """Perplexity of a text by the protocol of the published score; see :meth:`score`."""
        return self.score(text).perplexity

    def score(self, text: str) -> LanguageModelScore:
        r"""Negative log-likelihood of a text, its lines ended by ``\n`` and read one after another; for a model by
        character a byte is a word.

        Raises:
            UsageError: a translation model, or an empty text.
        """
        self._must_be(LM.name)
        if not text:
            raise UsageError("the text is empty, wanted at least one line")
        if self.config["unit"] == "word":
            text = text.removesuffix("\n") + "\n"
        stream, evaluation = self._ids(text), self.config["evaluation"]
        nll = token_nll(
            self.model,
            stream,
            eos=self.source_dictionary.eos(),
            tokens_per_sample=self.config["fairseq"]["task"]["tokens_per_sample"],
            context_window=evaluation["context_window"],
            max_tokens=evaluation["max_tokens"],
        )
        return LanguageModelScore(float(nll.double().sum()), len(stream), self._encoder.words(text), units=[])

    @torch.no_grad()
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
        self._must_be(LM.name)
        fits = temperature >= 0 and math.isfinite(temperature) and 0 <= seed < 2**63
        if tokens < 1 or top_k < 0 or not fits:
            raise UsageError(
                f"got {tokens} tokens, temperature {temperature:g}, top-k {top_k}, seed {seed}; wanted at least 1, 0, "
                "0 and 0, a finite temperature, and a seed less than 2**63"
            )
        words = self.source_dictionary
        never = [words.bos(), words.pad(), words.unk()] + [words.eos()] * (self.config["unit"] == "character")
        never += [index for index, count in enumerate(words.count) if not count]  # fairseq fills dictionaries with them
        longest = self.config["fairseq"]["task"]["tokens_per_sample"]
        generator = torch.Generator().manual_seed(seed)
        stream = torch.cat([torch.tensor([words.eos()]), self._ids(prompt)])
        for _ in range(tokens):
            log_p = self.model.get_normalized_probs(self.model(stream[None, -longest:]), log_probs=True)[0, -1]
            log_p = log_p.float().index_fill(0, torch.tensor(never), float("-inf"))
            stream = torch.cat([stream, _drawn(log_p, temperature, top_k, generator)])
        ids = stream[1:]
        if self.config["unit"] == "character":
            symbols = (words[index] for index in ids.tolist() if index >= words.nspecial)
            return restore(symbols).decode("utf-8", "replace")
        lines = torch.tensor_split(ids, (ids == words.eos()).nonzero().flatten())
        return "\n".join(self._plain(words.string(line)) for line in lines)

    def _must_be(self, task: str) -> None:
        if self.config["task"] != task:
            raise UsageError(f"{self.folder} is {_CAN[self.config['task']]}")

    def _ids(self, text: str) -> Tensor:
        ids = self._encoder.ids(text)
        ends = text.count("\n") if self.config["unit"] == "word" else 0
        if int((ids < self.source_dictionary.unk()).sum()) > ends:
            raise UsageError("the text holds <s>, <pad> or </s>, which fairseq reserves; write it differently")
        return ids

    def _plain(self, segmented: str) -> str:
        return self._target_tokenizer.detokenize(undo_segmentation(segmented, self.config["preprocessing"]["bpe"]))


def _drawn(log_p: Tensor, temperature: float, top_k: int, generator: torch.Generator) -> Tensor:
    """One index, ``[1]``."""
    if temperature == 0:
        return log_p.argmax()[None]
    if 0 < top_k < len(log_p):
        log_p = log_p.masked_fill(log_p < log_p.topk(top_k).values[-1], float("-inf"))
    return torch.multinomial(((log_p - log_p.max()).double() / temperature).softmax(0), 1, generator=generator)


def load(folder: str | Path) -> Pretrained:
    """The exported model in ``folder``, on the CPU, for use.

    Raises:
        UsageError: not such a folder, or a file that is missing, cut off, exchanged or another model's.
    """
    folder = Path(folder)
    config = _read_config(folder)
    segmentation = BPE_FILES.get(config["preprocessing"]["bpe"])
    for name in [WEIGHTS, *config["dictionaries"], *([segmentation] if segmentation else [])]:
        if not (folder / name).is_file():
            raise _broken(folder, f"{name} is missing")
        if file_sha256(folder / name) != config["files"].get(name):
            raise _broken(folder, f"{name} is cut off or not the file that was exported: its checksum differs")
    dictionaries = [load_dictionary(folder / name) for name in config["dictionaries"]]
    try:
        sections = OmegaConf.create(config["fairseq"])
        refuse_code(sections)
        task = SimpleNamespace(source_dictionary=dictionaries[0], target_dictionary=dictionaries[-1])
        model = build_model(sections.model, task)
        missing, unexpected = load_model(model, folder / WEIGHTS, strict=False)
        known = model.state_dict()  # fairseq itself gives a tied output projection, which counts as unexpected
        if differing := [*missing, *(name for name in unexpected if name not in known)]:
            raise _broken(folder, f"{len(differing)} parameters differ from {CONFIG}, the first is {differing[0]}")
    except UsageError:
        raise
    except Exception as error:  # fairseq's builders say what is wrong with a model's settings by any exception
        raise _broken(folder, in_a_line(error)) from None
    check_attention(model, *attention_and_options(sections.model))
    return Pretrained(model.eval(), dictionaries, config, folder)


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
    try:
        config = strict_json.checked(config)
    except ValueError as error:
        raise _broken(folder, f"{CONFIG}: {error}") from None
    if (error := best_match(_VALIDATOR.iter_errors(config))) is not None:
        where = ".".join(map(str, error.absolute_path)) or "the top"
        raise _broken(folder, f"{CONFIG} has at {where}: {error.message[:200]}")
    window, length = config["evaluation"].get("context_window"), config["fairseq"]["task"].get("tokens_per_sample")
    if config["task"] == LM.name and window >= length:
        raise _broken(folder, f"{CONFIG} has a context_window of {window}, wanted less than tokens_per_sample={length}")
    return config | {"preprocessing": check_preprocessing(config["preprocessing"])}


def _broken(folder: Path, what: str) -> UsageError:
    return UsageError(f"{folder} cannot be used: {what}; get the folder again, or export the model again")
