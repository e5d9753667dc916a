"""Models that read perturbed input: the adversary against brute force, the text that is read, the score."""

import gzip
import math
from types import SimpleNamespace

import gpam_fairseq  # noqa: F401

import pytest
import torch
from runs import composed, places, tiny

from gpam.errors import UsageError
from gpam_suite.data.kinds.characters import restore
from gpam_suite.data.text.lines import read_lines
from gpam_suite.evaluate.translation import evaluate, sentences_of
from gpam_suite.inside.models import untrained
from gpam_suite.inside.perturb.adversarial import best_substitutes, input_gradient, ordinary, with_substitutes
from gpam_suite.inside.perturb.noise import NOISE, noisy
from gpam_suite.inside.perturb.perturb_runs import KINDS, READERS, perturbed
from gpam_suite.inside.perturb.readers import Blocks


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """``made(task, *overrides)``: an untrained tiny model in float64, its task, its data and its reader."""
    base = tmp_path_factory.mktemp("perturbed")

    def make(kind, *overrides, texts=6):
        cfg = tiny(base, *overrides, task=kind)
        model, task, prepared = untrained(cfg, cfg.paths)
        model.double()
        return READERS[kind](model, task, prepared, cfg.evaluation, texts), task, prepared

    return make


def _loss(reader, kind, tokens, at):
    """Of text ``at`` alone, its tokens given."""
    if kind == "lm":
        return reader.loss([(tokens, reader.clean[at])])
    lines = reader._target.ids(f"{reader.references[at]}\n")
    pairs = sentences_of([tokens], reader.task, [lines])
    return reader.loss(pairs.collater([pairs[0]]))


@pytest.mark.parametrize("kind", ["lm", "nmt"])
def test_gains_are_first_order_changes_of_the_loss(made, kind):
    """Brute force: the loss with one embedding moved a little towards that of each symbol, in float64."""
    reader, *_ = made(kind, "model=dagpam")
    reader.model.get_normalized_probs = lambda output, **_: output[0].log_softmax(-1)  # fairseq's own is in float32
    clean = reader.read(reader.texts)
    gradients = reader.gradients(clean)  # in batches, with padding
    embeddings, allowed = reader.embedding.weight.detach(), ordinary(reader.dictionary)
    at = 3
    tokens, step = clean[at], 1e-5
    before = reader.embedding

    class Moved(torch.nn.Module):
        """The table, whose first reading gives another vector at one place."""

        def __init__(self, place, vector):
            super().__init__()
            self.place, self.vector, self.read = place, vector, False

        def forward(self, ids):
            found = before(ids)
            if not self.read:
                self.read = True
                found = found.clone()
                found[0, self.place] += self.vector
            return found

    stack = reader.model.decoder if kind == "lm" else reader.model.encoder
    own, shift = gradients[at], 1 if kind == "lm" else 0  # a language model's context has a token before it
    gains = own @ embeddings.T - (own * embeddings[tokens]).sum(-1, keepdim=True)
    try:
        for place in (0, 2):
            for symbol in (5, 9, 11):
                losses = []
                for sign in (1, -1):
                    vector = sign * step * (embeddings[symbol] - embeddings[tokens[place]])
                    stack.embed_tokens = Moved(place + shift, vector)
                    with torch.no_grad():
                        losses.append(float(_loss(reader, kind, tokens, at)))
                brute = (losses[0] - losses[1]) / (2 * step)
                assert float(gains[place, symbol]) == pytest.approx(brute, rel=1e-4, abs=1e-7)
    finally:
        stack.embed_tokens = before
    gain, substitute = best_substitutes(tokens, own, embeddings, allowed)
    for place, token in enumerate(tokens.tolist()):
        if not allowed[token]:
            assert gain[place] == -torch.inf
            continue
        others = {symbol: float(gains[place, symbol]) for symbol in range(len(allowed)) if allowed[symbol]}
        others.pop(token)
        assert int(substitute[place]) == max(others, key=others.get)
        assert float(gain[place]) == pytest.approx(max(others.values()))


