"""Tiny searches from beginning to end: candidates of 40 steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sdssm.errors import OutputError, RunError
from sdssm.experiments import (
    LocalEngine,
    Narrowing,
    Plan,
    Search,
    SpecError,
    Sweep,
    make_plan,
    open_study,
    reuse,
    run_sweep,
    sweep_spec,
    write_results,
)
from sdssm.experiments.specs.catalogue import spec_named
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.experiments.specs.spec import Spec
from sdssm.experiments.sweeps.trials import STUDY
from sdssm.report.ranking import ranking_of, write_ranking
from sdssm.report.tables import to_text
from sdssm.runs import RunFolder
from sdssm.training.group import last_step
from sdssm.training.progress import Silent
from sdssm.training.trainer import train_all

SMALL = {"state": 4, "dictionary": 2, "batch": 8, "steps": 40, "train_length": 4, "checkpoint_every": 10}
#: Of these the first and the last learn nothing.
RATES = [0.0, 1e-2, 3e-2, 1e-9]


def spec(search: Search | None = None, **more: Any) -> Spec:
    given = {"settings": SMALL, "choices": {"lr": RATES}, "max_length": 8, "search": search, "name": "s", **more}
    return sweep_spec(["parity"], **given)


def swept(into: Path, search: Search, progress: Any = None, of: Spec | None = None, **more: Any) -> dict[str, Any]:
    """A whole sweep in a folder; what results.json holds."""
    sweep = Sweep(spec=of or spec(search), search=search, out=into / "runs", part=Narrowing(**more))
    plan, pruned = run_sweep(sweep, into / "s", LocalEngine("cpu"), progress=progress)
    return write_results(plan, into / "s", command="", device="cpu", pruned=pruned)


def weights(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("model.safetensors"))}


def events(out: Path) -> dict[str, list[dict[str, Any]]]:
    found = {str(path.relative_to(out)): path for path in sorted(out.rglob("events.jsonl"))}
    return {
        name: [{**event, "seconds": 0} for event in RunFolder.open(path.parent).events()]
        for name, path in found.items()
    }


class Killed(BaseException):
    """As if the process ended: nothing gets saved."""


class Killer(Silent):
    """Stops it hard once so many pieces of news came."""

    def __init__(self, after: int) -> None:
        self.left = after

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


# -- a share of the steps ----------------------------------------------------------------------------------------------


def test_stopped_at_a_share_and_continued_is_uninterrupted(tmp_path: Path) -> None:
    plans = {name: make_plan(spec(), tmp_path / name) for name in ("whole", "parts")}
    train_all(tmp_path / "whole", plans["whole"].planned(), device="cpu")
    for until, step, status in (
        (0.3, 20, "stopped"),
        (0.1, 20, "stopped"),
        (0.5, 20, "stopped"),
        (1.0, 40, "finished"),
    ):
        runs = train_all(tmp_path / "parts", plans["parts"].planned(), device="cpu", resume=True, until=until)
        assert {(run.step, run.status) for run in runs} == {(step, status)}
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    assert events(tmp_path / "parts") == events(tmp_path / "whole")


def test_shares_end_at_an_event() -> None:
    train = make_plan(spec(), Path("runs")).runs[0].config.train
    assert [last_step(train, share) for share in (0.01, 0.25, 0.3, 0.99, 1.0)] == [10, 10, 20, 40, 40]
    assert last_step(replace(train, log_every=7), 0.25) == 14
    assert last_step(replace(train, steps=1_000_000), 0.25) == 250_000


# -- grids and draws ---------------------------------------------------------------------------------------------------


def test_a_grid_is_an_experiment(tmp_path: Path) -> None:
    """Its folders are those of reproduce, the best candidate fills the cell, and all are ranked."""
    found = swept(tmp_path, Search())
    assert {run["status"] for run in found["runs"]} == {"finished"}
    row = "[[rows]]\nmodel = 'sd-ssm'\ntasks = ['parity']\nseeds = 1\ngrid = { lr = [1e-2, 3e-2] }\n"
    settings = ", ".join(f"{name} = {value}" for name, value in SMALL.items())
    other = make_plan(parse_spec(f"name = 'x'\n{row}settings = {{ {settings} }}", source="x"), tmp_path / "runs")
    assert [run.status for run in other.runs] == ["finished", "finished"]
    ranking = found["ranking"]
    assert [one["place"] for one in ranking] == [1, 2, 3, 4]
    assert [one["within"] for one in ranking] == sorted((run["within"] for run in found["runs"]), reverse=True)
    chosen = found["cells"][0]["choice"]
    assert chosen.startswith("best of 4 by accuracy at training lengths: lr ")
    assert chosen.endswith(f"lr {ranking[0]['variant']['lr']}")
    write_ranking(found, tmp_path / "s")
    assert len((tmp_path / "s" / "ranking.csv").read_text().splitlines()) == 5
    short = ranking_of(found, most=2)
    assert short is not None and short.notes == ["2 more candidates in ranking.csv"]
    assert "4 candidates by accuracy at training lengths" in to_text(short)
    by_score = swept(tmp_path, Search(), of=replace(spec(), choose="score"))
    assert [one["max"] for one in by_score["ranking"]] == sorted((o["max"] for o in ranking), reverse=True)
    assert "by the score itself, at test lengths" in by_score["cells"][0]["choice"]


def test_draws_train_side_by_side_and_more_of_them_go_on(tmp_path: Path) -> None:
    ranges = {"choices": {}, "ranges": {"lr": "1e-4..1e-1"}}
    few, more = (Search(kind="random", trials=count) for count in (2, 3))
    first = swept(tmp_path, few, of=spec(few, **ranges))
    begun = {RunFolder.open(path.parent).config.begun for path in tmp_path.rglob("config.json")}
    assert len(first["runs"]) == 2 and len(begun) == 1
    kept = weights(tmp_path)
    second = swept(tmp_path, more, of=spec(more, **ranges))
    assert [run["variant"] for run in second["runs"]][:2] == [run["variant"] for run in first["runs"]]
    assert len(second["runs"]) == 3 and kept.items() <= weights(tmp_path).items()


def test_whole_numbers_are_drawn_for_settings_that_are() -> None:
    row = spec(Search(kind="random", trials=1), choices={}, ranges={"dropout": "0..1", "hidden": "2..64"}).rows[0]
    assert (row.ranges["dropout"].whole, row.ranges["hidden"].whole, row.ranges["hidden"].log) == (False, True, True)


def test_steps_can_be_searched(tmp_path: Path) -> None:
    """More steps are no merit by themselves there."""
    short = {name: value for name, value in SMALL.items() if name not in ("steps", "lr")} | {"lr": 0.0}
    found = swept(tmp_path, Search(), of=spec(settings=short, choices={"steps": [20, 10]}))
    assert len({one["within"] for one in found["ranking"]}) == 1
    assert found["ranking"][0]["variant"] == {"steps": 10}


# -- stopping early ----------------------------------------------------------------------------------------------------


def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracy at a rung is what the rate says."""
    monkeypatch.setattr("sdssm.experiments.sweeps.race._accuracy", lambda runs, share: runs[0].config.train.lr * 1000)


