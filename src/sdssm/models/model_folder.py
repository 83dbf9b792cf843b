"""The folder of a saved model, and the task that is stored in it.

config.json          settings, number of symbols, number of classes
model.safetensors    the weights
task.json            the task, if it is known: its name, its machine with the names of the symbols, its valid strings
extraction.json      of a model that `sdssm.snap` built: the extraction and the certificate
README.md            of a model that `save_pretrained` wrote: its card, with evaluation.json and certificate.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sdssm.automata import from_json, to_json
from sdssm.checksums import FILE_CHECKSUM, ChecksumError, encode_json_with_checksum
from sdssm.errors import ModelError, OutputError, SdssmError
from sdssm.files import describe_file_error, format_path, read_regular_file, write_together
from sdssm.models.settings import CONFIG_FILE, WEIGHTS_FILE
from sdssm.tasks import Task

#: The file of the task of a saved model.
TASK_FILE = "task.json"
#: The file that `sdssm.snap` writes next to an exact model: the extraction and the certificate.
EVIDENCE_FILE = "extraction.json"
#: What `save_pretrained` writes next to a model: its evaluation, its certificate, and the model card.
EVALUATION_FILE, CERTIFICATE_FILE, CARD_FILE = "evaluation.json", "certificate.json", "README.md"
#: What every model card contains.
CARD_MARK = b"library_name: sdssm"
#: Files that describe only the model beside them.
DESCRIPTIONS = (TASK_FILE, EVIDENCE_FILE, EVALUATION_FILE, CERTIFICATE_FILE, CARD_FILE)


def read_model_config(folder: Path) -> dict[str, Any]:
    """Read the config.json of a folder; raise ModelError if it is missing, damaged or does not describe a model.

    The files of a saved model may be links to regular files, as in the cache of the Hugging Face Hub; those of a run
    may not, and `RunFolder.open` refuses them.
    """
    path = folder / CONFIG_FILE
    try:
        config, _ = FILE_CHECKSUM.verify(read_regular_file(path, follow_links=True))
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(
            f"{format_path(folder)} has no {CONFIG_FILE}; pass a folder that a model or a run was saved in"
        ) from None
    except OSError as error:
        raise ModelError(f"{format_path(path)} cannot be read: {describe_file_error(error)}") from None
    except ChecksumError as error:
        raise ModelError(f"{format_path(path)} is damaged and cannot be read: {error}{error.advice}") from None
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise ModelError(f"{path} does not describe a model; pass a folder that a model or a run was saved in")
    return config


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder was written by `TokenModel.save`, and not by a training run."""
    try:
        return "format" not in read_model_config(folder)
    except (ModelError, ValueError):  # not a model, or not a valid path
        return False


def check_model_folder_free(folder: Path, *, overwrite: bool = False, option: str = "overwrite=True") -> None:
    """Raise an error if saving a model would overwrite a run, a file of another program or, unasked, a model.

    `option` is what the caller writes to replace a model.
    """
    try:
        existing = [name for name in (CONFIG_FILE, WEIGHTS_FILE, TASK_FILE) if (folder / name).exists()]
        below = next((path.parent for path in folder.glob(f"*/{CONFIG_FILE}")), None)
    except (OSError, ValueError) as error:
        raise _write_error(folder, error) from None
    if below is not None:
        raise OutputError(
            f"{format_path(folder)} contains {format_path(below)}, a run or another model, which this one would hide; "
            "choose another folder"
        )
    if not existing:
        return
    try:
        config = read_model_config(folder)
    except ModelError:
        raise OutputError(
            f"{format_path(folder)} holds a {existing[0]} of another program; choose an empty or a new folder"
        ) from None
    if "format" in config:
        raise OutputError(
            f"{format_path(folder)} holds a run, which saving a model would overwrite; choose another folder"
        )
    if not overwrite:
        raise OutputError(
            f"{format_path(folder)} already holds a model; replace it with {option}, or choose another folder"
        )


def write_model_folder(
    folder: Path,
    config: dict[str, Any],
    weights: bytes,
    task: Task | None,
    *,
    overwrite: bool,
    descriptions: Mapping[str, bytes] | None = None,
) -> None:
    """Write the files of a model together; then remove what describes only the model that it replaces.

    Files in a folder that held no model before belong to someone else, and stay. `descriptions` are more files, by
    name.
    """
    check_model_folder_free(folder, overwrite=overwrite)
    replaces_model = is_model_folder(folder)
    files = {CONFIG_FILE: encode_json_with_checksum(config), WEIGHTS_FILE: weights, **(descriptions or {})}
    foreign = next((name for name in files if not replaces_model and (folder / name).exists()), None)
    if foreign is not None:
        raise OutputError(f"{format_path(folder)} holds another {foreign}; choose an empty or a new folder")
    if task is not None:
        files[TASK_FILE] = FILE_CHECKSUM.add(_task_to_json(task).encode()) + b"\n"
    try:
        outdated = _own_descriptions(folder) if replaces_model else ()
        folder.mkdir(parents=True, exist_ok=True)
        write_together({folder / name: data for name, data in files.items()})
        for name in outdated:
            if name not in files:
                (folder / name).unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise _write_error(folder, error) from None


def _own_descriptions(folder: Path) -> tuple[str, ...]:
    """Return the names of the files beside a model that are ours.

    Those that `save_pretrained` writes have names that a user may use as well: they are ours beside our model card.
    """
    card = folder / CARD_FILE
    has_card = card.exists() and CARD_MARK in read_regular_file(card, follow_links=True)
    return DESCRIPTIONS if has_card else (TASK_FILE, EVIDENCE_FILE)


def load_saved_task(folder: str | Path) -> Task | None:
    """Return the task that is stored with a saved model; None if there is none, as in older folders.

    >>> from tempfile import TemporaryDirectory
    >>> import sdssm
    >>> with TemporaryDirectory() as folder:
    ...     sdssm.compile("regex:(ab)*").save(folder)
    ...     task = load_saved_task(folder)
    >>> task.name, task.machine.symbols
    ('regex:(ab)*', ('a', 'b'))
    """
    path = Path(folder) / TASK_FILE
    if not path.exists() or not is_model_folder(Path(folder)):
        return None
    try:
        values, _ = FILE_CHECKSUM.verify(read_regular_file(path, follow_links=True))
        machine, valid = (
            None if values[key] is None else from_json(json.dumps(values[key])) for key in ("machine", "valid")
        )
        if machine is None:
            raise TypeError("the machine is null")
        lengths = {key: int(values[key]) for key in ("train_length", "test_length")}
        return Task(name=str(values["name"]), machine=machine, valid=valid, **lengths)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f": {error}" if isinstance(error, SdssmError) else ""
        raise ModelError(
            f"{format_path(path)} does not describe a task{reason}; remove it, or save the model again"
        ) from None


def _task_to_json(task: Task) -> str:
    machines = {"machine": to_json(task.machine).strip(), "valid": None if task.valid is None else to_json(task.valid)}
    parts = [
        f'"name": {json.dumps(task.name)}',
        f'"train_length": {task.train_length}',
        f'"test_length": {task.test_length}',
        *(f'"{key}": {"null" if text is None else text.strip()}' for key, text in machines.items()),
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _write_error(folder: Path, error: OSError | ValueError) -> OutputError:
    return OutputError(
        f"cannot write a model into {format_path(folder)}: {describe_file_error(error)}; choose another folder"
    )
