"""Sweeps: from a space of settings to the best of them, with everything that an experiment has.

A sweep is an experiment whose rows list candidates. Its runs lie in the folders that all experiments share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sdssm.experiments.execution.executors import Engine
from sdssm.experiments.planning.plan import Plan, PlannedRun, make_plan
from sdssm.experiments.planning.reuse import reuse
from sdssm.experiments.planning.selection import ALL, Narrowing
from sdssm.experiments.results.cells import records_of, worth
from sdssm.experiments.results.folder import begin
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.search_space import part
from sdssm.experiments.specs.spec import Row, Spec
from sdssm.experiments.sweeps.race import Batch, race
from sdssm.experiments.sweeps.search import Search
from sdssm.experiments.sweeps.trials import STUDY, Cell, Trial, Trials, cell_name
from sdssm.training.group import last_step
from sdssm.training.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A search for each cell of an experiment, or for those that `part` leaves of them.

    All that can be wrong is said when it is made; of Optuna's candidates, that is every value by itself.
    """

    spec: Spec  #: with one row for each cell, as it is kept
    search: Search
    out: Path
    part: Narrowing = ALL
    reused: Sequence[Path] = ()  #: where finished runs are taken from
    wanted: Sequence[Row] = field(init=False, hash=False)  #: the rows that are searched for now
    #: What was found elsewhere in the place of a folder, or that there was nothing: places are walked once for each.
    _elsewhere: dict[Path, PlannedRun | None] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        every = ((row, task) for row in self.spec.rows for task in row.tasks)
        rows = tuple(replace(row, tasks=(task,), column=row.column_of(task)) for row, task in every)
        ranges = [name for row in rows for name in row.ranges]
        if not ranges and not any(row.grid for row in rows):
            raise SpecError(f"{self.spec.name} has no grid to search; sdssm reproduce trains it as it is")
        if ranges and self.search.kind == "grid":
            raise SpecError(f"{ranges[0]} has a range, and a grid is made of values; list some, or use --search random")
        object.__setattr__(self, "spec", replace(self.spec, rows=rows))
        planned = self._bare({_cell(row): self._known(row) for row in rows})
        # All of a grid are looked for now, and Optuna's candidates when they come; a place must be there in any case.
        self._look(replace(planned, runs=()) if self.search.kind == "optuna" else planned)
        cells = {(run.row, run.column) for run in planned.runs if run.wanted}
        object.__setattr__(self, "wanted", [row for row in rows if _cell(row) in cells])

    def _known(self, row: Row) -> list[dict[str, Any]]:
        """Candidates that are known beforehand: all of them, or for Optuna some, with every value that it may try."""
        if self.search.kind == "grid":
            return list(row.space.grid())
        if self.search.kind == "random":
            return part(row.space.draws(self.search.seed), 0, self.search.trials or 0)
        return row.space.with_each(lambda one: self._refused(row, one))

    def _bare(self, of: Mapping[Cell, Sequence[Mapping[str, Any]]]) -> Plan:
        rows = tuple(replace(row, listed=_once(of.get(_cell(row), ()))) for row in self.spec.rows)
        return make_plan(replace(self.spec, rows=rows), self.out, self.part)

    def _look(self, plan: Plan) -> None:
        found = reuse(plan, self.reused).runs
        self._elsewhere.update({a.folder: b if b.reused else None for a, b in zip(plan.runs, found, strict=True)})

    def _plan(self, of: Mapping[Cell, Sequence[Mapping[str, Any]]]) -> Plan:
        plan = self._bare(of)
        if new := tuple(run for run in plan.runs if run.folder not in self._elsewhere):
            self._look(replace(plan, runs=new))
        return replace(plan, runs=tuple(self._instead(run) for run in plan.runs))

    def _instead(self, run: PlannedRun) -> PlannedRun:
        other = self._elsewhere[run.folder]
        return run if other is None else replace(run, folder=other.folder, config=other.config, reused=True)

    def plan(self, trials: Mapping[Cell, Sequence[Trial]]) -> Plan:
        """The runs of these candidates."""
        return self._plan(
            {cell: [one.variant for one in some if one.state != "refused"] for cell, some in trials.items()}
        )

    def ahead(self, batch: Batch) -> Plan:
        """What is known to come: all candidates, or with Optuna those of a batch."""
        return self.every({cell: list(some.values()) for cell, some in batch.items()})

    def every(self, trials: Mapping[Cell, Sequence[Trial]]) -> Plan:
        """The runs of all candidates, of cells that this command leaves as they are too: results keep what they hold.

        With Optuna they are these trials, which its file has of every cell.
        """
        if self.search.kind == "optuna":
            return self.plan(trials)
        return self._plan({_cell(row): self._known(row) for row in self.spec.rows})

    def trials(self, folder: Path) -> Trials:
        """What was tried before: of Optuna's what the results folder holds. Others begin anew, and find it trained."""
        if self.search.kind != "optuna":
            return Trials()
        rows = {cell_name(_cell(row)): row for row in self.spec.rows}
        told = {
            "search seed": self.search.seed,
            "keep": self.search.kept,
            "rungs": self.search.compared_at,
            "select": self.spec.choose,
            "budget": self.part.budget,
            "seeds": {name: list(self.part.seeds_of(row)) for name, row in rows.items()},
            "settings": {name: [row.model, row.preset, dict(row.settings)] for name, row in rows.items()},
            "space": {name: asdict(row.space) for name, row in rows.items()},
        }
        return Trials(told, folder / STUDY)

    def next(self, trials: Trials) -> Batch:
        """What to try now: what was begun before, else what the search proposes; nothing when it is over."""
        batch: dict[Cell, dict[int, Trial]] = {}
        for row in self.wanted:
            known = trials.at(_cell(row))
            begun = {number: one for number, one in enumerate(known) if one.state == "running"}
            while not begun and (found := self.search.next(row.space, known)):
                known += [Trial(variant=one, state=self._state(row, one)) for one in found]
                begun = {number: one for number, one in enumerate(known) if one.state == "running"}
            if begun:
                batch[_cell(row)] = begun
        return batch

    def _state(self, row: Row, variant: Mapping[str, Any]) -> str:
        """Values that are right by themselves may not go together, which only Optuna's show so late: it is told."""
        late = self.search.kind == "optuna"
        return "refused" if late and self._refused(row, variant) is not None else "running"

    def _refused(self, row: Row, variant: Mapping[str, Any]) -> SpecError | None:
        """What is wrong with the values of a candidate. A folder that cannot be read is not: that ends the search."""
        try:
            alone = replace(self.spec, rows=(replace(row, listed=[variant]),))
            make_plan(alone, self.out, Narrowing(budget=self.part.budget))
        except SpecError as error:
            return error
        return None