@pytest.mark.parametrize("parallel", [None, 2])
def test_the_weak_stop_and_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parallel: int | None) -> None:
    planted(monkeypatch)
    found = swept(tmp_path, Search(keep=0.5, parallel=parallel))
    at = {run.variant["lr"]: RunFolder.open(run.folder) for run in make_plan(spec(), tmp_path / "runs").runs}
    # Two at a time, the second is the best of the first two, and knows nothing of those that come later.
    early = 20 if parallel is None else 40
    assert {lr: run.step for lr, run in at.items()} == {0.0: 10, 1e-2: early, 3e-2: 40, 1e-9: 10}
    assert {run.status for run in at.values() if run.step < 40} == {"stopped"}
    stopped = [one["pruned_at"] for one in found["ranking"] if one["pruned_at"] is not None]
    assert stopped == ([20, 10, 10] if parallel is None else [10, 10])
    assert found["cells"][0]["choice"].endswith(f"; {len(stopped)} more stopped early")
    finished = weights(at[3e-2].path)
    found = swept(tmp_path, Search())  # without rungs the others go on, and nothing is trained again
    assert [one["pruned_at"] for one in found["ranking"]] == [None] * 4
    assert weights(at[3e-2].path) == finished


def test_a_rung_is_read_from_what_was_logged(tmp_path: Path) -> None:
    found = swept(tmp_path, Search(keep=0.5, rungs=(0.5,)))
    early = [one for one in found["ranking"] if one["pruned_at"] is not None]
    assert 1 <= len(early) <= 2
    plan = make_plan(spec(), tmp_path / "runs")
    for one in early:
        [run] = [run for run in plan.runs if run.variant == one["variant"]]
        logged = [event["accuracy"] for event in RunFolder.open(run.folder).events() if event["step"] == 20]
        assert one["within"] == logged[0] and one["pruned_at"] == 20


