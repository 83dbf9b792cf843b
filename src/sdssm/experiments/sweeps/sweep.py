"""Sweeps: experiments whose rows are searched for the best settings.

The runs of a sweep are in the folders that all experiments share, and its results are those of an experiment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sdssm.experiments.execution.evaluations import EvaluationCallback
from sdssm.experiments.execution.executors import Executor
from sdssm.experiments.planning.plan import Plan, PlannedRun, make_plan
from sdssm.experiments.planning.reuse import reuse_runs
from sdssm.experiments.planning.selection import ALL, Selection
from sdssm.experiments.results.cells import candidate_value
from sdssm.experiments.results.folder import open_results
from sdssm.experiments.results.records import make_records
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.search_space import take
from sdssm.experiments.specs.spec import Row, Spec
from sdssm.experiments.sweeps.race import TrialBatch, run_race
from sdssm.experiments.sweeps.search import Search
from sdssm.experiments.sweeps.study import STUDY, Cell, SweepStudy, SweepTrial, cell_name
from sdssm.progress import ProgressOption
from sdssm.training.progress import Progress
from sdssm.training.schedules import last_step

#: The candidates of each cell.
Candidates = Mapping[Cell, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A search in each cell of an experiment, or in the cells of a selection.

    Creating it validates all candidates; for Optuna it validates every value and both ends of every range.
    """

    spec: Spec  #: after creation it has one row for each cell
    search: Search
    out: Path
    selection: Selection = ALL
    reused: Sequence[Path] = ()  #: folders from which finished runs are taken
    selected_rows: Sequence[Row] = field(init=False, hash=False)  #: the rows that are searched
    #: Reused runs by the planned folder, None if there is none, so that the folders are searched once for each run.
    _replacements: dict[Path, PlannedRun | None] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        cells = ((row, task) for row in self.spec.rows for task in row.tasks)
        rows = tuple(replace(row, tasks=(task,), column=row.column_of(task)) for row, task in cells)
        ranges = [name for row in rows for name in row.ranges]
        if not ranges and not any(row.grid for row in rows):
            raise SpecError(f"{self.spec.name} has no grid to search; use sdssm reproduce to train it")
        if ranges and self.search.kind == "grid":
            raise SpecError(f"{ranges[0]} has a range, but a grid needs values; list them, or use --search random")
        object.__setattr__(self, "spec", replace(self.spec, rows=rows))
        plan = self._plan_without_reuse({_cell(row): self._known_candidates(row) for row in rows})
        # All runs of a grid are looked up now. Optuna's are looked up later, but missing folders are reported now.
        self._find_replacements(replace(plan, runs=()) if self.search.kind == "optuna" else plan)
        selected = {(run.row, run.column) for run in plan.runs if run.selected}
        object.__setattr__(self, "selected_rows", [row for row in rows if _cell(row) in selected])

    def _known_candidates(self, row: Row) -> list[dict[str, Any]]:
        """Return all candidates of a row; for Optuna some that contain every value that it may try."""
        if self.search.kind == "grid":
            return list(row.space.grid())
        if self.search.kind == "random":
            return take(row.space.samples(self.search.seed), 0, self.search.trials or 0)
        return row.space.valid_corners(lambda candidate: self._error_of(row, candidate))

    def _plan_without_reuse(self, candidates: Candidates) -> Plan:
        rows = tuple(replace(row, candidates=_unique(candidates.get(_cell(row), ()))) for row in self.spec.rows)
        return make_plan(replace(self.spec, rows=rows), self.out, self.selection)

    def _find_replacements(self, plan: Plan) -> None:
        runs = zip(plan.runs, reuse_runs(plan, self.reused).runs, strict=True)
        self._replacements.update({planned.folder: run if run.reused else None for planned, run in runs})

    def _make_plan(self, candidates: Candidates) -> Plan:
        plan = self._plan_without_reuse(candidates)
        if new := tuple(run for run in plan.runs if run.folder not in self._replacements):
            self._find_replacements(replace(plan, runs=new))
        return replace(plan, runs=tuple(self._with_replacement(run) for run in plan.runs))

    def _with_replacement(self, run: PlannedRun) -> PlannedRun:
        other = self._replacements[run.folder]
        return run if other is None else replace(run, folder=other.folder, config=other.config, reused=True)

    def plan(self, trials: Mapping[Cell, Sequence[SweepTrial]]) -> Plan:
        """Return the runs of these trials, without refused ones."""
        return self._make_plan(
            {cell: [trial.variant for trial in group if trial.state != "refused"] for cell, group in trials.items()}
        )

    def upcoming_plan(self, batch: TrialBatch) -> Plan:
        """Return the runs that are known to be trained: of all candidates, or with Optuna of a batch."""
        return self.full_plan({cell: list(trials.values()) for cell, trials in batch.items()})

    def full_plan(self, trials: Mapping[Cell, Sequence[SweepTrial]]) -> Plan:
        """Return the runs of all candidates, also in cells that are not selected, so that results keep them.

        With Optuna they are the runs of `trials`.
        """
        if self.search.kind == "optuna":
            return self.plan(trials)
        return self._make_plan({_cell(row): self._known_candidates(row) for row in self.spec.rows})

    def load_study(self, folder: Path) -> SweepStudy:
        """Return the trials made so far.

        Those of Optuna are read from the results folder. Other searches start empty, and reuse their trained runs.
        """
        if self.search.kind != "optuna":
            return SweepStudy()
        rows = {cell_name(_cell(row)): row for row in self.spec.rows}
        description = {
            "search seed": self.search.seed,
            "keep": self.search.kept_share,
            "rungs": self.search.compared_at,
            "select": self.spec.choose,
            "budget": self.selection.budget,
            "seeds": {name: list(self.selection.seeds_of(row)) for name, row in rows.items()},
            "settings": {name: [row.model, row.preset, dict(row.settings)] for name, row in rows.items()},
            "space": {name: asdict(row.space) for name, row in rows.items()},
        }
        return SweepStudy(description, folder / STUDY)

    def next_batch(self, study: SweepStudy) -> TrialBatch:
        """Return the trials to run next: interrupted or newly proposed ones; empty at the end."""
        batch: dict[Cell, dict[int, SweepTrial]] = {}
        for row in self.selected_rows:
            trials = study.trials(_cell(row))
            running = _running(trials)
            while not running and (candidates := self.search.next_candidates(row.space, trials)):
                trials += [
                    SweepTrial(variant=variant, state=self._initial_state(row, variant)) for variant in candidates
                ]
                running = _running(trials)
            if running:
                batch[_cell(row)] = running
        return batch

    def _initial_state(self, row: Row, variant: Mapping[str, Any]) -> str:
        """Return "refused" for a candidate of Optuna whose values are invalid together, else "running"."""
        is_refused = self.search.kind == "optuna" and self._error_of(row, variant) is not None
        return "refused" if is_refused else "running"

    def _error_of(self, row: Row, variant: Mapping[str, Any]) -> SpecError | None:
        """Return the error in the settings of a candidate. Other errors, as an unreadable folder, are raised."""
        try:
            spec = replace(self.spec, rows=(replace(row, candidates=[variant]),))
            make_plan(spec, self.out, Selection(budget=self.selection.budget))
        except SpecError as error:
            return error
        return None


