"""Text to tokens and back: normalisation, tokeniser, sub-word segmentation.

Every segmentation can be undone line by line (:func:`undo_segmentation`), and the preparation checks that it can.
"""

import contextlib
import importlib.metadata
import io
import itertools
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.data.store.stages import Piece, Stages
from gpam_suite.data.text.counting import count, load_counts
from gpam_suite.data.workers import BadLine, OfLines

log = logging.getLogger(__name__)

SPACE_MARK = "\u2581"  # stands for a space inside tokens (sentencepiece's sign, used for characters as well)
_TEXT = "text.txt"
BPE_FILES = {"subword_nmt": "codes.txt", "sentencepiece": "sentencepiece.model"}


class Tokenizer:
    """Normalised white space; on request Moses' punctuation and tokens, and lower case; for one language.

    Moses is sacremoses, used as in the published preparations of IWSLT'14 and WMT'14 that fairseq's recipes build on:
    escaped special characters (``&quot;``), lower case after the tokens. ``detokenize`` undoes the tokens.

    ``options`` are those of ``preprocessing``. ``last_stop`` splits the full stop off the last word of a line whatever
    the word is, as later versions of Moses do and sacremoses does not.
    """

    def __init__(self, options: Mapping[str, Any], language: str | None) -> None:
        self._language = _moses_language(language)
        self._options, self._moses = options, None
        if options["tokenizer"] == "moses":
            from sacremoses import MosesDetokenizer, MosesTokenizer

            self._moses, self._undo = MosesTokenizer(lang=self._language), MosesDetokenizer(lang=self._language)

    @cached_property
    def _normalise(self) -> Callable[[str], str]:
        """Moses' punctuation normalisation, then a space for each control character, as WMT's recipes call them.

        As the Perl scripts do it, which read a line with its line feed.
        """
        import regex  # sacremoses needs it; the standard library's has no classes of Unicode
        from sacremoses import MosesPunctNormalizer

        normalizer = MosesPunctNormalizer(self._language, perl_parity=True)
        control = regex.compile(r"\p{C}")
        return lambda line: control.sub(" ", normalizer.normalize(f"{line}\n"))

    def tokenize(self, line: str) -> str:
        """Tokens of one line, separated by single spaces."""
        if self._options.get("normalise"):
            line = self._normalise(line)
        line = " ".join(line.split())
        if self._moses:
            hyphens = self._options.get("hyphens", False)
            line = self._moses.tokenize(line, aggressive_dash_splits=hyphens, return_str=True)
            if self._options.get("last_stop") and line.endswith(".") and line.rpartition(" ")[2].strip("."):
                line = f"{line[:-1]} ."
        return line.lower() if self._options["lowercase"] else line

    def detokenize(self, line: str) -> str:
        """Plain text of tokens (up to what lower-casing, normalisation and white space lost)."""
        return self._undo.detokenize(line.split(), unescape=True) if self._moses else line


def _moses_language(language: str | None) -> str:
    """``pt`` of ``pt-BR``: Moses has rules for languages, by their codes in lower case, and none for regions."""
    return re.split("[-_]", language or "en")[0].lower()


def segmenter(kind: str, model: Path | None = None) -> Callable[[str], str]:
    """Tokenised lines to sub-words, by a model that :func:`learn` wrote.

    Raises:
        UsageError: another file than such a model.
    """
    if kind == "none":
        return lambda line: line
    if kind == "characters":
        return lambda line: " ".join(line.replace(" ", SPACE_MARK))
    if kind == "subword_nmt":
        from subword_nmt.apply_bpe import BPE

        bpe = BPE(io.StringIO(_merges(model)), glossaries=["<unk>"])  # text with replaced words keeps their mark whole
        word = lru_cache(maxsize=200_000)(lambda word: " ".join(bpe.segment_tokens([word])))
        return lambda line: " ".join(map(word, line.split()))
    from sentencepiece import SentencePieceProcessor

    try:
        processor = SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError) as error:
        raise UsageError(f"{model} is no model of sentencepiece's ({error}); prepare the data again") from None
    return lambda line: " ".join(processor.encode(line, out_type=str))


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


