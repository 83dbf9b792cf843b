"""The settings and the config of a run, as frozen dataclasses that are saved as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Self

from sdssm.automata.formats import from_json, to_json
from sdssm.automata.library import machine_files
from sdssm.errors import RunError, SdssmError, SettingsError, did_you_mean, first_line, format_value
from sdssm.limits import (
    LARGEST_SEED,
    LONGEST_STRING,
    LONGEST_TRAINED,
    MOST_CLASSES,
    MOST_TRANSITIONS,
)
from sdssm.models.catalogue import DEFAULT_MODEL, DEFAULT_PRESET, default_preset, get_preset
from sdssm.models.module_settings import ModuleSettings, why_no_setting
from sdssm.models.registry import find_entry, registered_entry
from sdssm.models.settings import CONFIG_FILE, ModelSettings, build_model_settings, default_settings
from sdssm.models.train_settings import TrainSettings
from sdssm.runs.provenance import source_commit, versions
from sdssm.settings import (
    build_settings,
    check_between,
    check_settings,
    convert_value,
    setting_types,
    settings_to_dict,
)
from sdssm.tasks import Task, get_task
from sdssm.tasks.coverage import choose_sampling
from sdssm.tasks.library import get_library_task
from sdssm.tasks.state_size import AUTO, MARGIN, choose_state_size, needs_states

#: Fields of a run config that `from_json` does not convert by their annotations.
UNCONVERTED = ("settings", "machines", "versions")
#: The values of training settings in configs that do not have them, written before there was a choice.
UNRECORDED = {"sampling": "uniform"}
#: The ranges of the numbers of a config that are not settings.
RANGES = {
    "seed": (0, LARGEST_SEED),
    "n_symbols": (1, MOST_TRANSITIONS),
    "n_classes": (1, MOST_CLASSES),
    "train_length": (1, LONGEST_TRAINED),
    "test_length": (1, LONGEST_STRING),
}
#: Fields of the settings classes that name the model or hold other settings, and cannot be set by name.
NOT_SETTINGS = ("name", "import_path", "mixer", "options")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of a run: those of the model and those of the training."""

    model: ModelSettings | ModuleSettings = field(default_factory=ModelSettings)
    train: TrainSettings = field(default_factory=TrainSettings)

    def __post_init__(self) -> None:
        check_settings(self)

    def replace_values(self, values: Mapping[str, Any]) -> Self:
        """Return the settings with some values replaced; names may be of the mixer, model or training.

        >>> Settings().replace_values({"state": 32, "lr": 1e-4}).model.mixer.state
        32
        """
        parts: dict[str, dict[str, Any]] = {}
        known = setting_names(self)
        for name, value in values.items():
            if name not in known:
                raise SettingsError(f"there is no setting {name!r}; {self._advice(str(name), known)}")
            part, annotation = known[name]
            # A command line does not distinguish the word none from None: for a setting that is a word, it is the word.
            value = "none" if value is None and annotation is str else value
            parts.setdefault(part, {})[name] = convert_value(name, value, annotation)
        # All names of a part at once: rules that involve two settings are checked on the final values.
        return replace(self, model=self.model.with_parts(parts), train=replace(self.train, **parts.get("train", {})))

    def _advice(self, name: str, known: Iterable[str]) -> str:
        """Return what to do about a name that is no setting."""
        entry = registered_entry(self.model.name, self.model.import_path)
        if entry is not None and entry.kind == "module":
            reason = why_no_setting(entry.target, name)
            if reason is not None:
                return reason
        return did_you_mean(name, known, f"sdssm settings {self.model.name} lists them all")

    def parts(self) -> dict[str, Any]:
        """Return the objects that hold the settings, by the name of the part; one of them is "train"."""
        return {**self.model.parts(), "train": self.train}

    def values_by_name(self) -> dict[str, Any]:
        """Return all settings by name.

        >>> Settings().values_by_name()["state"]
        64
        """
        parts = self.parts()
        return {name: getattr(parts[part], name) for name, (part, _) in setting_names(self).items()}


def setting_names(settings: Settings) -> dict[str, tuple[str, Any]]:
    """Return all names that can be set, each with the part it belongs to and its annotation.

    No name occurs in two parts: a mixer or an option with such a name is refused (`models/train_settings.py`).
    """
    names: dict[str, tuple[str, Any]] = {}
    for part, owner in settings.parts().items():
        for name, annotation in setting_types(type(owner)).items():
            if part == "options" or name not in NOT_SETTINGS:
                names.setdefault(name, (part, annotation))
    return names


