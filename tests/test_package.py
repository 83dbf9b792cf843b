"""The package as a whole: what it imports, in which order, and what it needs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sdssm
from sdssm.cli.train import literal
from sdssm.errors import MissingExtraError, SdssmError
from sdssm.extras import EXTRAS, import_extra
from sdssm.runs.schema import Settings, setting_names
from sdssm.settings import settings_to_dict

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sdssm"
#: One road through the house: a module imports only what stands before its own package here.
ORDER = [
    "errors",
    "extras",
    "files",
    "settings",
    "devices",
    "automata",
    "tasks",
    "ops",
    "layers",
    "models",
    "runs",
    "evaluation",
    "training",
    "exact",
    "experiments",
    "report",
    "cli",
]


def imported(path: Path) -> set[str]:
    """The parts of sdssm that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""] if node.module != "sdssm" else [f"sdssm.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("sdssm.")}
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if part in ("__init__", "__main__"):
        return
    assert part in ORDER, f"{part} has no place in the order of the house"
    behind = {other for other in imported(path) - {part, "__version__"} if ORDER.index(other) > ORDER.index(part)}
    assert not behind


#: Only the standard library and these may be imported when the package is.
ALLOWED = {"torch", "numpy", "safetensors"}
PROBE = """
import sys
from importlib.machinery import PathFinder

class Partial(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {missing} else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Partial if finder is PathFinder else finder for finder in sys.meta_path]
"""


def without(missing: set[str], code: str) -> str:
    """What a program prints on a machine where `missing` are not installed."""
    program = PROBE.format(missing=missing) + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_runs_with_torch_numpy_and_safetensors_alone() -> None:
    code = "import sdssm\nfrom sdssm.cli import main\nraise SystemExit(main(['tasks', 'show', 'a5']))"
    assert "not solvable" in without(set(EXTRAS) - ALLOWED, code)


@pytest.mark.parametrize(("before", "after"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_that_wait_sleep_unless_the_user_says_otherwise(before: str | None, after: str) -> None:
    code = "import sdssm, os; print(os.environ['OMP_WAIT_POLICY'])"
    asked = {"OMP_WAIT_POLICY": before} if before else {}
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | asked
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == after


def test_a_missing_extra_says_what_to_install() -> None:
    code = """
from sdssm.automata import named, to_aalpy, to_automata_lib, to_networkx
from sdssm.errors import MissingExtraError
for call in (to_networkx, to_automata_lib, to_aalpy):
    try:
        call(named("parity"))
    except MissingExtraError as error:
        print(error)
"""
    said = without(set(EXTRAS) - ALLOWED, code).splitlines()
    for extra, line in zip(("networkx", "automata-lib", "aalpy"), said, strict=True):
        assert f"install sdssm[{extra}]" in line


def test_every_extra_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(EXTRAS.values()) == set(extras) - {"dev"}
    assert project["dependencies"] == ["torch>=2.6", "numpy>=1.26", "safetensors>=0.4"]
    with pytest.raises(MissingExtraError, match=re.escape("a test needs ray.nothing; install sdssm[ray]")):
        import_extra("ray.nothing", "a test")
    assert issubclass(MissingExtraError, SdssmError)


def test_versions_agree() -> None:
    assert f"## {sdssm.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {sdssm.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert (SOURCE / "py.typed").exists()


DOCS = ("automata", "ops", "models", "training", "evaluation", "exact", "experiments")
PAGES = ["README.md", *(f"docs/{name}.md" for name in DOCS)]


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_tell_the_truth(page: str) -> None:
    """Every Python example of a page runs and prints what stands there."""
    import doctest

    failures, tried = doctest.testfile(str(ROOT / page), module_relative=False)
    assert tried > 0
    assert failures == 0


def test_every_setting_stands_on_its_page() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S.*?) \|", (ROOT / "docs" / "training.md").read_text(), re.MULTILINE)
    settings = Settings()
    defaults = {
        name: value
        for part in (settings.model.mixer, settings.model, settings.train)
        for name, value in settings_to_dict(part).items()
        if name in setting_names(settings)
    }
    assert {name: literal(default) for name, default in rows if name in defaults} == defaults