def learn(stages: Stages, texts: Sequence[Piece], kind: str, size: int) -> Piece | None:
    """The model of the segmentation, learnt by a stage on tokenised training texts (of both languages together).

    ``codes.txt`` (subword-nmt merges), ``sentencepiece.model`` (type BPE, ``size`` pieces at most, identity
    normalisation, every character covered), or None where nothing is to be learnt.
    """
    if kind not in BPE_FILES:
        return None

    def work(folder: Path) -> None:
        log.info("learning %s, size %d", kind, size)
        path = folder / BPE_FILES[kind]
        if kind == "subword_nmt":
            counts = load_counts([count(stages, text, "train", each_word=True) for text in texts])
            _learn_subword_nmt(size, counts, path)
        else:
            _learn_sentencepiece(size, [text.path for text in texts], path)

    version = importlib.metadata.version(kind.replace("_", "-"))
    made_from = {"texts": list(texts), "kind": kind, "size": size, "version": version}
    return stages.run("learn", made_from, work).piece(BPE_FILES[kind])


def _learn_subword_nmt(size: int, counts: Counter[str], path: Path) -> None:
    from subword_nmt.learn_bpe import learn_bpe

    words: Counter[str] = Counter()
    for word, number in counts.items():
        for part in word.split("<unk>"):  # a mark of words already replaced is no text to learn from
            words[part] += number
    with contextlib.ExitStack() as stack:
        codes = stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
        if not sys.stderr.isatty():  # where its bar is of no use
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        if any(len(word) > 1 for word in words):
            learn_bpe((f"{word} {number}\n" for word, number in words.items() if word), codes, size, is_dict=True)
        else:  # no pair: subword-nmt would fail
            codes.write("#version: 0.2\n")


def _learn_sentencepiece(size: int, texts: Sequence[Path], path: Path) -> None:
    from sentencepiece import SentencePieceTrainer

    with contextlib.ExitStack() as stack:
        model = stack.enter_context(path.open("wb"))
        files = [stack.enter_context(text.open(encoding="utf-8", newline="\n")) for text in texts]
        try:
            SentencePieceTrainer.train(
                sentence_iterator=(line.rstrip("\n") for line in itertools.chain(*files)),
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


def tokenise(stages: Stages, text: Piece, options: Mapping[str, Any], language: str | None, name: str) -> Piece:
    """``text`` as tokens (:class:`Tokenizer`), by a stage."""
    own = {
        key: options[key] for key in ("tokenizer", "lowercase", "normalise", "hyphens", "last_stop") if key in options
    }
    made_from: dict[str, Any] = {"text": text, "options": own}
    if options["tokenizer"] == "moses":
        made_from |= {"language": _moses_language(language), "sacremoses": importlib.metadata.version("sacremoses")}
    return _by_lines(stages, "tokenise", made_from, partial(_tokens, tuple(own.items()), language), text, name)


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
    return _by_lines(stages, "segment", made_from, partial(_pieces, kind, model and model.path), tokens, name)


def _by_lines(stages: Stages, stage: str, made_from: Mapping[str, Any], task: OfLines, text: Piece, name: str) -> Piece:
    def work(folder: Path) -> None:
        with (folder / _TEXT).open("wb") as file:
            for lines in stages.workers.results(task, text.path, f"{stage} {name}"):
                file.write("".join(f"{line}\n" for line in lines).encode())

    return stages.run(stage, made_from, work).piece(_TEXT)


def _tokens(options: tuple[tuple[str, Any], ...], language: str | None, lines: list[str]) -> list[str]:
    return list(map(_tokenizer(options, language).tokenize, lines))


def _pieces(kind: str, model: Path | None, lines: list[str]) -> list[str]:
    pieces = list(map(_segmenter(kind, model), lines))
    for number, (line, own) in enumerate(zip(lines, pieces, strict=True), start=1):
        if undo_segmentation(own, kind) != line:
            raise BadLine(
                number,
                f"preprocessing.bpe={kind} cannot be undone on this line (it holds '@@' or '{SPACE_MARK}', the marks "
                "of the segmentation); change the line or choose another bpe",
            )
    return pieces


@lru_cache(maxsize=2)  # of source and target
def _tokenizer(options: tuple[tuple[str, Any], ...], language: str | None) -> Tokenizer:
    return Tokenizer(dict(options), language)


_segmenter = lru_cache(maxsize=2)(segmenter)