def resolve_settings(
    model: Any, preset_name: str, task: Task | str, values: Mapping[str, Any] | None = None
) -> Settings:
    """Return the settings of a preset for a model and a task, with some values changed.

    `model` is a name, an import path, or the class or function of someone else's model. The state size of an SD-SSM is
    chosen for the task, unless the preset or `values` state it: `state="auto"`, the default. A name does not say which
    machine it stands for: if the task is given by its name only, the size is 64.

    >>> resolve_settings("sd-ssm", "scale-free", get_task("random:100x4:0")).model.mixer.state
    128
    """
    entry = find_entry(model)
    base = get_preset(preset_name, entry.name, task.name if isinstance(task, Task) else task)
    changes = {**base, **(values or {})}
    if chooses_state_size(entry.name, changes):
        changes.pop("state", None)
        if isinstance(task, Task):
            changes["state"] = choose_state_size(task, changes.get("targets", "label")).size
    if changes.get("targets") == "state" and changes.get("centres") is None and isinstance(task, Task):
        changes["centres"] = centres_for(task)
    return Settings(model=default_settings(entry.name)).replace_values(changes)


def choose_preset(model: str, task: Task, train_length: int | None = None) -> str:
    """Return the preset that a model is trained with on a task if none is named.

    An SD-SSM has the preset "states" in two cases, and otherwise "scale-free":

    1. Labels hide states of the machine, and uniform strings do not cover it: neither its labels nor its strings say
       enough about the hidden states.
    2. The machine is too large for labels, and small enough for states: `state=auto` gives more than
       `LARGEST_FOR_LABELS` for its labels, and a direction for each of its states fits.

    >>> choose_preset("sd-ssm", get_task("a5")), choose_preset("sd-ssm", get_task("regex:(a|b|c)*ac*"))
    ('scale-free', 'scale-free')
    """
    if model != DEFAULT_MODEL:
        return default_preset(model)
    labels = task.minimal.labels
    hides_states = len(set(labels.tolist())) < len(labels)
    length = train_length or task.train_length
    if hides_states and _choose_sampling(task, length) == "covering":
        return "states"
    return "states" if needs_states(task) else DEFAULT_PRESET


def centres_for(task: Task) -> int:
    """Return how many centres a model has for the states of a task; few sizes, so that many tasks share an engine.

    >>> centres_for(get_task("d4")), centres_for(get_task("a5"))
    (64, 1024)
    """
    size = 64
    while size < MARGIN * task.minimal.n_states:  # as for the size of the state
        size *= 16
    return size


def chooses_state_size(model: str, settings: Mapping[str, Any]) -> bool:
    """Return whether the state size of a model with these settings is chosen for the task.

    >>> chooses_state_size("sd-ssm", {}), chooses_state_size("sd-ssm", {"state": 64}), chooses_state_size("lstm", {})
    (True, False, False)
    """
    return model == DEFAULT_MODEL and settings.get("state", AUTO) == AUTO


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The config of a run: all that is needed to repeat the training."""

    task: str
    digest: str  #: fingerprint of the task, to detect a change of it
    seed: int
    settings: Settings
    n_symbols: int
    n_classes: int
    train_length: int
    test_length: int = 500
    preset: str = DEFAULT_PRESET
    machines: tuple[str, str | None] | None = None  #: JSON of the machines of a task without a name in the library
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    begun: str = ""  #: time and process; only runs that were started together train side by side

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            check_between(name, getattr(self, name), least, most)

    @property
    def model(self) -> ModelSettings | ModuleSettings:
        return self.settings.model

    @property
    def train(self) -> TrainSettings:
        return self.settings.train

    @property
    def has_random_start(self) -> bool:
        """Whether its strings start in random states of the automaton, whose embeddings the model reads first."""
        return self.model.state_embedding is not None

    def to_json(self) -> dict[str, Any]:
        """Return the contents of config.json."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        return {**values, "versions": dict(self.versions), **settings_to_dict(self.settings)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the config that `to_json` has written."""
        for name in ("model", "train"):
            if not isinstance(data.get(name, {}), Mapping):
                raise RunError(f"{name} must be a JSON object, got {format_value(data[name])}")
        try:
            settings = _read_settings(data["model"], data["train"])
            types = {
                name: hint for name, hint in setting_types(cls).items() if name in data and name not in UNCONVERTED
            }
            others = {name: convert_value(name, data[name], hint) for name, hint in types.items()}
            machines = data.get("machines")
            return cls(
                settings=settings,
                machines=None if machines is None else _check_machines(machines),
                versions=dict(data.get("versions", {})),
                **others,
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, SdssmError):
                raise
            raise RunError(f"the config does not describe a run: {first_line(error, 120)}") from None

    def load_task(self) -> Task:
        """Return the task of the run; raise an error if its name now means another task.

        A machine that was read from a file is stored in the run: nothing outside of its folder is opened.
        """
        name = format_value(self.task)
        if self.machines is not None:
            machine, valid = (None if text is None else from_json(text) for text in self.machines)
            assert machine is not None
            task = Task(name=self.task, machine=machine, valid=valid)
        elif machine_files(self.task):
            raise RunError(
                f"the task of this run is the file {name}, which its {CONFIG_FILE} does not hold; restore the "
                f"{CONFIG_FILE}, or train again with sdssm train FILE"
            )
        else:
            try:
                task = get_library_task(self.task)
            except SdssmError as error:
                raise RunError(f"the task {name} of this run no longer exists: {error}") from None
        if task.digest != self.digest:
            raise RunError(
                f"the task {name} changed since this run was started (fingerprint {format_value(self.digest)}, now "
                f"{task.digest}); restore it or train again"
            )
        default_length = self.train_length if self.train.train_length is None else task.train_length
        return replace(task, train_length=default_length, test_length=self.test_length)

    def matches(self, other: RunConfig) -> bool:
        """Return whether it is the same training, ignoring the versions and when it was started."""
        return replace(self, versions={}, commit=None, begun="") == replace(other, versions={}, commit=None, begun="")


