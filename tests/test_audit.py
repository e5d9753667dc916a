"""scripts/audit.py: what is installed against what was locked."""

import importlib.util
from importlib.metadata import PathDistribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_what_is_not_as_it_was_locked_is_named(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("audit_script", ROOT / "scripts" / "audit.py")
    audit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(audit)
    monkeypatch.setattr(audit, "pins", lambda: {"some-package": "2.0"})
    module, info = tmp_path / "some_package.py", tmp_path / "some_package-2.0.dist-info"
    module.write_text("right = True\n")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Some_Package\nVersion: 2.0\n")
    (info / "RECORD").write_text(f"some_package.py,sha256={audit._digest(module)},13\nRECORD,,\n")
    assert audit.complaints(PathDistribution(info)) == []
    module.write_text("right = False\n")
    (changed,) = audit.complaints(PathDistribution(info))
    assert "some-package: some_package.py is not the file that was installed" in changed
    module.unlink()
    assert audit.complaints(PathDistribution(info)) == [changed]
    for cut in ("", "some_package.py,sha2"):
        (info / "RECORD").write_text(cut)
        (without,) = audit.complaints(PathDistribution(info))
        assert "some-package has no whole list of its files" in without
    monkeypatch.setattr(audit, "pins", lambda: {"some-package": "1.0"})
    assert "some-package 2.0 is installed, the pin is 1.0" in audit.complaints(PathDistribution(info))[0]
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 2.0\n")
    assert "torchvision 2.0 is installed, the pin is none" in audit.complaints(PathDistribution(info))[0]
    (info / "METADATA").unlink()
    assert "a package without a name" in audit.complaints(PathDistribution(info))[0]
