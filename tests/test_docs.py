"""The pages' examples do what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

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


def test_every_link_of_the_pages_leads_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "results" / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / unquote(target)).exists(), f"{page.name}: {target}"
