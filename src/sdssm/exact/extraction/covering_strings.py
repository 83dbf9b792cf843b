"""Random strings that visit every transition of a machine about equally often."""

from __future__ import annotations

import numpy as np

from sdssm.automata.refinement import Ints


def draw_covering(table: Ints, start: int, strings: int, length: int, generator: np.random.Generator) -> Ints:
    """Return strings (B, L), each of which takes a random transition of a table (Q, V) at a random position.

    State and symbol are drawn uniformly; before them stands one of the strings that lead to the state at that position,
    each with the same probability; after them, each next state has the same probability.
    """
    states, symbols = table.shape
    reached = np.zeros((length, states))  # the share of the strings of each length that lead to each state
    reached[0, start] = 1
    for t in range(1, length):
        reached[t] = np.bincount(table.ravel(), np.repeat(reached[t - 1], symbols), states) / symbols
    # Large tables: a share of less than 1e-300 counts as none.
    position = generator.integers(length, size=strings)
    state = _draw_reached(reached, position, generator)
    tokens = np.zeros((strings, length), dtype=np.int64)
    tokens[np.arange(strings), position] = generator.integers(symbols, size=strings)
    following = table[state, tokens[np.arange(strings), position]]
    edges = np.argsort(table.ravel(), kind="stable")
    bounds = np.searchsorted(table.ravel()[edges], np.arange(states + 1))
    for t in range(length - 1, 0, -1):  # backwards from the transition
        rows = np.flatnonzero(position >= t)
        if not len(rows):
            continue
        sums = np.append(0, np.cumsum(reached[t - 1][edges // symbols]))
        low, high = bounds[state[rows]], bounds[state[rows] + 1]
        drawn = sums[low] + generator.random(len(rows)) * (sums[high] - sums[low])
        edge = edges[np.clip(np.searchsorted(sums, drawn, side="right") - 1, low, high - 1)]
        state[rows], tokens[rows, t - 1] = edge // symbols, edge % symbols
    ranks = _successor_weights(table)
    for t in range(1, length):  # forwards from the transition
        rows = np.flatnonzero(position < t)
        if len(rows):
            sums = ranks[following[rows]]
            drawn = generator.random(len(rows)) * sums[:, -1]
            tokens[rows, t] = (sums <= drawn[:, None]).sum(1).clip(max=symbols - 1)
            following[rows] = table[following[rows], tokens[rows, t]]
    return tokens


def _draw_reached(reached: np.ndarray, position: Ints, generator: np.random.Generator) -> Ints:
    """Draw a state for each position, uniformly among those that strings of that length lead to."""
    draws = generator.random((len(position), reached.shape[1]), dtype=np.float32)
    return np.asarray(np.where(reached[position] > 0, draws, -1).argmax(1))


def _successor_weights(table: Ints) -> np.ndarray:
    """Return cumulative weights (Q, V) of the symbols that give each next state of a state the same weight."""
    order = np.sort(table, axis=1)
    weights = np.empty(table.shape)
    for q, (row, ordered) in enumerate(zip(table, order, strict=True)):
        weights[q] = 1 / (np.searchsorted(ordered, row, side="right") - np.searchsorted(ordered, row, side="left"))
    return np.cumsum(weights, axis=1)
