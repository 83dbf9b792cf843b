"""Reading the config.json of a run folder, with an error that says what a folder is if it is not a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sdssm.errors import RunError, SdssmError
from sdssm.files import describe_file_error, format_path, similar_path
from sdssm.models.settings import CONFIG_FILE
from sdssm.runs.disk import read_json
from sdssm.runs.schema import RunConfig

#: The newest format of run folders that this version reads, as written into config.json.
FORMAT = 1
#: Where trainings are stored by default.
RUNS_FOLDER = Path("runs")


def read_config(path: Path) -> RunConfig:
    """Return the config of the run in a folder; raise a RunError if it is damaged, or if the folder is no run."""
    name = format_path(path)
    try:
        is_folder, has_config = path.is_dir(), (path / CONFIG_FILE).exists()
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {name}: {describe_file_error(error)}") from None
    if is_folder and not has_config:
        raise RunError(
            f"{name} is not a run folder: it has no {CONFIG_FILE}; sdssm runs lists those in the folder runs"
        )
    if path.is_file():
        raise RunError(f"{name} is a file; pass the folder that it is in")
    if not is_folder:
        similar = similar_path(path)
        if similar is not None:
            raise RunError(f"there is no folder {name}; did you mean {format_path(similar)}?")
        if not RUNS_FOLDER.is_dir():
            both = name if path == RUNS_FOLDER else f"{name}, and no folder {RUNS_FOLDER}"
            raise RunError(f"there is no folder {both} yet; sdssm train parity --steps 400 makes one")
        raise RunError(f"there is no folder {name}; sdssm runs lists those in the folder runs")
    data = read_json(path / CONFIG_FILE)
    version = data.pop("format", None) if isinstance(data, dict) else None
    if version is None and isinstance(data, dict) and isinstance(data.get("model"), dict):
        raise RunError(f"{name} holds a saved model and no run; sdssm evaluate {name} measures it")
    if not isinstance(version, int):
        raise RunError(
            f"{name} is not a run folder: its {CONFIG_FILE} is not that of a run; "
            "sdssm runs lists those in the folder runs"
        )
    if version > FORMAT:
        raise RunError(
            f"{name} was written by {_writer_name(data)} in format {version}; this version reads formats up to "
            f"{FORMAT}: install a newer sdssm"
        )
    try:
        return RunConfig.from_json(data)
    except SdssmError as error:
        raise RunError(f"{format_path(path / CONFIG_FILE)}: {error}") from None


def _writer_name(data: dict[str, Any]) -> str:
    """Return the program and version that wrote a config."""
    versions = data.get("versions")
    version = versions.get("sdssm") if isinstance(versions, dict) else None
    return f"sdssm {version}" if isinstance(version, str) and version.isprintable() else "another sdssm"
