"""`export`: write a model in a format that other programs read."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from sdssm.errors import ModelError, OutputError, RunError
from sdssm.exporting.arrays import to_json_text, to_npz
from sdssm.exporting.description import describe_model
from sdssm.exporting.formats import STEP_FILE, check_format, default_path
from sdssm.exporting.onnx_check import OnnxCheck
from sdssm.exporting.onnx_folder import to_onnx_files
from sdssm.files import describe_file_error, format_path, write_together
from sdssm.models import TokenModel, wrap_module
from sdssm.runs import RunFolder, load
from sdssm.runs.single import RunSource, find_model, folder_path, only_run
from sdssm.tasks import Task, get_task


@dataclass(frozen=True, kw_only=True)
class ExportedModel:
    """What `export` wrote: the files, and for ONNX how they compare with Python (None: not checked)."""

    format: str
    files: tuple[Path, ...]
    name: str
    task: str | None
    check: OnnxCheck | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        check = None if self.check is None else vars(self.check)
        values = {"format": self.format, "model": self.name, "task": self.task}
        return {**values, "files": [str(path) for path in self.files], "checked": check}


def export(
    model: nn.Module | RunSource,
    path: str | Path | None = None,
    *,
    format: str = "onnx",  # noqa: A002  # the option is called so
    task: str | Task | None = None,
    overwrite: bool = False,
    trust: bool = False,
) -> ExportedModel:
    """Write a model in a format that other programs read; nothing is written if that fails.

    Args:
        model: a model, any other module (then `task` is needed), a run, or the folder of a run or of a saved model.
        path: a folder for "onnx", a file for "npz" and "json"; default: `export/` in the folder of the model.
        format: "onnx", "npz" or "json"; docs/how-to/export.md describes them.
        task: the task, if the model does not know it. It names symbols and labels.
        overwrite: replace files that exist.
        trust: import the code of a model that is not part of this package, as its folder names it.

    >>> from tempfile import TemporaryDirectory
    >>> import sdssm
    >>> with TemporaryDirectory() as folder:
    ...     exported = export(sdssm.compile("parity"), Path(folder) / "parity.npz", format="npz")
    ...     exported.files[0].name, exported.task
    ('parity.npz', 'parity')
    """
    check_format(format)
    target = _find_target(model, path, format)
    _check_free(target, format, overwrite)
    loaded = _find_model(model, task, trust=trust)
    known = loaded.task if task is None else get_task(task)
    if known is not None and (known.n_symbols, known.n_classes) != (loaded.n_symbols, loaded.n_classes):
        raise ModelError(
            f"{loaded.name} has {loaded.n_symbols} symbols and {loaded.n_classes} classes, but {known.name} has "
            f"{known.n_symbols} and {known.n_classes}; pass the task of the model"
        )
    files, check = _encode(loaded, known, target, format)
    _write(target, files)
    return ExportedModel(
        format=format,
        files=tuple(files),
        name=loaded.name,
        task=None if known is None else known.name,
        check=check,
    )


def _find_target(source: Any, path: str | Path | None, format_name: str) -> Path:
    """Return where to write: the path of the caller, or a place in the folder of the model."""
    if path is not None:
        if not str(path):
            raise OutputError("the path is empty; pass the file or folder to write")
        return Path(path)
    if isinstance(source, nn.Module) or find_model(source) is not None:
        raise OutputError("a model has no folder to write into; pass a path, as in export(model, 'a5-onnx')")
    if isinstance(source, str | Path) and (folder_path(source) / "config.json").exists():
        return default_path(Path(source), format_name)
    return default_path(only_run(source).path, format_name)


def _find_model(source: Any, task: str | Task | None, *, trust: bool) -> TokenModel:
    """Return the model of a source on the CPU, ready to predict."""
    model = find_model(source)
    if model is None and isinstance(source, nn.Module):
        if task is None:
            raise ModelError(
                f"{type(source).__name__} alone does not say how many symbols and classes it has; pass task=, as in "
                "export(module, path, task='a5')"
            )
        sizes = get_task(task)
        model = wrap_module(source, sizes.n_symbols, sizes.n_classes)
    if model is None:
        if not isinstance(source, str | Path | RunFolder | list | tuple):
            raise RunError(f"{type(source).__name__} holds no model; pass a model, a run, or the folder of either")
        return load(source, trust=trust).eval()
    if model.device.type == "cpu" and not model.training:
        return model
    return copy.deepcopy(model).to("cpu").eval()  # the caller's model stays where it is, and in its mode


def _encode(
    model: TokenModel, task: Task | None, target: Path, format_name: str
) -> tuple[dict[Path, bytes], OnnxCheck | None]:
    """Return the bytes of each file to write."""
    description = describe_model(model, task)
    if format_name == "npz":
        return {target: to_npz(model, description)}, None
    if format_name == "json":
        return {target: to_json_text(model, description).encode()}, None
    files, check = to_onnx_files(model, description)
    return {target / name: data for name, data in files.items()}, check


def _check_free(target: Path, format_name: str, overwrite: bool) -> None:
    """Raise an error if the target exists and may not be replaced, or is of the wrong kind."""
    try:
        if format_name == "onnx" and target.exists() and not target.is_dir():
            raise OutputError(f"{format_path(target)} is a file, but ONNX needs a folder; choose another path")
        if format_name != "onnx" and target.is_dir():
            file = target / f"model.{format_name}"
            raise OutputError(f"{format_path(target)} is a folder; give a file, such as {format_path(file)}")
        is_taken = any(target.iterdir()) if target.is_dir() else target.exists()
    except OutputError:  # which is a ValueError too
        raise
    except (OSError, ValueError) as error:
        raise OutputError(f"cannot write {format_path(target)}: {describe_file_error(error)}") from None
    if is_taken and not overwrite:
        what = "exists and is not empty" if target.is_dir() else "exists"
        raise OutputError(
            f"{format_path(target)} {what}; pass overwrite=True, or choose another path",
            shell=f"{format_path(target)} {what}; add --overwrite, or choose another --out",
        )


def _write(target: Path, files: Mapping[Path, bytes]) -> None:
    """Write all files, or none."""
    try:
        for folder in {path.parent for path in files}:
            folder.mkdir(parents=True, exist_ok=True)
        write_together(files)
        if target.is_dir() and target / STEP_FILE not in files:  # of a model that was there before
            (target / STEP_FILE).unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write {format_path(target)}: {describe_file_error(error)}; choose another path"
        ) from None