@pytest.mark.parametrize("search", [Search(), Search(kind="random", trials=2)])
def test_a_part_of_a_search_knows_the_other_cells(tmp_path: Path, search: Search) -> None:
    """What the plan of the results lacks would be dropped from them."""
    of = spec(search, choices={"lr": [1e-2, 3e-2]})
    of = replace(of, rows=(replace(of.rows[0], tasks=("parity", "even_pairs")),))
    sweep = Sweep(spec=of, search=search, out=tmp_path, part=Narrowing(tasks=["parity"]))
    trials = sweep.trials(tmp_path)
    sweep.next(trials)
    runs = sweep.every(trials.of).runs
    assert [(run.column, run.wanted) for run in runs] == [("parity", True)] * 2 + [("even_pairs", False)] * 2


def test_what_stopped_in_other_cells_stays_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch)
    search = Search(keep=0.5, rungs=(0.5,))
    of = spec(search, choices={"lr": [1e-2, 3e-2]})
    of = replace(of, rows=(replace(of.rows[0], tasks=("parity", "even_pairs")),))
    swept(tmp_path, search, of=of, tasks=["parity"])
    found = swept(tmp_path, search, of=of, tasks=["even_pairs"])
    assert [(one["column"], one["pruned_at"]) for one in found["ranking"]] == [
        ("parity", None), ("parity", 20), ("even_pairs", None), ("even_pairs", 20)
    ]  # fmt: skip
    assert all(cell["choice"].endswith("; 1 more stopped early") for cell in found["cells"])
    assert [run["column"] for run in found["runs"]] == ["parity", "even_pairs"]
    found = swept(tmp_path, Search(), of=of, tasks=["parity"])  # now to the end
    assert [one["pruned_at"] for one in found["ranking"]] == [None, None, None, 20]


# -- Optuna ------------------------------------------------------------------------------------------------------------

