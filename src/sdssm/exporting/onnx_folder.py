"""The files of a model in ONNX: whole strings, one step, and what a reader needs to know."""

from __future__ import annotations

import json
from typing import Any

from torch import Tensor

from sdssm.exporting.formats import DESCRIPTION_FILE, MODEL_FILE, README_FILE, STEP_FILE
from sdssm.exporting.onnx_check import OnnxCheck, check_onnx
from sdssm.exporting.onnx_graph import OnnxModel, export_step, export_strings, scan_strings
from sdssm.exporting.onnx_readme import make_readme
from sdssm.exporting.step_module import StepModule, make_step_module
from sdssm.exporting.string_module import StringModule
from sdssm.models import TokenModel
from sdssm.tasks import chance_accuracy

#: Keys of the description that an ONNX file holds as well.
IN_METADATA = ("name", "n_symbols", "n_classes", "longest", "symbols", "labels", "evaluation", "certificate")


def to_onnx_files(model: TokenModel, description: dict[str, Any]) -> tuple[dict[str, bytes], OnnxCheck | None]:
    """Return the files of the ONNX format by name, and how they compare with Python, if that could be checked."""
    step = make_step_module(model) if model.is_recurrent else None
    graphs: dict[str, OnnxModel] = {}
    if step is None:
        graphs[MODEL_FILE] = export_strings(StringModule(model))
    else:
        graphs[STEP_FILE] = export_step(step)
        graphs[MODEL_FILE] = scan_strings(graphs[STEP_FILE], step.initial, step.state_names, model.n_classes)
    for graph in graphs.values():
        _add_metadata(graph, description)
    files = {name: graph.SerializeToString() for name, graph in graphs.items()}
    check = check_onnx(model, files[MODEL_FILE], files.get(STEP_FILE), step)
    full = {**description, "files": _describe_files(model, step), "checked": None if check is None else vars(check)}
    files[DESCRIPTION_FILE] = (json.dumps(full, indent=1, allow_nan=False) + "\n").encode()
    files[README_FILE] = make_readme(full).encode()
    return files, check


def _add_metadata(graph: OnnxModel, description: dict[str, Any]) -> None:
    graph.producer_name = "sdssm"
    graph.producer_version = description["written_by"].split()[-1]
    values = {key: description[key] for key in IN_METADATA}
    values["task"] = None if description["task"] is None else description["task"]["name"]
    values["chance"] = chance_accuracy(description["n_classes"])
    for key, value in values.items():
        if value is not None:
            entry = graph.metadata_props.add()
            entry.key, entry.value = f"sdssm.{key}", value if isinstance(value, str) else json.dumps(value)


def _describe_files(model: TokenModel, step: StepModule | None) -> dict[str, Any]:
    """Return the inputs and outputs of each file: their names, types and shapes, and the initial states."""
    kind = "float32" if step is None else str(step.initial[0].dtype).removeprefix("torch.")
    per_prefix = model.can_read_prefixes_at_once
    shape: list[str | int] = ["batch", "length", model.n_classes] if per_prefix else ["batch", model.n_classes]
    files: dict[str, Any] = {
        MODEL_FILE: {
            "inputs": {"tokens": _tensor("int64", ["batch", "length"])},
            "outputs": {"logits": _tensor(kind, shape)},
        }
    }
    if step is None:
        return files
    names = dict(zip(step.state_names, step.initial, strict=True))
    files[STEP_FILE] = {
        "inputs": {"token": _tensor("int64", ["batch"]), **{name: _state(value) for name, value in names.items()}},
        "outputs": {
            "logits": _tensor(kind, ["batch", model.n_classes]),
            **{f"next_{name}": _state(value) for name, value in names.items()},
        },
        "initial_state": {name: value[0].tolist() for name, value in names.items()},
    }
    return files


def _tensor(kind: str, shape: list[str | int]) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape}


def _state(value: Tensor) -> dict[str, Any]:
    return _tensor(str(value.dtype).removeprefix("torch."), ["batch", *value.shape[1:]])
