"""Beam search, step by step from its cache, scores a translation as the whole decoder does at once."""

import gpam_fairseq  # noqa: F401  (before fairseq)

import pytest
import torch
import toy
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator
from torch.testing import assert_close

ATTENTION = {
    "softmax": [],
    "dagpam": ["--attention", "dagpam", "--lambda-pos", 0.8, "--lambda-neg", 0.6],
    "dagpam, a learned pair a head": ["--attention", "dagpam", "--lambdas", "trainable_per_head"],
    "dagpam in self attention": ["--attention", "dagpam", "--negative-in", "self", "--negative-key", "separate"],
}
LENGTHS = (7, 3, 5, 2)


@pytest.fixture(params=ATTENTION, scope="module")
def model(request, dagpam_checkpoint):
    """With the weights of one that was trained, as far as they fit, since translations of an untrained one do not end;
    and the mechanism's own weights away from their start."""
    (trained,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(dagpam_checkpoint)])
    words = {"source": task.source_dictionary, "target": task.target_dictionary}
    sizes = [*toy.sizes("encoder", "decoder"), "--share-decoder-input-output-embed"]
    model = toy.build("--arch", "gpam_nmt", *sizes, *ATTENTION[request.param], **words)
    model.load_state_dict(trained.state_dict(), strict=False)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, mechanism in toy.mechanisms(model):
            for parameter in mechanism.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.double().eval()


def translate(model, words, source, beam):
    search = SequenceGenerator([model], words, beam_size=beam, max_len_b=9, normalize_scores=True)
    lengths = source.ne(words.pad()).sum(1)
    with torch.no_grad():
        return search.generate([model], {"net_input": {"src_tokens": source, "src_lengths": lengths}})


def rescored(model, words, source, translation):
    """Log-probability of every word, from one pass over the whole translation, the sentence alone without padding."""
    source = source[source.ne(words.pad())][None]
    previous = torch.cat([translation.new_tensor([words.eos()]), translation[:-1]])[None]
    with torch.no_grad():
        logits, _ = model(source, torch.tensor([source.shape[1]]), previous)
    return logits[0].log_softmax(-1).gather(1, translation[:, None])[:, 0]


@pytest.mark.parametrize("beam", [1, 4])
def test_beam_search_scores_as_the_whole_decoder(model, beam):
    words = toy.dictionary()
    source = toy.padded_batch(words, LENGTHS)
    found = translate(model, words, source, beam)
    assert [len(hypotheses) for hypotheses in found] == [beam] * len(LENGTHS)
    finished_at = {len(hypothesis["tokens"]) for hypotheses in found for hypothesis in hypotheses}
    assert len(finished_at) > 1
    for sentence, hypotheses in zip(source, found, strict=True):
        for hypothesis in hypotheses:
            wanted = rescored(model, words, sentence, hypothesis["tokens"])
            # fairseq makes its log-softmax in float32, and positional scores as differences of sums.
            assert_close(hypothesis["positional_scores"].double(), wanted, rtol=0, atol=2e-5)
            assert_close(hypothesis["score"].double(), wanted.mean(), rtol=0, atol=1e-5)


def test_padding_and_company_do_not_matter(model):
    words = toy.dictionary()
    source = toy.padded_batch(words, LENGTHS)
    together = translate(model, words, source, beam=4)
    for sentence, hypotheses in zip(source, together, strict=True):
        (alone,) = translate(model, words, sentence[sentence.ne(words.pad())][None], beam=4)
        assert [h["tokens"].tolist() for h in alone] == [h["tokens"].tolist() for h in hypotheses]