def test_special_symbols_stay_and_are_not_put_in(made):
    reader, *_ = made("lm")
    dictionary = reader.dictionary
    allowed = ordinary(dictionary)
    names = [dictionary[index] for index in range(len(dictionary)) if not allowed[index]]
    assert names[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert all(name.startswith("madeupword") for name in names[4:])
    few = SimpleNamespace(nspecial=1, symbols=["<s>", "a", "madeupword0000", "madeupword0001"], count=[1, 0, 0, 3])
    assert ordinary(few).tolist() == [False, True, False, True]  # of a text that has a word of such a name
    tokens = torch.tensor([dictionary.eos(), 7, 8, dictionary.unk(), 9, dictionary.eos()])
    gradient = torch.randn(6, 16, generator=torch.Generator().manual_seed(2))
    embeddings = torch.randn(len(dictionary), 16, generator=torch.Generator().manual_seed(3))
    best = best_substitutes(tokens, gradient, embeddings, allowed)
    for rate, rounding, count in ((0.0, 0.99, 0), (0.34, 0.0, 1), (0.5, 0.5, 2), (1.0, 0.0, 3), (1.0, 0.99, 3)):
        found = with_substitutes(tokens, *best, rate, rounding)
        places = (found != tokens).nonzero().flatten().tolist()
        assert len(places) == count and set(places) <= {1, 2, 4} and bool(allowed[found[places]].all())
        left = [place for place in (1, 2, 4) if place not in places]
        assert not places or not left or best[0][places].min() >= best[0][left].max()


def test_only_the_first_reading_of_a_shared_table_counts():
    shared = torch.nn.Embedding(5, 3)
    gradient = input_gradient(shared, lambda: (2 * shared(torch.tensor([[1]]))).sum() + shared(torch.tensor([2])).sum())
    assert gradient.tolist() == [[[2.0, 2.0, 2.0]]]
    assert not shared._forward_hooks


@pytest.mark.parametrize("kind", ["lm", "nmt"])
def test_every_kind_gives_a_score_and_the_same_again(made, kind):
    settings = {"kinds": KINDS, "rates": [0.1, 0.5], "seed": 1}
    reader, *_ = made(kind)
    found = perturbed(reader, settings)
    assert found == perturbed(reader, settings)
    assert found["texts"] == 6 and list(found["kinds"]) == list(KINDS)
    metrics = {"lm": {"perplexity"}, "nmt": {"bleu", "chrf"}}[kind]
    assert set(found["clean"]) == metrics
    for rates in found["kinds"].values():
        assert [at["rate"] for at in rates] == [0.1, 0.5]
        assert all(set(at) == {"rate", "changed", *metrics} for at in rates)
        assert rates[0]["changed"] < rates[1]["changed"]
    replaceable = float(ordinary(reader.dictionary)[torch.cat(reader.read(reader.texts))].double().mean())
    for at in found["kinds"]["adversarial"]:
        assert at["changed"] == pytest.approx(at["rate"] * replaceable, abs=0.05)
    if kind == "lm":
        assert found["kinds"]["adversarial"][1]["perplexity"] > found["clean"]["perplexity"]


@pytest.mark.parametrize("lowercase", ["false", "true"])
def test_clean_sentences_score_as_the_test_set(made, tmp_path, lowercase):
    reader, task, prepared = made("nmt", f"preprocessing.lowercase={lowercase}", texts=1000)
    dataset = task.load_dataset("test") or task.dataset("test")
    read = reader.read(reader.texts)
    assert [line.tolist() for line in read] == [dataset[at]["source"].tolist() for at in range(len(dataset))]
    whole, _ = evaluate(reader.model, task, prepared, reader.evaluation, tmp_path)
    assert reader.score(read) == {"bleu": whole["test_bleu"], "chrf": whole["test_chrf"]}
    assert "".join(reader.references) != "".join(reader.references).lower()
    assert lowercase == "false" or whole["test_chrf"] > 0


def test_a_source_that_is_too_long_is_cut(made):
    reader, *_ = made("nmt", "++fairseq.model.max_source_positions=8", "++fairseq.task.max_source_positions=8")
    (line,) = reader.read(["kanekanekane " * 9])
    assert len(line) == 8 and line[-1] == reader.dictionary.eos()


def test_blocks_are_the_text_cut_at_words(made):
    reader, _, prepared = made("lm", texts=4)
    lines = read_lines(prepared.source_text("test"))
    text = "".join(f"{line}\n" for line in lines)
    contexts = reader.read(reader.texts)
    assert len(contexts) == len(reader.clean) == 4
    words = 0
    for raw, context, clean in zip(reader.texts, contexts, reader.clean, strict=True):
        assert raw in text and text[: text.index(raw)].endswith("\n" if text.index(raw) else "")
        after = text[text.index(raw) + len(raw) :]
        own = next(after[:end] for end in range(len(after) + 1) if reader.encoder.ids(after[:end]).equal(clean))
        assert own.strip() and not (own + after[len(own) :])[0].isspace()
        words += len(own.split()) + own.count("\n")
        assert 3 <= len(context) <= 7 and 3 <= len(clean) <= 7  # 3/8 of 16, and a line end behind it
    assert words == reader.words


def test_a_test_set_that_is_too_short_for_a_block_is_refused(made):
    long = ["++fairseq.task.tokens_per_sample=512", "fairseq.dataset.max_tokens=512", "evaluation.max_tokens=512"]
    with pytest.raises(UsageError, match=r"the test set is too short .*: wanted more than 192 tokens"):
        made("lm", *long)


def test_a_block_is_scored_as_it_is_alone(made):
    """The loss of a padded batch is the sum of blocks read alone, token by token from the model's own output.
    Perplexity is by word, not by sub-word."""
    reader, *_ = made("lm", "preprocessing.bpe_size=10")
    assert reader.words < sum(map(len, reader.clean))
    contexts = reader.read(reader.texts)
    contexts[1] = contexts[1][2:]  # of unequal length
    pairs = list(zip(contexts, reader.clean, strict=True))
    total = 0.0
    with torch.no_grad():
        for context, clean in pairs:
            stream = torch.cat([torch.tensor([reader.dictionary.eos()]), context, clean])
            logs = reader.model(stream[None, :-1])[0].log_softmax(-1)[0]
            total -= sum(float(logs[place - 1, stream[place]]) for place in range(1 + len(context), len(stream)))
        assert float(reader.loss(pairs)) == pytest.approx(total, rel=1e-6)  # fairseq's own log-softmax is in float32
    assert reader.score(contexts) == {"perplexity": pytest.approx(math.exp(total / reader.words), rel=1e-5)}


def test_a_context_that_grew_is_cut_at_its_beginning(made):
    reader, *_ = made("lm")
    longer = [f"{'x ' * 40}{context}" for context in reader.texts]
    for old, new, clean in zip(reader.read(reader.texts), reader.read(longer), reader.clean, strict=True):
        assert len(new) + len(clean) == reader.length
        assert new[len(new) - len(old) :].equal(old) or len(old) > len(new)


def test_text_by_character_is_read_as_it_is(tmp_path):
    """Noise edits characters, not bytes, also where the text was cut in the middle of one; no byte is unknown."""
    content = "".join(f"Größe {number % 7}:\n  a — b\tund\n\n" for number in range(60)).encode()
    train = content.index("ö".encode(), 900) + 1
    sizes = {"train": train - 100, "valid": 100, "test": len(content) - train}
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt.gz").write_bytes(gzip.compress(content))
    own = [*(f"dataset.split.{name}={size}" for name, size in sizes.items()), "dataset.file.checksums=[]"]
    own += [f"dataset.types={len(set(content))}", "++fairseq.task.tokens_per_sample=64", "evaluation.context_window=32"]
    own += [f"++fairseq.model.decoder_{name}" for name in ("layers=1", "embed_dim=16", "ffn_embed_dim=16")]
    cfg = composed("dataset=tinyshakespeare", *places(tmp_path), f"paths.mirror={tmp_path}", *own)
    model, task, prepared = untrained(cfg, cfg.paths)
    reader = Blocks(model, task, prepared, cfg.evaluation, 8)
    test = content[train:].decode("utf-8", "surrogateescape")
    assert not test[0].isprintable() and reader.texts[0].startswith(test[:4])

    def text_of(ids):
        return restore(reader.dictionary[int(index)] for index in ids).decode("utf-8", "surrogateescape")

    for raw, context, clean in zip(reader.texts, reader.read(reader.texts), reader.clean, strict=True):
        assert text_of(context) == raw and raw + text_of(clean) in test
        assert 15 <= len(context) <= 27 and 15 <= len(clean) <= 27  # 24 are 3/8 of 64; words and lines stay whole
    assert reader.words == sum(map(len, reader.clean))
    for kind in NOISE:
        lines, _ = noisy(reader.texts, kind, 0.5, 1, reader.letters)
        for ids in reader.read(lines):
            assert bool(ordinary(reader.dictionary)[ids].all())
            text_of(ids[:-1]).encode("utf-8", "surrogateescape")
        assert lines != reader.texts
    assert perturbed(reader, {"kinds": KINDS, "rates": [0.5], "seed": 1})["texts"] == 8


def test_a_sub_word_is_not_its_own_substitute():
    """Also where every other one would lower the loss."""
    embeddings = torch.tensor([[0.0], [0.0], [3.0], [1.0], [2.0]])
    gain, substitute = best_substitutes(torch.tensor([2, 3]), torch.ones(2, 1), embeddings, torch.ones(5).bool())
    assert (gain.tolist(), substitute.tolist()) == ([-1.0, 2.0], [4, 2])