def run_sweep(
    sweep: Sweep,
    folder: Path,
    engine: Engine,
    *,
    command: str = "",
    progress: Progress | None = None,
    found: Callable[[int, int], None] | None = None,
) -> tuple[Plan, list[dict[str, Any]]]:
    """Search to the end: the plan of all candidates, and those that stopped early, for `write_results`.

    `folder` is that of the results, where Optuna's trials are kept; the engine has been entered, and `found` is told
    what its `evaluate_plan` tells.
    """
    trials = sweep.trials(folder)
    begin(sweep.spec, folder, command=command, device=engine.device_name)
    while batch := sweep.next(trials):
        trials.save()
        plan = sweep.plan({cell: list(some.values()) for cell, some in batch.items()})
        left = race(plan, batch, trials, sweep.search, engine, progress)
        engine.evaluate_plan(left, found)
        _tell(left, batch)
        trials.save()
    plan = sweep.every(trials.of)
    return plan, _pruned(plan, trials)


def _tell(plan: Plan, batch: Batch) -> None:
    """Every candidate that was trained to the end is worth what its runs are; one that diverged at once, nothing."""
    records, score = records_of(plan), plan.spec.evaluate.scores[0].name
    for cell, some in batch.items():
        mine = [record for record in records if (record["row"], record["column"]) == cell]
        for one in some.values():
            if one.state == "running":
                runs = [record for record in mine if record["variant"] == one.variant]
                one.state, one.value = "finished", worth(plan.spec.choose, score, runs) or 0.0


def _pruned(plan: Plan, trials: Trials) -> list[dict[str, Any]]:
    found = []
    for (row, column), some in trials.of.items():
        for one in some:
            runs = [r for r in plan.runs if (r.row, r.column) == (row, column) and r.variant == one.variant]
            if one.state == "pruned" and runs:
                train = runs[0].config.train
                found.append(
                    {
                        "row": row,
                        "column": column,
                        "variant": one.variant,
                        "value": one.value,
                        "seeds": len(runs),
                        "steps": train.steps,
                        "pruned_at": last_step(train, max(float(share) for share in one.rungs)),
                    }
                )
    return found


def _cell(row: Row) -> Cell:
    return row.label, row.column_of(row.tasks[0])


def _once(variants: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Optuna may propose what it proposed before."""
    return [one for number, one in enumerate(variants) if one not in variants[:number]]
