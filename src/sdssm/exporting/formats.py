"""The formats of `export`, and where a file is written by default. This module imports no torch."""

from __future__ import annotations

from pathlib import Path

from sdssm.errors import UnknownNameError, did_you_mean

#: The formats by name, with what each one is.
FORMATS = {
    "onnx": "a folder with the model for whole strings and, if it has a state, for one step (needs sdssm[onnx])",
    "npz": "plain arrays for numpy, in one file",
    "json": "plain lists for any language, in one file",
}
#: The files of the ONNX format in their folder.
MODEL_FILE, STEP_FILE, DESCRIPTION_FILE, README_FILE = "model.onnx", "step.onnx", "model.json", "README.md"


def check_format(name: str) -> str:
    """Return the name of a format, or raise an error that suggests one.

    >>> check_format("onxx")
    Traceback (most recent call last):
    sdssm.errors.UnknownNameError: there is no format 'onxx'; did you mean 'onnx'?
    """
    if name not in FORMATS:
        raise UnknownNameError(f"there is no format {name!r}; {did_you_mean(str(name), FORMATS)}")
    return name


def default_path(folder: Path, format_name: str) -> Path:
    """Return where the model of a folder is exported to by default.

    >>> default_path(Path("runs/a5/seed-0"), "npz").as_posix()
    'runs/a5/seed-0/export/model.npz'
    """
    return folder / "export" / ("onnx" if format_name == "onnx" else f"model.{format_name}")
