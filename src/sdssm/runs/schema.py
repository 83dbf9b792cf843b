"""What one training is, as frozen records that a file can hold."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from sdssm.automata.formats import from_json, to_json
from sdssm.errors import RunError, SdssmError, SettingsError, did_you_mean
from sdssm.models import DEFAULT_PRESET, ModelSettings, preset
from sdssm.settings import (
    build_settings,
    check_at_least,
    check_between,
    check_one_of,
    check_settings,
    convert_value,
    setting_types,
    settings_to_dict,
)
from sdssm.tasks import Task
from sdssm.tasks import get_task as named_task

#: Fields of a run's config that are read apart.
UNTYPED = ("settings", "machines", "versions")
SCHEDULES = ("constant", "cosine")
CURRICULA = ("uniform", "fixed", "growing")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a model learns. The defaults are the scale-free recipe."""

    steps: int = 40_000
    batch: int = 128  #: strings a step
    train_length: int | None = None  #: the longest strings; none: the task's own
    shortest: int = 1  #: the shortest strings: lengths are drawn from here on
    curriculum: str = "uniform"  #: lengths: uniform up to L, always L (fixed), or uniform on a range that grows to L
    lr: float = 1e-3
    schedule: str = "cosine"  #: of the rate after the warm-up: constant, or along a cosine to 0
    warmup: float = 0.025  #: share of the steps in which the rate rises from 0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0  #: coupled: added to the gradient, as Adam with L2 regularisation
    clip: float | None = 1.0  #: the largest norm of a gradient; none: as it is
    attraction: float = 8.0  #: of features to their class, with a cosine readout; rises from 0 to this
    attraction_gate: float = 32.0  #: power of the share of right answers that it is multiplied by; 0: none
    projection_decay: float = 3.0  #: of the cosine's projection towards the identity, times the rate
    validate_length: int | None = None  #: keep the best weights on lengths up to this; never a test length
    validate_every: int = 5_000
    checkpoint_every: int | None = None  #: steps; none: about every minute
    log_every: int | None = None  #: steps; none: two hundred times in a run

    def __post_init__(self) -> None:
        check_settings(self)
        check_between("batch", self.batch, 1, 1 << 20)
        for name in ("steps", "validate_every"):
            check_at_least(name, getattr(self, name), 1)
        for name in ("lr", "weight_decay", "warmup", "eps", "attraction", "attraction_gate", "projection_decay"):
            check_at_least(name, getattr(self, name), 0)
        if self.train_length is not None:
            check_between("train_length", self.train_length, 1, 100_000)
        check_between("shortest", self.shortest, 1, 100_000)
        if self.train_length is not None and self.shortest > self.train_length:
            raise SettingsError(
                f"shortest is {self.shortest} and train_length {self.train_length}; the shortest training strings are "
                "at most as long as the longest"
            )
        for name in ("validate_length", "checkpoint_every", "log_every"):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name), 1)
        check_one_of("schedule", self.schedule, SCHEDULES)
        check_one_of("curriculum", self.curriculum, CURRICULA)
        if not self.warmup <= 1:
            raise SettingsError(f"warmup is {self.warmup}; it is a share of the steps, from 0 to 1")
        if self.clip is not None and not self.clip > 0:
            raise SettingsError(f"clip is {self.clip}; it must be above 0, or none")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise SettingsError(f"betas are {self.betas}; each must be at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that a user may set: of the model and of its training."""

    model: ModelSettings = field(default_factory=ModelSettings)
    train: TrainSettings = field(default_factory=TrainSettings)

    def __post_init__(self) -> None:
        check_settings(self)

    def changed(self, values: Mapping[str, Any]) -> Self:
        """With other values for some names, wherever they stand.

        >>> Settings().changed({"state": 32, "lr": 1e-4}).model.mixer.state
        32
        """
        parts: dict[str, dict[str, Any]] = {"mixer": {}, "model": {}, "train": {}}
        known = setting_names(self)
        for name, value in values.items():
            if name not in known:
                listed = f"sdssm models {self.model.name} lists them all"
                raise SettingsError(f"there is no setting {name!r}; {did_you_mean(str(name), known, listed)}")
            part, wanted = known[name]
            # A command line cannot tell the word from the value: for norm it is the word.
            parts[part][name] = convert_value(name, "none" if value is None and wanted is str else value, wanted)
        # All names of one part at once: rules between two of them hold at the end, not on the way.
        mixer = replace(self.model.mixer, **parts["mixer"])
        return replace(
            self, model=replace(self.model, mixer=mixer, **parts["model"]), train=replace(self.train, **parts["train"])
        )


def setting_names(settings: Settings) -> dict[str, tuple[str, Any]]:
    """Every name that can be set: the part it belongs to, and its annotation."""
    return {
        name: (part, wanted)
        for part, owner in (("mixer", settings.model.mixer), ("model", settings.model), ("train", settings.train))
        for name, wanted in setting_types(type(owner)).items()
        if name not in ("name", "mixer")
    }


def resolve(model: str, preset_name: str, task_name: str, values: Mapping[str, Any] | None = None) -> Settings:
    """The settings of a preset for a model and a task, with some of them changed."""
    base = preset(preset_name, model, task_name)  # first: it says what is wrong with a model's name
    return Settings(model=ModelSettings(name=model)).changed({**base, **(values or {})})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training, resolved: nothing else is needed to do it again."""

    task: str
    digest: str  #: of the task, so that a change of it is seen
    seed: int
    settings: Settings
    n_symbols: int
    n_classes: int
    train_length: int
    test_length: int = 500
    preset: str = DEFAULT_PRESET
    machines: tuple[str, str | None] | None = None  #: of a task that is known by no name: its machines, as JSON
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    begun: str = ""  #: when; runs that were begun together train side by side

    @property
    def model(self) -> ModelSettings:
        return self.settings.model

    @property
    def train(self) -> TrainSettings:
        return self.settings.train

    def to_json(self) -> dict[str, Any]:
        """What config.json holds."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        return {**values, "versions": dict(self.versions), **settings_to_dict(self.settings)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The reverse of `to_json`."""
        try:
            settings = Settings(
                model=build_settings(ModelSettings, data["model"]), train=build_settings(TrainSettings, data["train"])
            )
            hints = {name: hint for name, hint in setting_types(cls).items() if name in data and name not in UNTYPED}
            others = {name: convert_value(name, data[name], hint) for name, hint in hints.items()}
            machines = data.get("machines")
            return cls(
                settings=settings,
                machines=None if machines is None else tuple(machines),
                versions=dict(data.get("versions", {})),
                **others,
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, SdssmError):
                raise
            raise RunError(f"the config does not describe a run: {error}") from None

    def known_task(self) -> Task:
        """The task that was trained on; an error where its name now means another one."""
        if self.machines is not None:
            machine, valid = (None if text is None else from_json(text) for text in self.machines)
            assert machine is not None
            found = Task(name=self.task, machine=machine, valid=valid)
            now = named_task(self.task) if Path(self.task).is_file() else found
        else:
            try:
                found = now = named_task(self.task)
            except SdssmError as error:
                raise RunError(f"the task {self.task} of this run is gone: {error}") from None
        if now.digest != self.digest:
            raise RunError(
                f"the task {self.task} changed since this run began (fingerprint {self.digest}, now {now.digest}); "
                "bring it back or train anew"
            )
        usual = self.train_length if self.train.train_length is None else found.train_length
        return replace(found, train_length=usual, test_length=self.test_length)

    def same_as(self, other: RunConfig) -> bool:
        """Whether it is the same training, whatever versions it was begun with."""
        return replace(self, versions={}, commit=None, begun="") == replace(other, versions={}, commit=None, begun="")


def configure(of: Task, seed: int, settings: Settings, preset_name: str, begun: str = "") -> RunConfig:
    """The record of a training that is about to begin."""
    length = settings.train.train_length or of.train_length
    return RunConfig(
        task=of.name,
        digest=of.digest,
        seed=seed,
        settings=settings,
        n_symbols=of.n_symbols,
        n_classes=of.n_classes,
        train_length=length,
        test_length=of.test_length,
        preset=preset_name,
        machines=None if _is_known(of) else (to_json(of.machine), None if of.valid is None else to_json(of.valid)),
        versions=versions(),
        commit=_commit(),
        begun=begun,
    )


def begun_now() -> str:
    """What runs that begin together have in common: when, and in which process."""
    return f"{datetime.now(UTC).isoformat(timespec='seconds')} process {os.getpid()}"


def _is_known(of: Task) -> bool:
    """Whether the task's name alone says what it is, here and elsewhere: a file may be moved or changed."""
    try:
        return not Path(of.name).is_file() and named_task(of.name).digest == of.digest
    except (SdssmError, OSError, ValueError):
        return False


def versions() -> dict[str, str]:
    """Of Python and the packages that a training depends on."""
    return dict(_versions())


@cache  # a search of a thousand candidates asks a thousand times
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("sdssm", "torch", "numpy", "triton", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@cache  # it does not change under a process, and asking git takes a while
def _commit() -> str | None:
    """The commit of the working tree that sdssm itself lies in, if there is one."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
