"""Candidates side by side, the weak ones stopped on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sdssm.experiments.execution.executors import Engine
from sdssm.experiments.execution.runner import unfinished
from sdssm.experiments.planning.plan import Plan, PlannedRun
from sdssm.experiments.specs.scores import mean
from sdssm.experiments.sweeps.search import Search, weak
from sdssm.experiments.sweeps.trials import Cell, Trial, Trials
from sdssm.runs import RunFolder
from sdssm.training.group import last_step
from sdssm.training.progress import Progress

#: A candidate's accuracy at a rung is that of the last tenth of the way there.
LAST = 0.1
#: The trials of a batch by cell, each with its number among all of the cell.
Batch = Mapping[Cell, Mapping[int, Trial]]


def race(
    plan: Plan,
    batch: Batch,
    trials: Trials,
    search: Search,
    engine: Engine,
    progress: Progress | None,
) -> Plan:
    """Train what a plan wants to its end, but for the candidates that are weak at a rung: those stop there.

    What is left of the plan is returned; the trials are told how they stood, and that they were pruned. All of it
    follows from what the runs logged, so that after a kill the same candidates stop at the same step.
    """
    every = sum(map(len, batch.values()))
    for share in search.compared_at if search.kept < 1 else ():
        engine.run_plan(replace(plan, until=share), progress)
        stopped = [
            _runs(plan, cell, one)
            for cell, some in batch.items()
            for one in _weak(plan, cell, some, trials.at(cell), share, search.kept)
        ]
        plan = replace(plan, runs=tuple(run for run in plan.runs if not any(run in runs for runs in stopped)))
        if stopped and progress is not None:
            progress.message(f"{len(stopped)} of {every} candidates stop at {share:.3g} of the steps")
    engine.run_plan(plan, progress)
    return plan


def _weak(
    plan: Plan, cell: Cell, some: Mapping[int, Trial], every: Sequence[Trial], share: float, keep: float
) -> list[Trial]:
    """Those of a cell that stop at a rung. All that run are told how they stand there, and these that they stop."""
    going = {number: one for number, one in some.items() if one.state == "running"}
    rung = str(share)
    for one in going.values():
        value = _accuracy(_runs(plan, cell, one), share)
        if value is not None:
            one.rungs[rung] = value
    now = {number: one.rungs[rung] for number, one in going.items() if rung in one.rungs}
    before = [one.rungs[rung] for number, one in enumerate(every) if number not in now and rung in one.rungs]
    least = [going[number] for number in sorted(weak(now, before, keep))]
    # What is finished already, for another experiment maybe, costs nothing more.
    found = [one for one in least if unfinished(replace(plan, runs=tuple(_runs(plan, cell, one))))]
    for one in found:
        one.state, one.value = "pruned", one.rungs[rung]
    return found


def _runs(plan: Plan, cell: Cell, trial: Trial) -> list[PlannedRun]:
    """The seeds of a candidate."""
    return [run for run in plan.runs if (run.row, run.column) == cell and run.variant == trial.variant]


def _accuracy(runs: Sequence[PlannedRun], share: float) -> float | None:
    """At a rung, of the training strings, in percent: the mean over seeds, where one that diverged has none right.

    None where a training is so short that its end comes no later than the rung, or nothing was logged on the way.
    """
    values = []
    for run in runs:
        rung = last_step(run.config.train, share)
        if rung >= run.config.train.steps:
            return None
        events = [event for event in RunFolder.open(run.folder).events() if 0 < event.get("step", 0) <= rung]
        if any(event.get("diverged") for event in events):
            values.append(0.0)
            continue
        known = [(event["step"], event["accuracy"]) for event in events if event.get("accuracy") is not None]
        late = [value for step, value in known if step > rung * (1 - LAST)] or [value for _, value in known[-1:]]
        if late:
            values.append(sum(late) / len(late))
    return mean(values)
