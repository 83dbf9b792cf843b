"""Plans: the runs of an experiment, in folders that all experiments share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sdssm.errors import RunError, SdssmError
from sdssm.experiments.planning.fingerprints import fingerprint, is_same_training
from sdssm.experiments.planning.selection import ALL, Selection
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.spec import AUTO_PRESET, Row, Spec
from sdssm.files import format_path
from sdssm.models.settings import CONFIG_FILE
from sdssm.runs import RunFolder, folder_name
from sdssm.runs.provenance import start_stamp
from sdssm.runs.schema import RunConfig, Settings, choose_preset, create_config, resolve_settings
from sdssm.tasks import Task, get_task
from sdssm.training.planning import RunPlan, check_config


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One training, and the cell of the table that it is for."""

    row: str
    column: str
    folder: Path
    task: Task
    config: RunConfig
    training: str  #: fingerprint of everything but the seed and the steps
    variant: Mapping[str, Any] = field(default_factory=dict, hash=False)  #: settings chosen from the row's grid
    selected: bool = True  #: whether it is trained; otherwise only an existing result is used
    reused: bool = False  #: whether it is an existing run outside the folder of the plan

    @property
    def status(self) -> str:
        """The status of its folder (running, finished, stopped or diverged), or "missing"."""
        return RunFolder.open(self.folder).status if (self.folder / CONFIG_FILE).exists() else "missing"


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Runs that are trained together, in folders below `out`."""

    out: Path
    runs: tuple[PlannedRun, ...]
    until: float = 1.0  #: the share of its steps up to which each run is trained

    def selected_runs(self) -> list[PlannedRun]:
        """Return the runs to train and evaluate; a folder that several cells share is listed once."""
        return list({run.folder: run for run in self.runs if run.selected}.values())

    def own_runs(self) -> list[PlannedRun]:
        """Return the selected runs without reused ones, which are never trained further."""
        return [run for run in self.selected_runs() if not run.reused]

    def trainings(self) -> list[RunPlan]:
        """Return the own runs as the arguments of `train_runs`."""
        return [(run.folder, run.task, run.config) for run in self.own_runs()]


@dataclass(frozen=True, kw_only=True)
class Plan(TrainingPlan):
    """All runs of an experiment, in the order of its cells."""

    spec: Spec


def make_plan(spec: Spec, out: Path, selection: Selection = ALL) -> Plan:
    """Return the runs of an experiment, validated, in folders below `out`.

    `selection` says which of them are trained, with which seeds and for how many steps.

    >>> from sdssm.experiments.specs.catalogue import get_spec
    >>> selection = Selection(models=["mamba"], tasks=["parity"], budget=0.01)
    >>> plan = make_plan(get_spec("two-layers"), Path("runs"), selection)
    >>> [(run.row, run.config.seed, run.config.train.steps) for run in plan.selected_runs()][0]
    ('Mamba, 1 layer', 0, 10000)
    """
    (plan,) = make_plans([spec], out, selection)
    return plan


def make_plans(specs: Sequence[Spec], out: Path, selection: Selection = ALL) -> list[Plan]:
    """Return a plan for each experiment; a training that several need is one run in one folder.

    The selection may leave some of the experiments empty, but not all.
    """
    for spec in specs:
        if spec.kind != "accuracy":
            raise SpecError(f"{spec.name} is of kind {spec.kind}: nothing is trained for it; use sdssm reproduce")
    selection.check(specs)
    planner = _Planner(out, selection)
    return [planner.plan(spec) for spec in specs]


def merge_plans(plans: Sequence[Plan]) -> TrainingPlan:
    """Merge the selected runs of several plans into one; a run that several plans need is in it once."""
    first = plans[0]
    if any((plan.out, plan.until) != (first.out, first.until) for plan in plans):
        raise RunError("plans can be merged only if they have the same out and until; make them with one make_plans")
    runs = {run.folder: run for plan in plans for run in plan.selected_runs()}
    return TrainingPlan(out=first.out, runs=tuple(runs.values()), until=first.until)


class _Planner:
    """Makes plans for one folder, so that they share tasks, configs and checks."""

    def __init__(self, out: Path, selection: Selection) -> None:
        self._out, self._selection = out, selection
        self._begun = start_stamp()
        self._tasks: dict[str, Task] = {}
        self._configs: dict[Path, RunConfig] = {}
        self._checked: set[Any] = set()

    def plan(self, spec: Spec) -> Plan:
        """Return all runs of an experiment."""
        runs = [run for row in spec.rows for name in row.tasks for run in self._runs(row, name)]
        return Plan(spec=spec, out=self._out, runs=tuple(runs))

    def _task(self, name: str) -> Task:
        if name not in self._tasks:
            self._tasks[name] = get_task(name)
        return self._tasks[name]

    def _runs(self, row: Row, name: str) -> Iterator[PlannedRun]:
        task = self._task(name)  # its name may differ: the task of a file is called after the file
        for variant in row.variants():
            preset = _choose_preset(row, task, variant)
            settings = _resolve_settings(row, preset, task, variant, self._selection.budget)
            first = create_config(task, 0, settings, preset, self._begun)
            parent = self._out / folder_name(task.name) / f"{folder_name(row.model)}-{fingerprint(first)}"
            # The check does not depend on the seed, nor on the values of learning rate and weight decay.
            check_key = (task.name, first.model, replace(first.train, lr=0.0, weight_decay=0.0))
            if check_key not in self._checked:
                _check_config(row, first, task)
                self._checked.add(check_key)
            for seed in self._selection.seeds_of(row):
                folder = parent / f"seed-{seed}"
                if folder not in self._configs:
                    self._configs[folder] = _existing_config(folder, replace(first, seed=seed))
                yield PlannedRun(
                    row=row.label,
                    column=row.column_of(name),
                    folder=folder,
                    task=task,
                    config=self._configs[folder],
                    training=fingerprint(first, ignore=("steps",)),
                    variant=variant,
                    selected=self._selection.keeps_cell(row, name),
                )


def _choose_preset(row: Row, task: Task, variant: Mapping[str, Any]) -> str:
    """Return the preset of a row for a task."""
    if row.preset != AUTO_PRESET:
        return row.preset
    length = {**row.settings, **variant}.get("train_length")
    return choose_preset(row.model, task, length if isinstance(length, int) else None)


def _resolve_settings(row: Row, preset: str, task: Task, variant: Mapping[str, Any], budget: float) -> Settings:
    try:
        settings = resolve_settings(row.model, preset, task, {**row.settings, **variant})
    except SdssmError as error:
        raise SpecError(f"row {row.label!r}: {error}") from None
    # Not by name: a model of others may have an option that is called steps.
    return replace(settings, train=replace(settings.train, steps=max(1, round(settings.train.steps * budget))))


def _check_config(row: Row, config: RunConfig, task: Task) -> None:
    try:
        check_config(config, task)
    except SdssmError as error:
        raise SpecError(f"row {row.label!r}: {error}") from None


def _existing_config(folder: Path, planned: RunConfig) -> RunConfig:
    """Return the config of the run in a folder, or the planned one if there is none."""
    if not (folder / CONFIG_FILE).exists():
        return planned
    existing = RunFolder.open(folder).config
    if not is_same_training(planned, existing):
        raise RunError(f"{format_path(folder)} holds another training; remove it, or choose another --out")
    return existing
