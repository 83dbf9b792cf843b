"""The loss of a model that is trained on the states of the automaton instead of its labels.

Labels hide states: a model that is right on all training strings may still confuse two states whose labels first
differ after more symbols than it has seen, and nothing draws its state to a fixed point. Here each state of the
automaton has a centre, a direction of the model's state space, and two terms keep the model on them:

    cross-entropy   of the scaled cosines between the state and all centres, before and after the last symbol
    next state      |A_a x / g_a - c|^2 for states x before the last symbol and every symbol a, where c is the centre of
                    the state that a leads to, and g_a the geometric mean of |A_a x| over the batch

The second term is zero only if each symbol moves the centres exactly to centres, and stretches all states equally.
Both are needed at long lengths: a linear recurrence repeats its errors, and unequal gains let them grow.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sdssm.errors import ModelError
from sdssm.layers import SelectiveDense
from sdssm.models.classifier import Classifier
from sdssm.ops.reference import rescaled

#: The most pairs of a state and a symbol in the term of the next states.
MOST_PAIRS = 4_096
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
    centres = functional.normalize(readout.weight, dim=-1)  # (M, N)
    x, target = torch.cat([previous, last]), torch.cat([before, states])
    logits = readout.scale * functional.linear(functional.normalize(x, dim=-1), centres)
    logits = torch.where(readout.centre_labels < 0, UNUSED, logits)
    loss = functional.cross_entropy(logits, target)
    with torch.no_grad():
        nearest = logits[len(before) :].argmax(-1)
        correct = (readout.centre_labels[nearest] == labels).sum()
    rows = min(len(before), max(1, MOST_PAIRS // transitions.shape[1]))
    moved = previous[:rows] @ symbols.A[: transitions.shape[1]].mT  # (V, rows, N)
    gain = moved.detach().norm(dim=-1).clamp(min=torch.finfo(moved.dtype).tiny).log().mean(-1).exp()  # (V,)
    # The centres are held constant: otherwise they would move together, which makes this term small too.
    goal = centres.detach()[transitions[before[:rows]]].movedim(0, 1)  # (V, rows, N)
    distance = (moved / gain[:, None, None] - goal).square().sum(-1).mean()
    return loss + next_state * distance, correct


def _state_before_last(path: Tensor, first: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the state before the last symbol: states (B, L, N) after each symbol, first (N,) -> (B, N)."""
    if lengths is None:
        return path[:, -2] if path.shape[1] > 1 else first.expand_as(path[:, 0])
    index = (lengths - 2).clamp(min=0)[:, None, None].expand(-1, 1, path.shape[-1])
    return torch.where((lengths == 1)[:, None], first, path.gather(1, index)[:, 0])
