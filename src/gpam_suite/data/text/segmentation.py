"""Text to tokens and back: normalisation, tokeniser, sub-word segmentation.

Every segmentation can be undone line by line (:meth:`Segmenter.restore`), and the preparation checks that it can.
"""

import importlib.metadata
import io
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.data.progress import progress
from gpam_suite.data.store.stages import Piece, Stages
from gpam_suite.data.text.counting import encoded, write_results
from gpam_suite.data.text.merges import merges
from gpam_suite.data.text.moses import MosesNormalizer, MosesTokenizer
from gpam_suite.data.workers import BadLine

log = logging.getLogger(__name__)

SPACE_MARK = "\u2581"  # stands for a space inside tokens (sentencepiece's sign, used for characters as well)
_TEXT = "text.txt"
_VERSION = 1
BPE_FILES = {"subword_nmt": "codes.txt", "sentencepiece": "sentencepiece.model"}


class Tokenizer:
    """Normalised white space; on request Moses' punctuation and tokens, and lower case; for one language.

    Moses is used as in the published preparations of IWSLT'14 and WMT'14 that fairseq's recipes build on: escaped
    special characters (``&quot;``), lower case after the tokens. ``detokenize`` undoes the tokens.
    """

    def __init__(self, options: Mapping[str, Any], language: str | None) -> None:
        self.lowercase = options["lowercase"]
        self.moses = options["tokenizer"] == "moses"
        self.language = language or "en"
        self._normalizer = MosesNormalizer(self.language) if options.get("normalise") else None
        self._tokenizer = MosesTokenizer(
            self.language, hyphens=options.get("hyphens", False), last_stop=options.get("last_stop", False)
        )

    @cached_property
    def _detokenizer(self) -> Any:
        from sacremoses import MosesDetokenizer

        return MosesDetokenizer(lang=self.language)

    def tokenize(self, line: str) -> str:
        """Tokens of one line, separated by single spaces."""
        if self._normalizer:
            line = self._normalizer.normalize(line)
        line = " ".join(line.split())
        if self.moses:
            line = self._tokenizer.tokenize(line)
        return line.lower() if self.lowercase else line

    def detokenize(self, line: str) -> str:
        """Plain text of tokens (up to what lower-casing, normalisation and white space lost)."""
        return self._detokenizer.detokenize(line.split(), unescape=True) if self.moses else line


class Segmenter:
    """Sub-word segmentation of tokenised lines, learnt on the training text."""

    def __init__(self, kind: str, model: Path | None = None) -> None:
        self.kind = kind
        self.segment = self._segmentation(kind, model)

    @classmethod
    def _segmentation(cls, kind: str, model: Path | None) -> Callable[[str], str]:
        if kind == "none":
            return lambda line: line
        if kind == "characters":
            return lambda line: " ".join(line.replace(" ", SPACE_MARK))
        return cls._subword_nmt(model) if kind == "subword_nmt" else cls._sentencepiece(model)

    @staticmethod
    def _subword_nmt(model: Path) -> Callable[[str], str]:
        from subword_nmt.apply_bpe import BPE

        bpe = BPE(io.StringIO(_merges(model)), glossaries=["<unk>"])  # text with replaced words keeps their mark whole
        word = lru_cache(maxsize=200_000)(lambda word: " ".join(bpe.segment_tokens([word])))
        return lambda line: " ".join(map(word, line.split()))

    @staticmethod
    def _sentencepiece(model: Path) -> Callable[[str], str]:
        from sentencepiece import SentencePieceProcessor

        try:
            processor = SentencePieceProcessor(model_file=str(model))
        except (RuntimeError, OSError) as error:
            raise UsageError(f"{model} is no model of sentencepiece's ({error}); prepare the data again") from None
        return lambda line: " ".join(processor.encode(line, out_type=str))

    def restore(self, line: str) -> str:
        """Undo the segmentation."""
        return undo_segmentation(line, self.kind)


