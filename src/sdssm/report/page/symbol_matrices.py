"""The matrix of each symbol of an SD-SSM, from its weights by numpy alone.

It is `Classifier.symbol_matrices` without torch: the softmax mixture of the dictionary, in the form of the setting
`transition` (`sdssm.layers.transition_forms`), with normalised columns. The weights have the names of a file, which
`docs/reference/models.md` lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdssm.errors import ModelError
from sdssm.layers.settings import SelectiveDenseSettings
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.settings import ModelSettings

Floats = NDArray[np.float32]
Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class SymbolMatrices:
    """What the symbols of an SD-SSM with one layer do to its state, in float32.

    Attributes:
        matrices: (V, N, N); reading symbol v turns the state x into `matrices[v] @ x`, before the input matrix and the
            division by the norm. With the query, its matrix is the last one.
        selection: (V, K), the weights of the dictionary, which sum to 1 for each symbol.
        dictionary: (K, N, N).
        first_state: (N,), the state before the first symbol.
        inputs: (V, D), the input vector of each symbol: one-hot, or its embedding.
    """

    matrices: Floats
    selection: Floats
    dictionary: Floats
    first_state: Floats
    inputs: Floats


def is_single_sd_ssm(model: ModelSettings | ModuleSettings) -> bool:
    """Return whether a model is an SD-SSM of the catalogue with one layer and nothing around it.

    >>> is_single_sd_ssm(ModelSettings()), is_single_sd_ssm(ModelSettings(layers=2))
    (True, False)
    """
    return (
        isinstance(model, ModelSettings)
        and isinstance(model.mixer, SelectiveDenseSettings)
        and (model.name, model.import_path, model.layers, model.blocks) == ("sd-ssm", None, 1, "bare")
    )


def compute_symbol_matrices(
    model: ModelSettings | ModuleSettings, weights: Weights, n_symbols: int, *, with_query: bool = False
) -> SymbolMatrices:
    """Compute the matrices of an SD-SSM with one layer; raise a `ModelError` if it is none or its weights do not fit.

    Args:
        model: the settings of the model, as in the config of its run.
        weights: the tensors of model.safetensors by name.
        n_symbols: V.
        with_query: whether the query of a model that has one counts as a further symbol.
    """
    if not is_single_sd_ssm(model):
        raise ModelError("only an SD-SSM with one layer has a matrix for each symbol")
    assert isinstance(model, ModelSettings) and isinstance(model.mixer, SelectiveDenseSettings)
    mixer = model.mixer
    size, n_matrices = mixer.state, mixer.dictionary
    dictionary = _tensor(weights, "dictionary", (n_matrices, size, size))
    inputs = input_vectors(model, weights, n_symbols, with_query=with_query)
    slopes = _tensor(weights, "selection.weight", (n_matrices, inputs.shape[1]))
    logits = inputs @ slopes.T + _tensor(weights, "selection.bias", (n_matrices,))
    if mixer.is_tempered:
        logits = logits / _tensor(weights, "temperature", ())
    selection = _softmax(logits, axis=1)
    exponent = None if mixer.column_norm is None else float(_tensor(weights, "column_norm", ()))
    if exponent is not None and not 1 <= exponent < np.inf:
        raise ModelError(f"column_norm is {exponent}; a norm needs a finite p of at least 1")
    form = _TransitionForm(mixer, weights, exponent)
    with np.errstate(all="ignore"):  # a diverged model has NaN weights, which are shown as such
        return SymbolMatrices(
            matrices=form.matrices(dictionary, selection),
            selection=selection,
            dictionary=dictionary,
            first_state=form.first_state(),
            inputs=inputs,
        )


class _TransitionForm:
    """The form of the matrices: `sdssm.layers.transition_forms` in numpy."""

    def __init__(self, mixer: SelectiveDenseSettings, weights: Weights, exponent: float | None) -> None:
        self.mixer, self.weights, self.exponent = mixer, weights, exponent
        self.constraint = _tensor(weights, "constraint", ()) if mixer.is_constrained and mixer.is_annealed else None
        self.temperature = _tensor(weights, "column_temperature", ()) if mixer.has_softmax_columns else None

    def matrices(self, dictionary: Floats, selection: Floats) -> Floats:
        """Return the matrices (V, N, N) of a dictionary (K, N, N) with weights (V, K)."""
        signed = _normalise_columns(_mix(dictionary, selection), self.exponent)
        if not self.mixer.is_constrained:
            return signed
        if self.temperature is not None:
            matrices = _softmax(_mix(dictionary, selection) / self.temperature, axis=1)
            if self.mixer.transition != "stochastic":
                matrices = _normalise_columns(matrices, self.exponent)
        else:
            size = dictionary.shape[-1]
            deviations = _mix(dictionary - dictionary.mean(1, keepdims=True), selection)
            scale = 1.0 if self.exponent is None else size ** (1 / self.exponent - 0.5)
            matrices = _normalise_columns(deviations, self.exponent) * np.float32(scale) + np.float32(1 / size)
        return matrices if self.constraint is None else signed + self.constraint * (matrices - signed)

    def first_state(self) -> Floats:
        """Return the state (N,) before the first symbol."""
        size = self.mixer.state
        if self.mixer.initial_state != "learned":
            return np.zeros(size, np.float32)
        start = _tensor(self.weights, "initial_state", (size,))
        if not self.mixer.is_constrained:
            return start
        if self.temperature is not None:
            state = _softmax(start / self.temperature, axis=0)
        else:
            state = (start - start.mean()) * np.float32(size**-0.5) + np.float32(1 / size)
        if self.constraint is None:
            return state
        signed: Floats = start * (np.linalg.norm(state) / np.linalg.norm(start))
        mixture: Floats = signed + self.constraint * (state - signed)
        return mixture


def input_vectors(model: ModelSettings, weights: Weights, n_symbols: int, *, with_query: bool = False) -> Floats:
    """Return the input vectors (V, D) of the symbols and, last, of the query if the model has one and it is wanted."""
    # One-hot inputs: the query is the last entry, and entries before it may be unused.
    width = model.width or n_symbols + model.query
    rows = [*range(n_symbols), *([width - 1] if with_query and model.query else [])]
    if model.embedding is None:
        return np.eye(width, dtype=np.float32)[rows]
    table = _tensor(weights, "embedding", (None, None))
    if len(table) <= max(rows):
        raise ModelError(f"embedding has {len(table)} rows, but {max(rows) + 1} are needed")
    return table[rows] * np.float32(model.embedding_scale)


def _tensor(weights: Weights, name: str, shape: tuple[int | None, ...]) -> Floats:
    """Return a tensor as float32; None in the shape is any size."""
    if name not in weights:
        raise ModelError(f"the weights have no tensor {name}")
    tensor = weights[name]
    has_rank = tensor.ndim == len(shape)
    fits = has_rank and all(want in (None, size) for want, size in zip(shape, tensor.shape, strict=True))
    if not fits or tensor.dtype.kind != "f":
        raise ModelError(f"the tensor {name} has shape {tensor.shape} and dtype {tensor.dtype}, which does not fit")
    return tensor.astype(np.float32)


def _mix(dictionary: Floats, selection: Floats) -> Floats:
    """Mix a dictionary (K, N, N) with weights (V, K) into (V, N, N)."""
    return np.tensordot(selection, dictionary, axes=1)


def _normalise_columns(matrices: Floats, exponent: float | None) -> Floats:
    if exponent is None:
        return matrices
    norms = (np.abs(matrices) ** np.float32(exponent)).sum(1, keepdims=True) ** np.float32(1 / exponent)
    normalised: Floats = matrices / norms
    return normalised


def _softmax(logits: Floats, axis: int) -> Floats:
    weights = np.exp(logits - logits.max(axis, keepdims=True))
    shares: Floats = weights / weights.sum(axis, keepdims=True)
    return shares
