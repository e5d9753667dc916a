"""scripts/audit.py against a folder of advisories."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def audit(monkeypatch):
    spec = importlib.util.spec_from_file_location("audit_script", ROOT / "scripts" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "pins", lambda: {"some-package": "2.0.1", "other": "1.0"})
    return module


def span(**borders):
    return {"ranges": [{"type": "ECOSYSTEM", "events": [{kind: border} for kind, border in borders.items()]}]}


@pytest.mark.parametrize(
    ("of", "hit"),
    [
        ({"versions": ["2.0.0", "2.0.1"]}, True),
        ({"versions": ["2.0.0"]}, False),
        (span(introduced="0"), True),
        (span(introduced="2.0.1", fixed="2.0.2"), True),
        (span(introduced="0", fixed="2.0.1"), False),
        (span(introduced="0", fixed="2.0.1rc1"), False),
        (span(introduced="2.0.10"), False),
        (span(introduced="0", last_affected="2.0.1"), True),
        (span(introduced="0", last_affected="2.0"), False),
        ({"ranges": [span(introduced="0", fixed="1.0")["ranges"][0], span(introduced="2.0")["ranges"][0]]}, True),
        ({"ranges": [span(introduced="2.0")["ranges"][0], span(introduced="0", fixed="1.0")["ranges"][0]]}, True),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
    ],
)
def test_a_version_is_affected_or_not(of, hit, audit):
    assert audit.affects(of, "2.0.1") == hit


def test_a_weakness_is_named_and_fails(audit, tmp_path, capsys):
    def write(name, **more):
        path = tmp_path / "vulns" / "some-package" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        affected = [{"package": {"name": "Some_Package"}, **span(introduced="2.0")}]
        lines = {"id": name, "modified": "2026-01-02T03:04:05Z", "affected": affected, **more}
        path.write_text("\n".join(f"{key}: {value}" for key, value in lines.items()).replace("'", '"'))

    assert audit.advisories(tmp_path) == audit.FAILED
    assert "wanted a checkout of PyPA's advisory database" in capsys.readouterr().err
    write("PYSEC-1", withdrawn="2026-01-03T00:00:00Z")
    write("PYSEC-2", affected=[{"package": {"name": "third"}, **span(introduced="0")}])
    assert audit.advisories(tmp_path) == 0
    assert capsys.readouterr().out == "audit: 2 pins, 2 advisories up to 2026-01-02, 0 that apply\n"
    write("PYSEC-3", aliases=["CVE-9"])
    assert audit.advisories(tmp_path) == audit.FAILED
    assert capsys.readouterr().err == "audit: some-package 2.0.1 has PYSEC-3 (CVE-9)\n"
