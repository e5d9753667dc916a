"""No value of a user's is ever a word of a shell's: not in the code, the scripts, or the Makefile."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHELLS = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}
STARTING = {"subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output"}


def complaints(source: str) -> list[str]:
    """Calls that start a shell, or might: ``shell=`` anything but False, a command that is one text, ``bash -c``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name, given = ast.unparse(node.func), {keyword.arg: keyword.value for keyword in node.keywords}
        shell = "shell" in given and ast.unparse(given["shell"]) != "False"
        if name.rpartition(".")[2] in SHELLS or name.startswith(("os.spawn", "pty.spawn")) or shell:
            found.append(ast.unparse(node))
        elif name in STARTING:
            command = node.args[0] if node.args else given.get("args")
            words = [str(item.value) for item in getattr(command, "elts", []) if isinstance(item, ast.Constant)]
            is_shell = words and Path(words[0]).name in {"sh", "bash", "dash", "zsh"}
            told = is_shell and any(re.fullmatch(r"-\w*c", word) for word in words)
            if told or isinstance(command, ast.JoinedStr | ast.Constant | ast.BinOp):
                found.append(ast.unparse(node))
    return found


def test_no_module_or_script_starts_a_shell():
    for folder in ("src", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            assert complaints(path.read_text(encoding="utf-8")) == [], path


@pytest.mark.parametrize(
    "source",
    [
        "os.system(x)",
        "subprocess.run(x, shell=True)",
        "subprocess.run(f'ls {x}')",
        "subprocess.Popen(['bash', '-c', x])",
        "subprocess.run(words, shell=flag)",
        "subprocess.run(['sh', '-c', x])",
        "subprocess.run(['/bin/bash', '-lc', x])",
        "subprocess.run(args=f'ls {x}')",
        "asyncio.create_subprocess_shell(x)",
        "system(x)",
    ],
)
def test_a_shell_is_noticed(source):
    assert complaints(source)


def test_shell_scripts_quote_what_they_are_given():
    for path in sorted((ROOT / "scripts").glob("*.sh")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\beval\b|\bsh -c|\bsource\b", text), path
        unquoted = re.sub(
            r"\"[^\"]*\"|'[^']*'|#.*", "", re.sub(r"^\s*\w+=\S+( \w+=\S+)*$", "", text, flags=re.MULTILINE)
        )
        assert not re.search(r"\$\{?[A-Za-z0-9_@*]", unquoted), f"{path}: {unquoted}"


def recipes() -> list[str]:
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("\t")]


def test_the_makefile_puts_no_setting_into_a_recipe():
    """make would write its value into the shell's program; ``"$$SEEDS"`` has the shell read it as one word."""
    own = {"MAKE", "MAKEFILE_LIST", "RUN", "REPRODUCE", "MORE"}
    for line in recipes():
        assert set(re.findall(r"(?<!\$)\$[({](\w+)", line)) <= own, line
        bare = re.findall(r"\$\$(\w+)", re.sub(r'"[^"]*"', "", line).replace("$$1", "").replace("$$2", ""))
        assert set(bare) <= {"EXTRA"}, line


@pytest.mark.parametrize(
    "evil",
    ["1; touch was_here", '1"; touch was_here; "', "$(touch was_here)", "`touch was_here`", "$(shell touch was_here)"],
)
def test_a_setting_of_make_starts_nothing(evil, tmp_path):
    make = ["make", "-f", str(ROOT / "Makefile"), f"PYTHON={sys.executable}", "-C", str(tmp_path)]
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    users = {name: value for name, value in os.environ.items() if name not in ("SCALE", "MODELS", "SEEDS", "JOBS")}
    for given in ([*make, f"SEEDS={evil}"], make):
        variables = users | ({} if f"SEEDS={evil}" in given else {"SEEDS": evil})
        ended = subprocess.run([*given, "reproduce-lm"], capture_output=True, text=True, check=False, env=variables)
        assert ended.returncode == 2
        assert f"SEEDS: got '{evil.split(',')[0]}'" in ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scripts"]


@pytest.mark.parametrize(
    "name", ["RUN", "MORE", "REPRODUCE", "SHELL", "MAKE", "MAKEFILE_LIST", "SEED", "name", "setting", "GIVEN"]
)
def test_a_setting_that_make_does_not_declare_is_refused(name, tmp_path):
    command = ["make", f"--file={ROOT / 'Makefile'}", f"{name}=touch {tmp_path}/was_here;", "help"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 2
    assert f"unknown setting '{name}', wanted some of PYTHON " in ended.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("target", "given"),
    [("reproduce-lm", "MODEL=dagpam"), ("search", "MODELS=dagpam"), ("reproduce-ptb", "SEEDS=1"), ("test", "JOBS=2")],
)
def test_a_setting_of_another_target_is_not_passed_over(target, given, tmp_path):
    command = ["make", f"--file={ROOT / 'Makefile'}", target, given]
    variables = {name: value for name, value in os.environ.items() if name != "MAKELEVEL"}  # this may be make test
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=variables)
    assert ended.returncode == 2
    assert f"{given.partition('=')[0]} is no setting of '{target}', wanted some of PYTHON " in ended.stderr


def test_a_target_takes_the_settings_that_its_recipe_reads():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = dict(re.findall(r"^override (TAKES\S*) +:= (.*)$", makefile, flags=re.MULTILINE))

    def words(text):
        inner = re.sub(r"\$\((TAKES_\S+)\)", lambda found: " ".join(words(named[found[1]])), text)
        return set(inner.split())

    (reproduce,) = re.findall(r"^override REPRODUCE = (.*)$", makefile, flags=re.MULTILINE)
    everywhere = words(named["TAKES"])
    for target, recipe in re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)*)", makefile, flags=re.MULTILINE):
        read = set(re.findall(r"\$\$\{?([A-Z]\w*)", recipe.replace("$(REPRODUCE)", reproduce)))
        assert words(named.get(f"TAKES_{target}", "")) | everywhere == read | everywhere, target


def test_the_environment_does_not_replace_makes_own_words(tmp_path):
    variables = {**os.environ, "RUN": f"touch {tmp_path}/was_here;", "MORE": f"touch {tmp_path}/was_here;"}
    command = ["make", "-e", "--dry-run", f"--file={ROOT / 'Makefile'}", "compare"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=variables)
    assert "was_here" not in ended.stdout
    assert "scripts/compare.py" in ended.stdout


def test_every_declared_setting_is_a_setting():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    declared = re.findall(r"^([A-Z_]+) *\?=", makefile, flags=re.MULTILINE)
    (listed,) = re.findall(r"^override SETTINGS := (.*)$", makefile, flags=re.MULTILINE)
    assert declared and set(declared) < set(listed.split())
