"""Existing runs from other folders are reused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import sdssm
from sdssm.errors import RunError
from sdssm.experiments import Selection, Spec, evaluate_plan, make_plan, reuse_runs, run_plan, write_results
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.runs import RunFolder
from tests.edited_files import edit_text

SETTINGS = {"state": 4, "batch": 8, "steps": 20, "train_length": 6}
SPEC = """
name = "mine"
seeds = 2
tasks = ["parity", "cycle"]
[evaluate]
max_length = 12
strings = 16
[[rows]]
model = "lstm"
settings = { state = 4, batch = 8, steps = 20, train_length = 6 }
"""


@pytest.fixture(scope="module")
def spec() -> Spec:
    return parse_spec(SPEC, source="mine.toml")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both seeds of parity, as `sdssm train` writes them, with frequent checkpoints."""
    out = tmp_path_factory.mktemp("trained")
    settings = {**SETTINGS, "log_every": 10, "checkpoint_every": 5}
    sdssm.train("parity", model="lstm", seeds=2, settings=settings, out=out / "by hand", device="cpu")
    return out


@pytest.fixture
def before(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "before"))


def test_finished_runs_are_not_trained_again(spec: Spec, before: Path, tmp_path: Path) -> None:
    weights = {path: path.read_bytes() for path in before.rglob("model.safetensors")}
    plan = reuse_runs(make_plan(spec, tmp_path / "runs"), [before])
    assert [(run.column, run.config.seed, run.reused) for run in plan.selected_runs()] == [
        ("parity", 0, True),
        ("parity", 1, True),
        ("cycle", 0, False),
        ("cycle", 1, False),
    ]
    run_plan(plan, "cpu")
    evaluate_plan(plan, "cpu")
    assert not (tmp_path / "runs" / "parity").exists()
    assert {path: path.read_bytes() for path in before.rglob("model.safetensors")} == weights
    assert len(list(before.rglob("evaluation.json"))) == 2  # in the folders of the runs
    results = write_results(plan, tmp_path / "mine", command="", device="cpu")
    assert [run["status"] for run in results["runs"]] == ["finished"] * 4
    assert str(tmp_path) not in json.dumps(results)
    again = reuse_runs(make_plan(spec, tmp_path / "runs"), [before])
    assert {run.status for run in again.runs} == {"finished"}


def test_runs_of_another_out_folder_are_reused(spec: Spec, tmp_path: Path) -> None:
    plan = make_plan(spec, tmp_path / "first", Selection(tasks=["cycle"]))
    run_plan(plan, "cpu")
    other = reuse_runs(
        make_plan(spec, tmp_path / "other"), [tmp_path / "first", tmp_path]
    )  # one folder contains the other
    assert [run.status for run in other.runs] == ["missing", "missing", "finished", "finished"]
    assert not any(
        run.reused for run in reuse_runs(make_plan(spec, tmp_path / "first"), [tmp_path]).runs
    )  # they are in its own folder


def test_diverged_run_of_another_folder_is_not_trained(spec: Spec, tmp_path: Path) -> None:
    """A copy of a group of which one original run diverged: the copy trains only the other run."""
    plan = make_plan(spec, tmp_path / "first", Selection(tasks=["cycle"]))
    for run in plan.selected_runs():
        RunFolder.create(run.folder, run.config).finish("stopped")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    ended = RunFolder.open(plan.selected_runs()[0].folder)
    ended.log({"step": 1, "diverged": True})
    ended.finish("diverged")
    other = reuse_runs(make_plan(spec, tmp_path / "copy", Selection(tasks=["cycle"])), [tmp_path / "first"])
    assert [run.reused for run in other.selected_runs()] == [True, False]
    assert [folder.parts[-4] for folder, *_ in other.trainings()] == ["copy"]
    run_plan(other, "cpu")
    assert [run.status for run in other.selected_runs()] == ["diverged", "finished"]


def test_finished_run_replaces_a_started_one(spec: Spec, before: Path, tmp_path: Path) -> None:
    plan = make_plan(spec, tmp_path / "runs")
    RunFolder.create(plan.runs[0].folder, plan.runs[0].config)
    assert [run.reused for run in reuse_runs(make_plan(spec, tmp_path / "runs"), [before]).runs[:2]] == [True, True]


@pytest.mark.parametrize(
    "change",
    [
        {"train": {"lr": 0.5}},
        {"train": {"steps": 19}},
        {"train": {"shortest": 2}},
        {"model": {"readout_bias": True}},
        {"seed": 7},
        {"digest": "0" * 16},
        {"test_length": 100},
    ],
)
def test_other_trainings_are_not_reused(spec: Spec, before: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    for path in before.rglob("config.json"):
        config = json.loads(path.read_text())
        for name, value in change.items():
            config[name] = {**config[name], **value} if isinstance(value, dict) else value
        path.write_text(json.dumps(config))
    assert not any(run.reused for run in reuse_runs(make_plan(spec, tmp_path / "runs"), [before]).runs)


def damage(folder: Path, how: str) -> None:
    if how == "running":
        path = folder / "status.json"
        edit_text(path, "finished", "running")
    elif how == "short weights":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-9])
    elif how == "no weights":
        (folder / "model.safetensors").unlink()
    elif how == "unknown setting":
        path = folder / "config.json"
        edit_text(path, '"lr"', '"rate"')
    else:
        (folder / how).write_bytes(b'{"a": [' if how == "config.json" else b"\xff")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "how", ["config.json", "status.json", "running", "short weights", "no weights", "unknown setting"]
)
def test_damaged_folders_are_skipped(spec: Spec, before: Path, tmp_path: Path, how: str) -> None:
    damage(before / "by hand" / "seed-0", how)
    runs = reuse_runs(make_plan(spec, tmp_path / "runs"), [before]).runs
    assert [run.reused for run in runs] == [False, True, False, False]


def test_finished_run_is_preferred_to_a_diverged_one(spec: Spec, before: Path, tmp_path: Path) -> None:
    shutil.copytree(before / "by hand", before / "another")
    for path in (before / "another").rglob("status.json"):
        edit_text(path, "finished", "diverged")
    runs = reuse_runs(make_plan(spec, tmp_path / "runs"), [before]).runs
    assert {run.folder.parent.name for run in runs[:2]} == {"by hand"}
    shutil.rmtree(before / "by hand")
    assert [run.status for run in reuse_runs(make_plan(spec, tmp_path / "runs"), [before]).runs[:2]] == ["diverged"] * 2


def test_only_candidates_are_opened(spec: Spec, before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the other runs, which may be hundreds, only the config is read."""
    for number in range(2, 12):
        copy = shutil.copytree(before / "by hand" / "seed-0", before / f"seed-{number}")
        config = json.loads((copy / "config.json").read_text())
        del config["checksum"]  # edited on purpose
        (copy / "config.json").write_text(json.dumps({**config, "seed": number}))
    plan = make_plan(spec, tmp_path / "runs")
    opened: list[Path] = []
    original = RunFolder.open

    def recording(path: Path | str) -> RunFolder:
        opened.append(Path(path))
        return original(path)

    monkeypatch.setattr(RunFolder, "open", recording)
    assert sum(run.reused for run in reuse_runs(plan, [before]).runs) == 2
    assert len(opened) == 2


def test_missing_folder_is_refused(spec: Spec, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no folder .*none to reuse runs from"):
        reuse_runs(make_plan(spec, tmp_path / "runs"), [tmp_path / "none"])
