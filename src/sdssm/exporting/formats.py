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


def format_of_path(path: Path | None) -> str:
    """Return the format that the name of a file asks for; a name without a suffix is a folder, for ONNX.

    >>> format_of_path(Path("a5.npz")), format_of_path(Path("a5-v1.2")), format_of_path(None)
    ('npz', 'onnx', 'onnx')
    >>> format_of_path(Path("a5.pt2"))
    Traceback (most recent call last):
    sdssm.errors.UnknownNameError: a5.pt2 has the suffix of no format; the formats are onnx (a folder), npz, json
    """
    suffix = "" if path is None else path.suffix[1:]
    if not suffix[:1].isalpha():  # none, or the number of a version
        return "onnx"
    if suffix not in FORMATS:
        names = ", ".join("onnx (a folder)" if name == "onnx" else name for name in FORMATS)
        raise UnknownNameError(f"{path} has the suffix of no format; the formats are {names}")
    return suffix


def default_path(folder: Path, format_name: str) -> Path:
    """Return where the model of a folder is exported to by default.

    >>> default_path(Path("runs/a5/seed-0"), "npz").as_posix()
    'runs/a5/seed-0/export/model.npz'
    """
    return folder / "export" / ("onnx" if format_name == "onnx" else f"model.{format_name}")
