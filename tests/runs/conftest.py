"""A trained run that tests copy and damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.runs.sample_run import make_run


@pytest.fixture(scope="session")
def sample_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run with every kind of file; not to be changed."""
    return make_run(tmp_path_factory.mktemp("sample")).path


@pytest.fixture
def sample(sample_path: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(sample_path, tmp_path / "runs" / "seed-0"))
