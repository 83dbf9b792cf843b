"""The forms of the transition matrices of an SD-SSM: signed, non-negative, stochastic, and with columns that sum to 1.

With M the mixture of the dictionary, c a column of a matrix and T the column temperature:

    signed        c / |c|_p of M, as published: the gain of each state is free
    nonnegative   c / |c|_p of softmax(M / T) down each column: states stay non-negative, gains are free
    stochastic    softmax(M / T) down each column: a distribution stays a distribution, so every gain is 1
    sum-one       r d / |d|_p + 1 / N with d the column of M minus its mean: the sum of a state never changes

All forms but the signed one are computed on the matrices that a scan needs, V for strings over V symbols, in plain
torch on either device: V N^2 numbers, where the scan of B strings of length L reads B L N^2. The softmax comes after
the mixture. Mixing stochastic matrices instead would also give stochastic ones, but with almost equal weights, as
before training, a mixture of matrices with sharp columns has blurred columns, and a chain with blurred columns forgets
its state at once: trained in this way it learned much less in the same steps. For T -> 0 a stochastic matrix becomes
that of an automaton, with a single 1 in each column.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm import ops
from sdssm.layers.settings import SelectiveDenseSettings

#: Standard deviation of the entries before the softmax of a column, before training: without it columns would be almost
#: uniform, and every state would be the same after one symbol.
INITIAL_LOGITS = 3.0


def scale_initial_values(settings: SelectiveDenseSettings, dictionary: Tensor, start: Tensor | None) -> None:
    """Change the initial dictionary (K, N, N) and start (N,) in place, so that softmax columns keep some memory.

    They are multiplied by the temperature, so that one learning rate suits them and the other parameters.
    """
    if settings.has_softmax_columns:
        # The dictionary has standard deviation 1 / sqrt(N) before, and the start 1.
        with torch.no_grad():
            dictionary.mul_(INITIAL_LOGITS * dictionary.shape[-1] ** 0.5 * settings.column_temperature)
            if start is not None:
                start.mul_(settings.column_temperature)


def constrained_matrices(
    settings: SelectiveDenseSettings,
    dictionary: Tensor,
    weights: Tensor,
    *,
    p: Tensor | None,
    constraint: Tensor | None,
    column_temperature: Tensor | None,
) -> Tensor:
    """Mix matrices of the form `settings.transition`: dictionary (K, N, N), weights (..., K) -> (..., N, N).

    `constraint` () is the share of that form, the rest is signed; None: all of it.
    """
    lead, rows = weights.shape[:-1], weights.reshape(-1, weights.shape[-1])
    matrices = _form(settings, dictionary, rows, p, column_temperature)
    if constraint is not None:
        matrices = torch.lerp(ops.mixed_matrices(dictionary, rows, p), matrices, constraint)
    return matrices.reshape(*lead, *matrices.shape[-2:])


def _form(
    settings: SelectiveDenseSettings,
    dictionary: Tensor,
    weights: Tensor,
    p: Tensor | None,
    column_temperature: Tensor | None,
) -> Tensor:
    n = dictionary.shape[-1]
    if settings.has_softmax_columns:
        assert column_temperature is not None
        columns = torch.softmax(ops.mixed_matrices(dictionary, weights, None) / column_temperature, dim=-2)
        return columns if settings.transition == "stochastic" or p is None else ops.column_norm(columns, p)
    # Columns of the mixture minus their means are the mixture of such columns.
    deviations = ops.mixed_matrices(dictionary - dictionary.mean(-2, keepdim=True), weights, p)
    # Columns of equal entries have l2 norm 1 for every p. With shorter ones the states would approach each other from
    # the start, as for almost uniform columns.
    size = 1.0 if p is None else n ** (1 / p - 0.5)
    return deviations * size + 1 / n


def constrained_start(
    settings: SelectiveDenseSettings, start: Tensor, constraint: Tensor | None, column_temperature: Tensor | None
) -> Tensor:
    """Return the state (N,) before the first symbol, of the form that the matrices keep.

    It is a distribution, or with the form sum-one a vector whose sum is 1.
    """
    if settings.has_softmax_columns:
        assert column_temperature is not None
        state = torch.softmax(start / column_temperature, dim=-1)
    else:
        state = (start - start.mean()) * len(start) ** -0.5 + 1 / len(start)
    if constraint is None:
        return state
    return torch.lerp(start * (state.norm() / start.norm()), state, constraint)
