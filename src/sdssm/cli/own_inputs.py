"""No command overwrites a file that it reads: the file of a task, or one in the folder of the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from sdssm.cli.model_options import model_folders
from sdssm.errors import OutputError, SdssmError
from sdssm.files import format_path, read_regular_file


def check_own_inputs(
    outputs: Mapping[str, Path | None], *, folder: Path | None = None, task: str | None = None
) -> None:
    """Raise an error if a file that a command is to write is one that it reads; call it before anything is computed.

    Args:
        outputs: the files to write, by the options that name them; None for an option that is not given.
        folder: the folder of the run or saved model that the command reads, or one that contains it.
        task: the name of the task that is given, which may be the path of a file.
    """
    from sdssm.automata.library import machine_files

    folders = [] if folder is None else list(model_folders([folder]))
    names = [*([] if task is None else [task]), *(name for place in folders for name in _recorded_tasks(place))]
    for option, path in outputs.items():
        if path is None or not path.exists():
            continue
        if any(_is_same(path, file) for name in names for file in machine_files(name)):
            _refuse(option, path, "the file that the task was read from")
        if _is_file_of_model(path.name) and any(_is_same(path.parent, place) for place in folders):
            _refuse(option, path, "a file of the model that is read")


def _refuse(option: str, path: Path, what: str) -> None:
    other = format_path(path.with_name(f"{path.stem}-new{path.suffix}"))
    raise OutputError(
        f"{option} {format_path(path)} is {what}, and no command overwrites what it reads; choose another file, as in "
        f"{option} {other}"
    )


def _recorded_tasks(folder: Path) -> Iterator[str]:
    """Yield the name of the task that the folder of a run or of a saved model records."""
    from sdssm.models.model_folder import TASK_FILE
    from sdssm.models.settings import CONFIG_FILE

    for file, key in ((CONFIG_FILE, "task"), (TASK_FILE, "name")):
        with suppress(OSError, ValueError, RecursionError, SdssmError):
            data = json.loads(read_regular_file(folder / file))
            if isinstance(data, dict) and isinstance(data.get(key), str):
                yield data[key]


def _is_file_of_model(name: str) -> bool:
    from sdssm.models.model_folder import DESCRIPTIONS
    from sdssm.runs.own_files import OWN_FILES, RESULTS

    return any(fnmatch(name, pattern) for pattern in (*OWN_FILES, *RESULTS, *DESCRIPTIONS))


def _is_same(path: Path, other: Path) -> bool:
    with suppress(OSError, ValueError):
        return path.samefile(other)
    return False
