"""ONNX graphs of a model: one step with its states, and whole strings.

The recurrence over a string is ONNX's own loop, `Scan`, around the graph of one step. So strings of any length can be
read, which an unrolled graph could not do.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from sdssm.errors import ModelError, first_line
from sdssm.exporting.real_program import RealProgram
from sdssm.exporting.step_module import StepModule
from sdssm.exporting.string_module import StringModule
from sdssm.extras import import_extra

#: The version of ONNX's operators: the oldest that torch's exporter writes.
OPSET = 18
#: Rows of the examples that a model is traced with.
TRACED_ROWS = 4
#: What torch's exporter says of an operator that it cannot translate.
UNSUPPORTED = ("No ONNX function found", "No decompositions registered")
#: A graph or model of the package `onnx`, which has no types.
OnnxModel = Any


def export_step(module: StepModule) -> OnnxModel:
    """Return the ONNX model of one step: token (B,), states -> logits (B, C), next states."""
    token = torch.arange(TRACED_ROWS) % module.model.n_symbols
    states = [value.expand(TRACED_ROWS, *value.shape[1:]).contiguous() for value in module.initial]
    names = module.state_names
    return _translate(
        module,
        (token, *states),
        inputs={"token": ["batch"], **_state_shapes(names, module.initial)},
        outputs={
            "logits": ["batch", module.model.n_classes],
            **_state_shapes([f"next_{name}" for name in names], module.initial),
        },
        dynamic=[{0: Dim.AUTO}] * (1 + len(states)),
        name=module.model.name,
    )


def export_strings(module: StringModule) -> OnnxModel:
    """Return the ONNX model of a model without a state: tokens (B, L) -> logits (B, L, C) or (B, C)."""
    model = module.model
    index = torch.arange(TRACED_ROWS * module.traced_length) % model.n_symbols
    output: list[str | int] = (
        ["batch", "length", model.n_classes] if module.reads_prefixes else ["batch", model.n_classes]
    )
    return _translate(
        module,
        (index.reshape(TRACED_ROWS, module.traced_length),),
        inputs={"tokens": ["batch", "length"]},
        outputs={"logits": output},
        dynamic=[{0: Dim.AUTO, 1: Dim.AUTO}],
        name=model.name,
    )


def scan_strings(step: OnnxModel, initial: Sequence[Tensor], names: Sequence[str], n_classes: int) -> OnnxModel:
    """Return the ONNX model of whole strings, tokens (B, L) -> logits (B, L, C), from that of one step."""
    onnx = _import_onnx()
    helper, types = onnx.helper, onnx.TensorProto
    body_inputs = {value.name: value for value in step.graph.input}
    outputs = {value.name: value for value in step.graph.output}
    body = helper.make_graph(
        list(step.graph.node),
        "step",
        [*(body_inputs[name] for name in names), body_inputs["token"]],
        [*(outputs[f"next_{name}"] for name in names), outputs["logits"]],
    )
    constants, nodes = [], [helper.make_node("Shape", ["tokens"], ["rows"], start=0, end=1)]
    for name, value in zip(names, initial, strict=True):
        constants.append(onnx.numpy_helper.from_array(value.cpu().numpy(), f"initial_{name}"))
        sizes = torch.tensor(value.shape[1:], dtype=torch.int64).numpy()
        constants.append(onnx.numpy_helper.from_array(sizes, f"sizes_{name}"))
        nodes.append(helper.make_node("Concat", ["rows", f"sizes_{name}"], [f"shape_{name}"], axis=0))
        nodes.append(helper.make_node("Expand", [f"initial_{name}", f"shape_{name}"], [f"first_{name}"]))
    nodes.append(
        helper.make_node(
            "Scan",
            [*(f"first_{name}" for name in names), "tokens"],
            [*(f"final_{name}" for name in names), "all_logits"],
            body=body,
            num_scan_inputs=1,
            scan_input_axes=[1],
            scan_output_axes=[1],
        )
    )
    nodes.append(helper.make_node("Identity", ["all_logits"], ["logits"]))
    kind = outputs["logits"].type.tensor_type.elem_type
    graph = helper.make_graph(
        nodes,
        "strings",
        [helper.make_tensor_value_info("tokens", types.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("logits", kind, ["batch", "length", n_classes])],
        [*step.graph.initializer, *constants],
    )
    model = helper.make_model(graph, opset_imports=list(step.opset_import), functions=list(step.functions))
    model.ir_version = step.ir_version
    onnx.checker.check_model(model)
    return model


def _translate(
    module: nn.Module,
    example: tuple[Tensor, ...],
    *,
    inputs: dict[str, list[str | int]],
    outputs: dict[str, list[str | int]],
    dynamic: list[dict[int, Any]],
    name: str,
) -> OnnxModel:
    """Trace a module, and translate it to ONNX with these names and shapes of inputs and outputs."""
    onnx = _import_onnx()
    import_extra("onnxscript", "export to ONNX")  # torch's exporter needs it
    nested = (dynamic[0], tuple(dynamic[1:])) if len(example) > 1 else (dynamic[0],)
    try:
        with _quiet(), torch.no_grad():
            traced = torch.export.export(module, example, dynamic_shapes=nested, strict=False)
            real = torch.export.export(RealProgram(traced), example, dynamic_shapes=(tuple(dynamic),), strict=False)
            program = torch.onnx.export(
                real,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=list(outputs),
            )
            assert program is not None
            model = program.model_proto
    except ModelError:
        raise
    except Exception as error:  # of torch's exporter, or of someone else's module
        raise ModelError(f"{name} cannot be exported to ONNX: {_reason(error)}") from error
    _clean(onnx, model, inputs, outputs)
    onnx.checker.check_model(model)
    return model


def _clean(
    onnx: Any, model: OnnxModel, inputs: dict[str, list[str | int]], outputs: dict[str, list[str | int]]
) -> None:
    """State the shapes of inputs and outputs, and remove what refers to the source code on this machine."""
    graph = model.graph
    # A size that was constant while tracing may vary in ONNX, as the length of nn.GRU does.
    del graph.value_info[:]
    for values, shapes in ((graph.input, inputs), (graph.output, outputs)):
        for value in values:
            kind = value.type.tensor_type.elem_type
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kind, shapes[value.name]))
    for part in (model, graph, *graph.node, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


def _state_shapes(names: Sequence[str], states: Sequence[Tensor]) -> dict[str, list[str | int]]:
    return {name: ["batch", *value.shape[1:]] for name, value in zip(names, states, strict=True)}


def _import_onnx() -> Any:
    onnx = import_extra("onnx", "export to ONNX")
    import_extra("onnx.numpy_helper", "export to ONNX")
    return onnx


def _reason(error: BaseException) -> str:
    """Return why a model cannot be exported: the operator that ONNX lacks, or the first line of the error."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        chain.append(cause)
        cause = cause.__cause__
    for part in reversed(chain):
        if not any(text in str(part) for text in UNSUPPORTED):
            continue
        operator = re.search(r"target=torch\.ops\.([\w.]+)|OpOverload\(op='([\w.]+)'", str(part))
        if operator is not None:
            return f"ONNX has no operator for torch's {operator[1] or operator[2]}"
    return f"{type(chain[-1]).__name__}: {first_line(chain[-1], 200)}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Show no remarks of torch's exporter, such as that torchvision is not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
