"""States of a model in two dimensions, from the states that `sdssm evaluate` stores."""

from __future__ import annotations

import numpy as np

from sdssm.errors import RunError
from sdssm.report.page.page_types import StateCloud
from sdssm.report.page.weight_files import Tensors
from sdssm.runs.own_files import STATES_FILE

#: The tensors of the file: T lengths, S strings, N entries of a state.
SHAPES = {
    "states": ("T", "S", "N"),
    "machine_states": ("T", "S"),
    "labels": ("T", "S"),
    "predictions": ("T", "S"),
    "lengths": ("T",),
}
#: Strings of each length that are shown.
MOST_STRINGS = 256


def make_state_cloud(tensors: Tensors, n_states: int) -> StateCloud:
    """Project states onto their two principal axes; raise a `RunError` if the tensors do not fit.

    `n_states` is the number of states of the task's machine. Strings that are not valid are left out.
    """
    _check_shapes(tensors)
    lengths = tensors["lengths"].tolist()
    states, machine, labels, predictions = (
        tensors[name][:, :MOST_STRINGS] for name in ("states", "machine_states", "labels", "predictions")
    )
    if not np.isfinite(states).all():
        raise RunError(f"{STATES_FILE}: the states are not finite numbers")
    if machine.size and not 0 <= machine.min() <= machine.max() < n_states:
        raise RunError(f"{STATES_FILE}: machine_states are not states of the task's machine; evaluate the run again")
    points, explained = _project(states.astype(np.float64))
    kept = [row >= 0 for row in labels]
    return {
        "lengths": lengths,
        "explained": explained,
        "x": [_list_numbers(row[mask, 0]) for row, mask in zip(points, kept, strict=True)],
        "y": [_list_numbers(row[mask, 1]) for row, mask in zip(points, kept, strict=True)],
        "state": [row[mask].tolist() for row, mask in zip(machine, kept, strict=True)],
        "correct": [row[mask].tolist() for row, mask in zip(predictions == labels, kept, strict=True)],
    }


def _project(states: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Return states (T, S, N) on two axes, (T, S, 2), and the share of the variance along each axis."""
    n_lengths, n_strings, size = states.shape
    flat = states.reshape(-1, size)
    centred = flat - flat.mean(0)
    try:
        values, axes = np.linalg.eigh(centred.T @ centred)  # in ascending order
    except np.linalg.LinAlgError:
        raise RunError(f"{STATES_FILE}: the principal axes of the states cannot be computed") from None
    axes = axes[:, ::-1][:, :2]
    axes = axes * np.where(axes.sum(0) < 0, -1, 1)  # a sign that does not depend on the routine
    points = np.zeros((len(flat), 2))
    points[:, : axes.shape[1]] = centred @ axes
    shares = np.clip(values[::-1], 0, None) / max(float(values.sum()), 1e-300)
    first, second = (round(float(share), 4) for share in [*shares[:2], 0.0][:2])
    return points.reshape(n_lengths, n_strings, 2), (first, second)


def _check_shapes(tensors: Tensors) -> None:
    sizes: dict[str, int] = {}
    for name, axes in SHAPES.items():
        tensor = tensors.get(name)
        if tensor is None:
            raise RunError(f"{STATES_FILE} has no tensor {name}; evaluate the run again")
        kinds = "f" if name == "states" else "iu"
        if tensor.ndim != len(axes) or tensor.dtype.kind not in kinds or tensor.size == 0:
            raise RunError(f"{STATES_FILE}: {name} has shape {tensor.shape}, {tensor.dtype}; evaluate the run again")
        for axis, size in zip(axes, tensor.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise RunError(f"{STATES_FILE}: {name} has shape {tensor.shape}; evaluate the run again")


def _list_numbers(values: np.ndarray) -> list[float]:
    return [float(f"{value:.3g}") for value in values.tolist()]
