"""The readout of a single SD-SSM as rows: the class with the largest product of row and state is predicted."""

from __future__ import annotations

import numpy as np
import torch

from sdssm.automata.refinement import Floats, Ints
from sdssm.exact.certification.ball_arithmetic import U64, MatrixBall, gamma, round_up, vector_norm
from sdssm.exact.errors import ExactError
from sdssm.models import Classifier


def check_linear(model: Classifier) -> None:
    """Raise an error unless the prediction is the largest of linear functions of the state of a linear recurrence."""
    settings = model.settings
    if len(model.mixers) != 1:
        raise ExactError(f"the model has {len(model.mixers)} layers; only a single SD-SSM can be certified")
    if not model.is_single_sd_ssm:
        raise ExactError(f"the model is {settings.name}; only a single SD-SSM without a block around it is certified")
    if model.input_matrix is not None or model.skip is not None:
        term = "an input matrix B" if model.input_matrix is not None else "a skip term D"
        raise ExactError(
            f"the model has {term}, but a certificate needs x_t = A_s x_(t-1) without other terms; "
            "train with input_matrix=false and skip=false, as the default preset does"
        )
    if model.initial_state is None:
        raise ExactError("the start state is passed with each string; a certificate needs initial_state=learned")
    if settings.readout == "mlp":
        raise ExactError("the readout is an mlp; a certificate needs a linear or a cosine readout")
    shift = None if model.norm is None else model.norm.bias
    for name, value in (("the bias of the readout", model.readout.bias), ("the shift of LayerNorm", shift)):
        if value is not None and bool((value != 0).any()):
            raise ExactError(
                f"{name} makes the label depend on the scale of the state, not only on its direction; "
                "certify a model with readout=cosine and norm=plain, the default"
            )
    if model.readout.weight.dtype not in (torch.float32, torch.float64):
        raise ExactError(f"the model computes in {model.readout.weight.dtype}; certify its float32 form, model.float()")
    if any(not bool(value.isfinite().all()) for value in model.state_dict().values()):
        raise ExactError("some weights are not finite, so there is nothing to certify; check how the model was trained")
    if model.readout.scale is not None and not bool(model.readout.scale > 0):
        raise ExactError(
            f"the scale of the cosine readout is {float(model.readout.scale)}, but must be above 0: a negative scale "
            "reverses the order of the classes"
        )


def as_floats(tensor: torch.Tensor) -> Floats:
    """Return a tensor as a float64 array."""
    return np.asarray(tensor.detach().cpu().double().numpy())


def find_row_labels(model: Classifier) -> Ints:
    """Return the label of each row of the readout: (R,).

    A readout has one row for each class, or several centres. A centre that stands for no state of an automaton, or for
    one without a label, is never predicted: it has the label -1.
    """
    labels = model.readout.centre_labels
    if labels is None:
        return np.arange(model.n_classes)
    known = labels.detach().cpu().numpy()
    return np.where((known >= 0) & (known < model.n_classes), known, -1)


def readout_rows(model: Classifier, n: int) -> tuple[Floats, Floats, Floats]:
    """Return the readout as rows (R, N) of the state, their errors (R,) and their absolute values (R, N)."""
    readout = model.readout
    rows = as_floats(readout._rows(model.vectors))
    errors = np.zeros(len(rows))
    if readout.scale is not None:
        norms = vector_norm(rows)
        if not (norms > 1e-10).all():
            raise ExactError("a row of the cosine readout is zero, so its class has no direction to certify")
        rows = rows / np.sqrt(np.square(rows).sum(-1, keepdims=True))
        errors = np.full(len(rows), round_up(gamma(2 * n + 8)))
    magnitudes = np.abs(rows)
    if readout.projection is not None:
        projection = as_floats(readout.projection).T + np.eye(n)  # rounded once, on the diagonal
        magnitudes = magnitudes @ (np.abs(projection) + np.eye(n))
        errors = round_up(errors + U64 * vector_norm(rows) * np.abs(projection).max())
        rows, errors = multiply_rows(rows, errors, projection)
    if model.norm is not None:
        if model.norm.weight is not None:
            gain = as_floats(model.norm.weight)
            rows, magnitudes = rows * gain, magnitudes * np.abs(gain)
            errors = round_up(errors * np.abs(gain).max() + U64 * vector_norm(rows))
        centring = np.eye(n) - 1 / n
        magnitudes = magnitudes @ (np.eye(n) + 1 / n)
        errors = round_up(errors + 4 * U64 * np.sqrt(n) * vector_norm(rows))
        rows, errors = multiply_rows(rows, errors, centring)
    return rows, errors, magnitudes


def multiply_rows(rows: Floats, errors: Floats, matrix: Floats) -> tuple[Floats, Floats]:
    """Multiply rows (R, N), known up to `errors` (R,), by a matrix (N, N)."""
    product = MatrixBall(rows[:, None, :], errors) @ MatrixBall.exact(matrix)
    return product.centre[:, 0], product.radius
