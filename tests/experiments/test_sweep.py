"""Small searches from start to end: candidates of 40 steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sdssm.errors import OutputError, RunError
from sdssm.experiments import (
    LocalExecutor,
    Plan,
    Search,
    Selection,
    SpecError,
    Sweep,
    make_plan,
    make_sweep_spec,
    open_study,
    reuse_runs,
    run_sweep,
    write_results,
)
from sdssm.experiments.specs.catalogue import get_spec
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.experiments.specs.spec import Spec
from sdssm.experiments.sweeps.study import STUDY
from sdssm.report.ranking import make_ranking_table, write_ranking
from sdssm.report.rendering import to_text
from sdssm.runs import RunFolder
from sdssm.training.progress import SilentProgress
from sdssm.training.schedules import last_step
from sdssm.training.trainer import train_runs

SMALL = {"state": 4, "dictionary": 2, "batch": 8, "steps": 40, "train_length": 4, "checkpoint_every": 10}
#: The first and the last learn nothing.
RATES = [0.0, 1e-2, 3e-2, 1e-9]


def make_spec(search: Search | None = None, **more: Any) -> Spec:
    arguments = {"settings": SMALL, "choices": {"lr": RATES}, "max_length": 8, "search": search, "name": "s", **more}
    return make_sweep_spec(["parity"], **arguments)


def execute(
    folder: Path, search: Search, progress: Any = None, spec: Spec | None = None, **more: Any
) -> dict[str, Any]:
    """Run a sweep in a folder, and return its results."""
    sweep = Sweep(spec=spec or make_spec(search), search=search, out=folder / "runs", selection=Selection(**more))
    plan, pruned = run_sweep(sweep, folder / "s", LocalExecutor("cpu"), progress=progress)
    return write_results(plan, folder / "s", command="", device="cpu", pruned=pruned)


def weights(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("model.safetensors"))}


def events(out: Path) -> dict[str, list[dict[str, Any]]]:
    paths = {str(path.relative_to(out)): path for path in sorted(out.rglob("events.jsonl"))}
    return {
        name: [{**event, "seconds": 0} for event in RunFolder.open(path.parent).events()]
        for name, path in paths.items()
    }


class Killed(BaseException):
    """Simulates a killed process: nothing is saved."""


class Killer(SilentProgress):
    """Kills the training after a number of progress updates."""

    def __init__(self, after: int) -> None:
        self.left = after

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


# -- a share of the steps ----------------------------------------------------------------------------------------------


def test_stopped_at_a_share_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    plans = {name: make_plan(make_spec(), tmp_path / name) for name in ("full", "parts")}
    train_runs(tmp_path / "full", plans["full"].trainings(), device="cpu")
    for until, step, status in (
        (0.3, 20, "stopped"),
        (0.1, 20, "stopped"),
        (0.5, 20, "stopped"),
        (1.0, 40, "finished"),
    ):
        runs = train_runs(tmp_path / "parts", plans["parts"].trainings(), device="cpu", resume=True, until=until)
        assert {(run.step, run.status) for run in runs} == {(step, status)}
    assert weights(tmp_path / "parts") == weights(tmp_path / "full")
    assert events(tmp_path / "parts") == events(tmp_path / "full")


def test_shares_end_at_a_logged_step() -> None:
    train = make_plan(make_spec(), Path("runs")).runs[0].config.train
    assert [last_step(train, share) for share in (0.01, 0.25, 0.3, 0.99, 1.0)] == [10, 10, 20, 40, 40]
    assert last_step(replace(train, log_every=7), 0.25) == 14
    assert last_step(replace(train, steps=1_000_000), 0.25) == 250_000


# -- grids and random candidates ---------------------------------------------------------------------------------------


def test_grid_shares_runs_with_experiments_and_is_ranked(tmp_path: Path) -> None:
    """Its run folders are those of reproduce, the best candidate fills the cell, and all are ranked."""
    results = execute(tmp_path, Search())
    assert {run["status"] for run in results["runs"]} == {"finished"}
    row = "[[rows]]\nmodel = 'sd-ssm'\ntasks = ['parity']\nseeds = 1\ngrid = { lr = [1e-2, 3e-2] }\n"
    settings = ", ".join(f"{name} = {value}" for name, value in SMALL.items())
    other = make_plan(parse_spec(f"name = 'x'\n{row}settings = {{ {settings} }}", source="x"), tmp_path / "runs")
    assert [run.status for run in other.runs] == ["finished", "finished"]
    ranking = results["ranking"]
    assert [entry["place"] for entry in ranking] == [1, 2, 3, 4]
    assert [entry["within"] for entry in ranking] == sorted((run["within"] for run in results["runs"]), reverse=True)
    chosen = results["cells"][0]["choice"]
    assert chosen.startswith("best of 4 by accuracy at training lengths: lr ")
    assert chosen.endswith(f"lr {ranking[0]['variant']['lr']}")
    write_ranking(results, tmp_path / "s")
    assert len((tmp_path / "s" / "ranking.csv").read_text().splitlines()) == 5
    short = make_ranking_table(results, most=2)
    assert short is not None and short.notes == ["2 more candidates in ranking.csv"]
    assert "4 candidates by accuracy at training lengths" in to_text(short)
    by_score = execute(tmp_path, Search(), spec=replace(make_spec(), choose="score"))
    assert [entry["max"] for entry in by_score["ranking"]] == sorted((o["max"] for o in ranking), reverse=True)
    assert "by the score itself, at test lengths" in by_score["cells"][0]["choice"]


def test_random_candidates_train_together_and_can_be_extended(tmp_path: Path) -> None:
    ranges = {"choices": {}, "ranges": {"lr": "1e-4..1e-1"}}
    few, more = (Search(kind="random", trials=count) for count in (2, 3))
    first = execute(tmp_path, few, spec=make_spec(few, **ranges))
    begun = {RunFolder.open(path.parent).config.begun for path in tmp_path.rglob("config.json")}
    assert len(first["runs"]) == 2 and len(begun) == 1
    kept = weights(tmp_path)
    second = execute(tmp_path, more, spec=make_spec(more, **ranges))
    assert [run["variant"] for run in second["runs"]][:2] == [run["variant"] for run in first["runs"]]
    assert len(second["runs"]) == 3 and kept.items() <= weights(tmp_path).items()


def test_integer_settings_have_integer_ranges() -> None:
    row = make_spec(Search(kind="random", trials=1), choices={}, ranges={"dropout": "0..1", "hidden": "2..64"}).rows[0]
    assert (row.ranges["dropout"].whole, row.ranges["hidden"].whole, row.ranges["hidden"].log) == (False, True, True)


def test_number_of_steps_can_be_searched(tmp_path: Path) -> None:
    """Then more steps are not preferred by themselves."""
    short = {name: value for name, value in SMALL.items() if name not in ("steps", "lr")} | {"lr": 0.0}
    results = execute(tmp_path, Search(), spec=make_spec(settings=short, choices={"steps": [20, 10]}))
    assert len({entry["within"] for entry in results["ranking"]}) == 1
    assert results["ranking"][0]["variant"] == {"steps": 10}


# -- stopping early ----------------------------------------------------------------------------------------------------


def fake_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the accuracy at a rung by a function of the learning rate."""
    monkeypatch.setattr("sdssm.experiments.sweeps.race._accuracy", lambda runs, share: runs[0].config.train.lr * 1000)


