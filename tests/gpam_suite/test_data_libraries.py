"""A preparation is byte for byte what sacremoses, subword-nmt and fairseq-preprocess write, one after another."""

import io

import gpam_fairseq  # noqa: F401  (before fairseq)

from data_helpers import ENGLISH, GERMAN, PLAIN, parallel
from fairseq.options import get_preprocessing_parser
from fairseq_cli import preprocess
from sacremoses import MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from gpam_suite.data import prepare

ODD = {
    "de": [
        "Er sagte: „Das ist's\", Nr. 5 & mehr.",
        "3,5 % von <5> | [x] usw.",
        "über-all  zwei   Räume",
        "z. B. der 2.",
    ],
    "en": ['He said: "That\'s it", No. 5 & more.', "3.5% of <5> | [x] etc.", "every-where  two   spaces", "the U.S."],
}
SPLITS = ("train", "valid", "test")


def test_the_suite_writes_what_the_libraries_write(tmp_path):
    """Merges, sub-words, dictionaries, ids and their index, of text with what Moses escapes and splits."""
    text = {}
    for language, lines in (("de", GERMAN), ("en", ENGLISH)):
        text |= {("train", language): lines + ODD[language], ("valid", language): lines[:4]}
        text |= {("test", language): [*ODD[language], "unseen: xylophon 東京"]}
    raw = parallel(tmp_path / "raw", **{f"{split}_{language}": lines for (split, language), lines in text.items()})
    options = PLAIN | {"tokenizer": "moses", "bpe": "subword_nmt", "bpe_size": 40, "joined_dictionary": True}
    ours = prepare(raw, options, {"data": tmp_path / "data", "workers": 2}).folder

    tokens = {}
    for (split, language), lines in text.items():
        moses = MosesTokenizer(lang=language)
        tokens[split, language] = [f"{moses.tokenize(line, return_str=True)}\n" for line in lines]
    codes = io.StringIO()
    learn_bpe(io.StringIO("".join(tokens["train", "de"] + tokens["train", "en"])), codes, 40)
    assert (ours / "bpe" / "codes.txt").read_text(encoding="utf-8") == codes.getvalue()
    bpe = BPE(io.StringIO(codes.getvalue()))
    for (split, language), lines in tokens.items():
        path = tmp_path / f"{split}.{language}"
        path.write_text("".join(map(bpe.process_line, lines)), encoding="utf-8")
        assert (ours / "bpe" / f"{path.name}.txt").read_bytes() == path.read_bytes()
    words = [word for split in SPLITS for word in (f"--{split}pref", str(tmp_path / split))]
    words += ["--source-lang", "de", "--target-lang", "en", "--joined-dictionary", "--destdir", str(tmp_path / "bin")]
    preprocess.main(get_preprocessing_parser().parse_args(words))
    theirs = {path.name: path.read_bytes() for path in (tmp_path / "bin").iterdir() if path.suffix != ".log"}
    assert {path.name: path.read_bytes() for path in (ours / "bin").iterdir()} == theirs and len(theirs) == 14
