"""Several experiments trained as one."""

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
    Narrowing,
    Plan,
    Spec,
    SpecError,
    evaluate_plan,
    make_plan,
    make_plans,
    run_plan,
    spec_named,
    together,
    write_results,
)
from sdssm.experiments.execution.runner import groups_of
from sdssm.experiments.planning.estimates import estimate
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.training.planning import Planned
from tests.experiments.test_runner import Killed, Killer, numbers, weights

HEAD = 'name = "{}"\nseeds = 2\ntasks = ["parity"]\n[evaluate]\nmax_length = {}\nstrings = 16\n'
ROW = '[[rows]]\nmodel = "{}"\nsettings = {{ batch = 8, steps = 30, train_length = 6, checkpoint_every = 10, {} }}\n'
LSTM = ROW.format("lstm", "state = 4")
#: They share the LSTM; it is tested on other strings by each.
ONE = HEAD.format("one", 12) + LSTM + ROW.format("sd-ssm", "state = 4, dictionary = 2")
OTHER = HEAD.format("other", 10).replace("strings = 16", "strings = 8") + ROW.format("rnn", "state = 4") + LSTM


@pytest.fixture(scope="module")
def specs() -> list[Spec]:
    return [parse_spec(text, source="mine.toml") for text in (ONE, OTHER)]


def results(plan: Plan, into: Path) -> list[Any]:
    evaluate_plan(plan, "cpu")
    found = write_results(plan, into / plan.spec.name, command="", device="cpu")
    assert all(cell["max"] is not None for cell in found["cells"])
    return numbers(found)


@pytest.fixture(scope="module")
def alone(specs: Sequence[Spec], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], list[Any]]:
    """Weights and numbers of both, one after the other."""
    out, found = tmp_path_factory.mktemp("alone"), []
    for spec in specs:
        plan = make_plan(spec, out / "runs")
        run_plan(plan, "cpu")
        found.append(results(plan, out))
    return weights(out / "runs"), found


def test_each_run_is_trained_once_and_as_it_would_be_alone(
    specs: Sequence[Spec], alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, calls = import_module("sdssm.experiments.execution.runner"), list[Sequence[Planned]]()
    train_all = runner.train_all

    def noted(path: Path, planned: Sequence[Planned], **more: Any) -> Any:
        calls.append(planned)
        return train_all(path, planned, **more)

    monkeypatch.setattr(runner, "train_all", noted)
    plans = make_plans(specs, tmp_path / "runs")
    run_plan(together(plans), "cpu")
    assert [len(planned) for planned in calls] == [6]  # of eight, two are the same
    assert (weights(tmp_path / "runs"), [results(plan, tmp_path) for plan in plans]) == alone
    run_plan(together(make_plans(specs, tmp_path / "runs")), "cpu")
    assert len(calls) == 1


def test_killed_and_continued_is_uninterrupted(specs: Sequence[Spec], alone: Any, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    with pytest.raises(Killed):
        run_plan(together(make_plans(specs, out)), "cpu", Killer(20))
    plans = make_plans(specs, out)
    run_plan(together(plans), "cpu")
    assert (weights(out), [results(plan, tmp_path) for plan in plans]) == alone


def test_the_paper_s_tables_share_runs() -> None:
    one, other = make_plans([spec_named("table1"), spec_named("two-layers")], Path("runs"))
    both = together([one, other])
    counts = Counter(run.folder for run in (*one.wanted(), *other.wanted()))
    shared = {folder for folder, count in counts.items() if count == 2}
    assert len(both.wanted()) == len(counts) == 132 + 120 - len(shared)
    rows = {run.row for run in other.runs if run.folder in shared}
    assert rows == {"S4D, 1 layer", "H3, 1 layer", "Mamba, 1 layer"}
    assert {run.row for run in one.runs if run.folder in shared} == {"S4D", "H3", "Mamba"}
    # All begin together, so that what has one shape shares every launch, whichever table it is for.
    assert len({run.config.begun for run in both.runs}) == 1
    assert len(groups_of(both)) < len(groups_of(one)) + len(groups_of(other))


def test_one_estimate_for_all(specs: Sequence[Spec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdssm.experiments.planning.estimates._seconds_a_step", lambda *_: 1.0)
    groups = estimate(together(make_plans(specs, tmp_path)), "cpu")
    assert [(one.name, len(one.runs), one.seconds) for one in groups] == [
        ("lstm on parity", 2, 30.0),
        ("sd-ssm on parity", 2, 30.0),
        ("rnn on parity", 2, 30.0),
    ]
    assert len(json.loads((tmp_path / "calibration.json").read_text())) == 3


def test_narrowing(specs: Sequence[Spec]) -> None:
    """A name that one of them knows is right; what is then left of another may be nothing."""
    plans = make_plans(specs, Path("runs"), Narrowing(models=["rnn", "lstm"], seeds=1))
    assert [[run.row for run in plan.wanted()] for plan in plans] == [["lstm"], ["rnn", "lstm"]]
    plans = make_plans(specs, Path("runs"), Narrowing(models=["rnn"]))
    assert [len(plan.wanted()) for plan in plans] == [0, 2]
    with pytest.raises(SpecError, match="none of these experiments has a model 'rn'; did you mean 'rnn'?"):
        make_plans(specs, Path("runs"), Narrowing(models=["rn", "lstm"]))
    with pytest.raises(SpecError, match="nothing is left of one, other: no cell has the models and rows asked for"):
        make_plans(specs, Path("runs"), Narrowing(models=["rnn"], rows=["lstm"]))
    with pytest.raises(SpecError, match="nothing is left of one: no cell has the models and rows asked for"):
        make_plan(specs[0], Path("runs"), Narrowing(models=["sd-ssm"], rows=["lstm"]))


def test_folders_that_cannot_be_one(specs: Sequence[Spec]) -> None:
    with pytest.raises(RunError, match="only plans for one folder"):
        together([make_plan(spec, Path(spec.name)) for spec in specs])