@pytest.mark.parametrize("parallel", [None, 2])
def test_weak_candidates_stop_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parallel: int | None
) -> None:
    fake_accuracy(monkeypatch)
    results = execute(tmp_path, Search(keep=0.5, parallel=parallel))
    folders = {run.variant["lr"]: RunFolder.open(run.folder) for run in make_plan(make_spec(), tmp_path / "runs").runs}
    # In batches of two, the second candidate is the best of its batch and is trained to the end.
    second = 20 if parallel is None else 40
    assert {lr: run.step for lr, run in folders.items()} == {0.0: 10, 1e-2: second, 3e-2: 40, 1e-9: 10}
    assert {run.status for run in folders.values() if run.step < 40} == {"stopped"}
    stopped = [entry["pruned_at"] for entry in results["ranking"] if entry["pruned_at"] is not None]
    assert stopped == ([20, 10, 10] if parallel is None else [10, 10])
    assert results["cells"][0]["choice"].endswith(f"; {len(stopped)} more stopped early")
    finished = weights(folders[3e-2].path)
    results = execute(tmp_path, Search())  # without rungs the others resume, and nothing is trained again
    assert [entry["pruned_at"] for entry in results["ranking"]] == [None] * 4
    assert weights(folders[3e-2].path) == finished


def test_accuracy_at_a_rung_is_read_from_the_log(tmp_path: Path) -> None:
    results = execute(tmp_path, Search(keep=0.5, rungs=(0.5,)))
    pruned = [entry for entry in results["ranking"] if entry["pruned_at"] is not None]
    assert 1 <= len(pruned) <= 2
    plan = make_plan(make_spec(), tmp_path / "runs")
    for entry in pruned:
        [planned] = [planned for planned in plan.runs if planned.variant == entry["variant"]]
        logged = [event["accuracy"] for event in RunFolder.open(planned.folder).events() if event["step"] == 20]
        assert entry["within"] == logged[0] and entry["pruned_at"] == 20


