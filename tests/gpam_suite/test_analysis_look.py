"""Looking into models: what hooks see, for every mechanism on a language model and on translation, and its numbers."""

import math
from types import SimpleNamespace

import gpam_fairseq  # noqa: F401
from gpam_fairseq.install import attention_classes

import pytest
import torch
from runs import tiny

from gpam.analysis import lemmas, mean_cosine_similarity, negative_mass, residual
from gpam.attention import names
from gpam_suite.data.text.encoding import Encoder
from gpam_suite.data.text.lines import read_lines
from gpam_suite.evaluate.references import LOWER_CASED, TOKENISED
from gpam_suite.inside import lemma_checks, measures
from gpam_suite.inside.analyse import alignment, look
from gpam_suite.inside.lemma_checks import bounds
from gpam_suite.inside.models import untrained
from gpam_suite.inside.observe import Observation, Seen, observed
from gpam_suite.inside.texts import pairs_given, pairs_of, texts

LOOKED_AT = [("lm", name) for name in ("softmax", "dagpam", "neutreno")]  # neutreno does nothing in a stack of one
LOOKED_AT += [("nmt", name) for name in names() if name != "neutreno"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """``made(task, mechanism)``: an untrained tiny model, its task and its data."""
    base = tmp_path_factory.mktemp("look")

    def make(task, mechanism):
        shallow = ["++model.cog_softmax_layers=none"] if mechanism == "cog" else []  # else it wants three layers
        cfg = tiny(base, f"model={mechanism}", *shallow, task=task)
        return untrained(cfg, cfg.paths)

    return make


@pytest.mark.parametrize(("task", "mechanism"), LOOKED_AT)
def test_every_mechanism_can_be_looked_at(made, task, mechanism):
    model, fairseq_task, prepared = made(task, mechanism)
    found = look(model, fairseq_task, prepared, 1)
    roles = {"lm": {"decoder"}, "nmt": {"encoder", "decoder", "cross"}}[task]
    layers = {"lm": 2, "nmt": 1}[task]
    assert {module["role"] for module in found["modules"].values()} == roles
    assert set(found["streams"]) == roles - {"cross"}
    assert task == "lm" or alignment(model, fairseq_task, prepared, {})["pairs"]
    for stream in found["streams"].values():
        assert all(len(values) == 1 + layers for values in stream.values())
    spoken_of = {path for path, name in attention_classes(model).items() if name in ("Softmax", "DaGPAM")}
    assert set(found["lemmas"]) == spoken_of


def test_what_is_seen_is_what_the_formula_gives(made):
    """daGPAM's weights and values of the second layer, again from the layer's input and parameters; and looking changes
    nothing."""
    model, task, prepared = made("lm", "dagpam")
    arguments = texts(task, prepared, 1)[0].arguments
    with torch.no_grad():
        before = model(**arguments)[0]
        seen = observed(model, arguments)
        assert torch.equal(model(**arguments)[0], before)
    module = model.decoder.layers[1].self_attn
    one = seen.attention["decoder.layers.1.self_attn"]
    x = one.inputs.double()
    assert torch.allclose(
        x, model.decoder.layers[1].self_attn_layer_norm(seen.streams["decoder"][1]).double(), atol=1e-6
    )
    q, k, v = (
        (x @ part.weight.double().T + part.bias.double()).unflatten(-1, (2, 8)).transpose(0, 1)
        for part in (module.q_proj, module.k_proj, module.v_proj)
    )
    hidden = torch.ones(len(x), len(x)).triu(1).bool()
    mechanism = module.mechanism

    def softmax(queries):
        return torch.softmax((queries @ k.transpose(1, 2) / 8**0.5).masked_fill(hidden, -torch.inf), -1)

    positive, negative = softmax(q), softmax(q.clamp(min=0) @ mechanism.query_neg.double())
    weights = 1.5 * positive - 0.5 * negative
    assert one.causal
    assert torch.allclose(one.weights.double(), weights, atol=1e-6)
    assert torch.allclose(one.v.double(), v, atol=1e-5)

    numbers = look(model, task, prepared, 1)
    entry = numbers["modules"]["decoder.layers.1.self_attn"]
    assert entry["negative_mass"] == pytest.approx(negative_mass(weights).tolist(), rel=1e-3)
    assert entry["row_sum"] == pytest.approx([1.0, 1.0], abs=1e-6)
    counts = torch.arange(1, len(x) + 1)

    def share(rows):
        return ((rows * (1 - rows)).sum(-1) / (1 - 1 / counts))[:, 1:].mean().item()

    def centred(rows):
        scores = rows.log().masked_fill(hidden, 0)
        return (scores - scores.sum(-1, keepdim=True) / counts[:, None]).masked_fill(hidden, 0).flatten(1)

    own = numbers["lemmas"]["decoder.layers.1.self_attn"]
    assert own["jacobian_pos"] == pytest.approx(share(positive), rel=1e-5)
    assert own["jacobian_neg"] == pytest.approx(share(negative), rel=1e-5)
    cosine = torch.cosine_similarity(centred(positive), centred(negative)).mean()
    assert own["opposition_cosine"] == pytest.approx(cosine.item(), rel=1e-4)
    stream = numbers["streams"]["decoder"]
    assert stream["cosine"][2] == pytest.approx(float(mean_cosine_similarity(seen.streams["decoder"][2])), rel=1e-9)


def test_bound_of_an_encoder_head_is_that_of_its_matrices(made):
    """Lemma 4 on the encoder's module, head 1, from the parameters as they stand in the checkpoint."""
    model, task, prepared = made("nmt", "dagpam")
    seen = observed(model, texts(task, prepared, 1)[0].arguments)
    module, path = model.encoder.layers[0].self_attn, "encoder.layers.0.self_attn"
    x = seen.attention[path].inputs.double()
    found = residual(x, 1e-3)
    rest = x - found.row
    w_q, w_k, w_v = (part.weight.double().T[:, :8] for part in (module.q_proj, module.k_proj, module.v_proj))
    w_neg = module.mechanism.query_neg.double()
    b_q = module.q_proj.bias.double()[:8]
    branches = [
        lemmas.positive_branch(1.5, rest, w_q, w_k),
        lemmas.negative_branch(-0.5, rest, found.row, w_q, b_q, w_neg, w_k),
    ]
    output = seen.attention[path].weights[0].double() @ (x @ w_v + module.v_proj.bias.double()[:8])
    first = lemmas.residual_bound(rest, output, w_v, branches)
    every = bounds(seen.attention[path])
    assert every.right_hand_side[0].item() == pytest.approx(first.right_hand_side.item(), rel=1e-6)
    assert every.measured[0].item() == pytest.approx(first.measured.item(), rel=1e-3)
    assert bool(every.assumption[0]) == bool(first.assumption)
    own = lemma_checks.check([seen])[path]
    assert own["tightness"] == pytest.approx((every.right_hand_side / every.measured).median().item(), rel=1e-6)
    assert own["holds"] == every.holds.double().mean().item()
    assert own["assumption"] == every.assumption.double().mean().item()
    assert own["holds"] > own["assumption"]  # else one could stand for the other


def test_texts_are_of_the_test_set(made):
    _, task, prepared = made("lm", "softmax")
    blocks = texts(task, prepared, 3)
    assert len(blocks) == 3
    lines = read_lines(prepared.source_text("test"))
    stream = Encoder.of(prepared, None, task.source_dictionary).ids("".join(f"{line}\n" for line in lines))
    for block in blocks:
        assert block.target.shape == block.arguments["src_tokens"].shape == (1, 16)
        assert torch.equal(block.target[0, :-1], block.arguments["src_tokens"][0, 1:])
        assert (stream.unfold(0, 16, 1) == block.target).all(1).any()
    _, task, prepared = made("nmt", "softmax")
    pairs = texts(task, prepared, 4)
    assert len({tuple(pair.target[0].tolist()) for pair in pairs}) == 4
    dataset = task.dataset("test")
    lengths = sorted(len(dataset[index]["source"]) for index in range(len(dataset)))
    assert len(lengths) == 12  # 60 % are the first seven, 95 % the first eleven
    assert sorted(pair.arguments["src_tokens"].shape[1] for pair in pairs) == lengths[7:11]


def test_alignment_is_that_of_the_weights(made):
    """Share of negative weight and sharpness of one pair by head, again from the formula; the picture is the last
    layer's."""
    model, task, prepared = made("nmt", "dagpam")
    given = {"en-cs": [["PER KAN LIS", "lis kan per"], ["MOL", "mol"]]}
    found = alignment(model, task, prepared, given)
    dataset = task.dataset("test")
    assert len(found["pairs"]) == min(200, len(dataset))
    (first,) = pairs_of(task, 1)
    weights = observed(model, first.arguments).attention["decoder.layers.0.encoder_attn"].weights.double()
    size = weights.abs()
    negative = (size - weights).sum((1, 2)) / 2 / size.sum((1, 2))
    sharp = (size / size.sum(2, keepdim=True)).max(2).values
    pair = found["pairs"][0]
    assert pair["tokens"] == weights.shape[2] == len(dataset[0]["source"])
    assert pair["negative"] == [pytest.approx(negative.tolist(), abs=6e-5)]  # one layer, rounded
    assert pair["sharpness"] == [pytest.approx(sharp.mean(1).tolist(), abs=6e-5)]
    pictures = pairs_given(task, prepared, given)
    assert [one["words"] for one in found["sentences"]] == [text.words for text in pictures]
    assert found["sentences"][0]["words"]["predicted"][-1] == "</s>"
    last = observed(model, pictures[0].arguments).attention["decoder.layers.0.encoder_attn"].weights
    assert torch.allclose(torch.tensor(found["sentences"][0]["weights"]), last, atol=6e-4)


def test_sentences_are_read_in_the_direction_of_the_model(made):
    _, task, prepared = made("nmt", "dagpam")
    lines = ["kan per", "PER"]
    for given in ({"cs-en": [lines]}, {"en-cs": [lines[::-1]]}):
        (text,) = pairs_given(task, prepared, given)
        read = [task.source_dictionary.string(text.arguments["src_tokens"]), task.target_dictionary.string(text.target)]
        assert [prepared.postprocess(line) for line in read] == lines
    assert pairs_given(task, prepared, {"de-fr": [lines]}) == []


def test_sentences_look_like_the_data_set(made, monkeypatch):
    """What came tokenised and lower-cased is not prepared so again: the given sentences have to be."""
    _, task, prepared = made("nmt", "dagpam")
    read = []
    monkeypatch.setattr(Encoder, "ids", lambda self, text: read.append(text) or torch.tensor([5, 2]))
    for kind in ([], [TOKENISED, LOWER_CASED]):
        monkeypatch.setattr("gpam_suite.inside.texts.kind_of", lambda references, kind=kind: kind)
        pairs_given(task, prepared, {"en-cs": [["Per, kan!", "Lis."]]})
    assert sorted(read) == ["Lis.\n", "Per, kan!\n", "lis .\n", "per , kan !\n"]


def _observed(weights):
    """Of one causal module with these weights ``[heads, target, source]``."""
    module = SimpleNamespace(mechanism=SimpleNamespace(site=SimpleNamespace(role="decoder", layer=0)))
    states = torch.zeros(1, 3, 4)
    return Observation({}, {"a": Seen(module, None, states, states, None, weights[None], True)})


def test_measures_by_hand():
    """Entropy and the first key's share are of rows that see a choice; texts are averaged."""
    uniform = torch.ones(3, 3).tril()
    uniform = uniform / uniform.sum(1, keepdim=True)
    found = measures.modules([_observed(uniform)])["a"]
    assert found["entropy"] == pytest.approx([(math.log(2) + math.log(3)) / 2])
    assert found["first"] == pytest.approx([(1 / 2 + 1 / 3) / 2])
    assert measures.modules([_observed(uniform), _observed(3 * torch.eye(3))])["a"]["row_sum"] == pytest.approx([2.0])


def test_lemmas_of_a_language_model(tmp_path):
    """Lemmas 1 and 4 assume that every token sees all others; the share of Lemma 3 is over visible keys, from the
    second row on."""
    model, task, prepared = untrained(cfg := tiny(tmp_path, "model=softmax"), cfg.paths)
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.self_attn.q_proj.weight.mul_(1e-3)  # so small that nothing else is against the assumption
    seen = observed(model, texts(task, prepared, 1)[0].arguments)
    checked = lemma_checks.check([seen])
    assert len(checked) == 2
    for path, own in checked.items():
        weights = seen.attention[path].weights.double()[:, 1:]
        seen_keys = torch.arange(2, weights.shape[2] + 1)
        share = (weights * (1 - weights)).sum(-1) / (1 - 1 / seen_keys)
        assert own["assumption"] == 0 and own["jacobian_pos"] == pytest.approx(float(share.mean()), rel=1e-5)