def _read_settings(model: Mapping[str, Any], train: Mapping[str, Any]) -> Settings:
    """Return the settings that a config holds; those of the catalogue are built once for all runs that share them."""
    if "options" in model or model.get("import_path") is not None:  # what they mean depends on what was imported
        return _build_settings(model, train)
    try:
        text = json.dumps([model, train])
    except (TypeError, ValueError, RecursionError):  # not from a file
        return _build_settings(model, train)
    return _build_settings_once(text)


@lru_cache(maxsize=256)  # most of the time to list runs was to convert the same values for each seed
def _build_settings_once(text: str) -> Settings:
    return _build_settings(*json.loads(text))


def _build_settings(model: Mapping[str, Any], train: Mapping[str, Any]) -> Settings:
    return Settings(model=build_model_settings(model), train=build_settings(TrainSettings, {**UNRECORDED, **train}))


def _check_machines(machines: Any) -> tuple[str, str | None]:
    """Return the JSON texts of the machine and of the machine of valid strings; raise an error if they are none."""
    texts = tuple(machines) if isinstance(machines, list | tuple) else ()
    if len(texts) != 2 or not isinstance(texts[0], str) or not isinstance(texts[1], str | None):
        raise RunError(f"machines must be the JSON texts of two machines, got {format_value(machines)}")
    return texts


def create_config(task: Task, seed: int, settings: Settings, preset_name: str, begun: str = "") -> RunConfig:
    """Return the config of a new run; it records which sampling "auto" stands for."""
    length = settings.train.train_length or task.train_length
    sampling = resolve_sampling(settings, task, length)
    settings = replace(settings, train=replace(settings.train, sampling=sampling))
    return RunConfig(
        task=task.name,
        digest=task.digest,
        seed=seed,
        settings=settings,
        n_symbols=task.n_symbols,
        n_classes=task.n_classes,
        train_length=length,
        test_length=task.test_length,
        preset=preset_name,
        machines=None if _is_in_library(task) else _machines_json(task),
        versions=versions(),
        commit=source_commit(),
        begun=begun,
    )


def resolve_sampling(settings: Settings, task: Task, length: int) -> str:
    """Return how the strings of a training up to a length are drawn: the setting, or what its "auto" stands for."""
    if settings.train.sampling != "auto":
        return settings.train.sampling
    # Strings that start in random states are uniform: every state is equally likely anyway.
    return "uniform" if settings.model.state_embedding is not None else _choose_sampling(task, length)


@lru_cache(maxsize=64)  # the seeds of a task ask one after the other
def _choose_sampling(task: Task, length: int) -> str:
    return choose_sampling(task, length).sampling


def _machines_json(task: Task) -> tuple[str, str | None]:
    return to_json(task.machine), None if task.valid is None else to_json(task.valid)


def _is_in_library(task: Task) -> bool:
    """Return whether the name alone defines the task on every machine; a file may be moved or changed."""
    try:
        return not _is_read_from_a_file(task.name) and get_task(task.name).digest == task.digest
    except (SdssmError, OSError, ValueError):
        return False


def _is_read_from_a_file(name: str) -> bool:
    """Return whether the machine of a name, or a factor of it, is read from a file."""
    return any(path.is_file() for path in machine_files(name))
