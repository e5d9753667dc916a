"""A small GPT learns to write, with softmax attention and with another mechanism: about two minutes on a CPU.

    pip install ./packages/gpam
    python examples/tiny_gpt.py                     # softmax beside daGPAM
    python examples/tiny_gpt.py dagpam lambda_neg=0.2 lambdas=trainable
    python examples/tiny_gpt.py differential --updates 3000

It reads characters of Python's own help texts, which every interpreter carries along. Both models start from the same
weights and see the same batches. One run of one seed says that a model learns, not which is better.
"""

import argparse
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpam import UsageError
from gpam.nn import convert

LENGTH, WIDTH, HEADS, LAYERS, BATCH = 64, 64, 4, 3, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_1(x)
        future = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = x + self.attention(y, y, y, attn_mask=future, is_causal=True, need_weights=False)[0]
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, characters: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(characters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids) + self.position.weight[: ids.shape[1]]
        return self.output(self.norm(self.blocks(x)))


def loss_of(model: GPT, windows: Tensor) -> Tensor:
    """Mean cross entropy of the next character, in nats; ``windows`` ``[batch, LENGTH + 1]``."""
    return F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def validation_loss(model: GPT, text: Tensor) -> float:
    windows = text[: len(text) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)[:100]
    return loss_of(model.eval(), windows).item()


@torch.no_grad()
def sample(model: GPT, characters: int, start: Tensor) -> Tensor:
    model.eval()
    ids = start[None]
    for _ in range(characters):
        probabilities = torch.softmax(model(ids[:, -LENGTH:])[:, -1] / 0.8, dim=-1)
        ids = torch.cat([ids, torch.multinomial(probabilities, 1)], dim=1)
    return ids[0]


def train(model: GPT, name: str, text: Tensor, held_out: Tensor, updates: int) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=updates)
    batches = torch.Generator().manual_seed(1)
    for update in range(1, updates + 1):
        starts = torch.randint(len(text) - LENGTH, (BATCH, 1), generator=batches)
        loss = loss_of(model.train(), text[starts + torch.arange(LENGTH + 1)])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if update % max(updates // 5, 1) == 0:
            print(f"{name:>16}  update {update:4}  validation loss {validation_loss(model, held_out):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mechanism", nargs="?", default="dagpam")
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE", help="the mechanism's own options")
    parser.add_argument("--updates", type=int, default=1000)
    given = parser.parse_args()
    if given.updates < 1:
        parser.error(f"--updates: got {given.updates}, wanted 1 or more")
    text = "\n\n".join(topics[name] for name in sorted(topics))
    alphabet = sorted(set(text))
    ids = torch.tensor([alphabet.index(character) for character in text])
    learnt, held_out = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]
    print(f"{len(text):,} characters of {len(alphabet)} kinds")
    models = {}
    for name, options in (("softmax", []), (given.mechanism, given.options)):
        torch.manual_seed(0)
        models[name] = GPT(len(alphabet))
        try:
            convert(models[name], name, **dict(option.partition("=")[::2] for option in options))
        except UsageError as error:
            parser.error(str(error))
    for name, model in models.items():
        train(model, name, learnt, held_out, given.updates)
    written = sample(models[given.mechanism], 400, held_out[:16])
    print(f"\n{given.mechanism} writes:\n" + "".join(alphabet[number] for number in written))


if __name__ == "__main__":
    main()
