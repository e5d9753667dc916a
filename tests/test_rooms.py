"""The rooms of gpam_suite: their order, that no two files import each other, and how full the root is."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
ROOMS = ["common", "config", "data", "records", "evaluate", "run", "inside", "stats", "report", "benchmark", "tools"]
PACKAGES = ("gpam", "gpam_fairseq", "gpam_suite")


@cache
def imports() -> dict[str, set[str]]:
    """Module to the modules of ours that it imports, anywhere in it."""
    files = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: _imported(path, set(files)) - {name} for name, path in files.items()}


def _imported(path: Path, known: set[str]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= whole & known or {node.module}
    return found & known


def place(module: str) -> tuple[int, int]:
    """Of its package, and of its room in the suite, in the order in which they may import."""
    package, *inner = module.split(".")
    return PACKAGES.index(package), ROOMS.index(inner[0]) if package == "gpam_suite" and inner else -1


def test_no_room_imports_from_a_later_one():
    upward = [f"{one} -> {other}" for one, all_ in imports().items() for other in all_ if place(other) > place(one)]
    assert imports()["gpam_suite.run.run"] > {"gpam_suite.config.compose"}  # they are read at all
    assert upward == []


def test_no_files_import_each_other():
    suite = {one: others for one, others in imports().items() if one.startswith("gpam_suite")}
    TopologicalSorter(suite).prepare()  # raises CycleError, which names the circle


def test_the_root_is_nearly_empty():
    root = SOURCE / "gpam_suite"
    assert sorted(folder.name for folder in root.iterdir() if (folder / "__init__.py").is_file()) == sorted(ROOMS)
    assert len(list(root.glob("*.py"))) <= 3
