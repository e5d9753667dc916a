"""The pages' examples do what they say."""

import re
import runpy
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch

from gpam.attention import registry

ROOT = Path(__file__).resolve().parents[1]


def test_the_example_of_a_new_mechanism_works(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "gpam")
    import independent_formulas
    from mechanism_cases import Called, independent_call, inputs

    page = (ROOT / "docs" / "adding-a-mechanism.md").read_text(encoding="utf-8")
    example, formula = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    others = {name: of for name, of in registry._MECHANISMS.items() if name != "tempered"}  # a reader's own stays
    monkeypatch.setattr(registry, "_MECHANISMS", others)
    exec(example, {"__name__": "tempered"})
    known = dict(vars(independent_formulas))
    exec(formula, known)
    monkeypatch.setattr(independent_formulas, "tempered", known["tempered"], raising=False)
    called, given = Called(("tempered", {"tempered_start": 2.0})), inputs()
    mechanism = called.mechanism
    assert sum(p.numel() for p in mechanism.parameters()) == mechanism.facts.extra_parameters(mechanism.site, None)
    for got, wanted in zip(
        called(given, causal=True, need_weights=True), independent_call(called, given, causal=True), strict=True
    ):
        assert torch.allclose(got, wanted, rtol=1e-9, atol=1e-11)


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


@pytest.fixture
def example(monkeypatch, capsys):
    """examples/tiny_gpt.py in this process: what it printed, and the exit code and sentence of a mistake."""

    def called(*words):
        monkeypatch.setattr(sys, "argv", ["tiny_gpt.py", *words])
        code = 0
        try:
            runpy.run_path(str(ROOT / "examples" / "tiny_gpt.py"), run_name="__main__")
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return called


def test_the_small_gpt_learns_with_the_mechanism_named_and_writes(example):
    code, printed, said = example("dagpam", "lambdas=trainable", "--updates", "20")
    assert code == 0, said
    for name in ("softmax", "dagpam"):
        losses = [float(loss) for loss in re.findall(rf"{name} .*validation loss ([\d.]+)", printed)]
        assert len(losses) == 5 and losses[-1] < losses[0] - 0.2
    assert len(printed.split("dagpam writes:\n")[1]) > 400


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dagpam", "lambda_ne=1"], "did you mean 'lambda_neg'"),
        (["--updates", "0"], "--updates: got 0, wanted 1 or more"),
    ],
)
def test_the_small_gpt_names_a_mistake_before_it_trains(words, sentence, example):
    code, printed, said = example(*words)
    assert code == 2 and sentence in said and "validation" not in printed


def test_every_link_of_the_pages_leads_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").glob("*.md")]
    for page in pages:
        for target, heading in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                file = page.parent / unquote(target) if target else page
                assert file.exists(), f"{page.name}: {target}"
                assert not heading or heading in _anchors(file), f"{page.name}: {target}#{heading}"


def _anchors(page: Path) -> list[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