OPTUNA = Search(kind="optuna", trials=6, parallel=3)
RANGES: dict[str, Any] = {"choices": {"dictionary": [2, 3]}, "ranges": {"lr": "1e-4..1e-1"}}
RANGES["settings"] = {name: value for name, value in SMALL.items() if name != "dictionary"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("optuna")
    out = tmp_path_factory.mktemp("whole")
    swept(out, OPTUNA, of=spec(OPTUNA, **RANGES))
    return out


@pytest.mark.parametrize("after", [2, 7])
def test_killed_and_continued_is_uninterrupted(whole: Path, tmp_path: Path, after: int) -> None:
    with pytest.raises(Killed):
        swept(tmp_path, OPTUNA, Killer(after), of=spec(OPTUNA, **RANGES))
    assert "running" in (tmp_path / "s" / STUDY).read_text()
    swept(tmp_path, OPTUNA, of=spec(OPTUNA, **RANGES))
    assert (tmp_path / "s" / STUDY).read_text() == (whole / "s" / STUDY).read_text()
    assert weights(tmp_path) == weights(whole)
    assert events(tmp_path) == events(whole)


def test_an_optuna_search_is_kept_and_goes_on(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = open_study(whole / "s")
    assert len(study.trials) == 6
    found = json.loads((whole / "s" / "results.json").read_text())
    best = found["ranking"][0]
    assert study.best_value == pytest.approx(best["value"])
    assert study.best_params == best["variant"]
    assert len(found["ranking"]) == 6 and any(one["pruned_at"] for one in found["ranking"])
    with pytest.raises(SpecError, match="has no search for"):
        open_study(whole / "s", ("sd-ssm", "cycle"))
    monkeypatch.setattr("sdssm.experiments.execution.runner.train_all", lambda *_, **__: pytest.fail("trained again"))
    swept(whole, OPTUNA, of=spec(OPTUNA, **RANGES))
    monkeypatch.undo()
    more = replace(OPTUNA, trials=7)
    assert len(swept(whole, more, of=spec(more, **RANGES))["ranking"]) == 7


def test_another_search_is_refused(whole: Path, tmp_path: Path) -> None:
    before = (whole / "s" / STUDY).read_text()
    for other in (replace(OPTUNA, seed=1), replace(OPTUNA, keep=1.0)):
        with pytest.raises(OutputError, match="made by another experiment|is of another search"):
            swept(whole, other, of=spec(other, **RANGES))
    with pytest.raises(OutputError, match="is of another search \\(seeds"):
        swept(whole, OPTUNA, of=spec(OPTUNA, **RANGES), seeds=[0, 1])
    assert (whole / "s" / STUDY).read_text() == before
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / STUDY).write_text(before[:-20])
    with pytest.raises(OutputError, match="damaged; remove it"):
        Sweep(spec=spec(OPTUNA, **RANGES), search=OPTUNA, out=tmp_path / "runs").trials(tmp_path / "s")


def test_values_that_do_not_go_together_are_told_to_optuna(tmp_path: Path) -> None:
    """By themselves they are right; three heads of eight are none."""
    pytest.importorskip("optuna")
    search = Search(kind="optuna", trials=9, parallel=2)
    settings = {"layers": 1, "feed_forward": 8, "batch": 4, "steps": 1, "train_length": 4}
    choices = {"embedding": [8, 6], "heads": [4, 3]}
    found = swept(tmp_path, search, of=spec(search, model="transformer", settings=settings, choices=choices))
    assert [tuple(one["variant"].values()) for one in found["ranking"]] in ([(8, 4), (6, 3)], [(6, 3), (8, 4)])
    assert (tmp_path / "s" / STUDY).read_text().count("refused") == 2


@pytest.mark.parametrize(
    ("choices", "ranges"),
    [
        ({"train_length": [60, 20]}, {"shortest": "1..50"}),
        ({"train_length": [20, 60]}, {"shortest": "1..50"}),
        ({"shortest": [50, 1], "train_length": [20, 60]}, {}),
        ({"shortest": [50, 1, 30], "train_length": [20, 40, 60]}, {}),  # the first two corners are refused
    ],
)
def test_values_in_any_order_are_searched(choices: dict[str, Any], ranges: dict[str, str]) -> None:
    """Strings are at least as long as the shortest: 50 goes with 60, and not with 20."""
    pytest.importorskip("optuna")
    search = Search(kind="optuna", trials=4)
    of = sweep_spec(["a5"], choices=choices, ranges=ranges, search=search)
    assert Sweep(spec=of, search=search, out=Path("none")).wanted
    with pytest.raises(SpecError, match="70"):  # which goes with none
        bad = {**choices, "train_length": [20, 60], "shortest": [1, 70]}
        Sweep(spec=sweep_spec(["a5"], choices=bad, search=search), search=search, out=Path("none"))


def test_a_folder_that_cannot_be_read_is_no_wrong_value(tmp_path: Path) -> None:
    """Optuna's file would hold it as refused for good."""
    pytest.importorskip("optuna")
    search = Search(kind="optuna", trials=1)
    of = spec(search, choices={"lr": [1e-2]})
    sweep = Sweep(spec=of, search=search, out=tmp_path)
    [run] = make_plan(of, tmp_path).runs
    run.folder.mkdir(parents=True)
    (run.folder / "config.json").write_text("{")
    with pytest.raises(RunError):
        sweep.next(sweep.trials(tmp_path / "s"))


@pytest.mark.parametrize(
    ("search", "walks"), [(Search(parallel=1), 1), (Search(kind="optuna", trials=2, parallel=1), 2)]
)
def test_other_places_are_walked_once_for_each_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: Search, walks: int
) -> None:
    if search.kind == "optuna":
        pytest.importorskip("optuna")
    of = spec(search, choices={"lr": [1e-2, 3e-2]})
    [made, _] = make_plan(of, tmp_path / "before").runs
    RunFolder.create(made.folder, made.config).finish("diverged")
    asked = list[Plan]()

    def counted(plan: Plan, places: Sequence[Path]) -> Plan:
        asked.extend([plan] if plan.runs else [])
        return reuse(plan, places)

    monkeypatch.setattr("sdssm.experiments.sweeps.sweep.reuse", counted)
    sweep = Sweep(spec=of, search=search, out=tmp_path / "runs", reused=[tmp_path / "before"])
    trials = sweep.trials(tmp_path / "s")
    while batch := sweep.next(trials):
        plan = sweep.plan({cell: list(some.values()) for cell, some in batch.items()})
        assert [run.reused for run in plan.runs] == [run.variant == made.variant for run in plan.runs]
        for some in batch.values():
            for one in some.values():
                one.state, one.value = "finished", 1.0
    assert [run.reused for run in sweep.every(trials.of).runs].count(True) == 1
    assert len(asked) == walks