def _merges(path: Path) -> str:
    """The text of subword-nmt's codes: a version, then two symbols a line. subword-nmt itself would end the process.

    Raises:
        UsageError: another text.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start}); prepare the data again") from None
    first, *lines = text.removesuffix("\n").split("\n")
    if first != "#version: 0.2":
        raise UsageError(f"{path}: got '{first[:40]}', wanted '#version: 0.2' above the merges; prepare the data again")
    for number, line in enumerate(lines, start=2):
        if len(line.split(" ")) != 2 or not all(line.split(" ")) or "\r" in line:
            raise UsageError(f"{path}, line {number}: got '{line[:40]}', wanted two symbols; prepare the data again")
    lines = lines or ["\u2028 \u2028"]  # it takes no empty list: a pair of white space, which no word has
    return f"{first}\n" + "".join(f"{line}\n" for line in lines)


def undo_segmentation(line: str, kind: str) -> str:
    """Tokenised text of segmented text."""
    if kind == "subword_nmt":
        return (line + " ").replace("@@ ", "").strip()
    if kind in ("sentencepiece", "characters"):
        return line.replace(" ", "").replace(SPACE_MARK, " ").strip()
    return line


def learn(kind: str, size: int, texts: Sequence[Path], counts: Counter[str], folder: Path) -> None:
    """Learn the segmentation on tokenised training texts (of both languages together for translation).

    Writes the model into ``folder``: ``codes.txt`` (subword-nmt merges, learnt from the ``counts`` of the words) or
    ``sentencepiece.model`` (type BPE, ``size`` pieces at most, identity normalisation, every character covered).
    """
    path = folder / BPE_FILES[kind]
    log.info("learning %s, size %d", kind, size)
    if kind == "subword_nmt":
        _learn_subword_nmt(size, counts, path)
    else:
        _learn_sentencepiece(size, texts, path)


def _learn_subword_nmt(size: int, counts: Counter[str], path: Path) -> None:
    words: Counter[str] = Counter()
    for word, number in counts.items():
        for part in word.split("<unk>"):  # a mark of words already replaced is no text to learn from
            words[part] += number
    del words[""]
    with path.open("w", encoding="utf-8", newline="\n") as codes:
        codes.write("#version: 0.2\n")
        codes.writelines(
            f"{left} {right}\n"
            for left, right in progress("learn merges", size, of=merges(words, size), unit=" merges")
        )


def _learn_sentencepiece(size: int, texts: Sequence[Path], path: Path) -> None:
    from sentencepiece import SentencePieceTrainer

    with path.open("wb") as model:
        try:
            SentencePieceTrainer.train(
                sentence_iterator=_lines(texts),
                model_writer=model,
                model_type="bpe",
                vocab_size=size,
                hard_vocab_limit=False,
                character_coverage=1.0,
                normalization_rule_name="identity",
                max_sentence_length=1 << 20,  # the default would leave out long lines without a word
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise UsageError(
                f"preprocessing.bpe_size={size} does not suit this text: sentencepiece says {error}"
            ) from error


def _lines(texts: Sequence[Path]) -> Iterator[str]:
    for text in texts:
        with text.open(encoding="utf-8", newline="\n") as lines:
            yield from (line.rstrip("\n") for line in lines)


def tokenise(stages: Stages, text: Piece, options: Mapping[str, Any], language: str | None, name: str) -> Piece:
    """``text`` as tokens (:class:`Tokenizer`), by a stage."""
    own = {
        key: options[key] for key in ("tokenizer", "lowercase", "normalise", "hyphens", "last_stop") if key in options
    }
    moses = options["tokenizer"] == "moses"
    made_from: dict[str, Any] = {"text": text, "options": own}
    if moses:
        made_from |= {"language": language or "en", "sacremoses": importlib.metadata.version("sacremoses")}

    def work(folder: Path) -> None:
        task = _tokeniser, (tuple(own.items()), language)
        write_results(stages.workers.results(task, text.path, f"tokenise {name}"), folder / _TEXT)

    return stages.run("tokenise", _VERSION, made_from, work).piece(_TEXT)


def _tokeniser(options: tuple[tuple[str, Any], ...], language: str | None) -> Callable[[list[str]], bytes]:
    tokenizer = Tokenizer(dict(options), language)
    return lambda lines: encoded(map(tokenizer.tokenize, lines))


def segment(stages: Stages, tokens: Piece, kind: str, model: Piece | None, name: str) -> Piece:
    """``tokens`` as sub-words, by a stage.

    Raises:
        UsageError: a line whose segmentation cannot be undone, as it holds the segmentation's own marks.
    """
    if kind == "none":
        return tokens
    made_from: dict[str, Any] = {"tokens": tokens, "kind": kind}
    if model is not None:
        made_from |= {"model": model, "version": importlib.metadata.version(kind.replace("_", "-"))}

    def work(folder: Path) -> None:
        task = _segmenter, (kind, model and model.path)
        write_results(stages.workers.results(task, tokens.path, f"segment {name}"), folder / _TEXT)

    return stages.run("segment", _VERSION, made_from, work).piece(_TEXT)


def _segmenter(kind: str, model: Path | None) -> Callable[[list[str]], bytes]:
    segmenter = Segmenter(kind, model)

    def work(lines: list[str]) -> bytes:
        segmented = []
        for number, line in enumerate(lines, start=1):
            segmented.append(segmenter.segment(line))
            if segmenter.restore(segmented[-1]) != line:
                raise BadLine(
                    number,
                    f"preprocessing.bpe={kind} cannot be undone on this line (it holds '@@' or '{SPACE_MARK}', the "
                    "marks of the segmentation); change the line or choose another bpe",
                )
        return encoded(segmented)

    return work
