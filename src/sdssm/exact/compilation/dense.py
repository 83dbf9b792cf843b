"""Compile a machine to one SD-SSM: a matrix for each symbol, an encoding for each state."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sdssm.automata import Machine
from sdssm.errors import format_value
from sdssm.exact.errors import ExactError
from sdssm.layers.selective_dense import SelectiveDense, SelectiveDenseSettings
from sdssm.models import Classifier, ModelSettings
from sdssm.settings import check_one_of

ENCODINGS = ("one-hot", "orthogonal", "independent")
#: The selection logit of a symbol's own matrix; all others are 0. exp(-1000) is 0 in float64 too.
SATURATED = 1000.0
#: Limit on the number of machine states, which is the size of the model's state.
MOST_STATES = 4_096


def compile_dense(
    machine: Machine, encoding: str, column_norm: float | None, generator: torch.Generator | None, n_classes: int
) -> Classifier:
    """Return an SD-SSM that emulates a machine.

    The columns of E encode the states: x0 = E e_start, A_v = E P_v E^-1 with the 0/1 matrices P_v, logits O E^-1 x.
    """
    check_one_of("encoding", encoding, ENCODINGS)
    if machine.n_states > MOST_STATES:
        raise ExactError(
            f"the machine has {machine.n_states:,} states, and a state has at most {MOST_STATES:,} entries; "
            "minimise() it, or choose a smaller one"
        )
    _check_column_norm(machine, encoding, column_norm)
    codes, inverse = _encode_states(machine.n_states, encoding, generator)
    # Rescaling would divide one-hot states by 1; without it every sum consists of one 1 and zeros, and is exact.
    mixer = SelectiveDenseSettings(
        state=machine.n_states,
        dictionary=machine.n_symbols,
        column_norm=column_norm,
        input_matrix=False,
        rescale=False,
    )
    settings = ModelSettings(mixer=mixer, norm="none", readout="linear", readout_bias=False)
    model = Classifier(settings, machine.n_symbols, n_classes, generator=torch.Generator())
    layer, indicators = model.mixers[0], output_indicators(machine.outputs, n_classes)
    assert isinstance(layer, SelectiveDense) and layer.initial_state is not None
    with torch.no_grad():
        for symbol, matrix in enumerate(layer.dictionary):
            matrix.copy_(codes[:, machine.table[:, symbol].tolist()] @ inverse)  # E P: the columns E e_next
        layer.selection.weight.copy_(SATURATED * torch.eye(machine.n_symbols))
        layer.selection.bias.zero_()
        layer.initial_state.copy_(codes[:, machine.start])
        model.readout.weight.copy_(indicators @ inverse)
    return model.eval()


def output_indicators(outputs: np.ndarray, n_classes: int) -> Tensor:
    """Return a matrix (C, Q) in float64 that is 1 where the output of a state is the class, else 0."""
    return (torch.arange(n_classes)[:, None] == torch.tensor(outputs)).double()


def _check_column_norm(machine: Machine, encoding: str, column_norm: float | None) -> None:
    """Raise an error if normalising the columns would change the matrices.

    The columns of 0/1 matrices have l_p norm 1 for every p. The columns of orthogonal matrices have norm 1 for p = 2.
    """
    if encoding == "one-hot" or column_norm is None:
        return
    permutes = bool((np.sort(machine.table, axis=0) == np.arange(machine.n_states)[:, None]).all())
    if encoding == "orthogonal" and permutes and column_norm == 2:
        return
    reason = (
        "only p = 2 keeps an orthogonal matrix"
        if encoding == "orthogonal" and permutes
        else "not every symbol permutes the states, so their matrices are not orthogonal"
        if encoding == "orthogonal"
        else "columns of independent encodings have other norms than 1"
    )
    raise ExactError(
        f"column_norm is {column_norm} with {encoding} encodings: dividing the columns changes the map, because "
        f"{reason}; choose column_norm none, or one-hot encodings"
    )


def _encode_states(states: int, encoding: str, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Return the encodings as columns of a matrix, and the inverse of that matrix, in float64."""
    if encoding == "one-hot":
        return torch.eye(states).double(), torch.eye(states).double()
    if not isinstance(generator, torch.Generator):
        raise ExactError(
            f"{encoding} encodings are random and the generator is {format_value(generator)}; pass generator="
        )
    drawn = torch.randn(states, states, generator=generator, dtype=torch.float64, device=generator.device).cpu()
    if encoding == "orthogonal":
        q, r = torch.linalg.qr(drawn)
        codes = q * r.diagonal().sign()  # makes the distribution uniform over all orthogonal matrices
        return codes, codes.mT
    codes = drawn / drawn.norm(dim=0)
    return codes, torch.linalg.inv(codes)
