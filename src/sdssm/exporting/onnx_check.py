"""Compare an exported ONNX model with the model in Python, on strings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sdssm.errors import MissingExtraError, ModelError
from sdssm.exporting.step_module import StepModule
from sdssm.extras import import_extra
from sdssm.models import Classifier, TokenModel
from sdssm.models.rescaled import RescaledModel

#: Number of strings and their length, for each comparison of whole strings.
SHAPES = ((1, 1), (2, 2), (3, 7), (8, 40), (5, 70), (2, 200))
#: The strings that are read symbol by symbol.
STEPPED = (3, 25)
#: Logits may differ by this much of the largest one.
TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class OnnxCheck:
    """The result of a comparison: how many strings, up to which length, and the largest difference of logits."""

    strings: int
    longest: int
    difference: float


def check_onnx(
    model: TokenModel, strings_file: bytes, step_file: bytes | None, step: StepModule | None
) -> OnnxCheck | None:
    """Compare logits with those of the model; None if onnxruntime is not installed.

    Raises ModelError if they differ.
    """
    try:
        runtime = import_extra("onnxruntime", "checking an ONNX model")
    except MissingExtraError:
        return None
    generator = torch.Generator().manual_seed(0)
    session = open_session(runtime, strings_file)
    most, differences, count, longest = model.longest, [], 0, 0
    for rows, length in dict.fromkeys((rows, min(length, most or length)) for rows, length in SHAPES):
        tokens = torch.randint(model.n_symbols, (rows, length), generator=generator)
        expected = python_logits(model, tokens)
        try:
            (actual,) = session.run(["logits"], {"tokens": tokens.numpy()})
        except Exception as error:  # of onnxruntime
            raise _fixed_length(model) from error
        if actual.shape != expected.shape and step is None:
            raise _fixed_length(model)
        differences.append(compare_logits(model.name, actual, expected, f"{rows} strings of length {length}"))
        count, longest = count + rows, max(longest, length)
    if step_file is not None and step is not None:
        differences.append(_check_step(model, open_session(runtime, step_file), step, generator))
        count += STEPPED[0]
    return OnnxCheck(strings=count, longest=longest, difference=max(differences))


def _fixed_length(model: TokenModel) -> ModelError:
    """Return the error for a model whose graph has the length of the strings that it was traced with."""
    return ModelError(
        f"{model.name} cannot be exported to ONNX for strings of any length: its graph is that of one length, as if it "
        "loops over the symbols; add advance(tokens, state), whose steps are exported instead"
    )


def open_session(runtime: Any, file: bytes) -> Any:
    """Return a session of onnxruntime on one CPU core, without remarks."""
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def python_logits(model: TokenModel, tokens: torch.Tensor) -> NDArray[Any]:
    """Return the logits that the ONNX model should give for tokens (B, L): (B, L, C), or (B, C) for whole strings.

    States that may overflow are rescaled, as in the evaluation.
    """
    with torch.no_grad():
        if isinstance(model, Classifier) and RescaledModel.supports(model):
            logits = RescaledModel(model).advance(tokens)[0]
        else:
            logits = model(tokens) if model.can_read_prefixes_at_once else model.last_logits(tokens)
    array: NDArray[Any] = logits.numpy()
    return array


def compare_logits(name: str, actual: NDArray[Any], expected: NDArray[Any], what: str) -> float:
    """Return the largest difference of logits; raise ModelError if it is too large.

    Logits that are not finite in Python, because a state overflows, are left out.
    """
    if actual.shape != expected.shape:
        raise ModelError(f"the ONNX model of {name} returns shape {actual.shape} for {what}, not {expected.shape}")
    finite = np.isfinite(expected).all(-1)
    actual, expected = actual[finite], expected[finite]
    if not len(expected):
        return 0.0
    allowed = TOLERANCE * max(1.0, float(np.abs(expected).max()))
    difference = float(np.abs(actual - expected).max())
    if not difference <= allowed:
        raise ModelError(
            f"the ONNX model of {name} differs from Python: logits of {what} differ by {difference:.2g}, more than "
            f"{allowed:.2g}"
        )
    return difference


def _check_step(model: TokenModel, session: Any, step: StepModule, generator: torch.Generator) -> float:
    """Read strings symbol by symbol, with the states that the step returns."""
    tokens = torch.randint(model.n_symbols, STEPPED, generator=generator)
    expected, logits = python_logits(model, tokens), []
    states: Sequence[NDArray[Any]] = [
        value.expand(STEPPED[0], *value.shape[1:]).contiguous().numpy() for value in step.initial
    ]
    for token in tokens.numpy().T:
        row, *states = session.run(None, {"token": token, **dict(zip(step.state_names, states, strict=True))})
        logits.append(row)
    return compare_logits(model.name, np.stack(logits, 1), expected, f"{STEPPED[0]} strings, symbol by symbol,")