# -- specs -------------------------------------------------------------------------------------------------------------


def test_the_paper_s_search(tmp_path: Path) -> None:
    part = Narrowing(models=["mamba"], tasks=["arithmetic"])
    sweep = Sweep(spec=spec_named("literature-search"), search=Search(), out=tmp_path, part=part)
    plan = sweep.plan({cell: list(some.values()) for cell, some in sweep.next(sweep.trials(tmp_path)).items()})
    assert len(plan.wanted()) == 96  # "the best out of 96 runs"
    assert {run.config.model.mixer.state for run in plan.wanted()} == {128, 256}
    shared = {run.folder for run in make_plan(spec_named("table1"), tmp_path, Narrowing(models=["mamba"])).wanted()}
    assert len(shared & {run.folder for run in plan.wanted()}) == 3


def test_nothing_to_search() -> None:
    with pytest.raises(SpecError, match="table1 has no grid to search"):
        Sweep(spec=spec_named("table1"), search=Search(), out=Path("runs"))
    with pytest.raises(SpecError, match="lr has a range"):
        Sweep(spec=spec(choices={}, ranges={"lr": "1e-3..1e-2"}), search=Search(), out=Path("runs"))
    with pytest.raises(SpecError, match="lr is set twice"):
        spec(settings={"lr": 1e-3})
    with pytest.raises(SpecError, match="holds 0.001 twice"):
        spec(choices={"lr": [1e-3, 0.001]})
    with pytest.raises(SpecError, match="state is 800000"):
        pytest.importorskip("optuna")
        search = Search(kind="optuna", trials=3)
        Sweep(spec=spec(search, settings={}, choices={}, ranges={"state": "2..800000"}), search=search, out=Path("r"))
