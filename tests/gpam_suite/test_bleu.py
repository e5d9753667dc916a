"""What BLEU is of: raw text by sacreBLEU's tokeniser, text that came tokenised as it is, and the record says which."""

import pytest
import sacrebleu
from record_factory import PROTOCOLS, make_record, store, tabulate

from gpam_suite.evaluate.translation import Metrics, References

RAW = ["Well, that's it.", "Is it?", "No stop at all", "Dr. Who paid 3.50 dollars!"]
TOKENISED = ["well , that &apos;s it .", "is it ?", "no stop at all", "dr. who paid 3.50 dollars !"]


@pytest.mark.parametrize(
    ("lines", "protocol"),
    [
        (RAW, {}),
        (TOKENISED, {"references": "tokenised, lower-cased"}),
        ([line.title() for line in TOKENISED], {"references": "tokenised"}),
        ([line.lower() for line in RAW], {"references": "lower-cased"}),
        (["12 . 3", "\u5b9e\u9a8c"], {}),
        ([], {}),
    ],
)
def test_what_references_are_is_read_off_the_text(lines, protocol):
    assert References.of(lines).protocol == protocol


def test_tokenised_text_is_scored_as_it_is():
    hypotheses = [line.replace("it", "he") for line in TOKENISED]
    metrics = Metrics(lowercase=False, tokenised=True)
    ours = metrics.bleu.corpus_score(hypotheses, [TOKENISED])
    assert ours.score == sacrebleu.corpus_bleu(hypotheses, [TOKENISED], tokenize="none", force=True).score
    assert ours.score != sacrebleu.corpus_bleu(hypotheses, [TOKENISED], force=True).score
    assert "tok:none" in str(metrics.bleu.get_signature())
    raw = Metrics(lowercase=False)
    raw.bleu.corpus_score(RAW, [RAW])
    assert "tok:13a" in str(raw.bleu.get_signature())
    assert metrics.statistics("a &apos; b", "a &apos; b")[:2] == [3, 3]


def test_the_table_says_what_its_bleu_is(tmp_path):
    protocol = {**PROTOCOLS["nmt"], "references": "tokenised, lower-cased"}
    store(tmp_path, make_record(task="nmt", experiment="nmt", protocol=protocol))
    page = tabulate(tmp_path)[0].read_text()
    assert "BLEU of tokenised, lower-cased text as it is: comparable only with scores of the same tokens" in page
