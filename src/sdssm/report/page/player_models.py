"""The models that the playground runs in the browser, as `PlayerModel` of web/src/data.ts.

A model is a recurrence, a LayerNorm and a readout. Everything that depends on the symbol alone is computed here, so
that the browser keeps one row, or one matrix, for each symbol and, last, for the query if the model has one:

    sd-ssm             x = A[v] x + drive[v], with `rescale` over its norm; features x + skip[v]
    rnn                x = relu(recurrent x + drive[v])
    lstm               the gates are recurrent h + drive[v]; the state is h, then c
    complex-diagonal   x = a[v] x + drive[v], entrywise; real parts, then imaginary parts
    machine            a one-hot state, moved by a transition table; the logit of the state's output is 1

`web/src/player/models.ts` runs them. A model with other settings is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sdssm.automata import Machine
from sdssm.errors import ModelError
from sdssm.layers.settings import ComplexDiagonalSettings, LstmSettings, RnnSettings, SelectiveDenseSettings
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.settings import ModelSettings
from sdssm.report.page.packing import pack_array
from sdssm.report.page.page_types import PlayerModel
from sdssm.report.page.symbol_matrices import Weights, compute_symbol_matrices, input_vectors

Tensors = dict[str, np.ndarray]
#: The epsilon of `torch.nn.LayerNorm`.
EPSILON = 1e-5
#: The path to the mixer of a model with one layer, which an SD-SSM leaves out in its file.
MIXER = "layers.0.mixer."


def why_not_playable(model: ModelSettings | ModuleSettings) -> str | None:
    """Return why the browser cannot run a model with these settings; None if it can.

    >>> why_not_playable(ModelSettings()), why_not_playable(ModelSettings(layers=2))
    (None, 'the playground runs models of one layer, and this has 2')
    """
    if not isinstance(model, ModelSettings) or model.import_path is not None:
        return "it is a model of your own, and its code is in Python"
    if model.name not in RECURRENCES:
        return f"the playground runs {', '.join(RECURRENCES)}, and this is {model.name}"
    if model.layers != 1:
        return f"the playground runs models of one layer, and this has {model.layers}"
    # The last layer of these blocks is the mixer alone; last-bare has LayerNorm before it.
    if model.blocks not in ("bare", "mlp", "last-bare") or (model.name, model.blocks) == ("sd-ssm", "last-bare"):
        return f"the playground runs layers without a residual block, and the block is {model.blocks}"
    if model.state_embedding is not None:
        return "its strings start in random states of the automaton"
    if getattr(model.mixer, "initial_state", None) == "given":
        return "its initial state is passed with each string"
    return None


def make_player_model(
    model: ModelSettings | ModuleSettings, weights: Weights, n_symbols: int, n_classes: int
) -> PlayerModel:
    """Return a trained model for the browser; raise a `ModelError` if it cannot run there.

    Args:
        model: the settings of the model, as in the config of its run.
        weights: the tensors of model.safetensors by name.
        n_symbols: the number of symbols of the task.
        n_classes: the number of classes of the task.
    """
    reason = why_not_playable(model)
    if reason is not None:
        raise ModelError(reason)
    assert isinstance(model, ModelSettings)
    try:
        tensors = RECURRENCES[model.name](model, weights, n_symbols) | _readout_tensors(model, weights, n_classes)
    except ModelError:
        raise
    except (KeyError, ValueError, IndexError) as error:
        problem = f"there is no tensor {error}" if isinstance(error, KeyError) else str(error)
        raise ModelError(f"the weights do not fit the config: {problem}") from None
    _check_shapes(model, tensors, n_symbols + model.query, n_classes)
    options: dict[str, str | float | bool | None] = {
        "classes": n_classes,
        "query": model.query,
        "rescale": bool(getattr(model.mixer, "rescale", False)),
        "norm": model.norm != "none",
        "readout": model.readout,
        "epsilon": EPSILON,
    }
    packed = {name: pack_array(tensor, "float32") for name, tensor in tensors.items()}
    return {"kind": model.name, "options": options, "tensors": packed}


def make_machine_model(machine: Machine, n_classes: int) -> PlayerModel:
    """Return the exact model of a machine for the browser: what `sdssm snap` compiles from it."""
    return {
        "kind": "machine",
        "options": {"classes": n_classes, "start": machine.start},
        "tensors": {"table": pack_array(machine.table, "int32"), "outputs": pack_array(machine.outputs, "int32")},
    }


def _check_shapes(model: ModelSettings, tensors: Tensors, n_inputs: int, n_classes: int) -> None:
    """Raise a `ModelError` unless all tensors fit each other; the browser does not check them."""
    state = len(tensors["start"])
    size = state // 2 if model.name == "lstm" else state  # the width of the features
    gates = 4 * size if model.name == "lstm" else size
    inner = model.hidden if model.readout == "mlp" else size
    rows = len(tensors.get("readout.centre_labels", range(n_classes)))
    shapes: dict[str, tuple[int, ...]] = {
        "A": (n_inputs, size, size),
        "a": (n_inputs, size),
        "drive": (n_inputs, gates),
        "skip": (n_inputs, size),
        "recurrent": (gates, size),
        "start": (state,),
        "norm.weight": (size,),
        "norm.bias": (size,),
        "readout.weight": (rows, inner),
        "readout.bias": (rows,),
        "readout.hidden.weight": (inner, size),
        "readout.hidden.bias": (inner,),
        "readout.projection": (size, size),
        "readout.scale": (),
        "readout.centre_labels": (rows,),
    }
    for name, tensor in tensors.items():
        if tensor.shape != shapes[name]:
            raise ModelError(f"the weights do not fit the config: {name} has shape {tensor.shape}, not {shapes[name]}")


def _sd_ssm_tensors(model: ModelSettings, weights: Weights, n_symbols: int) -> Tensors:
    assert isinstance(model.mixer, SelectiveDenseSettings)
    symbols = compute_symbol_matrices(model, weights, n_symbols, with_query=True)
    tensors: Tensors = {"A": symbols.matrices, "start": symbols.first_state}
    if model.mixer.input_matrix:
        tensors["drive"] = symbols.inputs @ weights["input_matrix"].T
    if model.mixer.skip:
        tensors["skip"] = symbols.inputs @ weights["skip"].T
    return tensors


def _recurrent_tensors(model: ModelSettings, weights: Weights, n_symbols: int) -> Tensors:
    assert isinstance(model.mixer, RnnSettings | LstmSettings)
    inputs, recurrent = _mixer_inputs(model, weights, n_symbols), weights[f"{MIXER}recurrent_weight"]
    bias = weights[f"{MIXER}input_bias"] + weights[f"{MIXER}recurrent_bias"]
    is_learned, vectors = model.mixer.initial_state == "learned", 2 if model.name == "lstm" else 1
    return {
        "drive": inputs @ weights[f"{MIXER}input_weight"].T + bias,
        "recurrent": recurrent,
        "start": weights[f"{MIXER}initial_state"] if is_learned else np.zeros(vectors * recurrent.shape[1]),
    }


def _complex_diagonal_tensors(model: ModelSettings, weights: Weights, n_symbols: int) -> Tensors:
    assert isinstance(model.mixer, ComplexDiagonalSettings)
    inputs, phase = _mixer_inputs(model, weights, n_symbols), weights[f"{MIXER}phase"]
    if model.mixer.generator == "joint":
        raw = _mlp(inputs, weights, f"{MIXER}generator.0.", bias=True)
    else:
        parts = [_mlp(inputs, weights, f"{MIXER}generator.{part}.", bias=False) for part in range(2)]
        raw = np.concatenate(parts, axis=-1)
    real, imaginary = np.split(raw, 2, axis=-1)
    real = np.where((real == 0) & (imaginary == 0), 1.0, real)  # the phase of zero is 0
    size = np.hypot(real, imaginary) / model.mixer.radius
    tensors = {
        "a": np.concatenate([real / size, imaginary / size], axis=-1),
        "start": np.concatenate([np.cos(phase), np.sin(phase)]),
    }
    if model.mixer.input_matrix:
        matrix = weights[f"{MIXER}input_matrix"]  # (2, n, D): real and imaginary parts
        tensors["drive"] = inputs @ matrix.reshape(-1, matrix.shape[-1]).T
    return tensors


#: The tensors of each recurrence, from the settings of a model, its weights and the number of symbols.
RECURRENCES: dict[str, Callable[[ModelSettings, Weights, int], Tensors]] = {
    "sd-ssm": _sd_ssm_tensors,
    "rnn": _recurrent_tensors,
    "lstm": _recurrent_tensors,
    "complex-diagonal": _complex_diagonal_tensors,
}


def _mixer_inputs(model: ModelSettings, weights: Weights, n_symbols: int) -> np.ndarray:
    """Return the input of the mixer for each symbol, (V, D)."""
    table = input_vectors(model, weights, n_symbols, with_query=True)
    if model.blocks != "last-bare":
        return table
    deviations = table - table.mean(-1, keepdims=True)
    normalised = deviations / np.sqrt(table.var(-1, keepdims=True) + EPSILON)
    inputs: np.ndarray = normalised * weights["layers.0.norm.weight"] + weights["layers.0.norm.bias"]
    return inputs


def _mlp(inputs: np.ndarray, weights: Weights, name: str, *, bias: bool) -> np.ndarray:
    """Apply ReLU between two linear layers."""
    biases = [weights[f"{name}{layer}.bias"] if bias else 0.0 for layer in (0, 2)]
    hidden = np.maximum(inputs @ weights[f"{name}0.weight"].T + biases[0], 0)
    outputs: np.ndarray = hidden @ weights[f"{name}2.weight"].T + biases[1]
    return outputs


def _readout_tensors(model: ModelSettings, weights: Weights, n_classes: int) -> Tensors:
    """Return the tensors of LayerNorm and readout by their names in the file.

    Rows of the cosine readout have norm 1; rows of centres that are not used are left out.
    """
    is_cosine, rows = model.readout == "cosine", weights["readout.weight"]
    names = ["norm.weight", "norm.bias"] if model.norm == "affine" else []
    names += ["readout.hidden.weight", "readout.hidden.bias"] if model.readout == "mlp" else []
    names += ["readout.scale"] if is_cosine else ["readout.bias"] if model.readout_bias else []
    tensors = {name: weights[name] for name in names}
    if is_cosine:
        rows = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    if is_cosine and model.projection:
        stored = weights["readout.projection"]  # P - I; the browser multiplies column vectors, so it has P^T
        tensors["readout.projection"] = (np.eye(len(stored)) + stored).T
    if model.centres is not None:
        labels = weights["readout.centre_labels"]
        used = (labels >= 0) & (labels < n_classes)
        rows, tensors["readout.centre_labels"] = rows[used], labels[used]
    tensors["readout.weight"] = rows
    return tensors
