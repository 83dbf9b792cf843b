"""The loss of a model that is trained on the states of the automaton instead of its labels.

Labels hide states: a model that is right on all training strings may still confuse two states whose labels first
differ after more symbols than it has seen, and nothing draws its state to a fixed point. Here each state of the
automaton has a centre, a fixed direction of the model's state space, and three terms keep the model on them:

    cross-entropy   of the scaled cosines between the state and all centres, before and after the last symbol
    own states      |A_a x / g_a - c|^2 for states x before the last symbol, the mean over x and over symbols a
    centres         the same for x = the centres themselves, the mean over states and the sum over symbols

c is the centre of the state that a leads to, and g_a the geometric mean of |A_a x|. The last two are zero only if each
symbol moves centres exactly to centres and stretches all of them equally. A linear recurrence repeats its errors, and
unequal gains let them grow, so long strings need both. The centres alone do not suffice: what a model's own states have
beside them may still grow. Without the centres, own states converge slowly: symbols that move only a few states have
little weight in them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sdssm import ops
from sdssm.errors import ModelError
from sdssm.layers import SelectiveDense
from sdssm.models.classifier import Classifier
from sdssm.ops.reference import rescaled

#: The most pairs of an own state, or of a centre, and a symbol.
MOST_PAIRS, MOST_CENTRES = 2_048, 16_384
#: The logit of a centre that stands for no state: its softmax is 0.
UNUSED = -1e4


def state_loss(
    model: Classifier,
    tokens: Tensor,
    labels: Tensor,
    *,
    states: Tensor,
    before: Tensor,
    transitions: Tensor,
    next_state: Tensor,
    lengths: Tensor | None = None,
    exact_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the mean loss, and the number of strings whose nearest centre has the right label.

    Args:
        model: a single-layer SD-SSM with centres.
        tokens: (B, L).
        labels: (B,), the labels of the whole strings.
        states: (B,), the states of the automaton after the whole strings.
        before: (B,), the states before the last symbol.
        transitions: (Q, V), the table of the automaton.
        next_state: (), the weight of the next states.
        lengths: (B,), the lengths of the strings; None: all have length L.
        exact_gradient: keep the gradient of the cross-entropy exact near zero, see `ops.cross_entropy`.
    """
    mixer, readout = model.mixers[0], model.readout
    if not isinstance(mixer, SelectiveDense) or readout.centre_labels is None or readout.scale is None:
        raise ModelError(f"{model.name} has no centres for the states of an automaton; set preset=states")
    symbols = model.symbol_parts()
    path, last = mixer.mix_symbols(symbols, tokens, lengths=lengths)
    start = mixer.first_state
    assert start is not None
    first = rescaled(start) if mixer.settings.rescale else start
    previous = _state_before_last(path, first, lengths)  # (B, N)
    centres = functional.normalize(readout.weight, dim=-1)  # (M, N), not trained
    x, target = torch.cat([previous, last]), torch.cat([before, states])
    logits = readout.scale * functional.linear(functional.normalize(x, dim=-1), centres)
    logits = torch.where(readout.centre_labels < 0, UNUSED, logits)
    loss = ops.cross_entropy(logits, target, exact_gradient=exact_gradient)
    with torch.no_grad():
        nearest = logits[len(before) :].argmax(-1)
        correct = (readout.centre_labels[nearest] == labels).sum()
    A = symbols.A[: transitions.shape[1]]
    rows = min(len(before), max(1, MOST_PAIRS // len(A)))
    own = _distances(A, previous[:rows], centres[transitions[before[:rows]]]).mean()
    if compares_all_centres(transitions.numel()):
        is_used = (readout.centre_labels[: len(transitions)] >= 0).to(centres.dtype)
        exact = _distances(A, centres[: len(transitions)], centres[transitions], is_used / is_used.sum()).sum()
    else:  # those of the strings
        rows = min(len(before), max(1, MOST_CENTRES // len(A)))
        exact = _distances(A, centres[before[:rows]], centres[transitions[before[:rows]]]).mean(-1).sum()
    return loss + next_state * (own + exact), correct


def compares_all_centres(transitions: int) -> bool:
    """Whether `state_loss` moves the centres of all states, for a table with this many entries; else those of strings.

    Tables of machines that train side by side are padded to the largest, so all of them must have the same answer.
    """
    return transitions <= MOST_CENTRES


def _distances(A: Tensor, x: Tensor, goal: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return |A_a x / g_a - goal|^2 as (V, rows), for A (V, N, N), x (rows, N), goal (rows, V, N).

    `weights` (rows,) sum to 1 and multiply each row, in g_a too; None: all rows count alike, and are not multiplied.
    """
    moved = x @ A.mT  # (V, rows, N)
    log_gain = moved.detach().norm(dim=-1).clamp(min=torch.finfo(moved.dtype).tiny).log()
    gain = (log_gain.mean(-1) if weights is None else log_gain @ weights).exp()  # (V,)
    distances: Tensor = (moved / gain[:, None, None] - goal.movedim(0, 1)).square().sum(-1)
    return distances if weights is None else distances * weights


def _state_before_last(path: Tensor, first: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the state before the last symbol: states (B, L, N) after each symbol, first (N,) -> (B, N)."""
    if lengths is None:
        return path[:, -2] if path.shape[1] > 1 else first.expand_as(path[:, 0])
    index = (lengths - 2).clamp(min=0)[:, None, None].expand(-1, 1, path.shape[-1])
    return torch.where((lengths == 1)[:, None], first, path.gather(1, index)[:, 0])
