"""Find run folders, name them, and find the steps from which they resume."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from sdssm.errors import CheckpointWarning, RunError, RunWarning, SettingsError
from sdssm.files import format_path
from sdssm.formatting import format_setting
from sdssm.models.catalogue import DEFAULT_MODEL, default_preset
from sdssm.models.settings import CONFIG_FILE
from sdssm.runs.comparison import WITHOUT_EFFECT, differing_values
from sdssm.runs.folder import RunFolder
from sdssm.runs.own_files import CHECKPOINTS, STATUS_FILE
from sdssm.runs.schema import Settings, choose_preset, chooses_state_size, resolve_settings
from sdssm.tasks import Task

#: Settings in the name of a folder are written out up to this many characters.
LONGEST_SUFFIX = 48


def find_runs(path: Path | str) -> list[RunFolder]:
    """Return the run in `path`, or else all runs below it, sorted by name with seed-2 before seed-10.

    Folders that cannot be read are left out with a warning; no run at all is an error.
    """
    path = Path(path)
    if not path.is_dir() or (path / CONFIG_FILE).exists():
        return [RunFolder.open(path)]
    runs, errors = [], list[RunError]()
    for folder, subfolders, files in os.walk(path):
        if STATUS_FILE in files and CHECKPOINTS in subfolders and CONFIG_FILE not in files:
            subfolders.clear()
            name = format_path(Path(folder))
            errors.append(RunError(f"{name} has checkpoints of a run, but its {CONFIG_FILE} is missing; restore it"))
        elif CONFIG_FILE in files:
            subfolders.clear()  # a run contains no other runs
            try:
                runs.append(RunFolder.open(folder))
            except RunError as error:
                errors.append(error)
    if not runs and len(errors) == 1:
        raise errors[0]
    for failure in errors:
        warnings.warn(f"{failure}; left out", RunWarning, stacklevel=2)
    if not runs:
        raise RunError(f"there is no run folder in {format_path(path)} or below; sdssm train TASK --out DIR makes one")
    return sorted(runs, key=lambda run: natural_sort_key(str(run.path)))


def natural_sort_key(text: str) -> list[tuple[str, int]]:
    """Return a sort key that orders numbers within names by their value.

    >>> sorted(["seed-10", "seed-2"], key=natural_sort_key)
    ['seed-2', 'seed-10']
    """
    return [(words, int(number or -1)) for words, number in re.findall(r"(\D*)(\d*)", text)]


def group_by_resume_step(runs: Sequence[RunFolder]) -> list[tuple[int, list[RunFolder]]]:
    """Return the steps from which runs of one shape resume, each with the runs that resume there.

    Runs that train side by side save their checkpoints one after the other. If they are killed in between, some runs
    are one checkpoint ahead of the others; all of them then resume from the newest step that all have, which is the
    newest step of at least one run. If there is no such step, they did not train together: each resumes from its own
    newest checkpoint, or from step 0 if it has none.
    """
    intact = [_intact_steps(run) for run in runs]
    shared = max(set.intersection(*intact), default=None)
    if shared is not None and any(shared == max(steps) for steps in intact):
        return [(shared, list(runs))]
    groups: dict[int, list[RunFolder]] = {}
    for run, steps in zip(runs, intact, strict=True):
        groups.setdefault(max(steps, default=0), []).append(run)
    return sorted(groups.items())


def _intact_steps(run: RunFolder) -> set[int]:
    """Return the steps whose checkpoints are not damaged."""
    intact, steps = set[int](), run.checkpoints()
    for step in steps:
        try:
            intact.add(run.load_checkpoint(step).step)
        except RunError as error:
            warnings.warn(f"{error}; using an older one", CheckpointWarning, stacklevel=3)
    if steps and not intact and run.checkpoints() != steps:  # another machine has just replaced them
        return _intact_steps(run)
    if steps and not intact:
        raise RunError(f"every checkpoint of {format_path(run.path)} is damaged; start again with --overwrite")
    return intact


def folder_name(task: str) -> str:
    """Return the name of a task as the name of a folder, without characters that have a meaning in paths.

    >>> folder_name("a5"), folder_name("regex:(ab)*"), folder_name("automata/my.json")
    ('a5', 'regex_(ab)_', 'automata_my.json')
    """
    return re.sub(r"[^\w.,()+=-]", "_", task).lstrip(".")[:100] or "_"


def unique_name(task: Task) -> str:
    """Return the name of a task; machines without a name get different ones, and so folders of their own."""
    return task.name if task.name != "machine" else f"machine-{task.digest[:8]}"


def default_folder(
    tasks: Sequence[Task | str], model: str, preset: str | None = None, settings: Mapping[str, Any] | None = None
) -> Path:
    """Return the folder of the runs of these tasks if the user gives none.

    It is runs/TASK, with the model, the preset and the settings appended if they are not those that are chosen for the
    tasks: trainings that differ have folders that differ. Many settings are written as a hash. A name stands for a task
    whose default settings are those of all tasks.

    >>> default_folder(["a5"], "sd-ssm").name, default_folder(["a5", "d4"], "lstm").name
    ('a5', 'a5+d4-lstm')
    >>> default_folder(["a5"], "sd-ssm", "paper", {"state": 32, "lr": 2e-5}).name  # the paper has this learning rate
    'a5-paper-state=32'
    """
    length = (settings or {}).get("train_length")
    chosen = [default_preset(model) if isinstance(task, str) else choose_preset(model, task, length) for task in tasks]
    presets = chosen if preset is None else [preset] * len(chosen)
    parts = ["+".join(folder_name(task if isinstance(task, str) else unique_name(task)) for task in tasks)]
    parts += [folder_name(model)] if model != DEFAULT_MODEL else []
    parts += [folder_name(presets[0])] if presets != chosen else []
    changed = dict[str, Any]()
    for task, preset_name in zip(tasks, presets, strict=True):
        values = dict(settings or {})
        if chooses_state_size(model, values):  # as it does without the setting
            values.pop("state", None)
        changed |= _changed_settings(resolve_settings(model, preset_name, task), values)
    if changed:
        text = "-".join(f"{name}={format_setting(value)}" for name, value in sorted(changed.items())).replace(" ", "")
        is_long = len(text) > LONGEST_SUFFIX or folder_name(text) != text
        parts.append(sha256(text.encode()).hexdigest()[:8] if is_long else text)
    return Path("runs") / "-".join(parts)


def _changed_settings(preset: Settings, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that change the training of a preset."""
    try:
        values = preset.replace_values(settings)
    except SettingsError:  # training refuses them, unless a variant has settings that make them valid
        return dict(settings)
    changed = differing_values(values.values_by_name(), preset.values_by_name())
    return {name: value for name, value in changed.items() if name not in WITHOUT_EFFECT}
