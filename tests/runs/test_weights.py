"""`load`: the model of a run, of runs, or of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import sdssm
from sdssm.automata import get_machine
from sdssm.errors import RunError
from sdssm.runs import RunFolder, load
from sdssm.training import Runs
from tests.evaluation.test_evaluate import create_run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return create_run(tmp_path / "parity" / "seed-0", get_machine("parity"))


def test_every_way_to_name_a_run(run: RunFolder) -> None:
    folder = run.path.parent
    expected = load(run.path).dictionary
    for source in (run, str(run.path), folder, str(folder), Runs(folder, [run]), [run]):
        assert torch.equal(sdssm.load(source).dictionary, expected)


def test_several_runs_and_other_objects_are_refused_in_one_line(run: RunFolder, tmp_path: Path) -> None:
    other = create_run(run.path.parent / "seed-1", get_machine("parity"), 1)
    for source in (run.path.parent, Runs(run.path.parent, [run, other])):
        with pytest.raises(RunError, match=r"holds 2 runs; choose one of them, such as .*seed-0$"):
            load(source)
    for wrong in (3, None, ["a"]):
        with pytest.raises(RunError, match="holds no model; pass a run, or the folder of a run"):
            load(wrong)  # type: ignore[arg-type]  # the wrong type is what is tested
    with pytest.raises(RunError, match="there is no folder .*nowhere"):
        load(tmp_path / "nowhere")


def test_a_loaded_model_has_the_training_length_of_its_run(tmp_path: Path) -> None:
    """So that an evaluation of the model divides the lengths as one of the run does."""
    small = {"state": 8, "batch": 8, "train_length": 7}
    runs = sdssm.train("parity", steps=2, settings=small, out=tmp_path / "runs", device="cpu")
    model = load(runs)
    assert model.task is not None and model.task.train_length == 7
    by_model, by_run = (sdssm.evaluate(source, max_length=20, strings=16, device="cpu")[0] for source in (model, runs))
    assert (by_model.mean_within, by_model.mean_beyond) == (by_run.mean_within, by_run.mean_beyond)
    assert [run.path for run in sdssm.resume(runs)] == [run.path for run in runs]  # nothing is left to train
    for nothing in ("", None):
        with pytest.raises(RunError, match="holds no runs"):
            sdssm.resume(nothing)  # type: ignore[arg-type]
    for source, message in (("", "the path is empty"), ([], "the list is empty"), ("nope", "there is no folder nope")):
        with pytest.raises(RunError, match=message):
            load(source)
