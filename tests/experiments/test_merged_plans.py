"""Several experiments are trained as one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sdssm.errors import RunError
from sdssm.experiments import (
    Plan,
    Selection,
    Spec,
    SpecError,
    evaluate_plan,
    get_spec,
    make_plan,
    make_plans,
    merge_plans,
    run_plan,
    write_results,
)
from sdssm.experiments.planning.estimates import estimate_plan
from sdssm.experiments.planning.remaining import training_groups
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.training.planning import RunPlan
from tests.experiments.test_runner import ONE_SECOND, Killed, Killer, runs_without_times, weights

HEAD = 'name = "{}"\nseeds = 2\ntasks = ["parity"]\n[evaluate]\nmax_length = {}\nstrings = 16\n'
ROW = '[[rows]]\nmodel = "{}"\nsettings = {{ batch = 8, steps = 30, train_length = 6, checkpoint_every = 10, {} }}\n'
LSTM = ROW.format("lstm", "state = 4")
#: Both have the LSTM, and test it on different strings.
FIRST = HEAD.format("first", 12) + LSTM + ROW.format("sd-ssm", "state = 4, dictionary = 2")
SECOND = HEAD.format("second", 10).replace("strings = 16", "strings = 8") + ROW.format("rnn", "state = 4") + LSTM


@pytest.fixture(scope="module")
def specs() -> list[Spec]:
    return [parse_spec(text, source="mine.toml") for text in (FIRST, SECOND)]


def evaluate_runs(plan: Plan, folder: Path) -> list[Any]:
    evaluate_plan(plan, "cpu")
    results = write_results(plan, folder / plan.spec.name, command="", device="cpu")
    assert all(cell["max"] is not None for cell in results["cells"])
    return runs_without_times(results)


@pytest.fixture(scope="module")
def alone(specs: Sequence[Spec], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], list[Any]]:
    """Weights and results of both experiments, trained one after the other."""
    out, results = tmp_path_factory.mktemp("alone"), []
    for spec in specs:
        plan = make_plan(spec, out / "runs")
        run_plan(plan, "cpu")
        results.append(evaluate_runs(plan, out))
    return weights(out / "runs"), results


def test_each_run_is_trained_once_and_equals_separate_training(
    specs: Sequence[Spec], alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, calls = import_module("sdssm.experiments.execution.runner"), list[Sequence[RunPlan]]()
    train_runs = runner.train_runs

    def recording(path: Path, planned: Sequence[RunPlan], **more: Any) -> Any:
        calls.append(planned)
        return train_runs(path, planned, **more)

    monkeypatch.setattr(runner, "train_runs", recording)
    plans = make_plans(specs, tmp_path / "runs")
    run_plan(merge_plans(plans), "cpu")
    assert [len(planned) for planned in calls] == [6]  # of eight, two are shared
    assert (weights(tmp_path / "runs"), [evaluate_runs(plan, tmp_path) for plan in plans]) == alone
    run_plan(merge_plans(make_plans(specs, tmp_path / "runs")), "cpu")
    assert len(calls) == 1


def test_killed_and_resumed_equals_uninterrupted(specs: Sequence[Spec], alone: Any, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    with pytest.raises(Killed):
        run_plan(merge_plans(make_plans(specs, out)), "cpu", Killer(20))
    plans = make_plans(specs, out)
    run_plan(merge_plans(plans), "cpu")
    assert (weights(out), [evaluate_runs(plan, tmp_path) for plan in plans]) == alone


def test_tables_of_the_paper_share_runs() -> None:
    table1, two_layers = make_plans([get_spec("table1"), get_spec("two-layers")], Path("runs"))
    both = merge_plans([table1, two_layers])
    counts = Counter(run.folder for run in (*table1.selected_runs(), *two_layers.selected_runs()))
    shared = {folder for folder, count in counts.items() if count == 2}
    assert len(both.selected_runs()) == len(counts) == 132 + 120 - len(shared)
    rows = {run.row for run in two_layers.runs if run.folder in shared}
    assert rows == {"S4D, 1 layer", "H3, 1 layer", "Mamba, 1 layer"}
    assert {run.row for run in table1.runs if run.folder in shared} == {"S4D", "H3", "Mamba"}
    # All are started together, so that runs of one shape train in one group, whichever table they are for.
    assert len({run.config.begun for run in both.runs}) == 1
    assert len(training_groups(both)) < len(training_groups(table1)) + len(training_groups(two_layers))


def test_merged_plans_have_one_estimate(specs: Sequence[Spec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdssm.experiments.planning.estimates._time_steps", lambda *_: ONE_SECOND)
    groups = estimate_plan(merge_plans(make_plans(specs, tmp_path)), "cpu")
    assert [(group.name, len(group.runs), group.seconds) for group in groups] == [
        ("lstm on parity", 2, 30.0),
        ("sd-ssm on parity", 2, 30.0),
        ("rnn on parity", 2, 30.0),
    ]
    assert len(json.loads((tmp_path / "calibration.json").read_text())) == 3


def test_selection_may_leave_an_experiment_empty(specs: Sequence[Spec]) -> None:
    """A name must be known to one of the experiments; others may have no cell left."""
    plans = make_plans(specs, Path("runs"), Selection(models=["rnn", "lstm"], seeds=1))
    assert [[run.row for run in plan.selected_runs()] for plan in plans] == [["lstm"], ["rnn", "lstm"]]
    plans = make_plans(specs, Path("runs"), Selection(models=["rnn"]))
    assert [len(plan.selected_runs()) for plan in plans] == [0, 2]
    with pytest.raises(SpecError, match="none of these experiments has a model 'rn'; did you mean 'rnn'?"):
        make_plans(specs, Path("runs"), Selection(models=["rn", "lstm"]))
    with pytest.raises(
        SpecError, match="nothing is left of first, second: no cell has all of the given models and rows"
    ):
        make_plans(specs, Path("runs"), Selection(models=["rnn"], rows=["lstm"]))
    with pytest.raises(SpecError, match="nothing is left of first: no cell has all of the given models and rows"):
        make_plan(specs[0], Path("runs"), Selection(models=["sd-ssm"], rows=["lstm"]))


def test_plans_for_different_folders_cannot_be_merged(specs: Sequence[Spec]) -> None:
    with pytest.raises(RunError, match="plans can be merged only if"):
        merge_plans([make_plan(spec, Path(spec.name)) for spec in specs])