@pytest.mark.parametrize("search", [Search(), Search(kind="random", trials=2)])
def test_full_plan_includes_cells_that_are_not_selected(tmp_path: Path, search: Search) -> None:
    """Otherwise their records would be dropped from the results."""
    spec = make_spec(search, choices={"lr": [1e-2, 3e-2]})
    spec = replace(spec, rows=(replace(spec.rows[0], tasks=("parity", "even_pairs")),))
    sweep = Sweep(spec=spec, search=search, out=tmp_path, selection=Selection(tasks=["parity"]))
    study = sweep.load_study(tmp_path)
    sweep.next_batch(study)
    runs = sweep.full_plan(study.by_cell).runs
    assert [(run.column, run.selected) for run in runs] == [("parity", True)] * 2 + [("even_pairs", False)] * 2


def test_pruned_candidates_of_other_cells_stay_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_accuracy(monkeypatch)
    search = Search(keep=0.5, rungs=(0.5,))
    spec = make_spec(search, choices={"lr": [1e-2, 3e-2]})
    spec = replace(spec, rows=(replace(spec.rows[0], tasks=("parity", "even_pairs")),))
    execute(tmp_path, search, spec=spec, tasks=["parity"])
    results = execute(tmp_path, search, spec=spec, tasks=["even_pairs"])
    assert [(entry["column"], entry["pruned_at"]) for entry in results["ranking"]] == [
        ("parity", None), ("parity", 20), ("even_pairs", None), ("even_pairs", 20)
    ]  # fmt: skip
    assert all(cell["choice"].endswith("; 1 more stopped early") for cell in results["cells"])
    assert [run["column"] for run in results["runs"]] == ["parity", "even_pairs"]
    results = execute(tmp_path, Search(), spec=spec, tasks=["parity"])  # now trained to the end
    assert [entry["pruned_at"] for entry in results["ranking"]] == [None, None, None, 20]


# -- Optuna ------------------------------------------------------------------------------------------------------------

