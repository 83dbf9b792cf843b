"""From an experiment to its runs: folders that all experiments share, so that nothing is trained twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sdssm.errors import RunError, SdssmError, nearest
from sdssm.experiments.scores import SpecError
from sdssm.experiments.spec import Row, Spec
from sdssm.files import shown_path
from sdssm.models import ModelSettings
from sdssm.models.classifier import CONFIG
from sdssm.runs import RunFolder, folder_name
from sdssm.runs.events import finite
from sdssm.runs.schema import RunConfig, Settings, begun_now, configure, resolve
from sdssm.settings import plain
from sdssm.tasks import Task
from sdssm.tasks import task as named_task
from sdssm.train.planning import Planned, check_config

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
class Plan:
    """All runs of an experiment, in the order of its cells."""

    spec: Spec
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


def make_plan(
    spec: Spec,
    out: Path,
    *,
    budget: float = 1.0,
    models: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> Plan:
    """Every run of an experiment, checked; `budget` scales the steps, the rest narrows what is trained.

    >>> from sdssm.experiments.catalogue import spec_named
    >>> plan = make_plan(spec_named("two-layers"), Path("runs"), models=["mamba"], tasks=["parity"], budget=0.01)
    >>> [(run.row, run.config.seed, run.config.train.steps) for run in plan.wanted()][0]
    ('Mamba, 1 layer', 0, 10000)
    """
    if not 0 < budget <= 1000:
        raise SpecError(f"the budget is {budget}; it scales the steps and must be above 0 and at most 1000")
    if spec.kind != "accuracy":
        raise SpecError(f"{spec.name} is of kind {spec.kind}: nothing is trained for it")
    chosen = _chosen("model", models, [row.model for row in spec.rows])
    named = _chosen("row", rows, [row.label for row in spec.rows])
    asked = _chosen("task", None if tasks is None else _task_names(tasks), [t for row in spec.rows for t in row.tasks])
    known = {name: named_task(name) for row in spec.rows for name in row.tasks}
    begun = begun_now()
    checked: set[Any] = set()
    runs = []
    for row in spec.rows:
        for name in row.tasks:
            wanted = row.model in chosen and row.label in named and name in asked
            for variant in row.variants():
                settings = _resolved(row, name, variant, budget)
                first = configure(known[name], 0, settings, row.preset, begun)
                below = out / folder_name(name) / f"{row.model}-{fingerprint(first)}"
                # What one seed is refused for, all are; and a rate or a weight decay that can be is all right.
                alike = (name, first.model, replace(first.train, lr=0.0, weight_decay=0.0))
                if alike not in checked:
                    _check(row, first, known[name])
                    checked.add(alike)
                for seed in row.seeds if seeds is None else seeds:
                    run = PlannedRun(
                        row=row.label,
                        column=row.column_of(name),
                        folder=below / f"seed-{seed}",
                        task=known[name],
                        config=_there(below / f"seed-{seed}", replace(first, seed=seed)),
                        training=fingerprint(first, but=("steps",)),
                        variant=variant,
                        wanted=wanted,
                    )
                    runs.append(run)
    return Plan(spec=spec, out=out, runs=tuple(runs))


def _task_names(tasks: Sequence[str]) -> list[str]:
    """As the library spells them."""
    return [named_task(name).name for name in tasks]


def _chosen(what: str, asked: Sequence[str] | None, there: Sequence[str]) -> frozenset[str]:
    known = list(dict.fromkeys(there))
    for name in asked or ():
        if name not in known:
            raise SpecError(f"this experiment has no {what} {name!r}; {nearest(name, known)}")
    return frozenset(known if asked is None else asked)


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
        raise RunError(f"{shown_path(folder)} holds another training; remove it, or choose another --out")
    return found


def same_training(config: RunConfig, found: RunConfig) -> bool:
    """Whether a run is the planned one, whatever its preset was called, how often it was saved, and whether its
    training length was the task's own or named."""
    often = {name: getattr(found.train, name) for name in (*UNTOLD, "train_length")}
    return replace(config, preset=found.preset, settings=config.settings.changed(often)).same_as(found)


def fingerprint(config: RunConfig, but: Sequence[str] = ()) -> str:
    """The same for the same training, whatever its seed: of the task and of the settings that are not defaults, so
    that a setting that a later version adds changes nothing.

    >>> from sdssm.tasks import task
    >>> one, other = (resolve("sd-ssm", "paper", "a5", {"log_every": every}) for every in (None, 10))
    >>> fingerprint(configure(task("a5"), 0, one, "paper")) == fingerprint(configure(task("a5"), 1, other, "readme"))
    True
    """
    ours, base = plain(config.settings), plain(Settings(model=ModelSettings(name=config.model.name)))
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
