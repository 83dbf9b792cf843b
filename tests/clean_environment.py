"""Build the package, and run the installed command in environments that have only its required dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sdssm.extras import EXTRAS

ROOT = Path(__file__).parents[1]
#: Variables that would let an environment see another one, and settings of the shell that a new user does not have.
REMOVED_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")


def run_program(command: Sequence[str | Path], folder: Path) -> str:
    """Run a program in a folder and return its standard output; the error of a failure has all that it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in REMOVED_VARIABLES}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(map(str, command))}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def build_distribution(kind: str, source: Path, target: Path) -> Path:
    """Build the "wheel" or the "sdist" of a source tree and return its path."""
    run_program([sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", target], source)
    (path,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return path


def link_environment(folder: Path, requirements: Sequence[str]) -> Path:
    """Create an environment with links to packages that are installed here, and return its Python.

    It has these packages and what they need in turn, and nothing else.
    """
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in sorted(dependency_closure(requirements)):
        files = distribution(name).files
        assert files, f"{name} does not list its files"
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():  # some packages share a folder
                link.symlink_to(Path(str(distribution(name).locate_file(top))))
    return folder / "bin" / "python"


def dependency_closure(requirements: Sequence[str]) -> set[str]:
    """Return the names of packages and of all that they need in this environment, without extras."""
    names: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in names and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            names.add(name)
            waiting += [Requirement(text) for text in distribution(name).requires or ()]
    return names


def optional_modules(python: Path, folder: Path) -> set[str]:
    """Return the optional dependencies of the package that an environment can import."""
    code = f"from importlib.util import find_spec; print(*(m for m in {sorted(EXTRAS)} if find_spec(m)))"
    return set(run_program([python, "-c", code], folder).split())


def use_installed_command(command: Path, folder: Path) -> None:
    """Train, evaluate, certify and report a small model with an installed `sdssm`, in a folder that is no checkout."""
    small = ["--set", "state=8", "batch=16", "train_length=8"]
    run_program([command, "train", "parity", "--steps", "40", *small, "--device", "cpu", "--out", "runs/tiny"], folder)
    evaluation = json.loads(run_program([command, "evaluate", "runs/tiny", "--lengths", "1,8,40", "--json"], folder))
    (run,) = evaluation["runs"]
    assert run["task"] == "parity" and len(run["accuracy"]) == 3
    certificate = json.loads(run_program([command, "certify", "runs/tiny/seed-0", "--json"], folder))
    assert certificate["task"] == "parity" and certificate["reason"]
    assert run_program([command, "report"], folder).startswith("report.html: 1 run, 1 task;")
    assert "</html>" in (folder / "report.html").read_text()
