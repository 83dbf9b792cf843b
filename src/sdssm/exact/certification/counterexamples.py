"""Search for a misclassified string: one for each transition, random ones, and repeated words, which drift the most."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sdssm.exact.certification.trim_machine import DEAD, TrimMachine
from sdssm.exact.watch import UNWATCHED, Watch
from sdssm.layers.mixer import select_state_rows
from sdssm.models import TokenModel
from sdssm.models.stack import State

#: Number of strings read together. Half of them repeat a word of up to LONGEST_WORD symbols.
STRINGS, LONGEST_WORD = 256, 12
#: Symbols read in one call of the model.
PIECE = 64
#: Transitions of the machine for which the shortest string that takes them last is read.
MOST_TRANSITIONS = 4_096


class Counterexample(NamedTuple):
    """A string that a model misclassified when it read it, and its prediction then."""

    string: tuple[int, ...]
    predicted: int


def find_counterexample(
    model: TokenModel, machine: TrimMachine, longest: int, generator: torch.Generator, watch: Watch = UNWATCHED
) -> tuple[Counterexample | None, int]:
    """Return a misclassified string, or None, and the length up to which strings were read.

    First the shortest string for each transition of the machine is read: random strings seldom take some of them. Then
    come some hundreds of valid strings of `longest` symbols, of which the shortest misclassified prefix is returned.
    The model itself reads them, in its own precision, until the time is up.
    """
    counterexample = _try_transitions(model, machine, longest, watch)
    if counterexample is not None:
        return counterexample, len(counterexample.string)
    tokens, states = _draw_strings(machine, longest, generator)
    labels = torch.tensor(machine.labels)[states]  # (B, L)
    device = model.device
    state: State = None
    longest = tokens.shape[1]
    watch.start("search for a misclassified string", total=longest, unit="symbols")
    with torch.inference_mode():
        for first in range(0, longest, PIECE):
            watch.update(first)
            if watch.is_over:
                return None, first
            piece = tokens[:, first : first + PIECE]
            logits, state = model.advance(piece.to(device), state)
            expected = labels[:, first : first + PIECE].to(device)
            predicted = logits.argmax(-1)
            wrong = (predicted != expected) & (expected >= 0)
            if wrong.any():
                position = int(wrong.any(0).float().argmax())
                row = int(wrong[:, position].float().argmax())
                string = tuple(tokens[row, : first + position + 1].tolist())
                return Counterexample(string, int(predicted[row, position])), len(string)
    return None, longest


def _try_transitions(model: TokenModel, machine: TrimMachine, longest: int, watch: Watch) -> Counterexample | None:
    """Return the shortest misclassified string among those that take each transition last, or None.

    The machine is searched breadth first. All strings of a length continue those of the length before by one symbol.
    """
    device = model.device
    states, seen = np.array([machine.start]), {machine.start}
    strings: list[tuple[int, ...]] = [()]
    model_state: State = None
    count = 0
    watch.start("read the shortest string for each transition", unit="strings")
    while len(states) and count < MOST_TRANSITIONS and len(strings[0]) < longest and not watch.is_over:
        watch.update(count)
        source, symbol = np.nonzero(machine.table[states] != DEAD)
        states = machine.table[states[source], symbol]
        strings = [(*strings[row], taken) for row, taken in zip(source.tolist(), symbol.tolist(), strict=True)]
        count += len(strings)
        with torch.inference_mode():
            tokens = torch.from_numpy(symbol)[:, None].to(device)
            logits, model_state = model.advance(tokens, select_state_rows(model_state, source))
        predicted, labels = logits[:, -1].argmax(-1).cpu().numpy(), machine.labels[states]
        wrong = np.flatnonzero((predicted != labels) & (labels >= 0))
        if len(wrong):
            return Counterexample(strings[wrong[0]], int(predicted[wrong[0]]))
        reached, first = np.unique(states, return_index=True)  # the first string to each state
        new = np.sort(first[[state not in seen for state in reached.tolist()]])
        seen.update(reached.tolist())
        states, strings, model_state = states[new], [strings[row] for row in new], select_state_rows(model_state, new)
    return None


def _draw_strings(machine: TrimMachine, longest: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return prefixes of valid strings (B, L) and the state of the machine after each symbol (B, L)."""
    count, n_symbols = STRINGS, machine.table.shape[1]
    drawn = torch.randint(n_symbols, (count, longest), generator=generator)
    for row in range(count // 2):  # half of the strings repeat a word
        word = drawn[row, : 1 + row % min(LONGEST_WORD, longest)]
        drawn[row] = word.repeat(longest // len(word) + 1)[:longest]
    table = machine.table
    choices = [np.flatnonzero(row != DEAD) for row in table]
    degree = np.array([len(row) for row in choices])
    # A drawn symbol that no valid string continues with is replaced by one that does, unless there is none.
    replacement = np.stack([np.resize(row, n_symbols) for row in choices if len(row)])
    index = np.cumsum(degree > 0) - 1  # of the row of a state
    q, states, tokens = np.full(count, machine.start), [], []
    for column in drawn.T.numpy():
        if (degree[q] == 0).any():  # some string cannot be continued
            break
        allowed = table[q, column] != DEAD
        symbol = np.where(allowed, column, replacement[index[q], column])
        q = table[q, symbol]
        tokens.append(symbol)
        states.append(q)
    return torch.from_numpy(np.stack(tokens, 1)), torch.from_numpy(np.stack(states, 1))
