"""What a preparation gives to training and evaluation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from gpam.errors import UsageError
from gpam_suite.common.files import file_sha256, sha256
from gpam_suite.common.strict_json import read_summed
from gpam_suite.common.tasks import TASKS
from gpam_suite.config.identity import CHECKPOINTS
from gpam_suite.data.store.atomic import described
from gpam_suite.data.text.lines import file_name, lines_of, read_lines
from gpam_suite.data.text.segmentation import Tokenizer, undo_segmentation

MANIFEST = "manifest.json"
DOCUMENTS = "documents.json"


@dataclass(frozen=True)
class Prepared:
    """A finished preparation: ``text/`` (raw), ``bpe/`` (segmented), ``bin/`` (fairseq's data) and its manifest.

    Read its texts with :func:`gpam_suite.data.text.lines.read_lines`, as a line may hold other separators than ``\\n``.
    """

    folder: Path
    manifest: dict[str, Any] = field(repr=False)

    @classmethod
    def load(cls, folder: Path) -> "Prepared":
        """The preparation in ``folder``.

        Raises:
            ValueError: its manifest is not what was written.
        """
        return cls(folder, read_summed((folder / MANIFEST).read_text(encoding="utf-8")))

    def check_whole(self) -> None:
        """Compare every file with the checksum it was written with.

        Raises:
            UsageError: one was changed since.
        """
        for name, of in self.manifest["files"].items():
            if file_sha256(self.folder / name) != of["sha256"]:
                raise UsageError(
                    f"{self.folder / name} was changed after it was prepared (its SHA-256 is not the one in the "
                    f"manifest); delete {self.folder} to have it prepared again"
                )

    @property
    def bin(self) -> Path:
        """fairseq's data folder (``task.data``)."""
        return self.folder / "bin"

    @property
    def task(self) -> str:
        """``lm``, ``nmt`` or ``recall``."""
        return self.manifest["task"]

    @property
    def kind(self) -> str:
        """The kind of data set (``configs/dataset``: ``dataset.kind``)."""
        return self.manifest["dataset"]["kind"]

    @property
    def unit(self) -> str:
        """What a language model's perplexity is counted by: ``word``, or ``character`` where the text is kept whole."""
        return self.manifest.get("unit", "word")

    @property
    def source_lang(self) -> str | None:
        """Source language, None for a language model's text."""
        return self.manifest["source"]

    @property
    def target_lang(self) -> str | None:
        """Target language, None for a language model's text."""
        return self.manifest["target"]

    def words(self, split: str) -> int:
        """Words of a split, with one end-of-sentence mark a line: the denominator of word-level perplexity.

        Of text that is read by character, its characters.
        Counted after the tokeniser and before the sub-word segmentation; of the target side for translation.
        """
        counts = self.manifest["splits"][split]
        return (counts["target"] if TASKS[self.task].parallel else counts)["words"]

    def reference(self, split: str) -> Path:
        """Raw target text, for BLEU: cased and not tokenised, whatever the preprocessing."""
        return self.folder / "text" / file_name(split, self.target_lang)

    def source_text(self, split: str) -> Path:
        """Raw source text (of a language model: the text)."""
        return self.folder / "text" / file_name(split, self.source_lang)

    def documents(self, split: str) -> list[int]:
        """First line (from 0) of each document; ``[0]`` where the boundaries are not known."""
        return json.loads((self.folder / DOCUMENTS).read_text(encoding="utf-8"))[split]

    def words_by_line(self, split: str) -> list[int]:
        """Words of each line of a language model's text, its end counted: they add up to :meth:`words`.

        Of text that is read by character, the characters of each line.
        """
        if self.unit == "character":
            return list(map(len, lines_of(self.source_text(split).read_bytes())))
        kind = self.manifest["preprocessing"]["bpe"]
        lines = read_lines(self.folder / "bpe" / file_name(split, None))
        return [len(undo_segmentation(line, kind).split()) + 1 for line in lines]

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer(self.manifest["preprocessing"], self.target_lang or self.manifest["language"])

    def postprocess(self, line: str) -> str:
        """Plain text of a hypothesis: the segmentation undone, then detokenised where Moses tokenised."""
        return self._tokenizer.detokenize(undo_segmentation(line, self.manifest["preprocessing"]["bpe"]))


def fill_paths(fairseq_config: DictConfig, folder: Path, prepared: Prepared) -> None:
    """Fill data and checkpoint folders, and the languages, into a complete fairseq configuration."""
    fairseq_config.task.data = str(prepared.bin)
    if TASKS[prepared.task].parallel:
        fairseq_config.task.source_lang = prepared.source_lang
        fairseq_config.task.target_lang = prepared.target_lang
    fairseq_config.checkpoint.save_dir = str(folder / CHECKPOINTS)


def written(folder: Path, documents: Mapping[str, list[int]]) -> dict[str, Any]:
    """Every file in ``folder``, to which the first lines of ``documents`` are added, as manifests describe it, and one
    checksum of the texts."""
    (folder / DOCUMENTS).write_text(json.dumps(documents) + "\n", encoding="utf-8")
    files = described(folder)
    texts = "".join(f"{name} {of['sha256']}\n" for name, of in files.items() if name.startswith("text/"))
    return {"checksum": sha256(texts.encode()), "files": files}
