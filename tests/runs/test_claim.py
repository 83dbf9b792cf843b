"""A process can hold as many folders as a training has runs, or nothing starts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sdssm.errors import RunError
from sdssm.runs import RunFolder, claim
from sdssm.training.trainer import train_runs
from tests.training.plans import plan_groups

resource = pytest.importorskip("resource")


@pytest.fixture
def low_limit() -> Iterator[int]:
    """A limit that allows three more open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = claim._count_open_files() + 3
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_low_limit_is_raised(tmp_path: Path, low_limit: int) -> None:
    runs = train_runs(tmp_path, plan_groups(tmp_path, 1)[:4], device="cpu")
    assert {run.status for run in runs} == {"finished"}
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > low_limit


def test_nothing_starts_if_the_limit_cannot_be_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, low_limit: int
) -> None:
    out = tmp_path / "out"

    def refused(*_: Any) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refused)
    with pytest.raises(RunError, match=r"6 runs, .* need an open file each, .* raise the limit \(ulimit -n"):
        train_runs(out, plan_groups(out, 1), device="cpu")
    monkeypatch.undo()
    assert not out.exists()


def test_ended_runs_need_no_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (folder, _, config) in enumerate(plan_groups(tmp_path)):
        RunFolder.create(folder, config).finish("diverged" if number % 2 else "finished")
    requests: list[int] = []
    monkeypatch.setattr(import_module("sdssm.training.trainer"), "reserve_open_files", requests.append)
    train_runs(tmp_path, plan_groups(tmp_path), device="cpu", resume=True)
    assert requests == [0]
