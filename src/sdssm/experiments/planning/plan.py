"""From an experiment to its runs: folders that all experiments share, so that nothing is trained twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sdssm.errors import RunError, SdssmError
from sdssm.experiments.planning.selection import ALL, Narrowing
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.spec import Row, Spec
from sdssm.files import format_path
from sdssm.models import ModelSettings
from sdssm.models.classifier import CONFIG
from sdssm.runs import RunFolder, folder_name
from sdssm.runs.events import finite
from sdssm.runs.schema import RunConfig, Settings, begun_now, configure, resolve
from sdssm.settings import settings_to_dict
from sdssm.tasks import Task
from sdssm.tasks import get_task as named_task
from sdssm.training.planning import Planned, check_config

#: Settings that say how often something is written: they make no other training.
UNTOLD = ("checkpoint_every", "log_every")
#: Digits of a fingerprint in the name of a folder.
DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One training, and the cell that it is for."""

    row: str
    column: str
    folder: Path
    task: Task
    config: RunConfig
    training: str  #: fingerprint of all but the seed and the steps
    variant: Mapping[str, Any] = field(default_factory=dict, hash=False)  #: what the grid of its row chose
    wanted: bool = True  #: whether this command trains it: else it is only looked up
    reused: bool = False  #: whether it was made elsewhere and is taken as it is

    @property
    def status(self) -> str:
        """missing, or that of its folder: running, finished, stopped or diverged."""
        return RunFolder.open(self.folder).status if (self.folder / CONFIG).exists() else "missing"


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """Runs that are trained together, in folders below one."""

    out: Path
    runs: tuple[PlannedRun, ...]
    until: float = 1.0  #: the share of its steps that each run is trained for now

    def wanted(self) -> list[PlannedRun]:
        """What this command trains: each folder once, though several cells may show it."""
        return list({run.folder: run for run in self.runs if run.wanted}.values())

    def own(self) -> list[PlannedRun]:
        """The same without runs that were made elsewhere: nobody trains there, nor beside them."""
        return [run for run in self.wanted() if not run.reused]

    def planned(self) -> list[Planned]:
        """Those in folders of its own, as `train_all` takes them."""
        return [(run.folder, run.task, run.config) for run in self.own()]


@dataclass(frozen=True, kw_only=True)
class Plan(Trainings):
    """All runs of an experiment, in the order of its cells."""

    spec: Spec


def make_plan(spec: Spec, out: Path, part: Narrowing = ALL) -> Plan:
    """Every run of an experiment, checked; `part` says which of them are trained, and how long.

    >>> from sdssm.experiments.specs.catalogue import spec_named
    >>> part = Narrowing(models=["mamba"], tasks=["parity"], budget=0.01)
    >>> plan = make_plan(spec_named("two-layers"), Path("runs"), part)
    >>> [(run.row, run.config.seed, run.config.train.steps) for run in plan.wanted()][0]
    ('Mamba, 1 layer', 0, 10000)
    """
    (plan,) = make_plans([spec], out, part)
    return plan


def make_plans(specs: Sequence[Spec], out: Path, part: Narrowing = ALL) -> list[Plan]:
    """A plan for each experiment. What two of them have in common is one run, and all that begins, begins together.

    Of some of them `part` may leave nothing, not of all.
    """
    for spec in specs:
        if spec.kind != "accuracy":
            raise SpecError(f"{spec.name} is of kind {spec.kind}: nothing is trained for it")
    part.check(specs)
    planner = _Planner(out, part)
    return [planner.plan(spec) for spec in specs]


def together(plans: Sequence[Plan]) -> Trainings:
    """What plans have to train, as one: a run that several of them want is there once."""
    first = plans[0]
    if any((plan.out, plan.until) != (first.out, first.until) for plan in plans):
        raise RunError("only plans for one folder, and for one share of the steps, are trained together; give one out")
    runs = {run.folder: run for plan in plans for run in plan.wanted()}
    return Trainings(out=first.out, runs=tuple(runs.values()), until=first.until)