OPTUNA = Search(kind="optuna", trials=6, parallel=3)
RANGES: dict[str, Any] = {"choices": {"dictionary": [2, 3]}, "ranges": {"lr": "1e-4..1e-1"}}
RANGES["settings"] = {name: value for name, value in SMALL.items() if name != "dictionary"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("optuna")
    out = tmp_path_factory.mktemp("finished")
    execute(out, OPTUNA, spec=make_spec(OPTUNA, **RANGES))
    return out


@pytest.mark.parametrize("after", [2, 7])
def test_killed_and_resumed_equals_uninterrupted(finished: Path, tmp_path: Path, after: int) -> None:
    with pytest.raises(Killed):
        execute(tmp_path, OPTUNA, Killer(after), spec=make_spec(OPTUNA, **RANGES))
    assert "running" in (tmp_path / "s" / STUDY).read_text()
    execute(tmp_path, OPTUNA, spec=make_spec(OPTUNA, **RANGES))
    assert (tmp_path / "s" / STUDY).read_text() == (finished / "s" / STUDY).read_text()
    assert weights(tmp_path) == weights(finished)
    assert events(tmp_path) == events(finished)


def test_optuna_search_is_stored_and_can_be_extended(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = open_study(finished / "s")
    assert len(study.trials) == 6
    results = json.loads((finished / "s" / "results.json").read_text())
    best = results["ranking"][0]
    assert study.best_value == pytest.approx(best["value"])
    assert study.best_params == best["variant"]
    assert len(results["ranking"]) == 6 and any(entry["pruned_at"] for entry in results["ranking"])
    with pytest.raises(SpecError, match="has no search for"):
        open_study(finished / "s", ("sd-ssm", "cycle"))
    monkeypatch.setattr("sdssm.experiments.execution.runner.train_runs", lambda *_, **__: pytest.fail("trained again"))
    execute(finished, OPTUNA, spec=make_spec(OPTUNA, **RANGES))
    monkeypatch.undo()
    more = replace(OPTUNA, trials=7)
    assert len(execute(finished, more, spec=make_spec(more, **RANGES))["ranking"]) == 7


def test_study_of_another_search_is_refused(finished: Path, tmp_path: Path) -> None:
    before = (finished / "s" / STUDY).read_text()
    for other in (replace(OPTUNA, seed=1), replace(OPTUNA, keep=1.0)):
        with pytest.raises(OutputError, match="belongs to another experiment|belongs to another search"):
            execute(finished, other, spec=make_spec(other, **RANGES))
    with pytest.raises(OutputError, match="belongs to another search \\(seeds"):
        execute(finished, OPTUNA, spec=make_spec(OPTUNA, **RANGES), seeds=[0, 1])
    assert (finished / "s" / STUDY).read_text() == before
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / STUDY).write_text(before[:-20])
    with pytest.raises(OutputError, match="damaged; remove the file"):
        Sweep(spec=make_spec(OPTUNA, **RANGES), search=OPTUNA, out=tmp_path / "runs").load_study(tmp_path / "s")


def test_invalid_combinations_are_recorded_as_refused(tmp_path: Path) -> None:
    """Each value is valid by itself, but an embedding of 8 cannot have 3 heads."""
    pytest.importorskip("optuna")
    search = Search(kind="optuna", trials=9, parallel=2)
    settings = {"layers": 1, "feed_forward": 8, "batch": 4, "steps": 1, "train_length": 4}
    choices = {"embedding": [8, 6], "heads": [4, 3]}
    results = execute(tmp_path, search, spec=make_spec(search, model="transformer", settings=settings, choices=choices))
    assert [tuple(entry["variant"].values()) for entry in results["ranking"]] in ([(8, 4), (6, 3)], [(6, 3), (8, 4)])
    assert (tmp_path / "s" / STUDY).read_text().count("refused") == 2


@pytest.mark.parametrize(
    ("choices", "ranges"),
    [
        ({"train_length": [60, 20]}, {"shortest": "1..50"}),
        ({"train_length": [20, 60]}, {"shortest": "1..50"}),
        ({"shortest": [50, 1], "train_length": [20, 60]}, {}),
        ({"shortest": [50, 1, 30], "train_length": [20, 40, 60]}, {}),  # the first two corners are invalid
    ],
)
def test_values_are_accepted_in_any_order(choices: dict[str, Any], ranges: dict[str, str]) -> None:
    """A shortest string of 50 is valid with a training length of 60, not with 20."""
    pytest.importorskip("optuna")
    search = Search(kind="optuna", trials=4)
    spec = make_sweep_spec(["a5"], choices=choices, ranges=ranges, search=search)
    assert Sweep(spec=spec, search=search, out=Path("none")).selected_rows
    with pytest.raises(SpecError, match="70"):  # invalid with every training length
        bad = {**choices, "train_length": [20, 60], "shortest": [1, 70]}
        Sweep(spec=make_sweep_spec(["a5"], choices=bad, search=search), search=search, out=Path("none"))


def test_unreadable_folder_is_not_an_invalid_candidate(tmp_path: Path) -> None:
    """Otherwise the study would record the candidate as refused."""
    pytest.importorskip("optuna")
    search = Search(kind="optuna", trials=1)
    spec = make_spec(search, choices={"lr": [1e-2]})
    sweep = Sweep(spec=spec, search=search, out=tmp_path)
    [run] = make_plan(spec, tmp_path).runs
    run.folder.mkdir(parents=True)
    (run.folder / "config.json").write_text("{")
    with pytest.raises(RunError):
        sweep.next_batch(sweep.load_study(tmp_path / "s"))


@pytest.mark.parametrize(
    ("search", "walks"), [(Search(parallel=1), 1), (Search(kind="optuna", trials=2, parallel=1), 2)]
)
def test_reused_folders_are_searched_once_for_each_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: Search, walks: int
) -> None:
    if search.kind == "optuna":
        pytest.importorskip("optuna")
    spec = make_spec(search, choices={"lr": [1e-2, 3e-2]})
    [existing, _] = make_plan(spec, tmp_path / "before").runs
    RunFolder.create(existing.folder, existing.config).finish("diverged")
    plans = list[Plan]()

    def recording(plan: Plan, folders: Sequence[Path]) -> Plan:
        plans.extend([plan] if plan.runs else [])
        return reuse_runs(plan, folders)

    monkeypatch.setattr("sdssm.experiments.sweeps.sweep.reuse_runs", recording)
    sweep = Sweep(spec=spec, search=search, out=tmp_path / "runs", reused=[tmp_path / "before"])
    study = sweep.load_study(tmp_path / "s")
    while batch := sweep.next_batch(study):
        plan = sweep.plan({cell: list(trials.values()) for cell, trials in batch.items()})
        assert [run.reused for run in plan.runs] == [run.variant == existing.variant for run in plan.runs]
        for trials in batch.values():
            for trial in trials.values():
                trial.state, trial.value = "finished", 1.0
    assert [run.reused for run in sweep.full_plan(study.by_cell).runs].count(True) == 1
    assert len(plans) == walks