def run_sweep(
    sweep: Sweep,
    folder: Path,
    executor: Executor,
    *,
    command: str = "",
    progress: Progress | None = None,
    on_evaluated: EvaluationCallback | None = None,
    evaluation_progress: ProgressOption = False,
) -> tuple[Plan, list[dict[str, Any]]]:
    """Run a search, and return the plan of all candidates and the pruned ones, for `write_results`.

    Args:
        sweep: the search.
        folder: the results folder, in which Optuna's trials are stored.
        executor: has been entered.
        command: the command line, for the record.
        progress: the progress display of the training.
        on_evaluated: passed to the executor's `evaluate_plan`.
        evaluation_progress: the argument `progress` of the executor's `evaluate_plan`.
    """
    study = sweep.load_study(folder)
    open_results(sweep.spec, folder, command=command, device=executor.device_name)
    while batch := sweep.next_batch(study):
        study.save()
        plan = sweep.plan({cell: list(trials.values()) for cell, trials in batch.items()})
        remaining = run_race(plan, batch, study, sweep.search, executor, progress)
        executor.evaluate_plan(remaining, on_evaluated, progress=evaluation_progress)
        _finish_trials(remaining, batch)
        study.save()
    plan = sweep.full_plan(study.by_cell)
    return plan, _pruned_candidates(plan, study)


def _finish_trials(plan: Plan, batch: TrialBatch) -> None:
    """Set state and value of the trials that were trained to the end.

    The value is 0 if all seeds diverged at once.
    """
    records, score = make_records(plan), plan.spec.evaluate.scores[0].name
    for cell, trials in batch.items():
        cell_records = [record for record in records if (record["row"], record["column"]) == cell]
        for trial in trials.values():
            if trial.state == "running":
                runs = [record for record in cell_records if record["variant"] == trial.variant]
                trial.state, trial.value = "finished", candidate_value(plan.spec, score, runs) or 0.0


def _pruned_candidates(plan: Plan, study: SweepStudy) -> list[dict[str, Any]]:
    pruned = []
    for (row, column), trials in study.by_cell.items():
        for trial in trials:
            runs = [r for r in plan.runs if (r.row, r.column) == (row, column) and r.variant == trial.variant]
            if trial.state == "pruned" and runs:
                train = runs[0].config.train
                pruned.append(
                    {
                        "row": row,
                        "column": column,
                        "variant": trial.variant,
                        "value": trial.value,
                        "seeds": len(runs),
                        "steps": train.steps,
                        "pruned_at": last_step(train, max(float(share) for share in trial.rungs)),
                    }
                )
    return pruned


def _running(trials: Sequence[SweepTrial]) -> dict[int, SweepTrial]:
    return {number: trial for number, trial in enumerate(trials) if trial.state == "running"}


def _cell(row: Row) -> Cell:
    return row.label, row.column_of(row.tasks[0])


def _unique(variants: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Remove duplicates, which Optuna may propose."""
    return [variant for number, variant in enumerate(variants) if variant not in variants[:number]]