class _Planner:
    """Plans for one folder, and what they know of each other."""

    def __init__(self, out: Path, part: Narrowing) -> None:
        self._out, self._part = out, part
        self._begun = begun_now()
        self._tasks: dict[str, Task] = {}
        self._configs: dict[Path, RunConfig] = {}
        self._checked: set[Any] = set()

    def plan(self, spec: Spec) -> Plan:
        runs = [run for row in spec.rows for name in row.tasks for run in self._runs(row, self._task(name))]
        return Plan(spec=spec, out=self._out, runs=tuple(runs))

    def _task(self, name: str) -> Task:
        if name not in self._tasks:
            self._tasks[name] = named_task(name)
        return self._tasks[name]

    def _runs(self, row: Row, of: Task) -> Iterator[PlannedRun]:
        for variant in row.variants():
            settings = _resolved(row, of.name, variant, self._part.budget)
            first = configure(of, 0, settings, row.preset, self._begun)
            below = self._out / folder_name(of.name) / f"{row.model}-{fingerprint(first)}"
            # What one seed is refused for, all are; and a rate or a weight decay that can be is all right.
            alike = (of.name, first.model, replace(first.train, lr=0.0, weight_decay=0.0))
            if alike not in self._checked:
                _check(row, first, of)
                self._checked.add(alike)
            for seed in self._part.seeds_of(row):
                folder = below / f"seed-{seed}"
                if folder not in self._configs:
                    self._configs[folder] = _there(folder, replace(first, seed=seed))
                yield PlannedRun(
                    row=row.label,
                    column=row.column_of(of.name),
                    folder=folder,
                    task=of,
                    config=self._configs[folder],
                    training=fingerprint(first, but=("steps",)),
                    variant=variant,
                    wanted=self._part.wants(row, of.name),
                )


def _resolved(row: Row, task: str, variant: Mapping[str, Any], budget: float) -> Settings:
    try:
        settings = resolve(row.model, row.preset, task, {**row.settings, **variant})
    except SdssmError as error:
        raise SpecError(f"row {row.label!r}: {error}") from None
    return settings.changed({"steps": max(1, round(settings.train.steps * budget))})


def _check(row: Row, config: RunConfig, of: Task) -> None:
    try:
        check_config(config, of)
    except SdssmError as error:
        raise SpecError(f"row {row.label!r}: {error}") from None


def _there(folder: Path, config: RunConfig) -> RunConfig:
    """The config, or that of the run that was made here before."""
    if not (folder / CONFIG).exists():
        return config
    found = RunFolder.open(folder).config
    if not same_training(config, found):
        raise RunError(f"{format_path(folder)} holds another training; remove it, or choose another --out")
    return found


def same_training(config: RunConfig, found: RunConfig) -> bool:
    """Whether a run is the planned one, whatever its preset was called, how often it was saved, and whether its
    training length was the task's own or named."""
    often = {name: getattr(found.train, name) for name in (*UNTOLD, "train_length")}
    return replace(config, preset=found.preset, settings=config.settings.changed(often)).same_as(found)


def fingerprint(config: RunConfig, but: Sequence[str] = ()) -> str:
    """The same for the same training, whatever its seed: of the task and of the settings that are not defaults, so
    that a setting that a later version adds changes nothing.

    >>> from sdssm.tasks import get_task
    >>> one, other = (resolve("sd-ssm", "paper", "a5", {"log_every": every}) for every in (None, 10))
    >>> fingerprint(configure(get_task("a5"), 0, one, "paper")) == fingerprint(configure(get_task("a5"), 1, other, "readme"))
    True
    """
    ours, base = (
        settings_to_dict(config.settings),
        settings_to_dict(Settings(model=ModelSettings(name=config.model.name))),
    )
    values = {
        part: {
            name: value for name, value in ours[part].items() if value != base[part].get(name) and name not in skipped
        }
        for part, skipped in (("model", ("mixer",)), ("train", (*UNTOLD, "train_length", *but)))
    }
    mixer = ours["model"]["mixer"]
    values["mixer"] = {name: value for name, value in mixer.items() if value != base["model"]["mixer"].get(name)}
    told = [config.digest, config.train_length, config.model.name, finite(values)]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:DIGITS]
