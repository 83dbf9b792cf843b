"""The model to certify as numbers: a matrix for each symbol, a start vector, the readout rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.automata.refinement import Floats, Ints
from sdssm.exact.certification.ball_arithmetic import gamma
from sdssm.exact.certification.linear_readout import (
    as_floats,
    check_linear,
    find_row_labels,
    multiply_rows,
    readout_rows,
)
from sdssm.exact.certification.trim_machine import TrimMachine
from sdssm.exact.errors import ExactError
from sdssm.models import Classifier

#: Weights must have magnitudes from 2^-20 to 2^20 for the relative error bounds of float32 to hold.
MOST_EXPONENT = 20
#: Limit on the bytes of the matrices in float64, which are in memory three times.
MOST_BYTES = 4 << 30


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """The recurrence x_t = A_s x_{t-1} and a linear readout, both up to a positive factor.

    The prediction is the label of the row that has the largest product with x. A (V, N, N) and x0 (N,) are the float32
    numbers that the layer computes with. The prediction depends only on the direction of x: LayerNorm without a shift,
    the projection and the cosine readout reduce to `rows` (R, N), up to a positive factor that is the same for all
    rows. `row_labels` (R,) are their labels: a readout has one row for each class, or several centres. `row_errors`
    (R,) bounds the rounding errors in these rows. `row_magnitudes` (R, N) holds sums of absolute values: in any order
    of summation, float32 computes each logit with an error of at most `readout_rounding` times row_magnitudes |x|.
    """

    A: Floats
    x0: Floats
    rows: Floats
    row_labels: Ints
    row_errors: Floats
    row_magnitudes: Floats
    readout_rounding: float
    rescale: bool
    machine: TrimMachine
    is_in_float32_range: bool  #: whether no intermediate result of one step can overflow or underflow in float32


def build_system(model: Classifier, machine: Machine, valid: Machine | None) -> LinearSystem:
    """Convert a model and the machine to emulate, or raise an error if it cannot be certified."""
    _check_supported(model, machine)
    entries = model.settings.mixer.state
    if (needed := 8 * model.n_symbols * entries**2) > MOST_BYTES:
        raise ExactError(
            f"the {model.n_symbols} matrices of {entries:,} x {entries:,} entries need {needed / 2**30:,.0f} GiB of "
            f"memory, and the limit is {MOST_BYTES >> 30} GiB; certify a model with fewer states or symbols"
        )
    trimmed = TrimMachine.build(machine, valid)
    with torch.no_grad():
        A, x0 = as_floats(model.symbol_parts().A), as_floats(model.first_state)
    n = A.shape[-1]
    row_labels = find_row_labels(model)
    used = row_labels >= 0
    rows, row_errors, row_magnitudes = (values[used] for values in readout_rows(model, n))
    if model.query is not None:  # the query is one more step before every readout
        rows, row_errors = multiply_rows(rows, row_errors, A[model.query])
        row_magnitudes = row_magnitudes @ np.abs(A[model.query])
    settings = model.settings.mixer
    return LinearSystem(
        A=A[: model.n_symbols],
        x0=x0,
        rows=rows,
        row_labels=row_labels[used],
        row_errors=row_errors,
        row_magnitudes=row_magnitudes * (1 + 1e-9),
        readout_rounding=gamma(10 * n + 100, 2.0**-24),
        rescale=bool(getattr(settings, "rescale", False)),
        machine=trimmed,
        is_in_float32_range=_is_in_float32_range(model, A, x0),
    )


def _is_in_float32_range(model: Classifier, A: Floats, x0: Floats) -> bool:
    """Whether the largest number of each matrix and vector of the model is in 2^-20 to 2^20.

    The bounds on rounding are relative, so they hold only without overflow and underflow in float32. If all of these
    numbers are in that range, products and the squares in LayerNorm and in norms are within 2^-126 to 2^127.
    """
    readout, norm = model.readout, model.norm
    row_maxima = np.abs(as_floats(readout._rows(model.vectors))).max(1)
    if readout.scale is None:  # a row of zeros, of a class that never occurs, gives a logit of 0 without any rounding
        row_maxima = row_maxima[row_maxima > 0]
    magnitudes = [np.abs(A).max((1, 2)), np.abs(x0).max(keepdims=True), row_maxima]
    if readout.scale is not None:
        magnitudes.append(as_floats(readout.scale).reshape(1))
    if readout.projection is not None:
        magnitudes.append(np.abs(as_floats(readout.projection)).max(keepdims=True).reshape(1) + 1)
    if norm is not None and norm.weight is not None:
        magnitudes.append(np.abs(as_floats(norm.weight)).max(keepdims=True))
    values = np.concatenate(magnitudes)
    return bool(((values >= 2.0**-MOST_EXPONENT) & (values <= 2.0**MOST_EXPONENT)).all())


def _check_supported(model: Classifier, machine: Machine) -> None:
    check_linear(model)
    without_row = np.setdiff1d(np.arange(model.n_classes), find_row_labels(model))
    if len(without_row):
        raise ExactError(
            f"no centre of the readout has the label {without_row[0]}, so there is nothing to certify for it; train "
            "the model on a task with this label"
        )
    if model.n_symbols != machine.n_symbols:
        raise ExactError(
            f"the model reads {model.n_symbols} symbols but the machine {machine.n_symbols}; "
            "pass the machine of the task that the model was trained on"
        )
    if machine.n_outputs > model.n_classes:
        raise ExactError(
            f"the model has {model.n_classes} classes but the machine has {machine.n_outputs} outputs; "
            "pass the machine of the task that the model was trained on"
        )