# -- specs -------------------------------------------------------------------------------------------------------------


def test_search_of_the_paper(tmp_path: Path) -> None:
    selection = Selection(models=["mamba"], tasks=["arithmetic"])
    sweep = Sweep(spec=get_spec("literature-search"), search=Search(), out=tmp_path, selection=selection)
    plan = sweep.plan(
        {cell: list(trials.values()) for cell, trials in sweep.next_batch(sweep.load_study(tmp_path)).items()}
    )
    assert len(plan.selected_runs()) == 96  # "the best out of 96 runs"
    assert {run.config.model.mixer.state for run in plan.selected_runs()} == {128, 256}
    shared = {
        run.folder for run in make_plan(get_spec("table1"), tmp_path, Selection(models=["mamba"])).selected_runs()
    }
    assert len(shared & {run.folder for run in plan.selected_runs()}) == 3


def test_invalid_sweeps_are_refused() -> None:
    with pytest.raises(SpecError, match="table1 has no grid to search"):
        Sweep(spec=get_spec("table1"), search=Search(), out=Path("runs"))
    with pytest.raises(SpecError, match="lr has a range"):
        Sweep(spec=make_spec(choices={}, ranges={"lr": "1e-3..1e-2"}), search=Search(), out=Path("runs"))
    with pytest.raises(SpecError, match="lr is set twice"):
        make_spec(settings={"lr": 1e-3})
    with pytest.raises(SpecError, match="has 0.001 twice"):
        make_spec(choices={"lr": [1e-3, 0.001]})
    with pytest.raises(SpecError, match="state is 800000"):
        pytest.importorskip("optuna")
        search = Search(kind="optuna", trials=3)
        Sweep(
            spec=make_spec(search, settings={}, choices={}, ranges={"state": "2..800000"}), search=search, out=Path("r")
        )
