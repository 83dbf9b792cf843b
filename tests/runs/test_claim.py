"""As many folders as a training has runs can be held, or nothing begins."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sdssm.errors import RunError
from sdssm.runs import RunFolder, claim
from sdssm.training.trainer import train_all
from tests.training.plans import plan_groups

resource = pytest.importorskip("resource")


@pytest.fixture
def few() -> Iterator[int]:
    """A limit that leaves room for three files more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = claim._open_files() + 3
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    yield most
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_low_limit_is_raised(tmp_path: Path, few: int) -> None:
    runs = train_all(tmp_path, plan_groups(tmp_path, 1)[:4], device="cpu")
    assert {run.status for run in runs} == {"finished"}
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > few


def test_where_it_cannot_be_raised_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    out = tmp_path / "out"

    def refused(*_: Any) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refused)
    with pytest.raises(RunError, match=r"6 runs, .* need an open file each, .* raise the limit \(ulimit -n"):
        train_all(out, plan_groups(out, 1), device="cpu")
    monkeypatch.undo()
    assert not out.exists()


def test_ended_runs_need_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (folder, _, config) in enumerate(plan_groups(tmp_path)):
        RunFolder.create(folder, config).finish("diverged" if number % 2 else "finished")
    asked: list[int] = []
    monkeypatch.setattr(import_module("sdssm.training.trainer"), "make_room", asked.append)
    train_all(tmp_path, plan_groups(tmp_path), device="cpu", resume=True)
    assert asked == [0]
