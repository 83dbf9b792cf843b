"""The package as a user gets it: wheel and source distribution, and the command in a clean environment.

`make test-install` installs from the package index instead, also with the oldest supported versions.
"""

from __future__ import annotations

import re
import sys
import tarfile
import tomllib
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

import sdssm
from sdssm.extras import EXTRAS
from tests.clean_environment import (
    ROOT,
    build_distribution,
    dependency_closure,
    link_environment,
    optional_modules,
    run_program,
    use_installed_command,
)

pytest.importorskip("hatchling", reason="builds the package")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DATA = f"sdssm-{sdssm.__version__}.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_distribution("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


def read_metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        return message_from_bytes(archive.read(f"{DATA}/METADATA"))


def test_wheel_has_every_file_of_the_package_and_the_licence(wheel: Path) -> None:
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "sdssm").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = set(ZipFile(wheel).namelist())
    assert {name for name in names if not name.startswith(DATA)} == expected
    assert {Path(name).suffix for name in expected} >= {".py", ".toml", ".csv", ".json", ".typed"}
    assert f"{DATA}/licenses/LICENSE" in names


def test_wheel_needs_what_the_project_declares(wheel: Path) -> None:
    metadata = read_metadata(wheel)
    required = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    assert sorted(required) == sorted(PROJECT["dependencies"])
    assert metadata["Version"] == sdssm.__version__ and metadata["Requires-Python"] == PROJECT["requires-python"]


def test_description_has_no_links_to_files_that_an_index_does_not_have(wheel: Path) -> None:
    description = read_metadata(wheel).get_payload()
    assert isinstance(description, str)
    targets = re.findall(r"\]\(([^)]*)\)|(?:src|href)=\"([^\"]*)\"", description)
    assert targets and all("".join(target).startswith("https://") for target in targets)


def test_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    archive = build_distribution("sdist", ROOT, tmp_path / "sdist")
    assert archive.stat().st_size < 3_000_000
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    unpacked = tmp_path / f"sdssm-{sdssm.__version__}"
    for path in ("README.md", "docs/reference/settings.md", "examples/demo.py", "tests/test_install.py", "Makefile"):
        assert (unpacked / path).exists(), path
    assert build_distribution("wheel", unpacked, tmp_path / "wheel").read_bytes() == wheel.read_bytes()


def test_command_works_with_the_required_dependencies_alone(wheel: Path, tmp_path: Path) -> None:
    python = link_environment(tmp_path / "environment", PROJECT["dependencies"])
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    run_program([*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel], tmp_path)
    run_program([*pip, "check"], tmp_path)
    # torch itself brings networkx, and on Linux with CUDA triton.
    names = {distribution.replace("-", "_") for distribution in dependency_closure(PROJECT["dependencies"])}
    assert optional_modules(python, tmp_path) == names & set(EXTRAS)
    assert "rich" not in names
    command = python.with_name("sdssm")
    assert run_program([command, "--version"], tmp_path) == f"sdssm {sdssm.__version__}\n"
    use_installed_command(command, tmp_path)
