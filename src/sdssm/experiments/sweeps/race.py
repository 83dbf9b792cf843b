"""Races: training candidates side by side, and stopping weak ones at rungs (successive halving)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sdssm.experiments.execution.executors import Executor
from sdssm.experiments.planning.plan import Plan, PlannedRun
from sdssm.experiments.planning.remaining import unfinished_runs
from sdssm.experiments.sweeps.search import Search, weak_candidates
from sdssm.experiments.sweeps.study import Cell, SweepStudy, SweepTrial
from sdssm.means import mean_of_known
from sdssm.runs import RunFolder
from sdssm.training.progress import Progress
from sdssm.training.schedules import last_step

#: The accuracy at a rung is the mean over the last tenth of the steps before it.
AVERAGED_SHARE = 0.1
#: Trials by cell, each with its number among all trials of the cell.
TrialBatch = Mapping[Cell, Mapping[int, SweepTrial]]


def run_race(
    plan: Plan,
    batch: TrialBatch,
    study: SweepStudy,
    search: Search,
    executor: Executor,
    progress: Progress | None,
) -> Plan:
    """Train the candidates of a batch, stop the weak ones at each rung, and return the plan without them.

    Accuracies at rungs and the state "pruned" are written into the trials. Both depend only on what the runs logged, so
    that after an interruption the same candidates stop at the same step.
    """
    total = sum(map(len, batch.values()))
    for share in search.compared_at if search.kept_share < 1 else ():
        executor.run_plan(replace(plan, until=share), progress)
        pruned_runs = [
            _runs_of(plan, cell, trial)
            for cell, trials in batch.items()
            for trial in _prune(plan, cell, trials, study.trials(cell), share, search.kept_share)
        ]
        plan = replace(plan, runs=tuple(run for run in plan.runs if not any(run in runs for runs in pruned_runs)))
        if pruned_runs and progress is not None:
            progress.message(f"{len(pruned_runs)} of {total} candidates stop at {share:.3g} of the steps")
    executor.run_plan(plan, progress)
    return plan


def _prune(
    plan: Plan,
    cell: Cell,
    trials: Mapping[int, SweepTrial],
    history: Sequence[SweepTrial],
    share: float,
    keep: float,
) -> list[SweepTrial]:
    """Record the accuracy of the running trials of a cell at a rung, and return the pruned ones."""
    running = {number: trial for number, trial in trials.items() if trial.state == "running"}
    rung = str(share)
    for trial in running.values():
        value = _accuracy(_runs_of(plan, cell, trial), share)
        if value is not None:
            trial.rungs[rung] = value
    current = {number: trial.rungs[rung] for number, trial in running.items() if rung in trial.rungs}
    earlier = [
        trial.rungs[rung] for number, trial in enumerate(history) if number not in current and rung in trial.rungs
    ]
    weak = [running[number] for number in sorted(weak_candidates(current, earlier, keep))]
    # A candidate whose runs are finished, for example by another experiment, costs nothing more and is kept.
    pruned = [trial for trial in weak if unfinished_runs(replace(plan, runs=tuple(_runs_of(plan, cell, trial))))]
    for trial in pruned:
        trial.state, trial.value = "pruned", trial.rungs[rung]
    return pruned


def _runs_of(plan: Plan, cell: Cell, trial: SweepTrial) -> list[PlannedRun]:
    """Return the runs of a candidate, one for each seed."""
    return [run for run in plan.runs if (run.row, run.column) == cell and run.variant == trial.variant]


def _accuracy(runs: Sequence[PlannedRun], share: float) -> float | None:
    """Return the training accuracy at a rung in percent, averaged over seeds; diverged seeds count as 0.

    None if the training ends before the rung, or if nothing was logged.
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
        logged = [(event["step"], event["accuracy"]) for event in events if event.get("accuracy") is not None]
        last = [value for step, value in logged if step > rung * (1 - AVERAGED_SHARE)]
        last = last or [value for _, value in logged[-1:]]
        if last:
            values.append(sum(last) / len(last))
    return mean_of_known(values)
