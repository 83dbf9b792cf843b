"""The weights of a model as plain arrays, in a file of numpy or in JSON."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sdssm.errors import ModelError
from sdssm.models import Classifier, TokenModel
from sdssm.models.names import tensors_for_file

#: Names in the file that are not weights.
SETTINGS, DESCRIPTION = "settings", "description"


def collect_arrays(model: TokenModel) -> dict[str, NDArray[Any]]:
    """Return the weights by their names in a weight file, and what follows from them.

    A single-layer SD-SSM has also `symbol_matrices` (V, N, N) and, with a query, `query_matrix` (N, N). If its state
    before the first symbol is not the weight `initial_state` itself, it is `first_state` (N,).

    >>> import sdssm
    >>> collect_arrays(sdssm.compile("parity"))["symbol_matrices"].tolist()
    [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]
    """
    with torch.no_grad():
        tensors = dict(tensors_for_file(model))
        matrices = model.symbol_matrices()
        if matrices is not None:
            tensors["symbol_matrices"] = matrices
        if isinstance(model, Classifier) and matrices is not None:
            if model.query is not None:
                tensors["query_matrix"] = model.symbol_parts().A[model.query]
            if model.first_state is not model.initial_state:
                tensors["first_state"] = model.first_state
    wide = (torch.bfloat16, torch.float16)  # numpy has no bfloat16, and JSON no 16-bit numbers
    arrays = {
        name: (value.float() if value.dtype in wide else value).detach().cpu().numpy()
        for name, value in tensors.items()
    }
    broken = next((name for name, value in arrays.items() if not np.isfinite(value).all()), None)
    if broken is not None:
        raise ModelError(f"{broken} of {model.name} is not finite; train it with a lower learning rate")
    return arrays


def to_npz(model: TokenModel, description: dict[str, Any]) -> bytes:
    """Return the bytes of an .npz file: all arrays, and `settings` and `description` as JSON."""
    texts = {SETTINGS: json.dumps(description["settings"]), DESCRIPTION: json.dumps(description)}
    arrays = collect_arrays(model)
    taken = next((name for name in texts if name in arrays), None)
    if taken is not None:
        raise ModelError(f"{model.name} has a weight called {taken!r}, which the file needs; rename it, or use json")
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays, **{name: np.array(text) for name, text in texts.items()})
    return file.getvalue()


def to_json_text(model: TokenModel, description: dict[str, Any]) -> str:
    """Return the description and all arrays as JSON: type, shape and nested lists of each."""
    tensors = {
        name: {"dtype": str(value.dtype), "shape": list(value.shape), "values": shorten(value).tolist()}
        for name, value in collect_arrays(model).items()
    }
    return json.dumps({**description, "tensors": tensors}, allow_nan=False) + "\n"


def shorten(values: NDArray[Any]) -> NDArray[Any]:
    """Return float32 values as float64 values with as few digits as possible, which are rounded to the same float32.

    >>> shorten(np.float32([0.1, 2.5])).tolist(), np.float32([0.1, 2.5]).tolist()
    ([0.1, 2.5], [0.10000000149011612, 2.5])
    """
    if values.dtype != np.float32:
        return values
    short = values.astype(str).astype(np.float64)
    return np.where(short.astype(np.float32) == values, short, values)
