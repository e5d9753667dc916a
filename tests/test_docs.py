"""The pages' examples do what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
TRAIN = """
import torch
from gpam.attention import Site, build
from gpam.attention.base import Mechanism
mechanism = build("tempered", Site(embed_dim=16, num_heads=4), {"tempered_start": 2.0})
assert isinstance(mechanism, Mechanism)
assert sum(p.numel() for p in mechanism.parameters()) == mechanism.facts.extra_parameters(mechanism.site, None)
q, k, v = torch.randn(3, 2, 4, 5, 4)
output, weights = mechanism(q, k, v, causal=True, need_weights=True)
assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 5))
expected = torch.softmax((q @ k.transpose(-2, -1)).masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf")), -1)
assert torch.allclose(weights, expected, atol=1e-6)  # t / sqrt(d) = 2 / sqrt(4) = 1
"""


def test_the_example_of_a_new_mechanism_works():
    page = (ROOT / "docs" / "adding-a-mechanism.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", code + TRAIN], check=True, env=variables)


OWN_MODEL = (ROOT / "docs" / "your-own-model.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", range(4), ids=["torch", "gpt2", "vit", "from_scratch"])
def test_each_example_of_your_own_model_runs_and_is_short(number):
    code = re.findall(r"```python\n(.*?)```", OWN_MODEL, re.DOTALL)[number]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    if "transformers" in code:
        pytest.importorskip("transformers", reason="transformers is not installed: the extra 'huggingface'")
    names = {}
    exec(compile(code, f"example {number}", "exec"), names)
    assert isinstance(names["model"], torch.nn.Module)


def example(*words):
    command = [sys.executable, ROOT / "examples" / "tiny_gpt.py", *words]
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


def test_the_small_gpt_learns_with_the_mechanism_named_and_writes():
    done = example("dagpam", "lambdas=trainable", "--updates", "40")
    assert done.returncode == 0, done.stderr
    for name in ("softmax", "dagpam"):
        losses = [float(loss) for loss in re.findall(rf"{name} .*validation loss ([\d.]+)", done.stdout)]
        assert len(losses) == 5 and losses[-1] < losses[0] - 0.2
    assert len(done.stdout.split("dagpam writes:\n")[1]) > 400


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dagpam", "lambda_ne=1"], "did you mean 'lambda_neg'"),
        (["--updates", "0"], "--updates: got 0, wanted 1 or more"),
    ],
)
def test_the_small_gpt_names_a_mistake_before_it_trains(words, sentence):
    done = example(*words)
    assert done.returncode == 2 and sentence in done.stderr and "validation" not in done.stdout


def test_every_link_of_the_pages_leads_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "results" / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / unquote(target)).exists(), f"{page.name}: {target}"
