"""Pairs of strings at edit distance 1 with different labels, the hardest strings of a language to distinguish.

A pair is a string and the string after one edit that changes its label: one symbol replaced, inserted or deleted. All
edits of a string are tried at once. With q_i the state after i symbols and B_i[q] the label after reading the symbols
from position i on in state q, an edit at position i has the label

    replaced by v    B_{i+1}[table[q_i, v]]
    v inserted       B_i[table[q_i, v]]
    deleted          B_{i+1}[q_i]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints

REPLACE, INSERT, DELETE = range(3)
#: Labels in memory at a time: each string needs one for each position and state.
MOST_LABELS = 1 << 24


@dataclass(frozen=True, eq=False)
class EditPairs:
    """P pairs of strings with different labels.

    Attributes:
        tokens: the strings before the edit, (P, L).
        labels: their labels, (P,).
        edited: the strings after the edit, padded with 0 to L + 1 symbols, (P, L + 1).
        lengths: how many symbols these have, (P,).
        edited_labels: their labels, (P,).
    """

    tokens: Ints
    labels: Ints
    edited: Ints
    lengths: Ints
    edited_labels: Ints

    def __len__(self) -> int:
        return len(self.tokens)


def find_edit_pairs(machine: Machine, tokens: Ints, most: int, random: np.random.Generator) -> EditPairs:
    """Return at most one pair for each of the strings (B, L), and at most `most` in all.

    Strings without an edit that changes their label are skipped. The kind of edit is uniform among those that a string
    has, and the edit uniform among those of that kind. An edit never leaves an empty string.

    >>> pairs = find_edit_pairs(Machine(table=[[0, 1], [1, 0]]), np.array([[0, 1, 1]]), 1, np.random.default_rng(0))
    >>> pairs.labels.tolist(), pairs.edited_labels.tolist(), pairs.lengths.tolist()[0] in (2, 3, 4)
    ([0], [1], True)
    """
    parts: list[EditPairs] = []
    found, rows = 0, min(most, max(16, MOST_LABELS // ((tokens.shape[1] + 1) * machine.n_states)))
    for first in range(0, len(tokens), rows):
        part = _edit_strings(machine, tokens[first : first + rows], most - found, random)
        parts.append(part)
        found += len(part)
        if found >= most:
            break
    fields = ("tokens", "labels", "edited", "lengths", "edited_labels")
    return EditPairs(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def _edit_strings(machine: Machine, tokens: Ints, most: int, random: np.random.Generator) -> EditPairs:
    length, table, outputs = tokens.shape[1], machine.table, machine.outputs
    states = forward_states(machine, tokens)  # (B, L + 1)
    after = labels_after(machine, tokens)  # (B, L + 1, Q)
    labels = outputs[states[:, -1]].astype(after.dtype)
    counts = count_edits(machine, states, after, labels)
    rows = np.flatnonzero(counts.any(axis=(0, 2)))[:most]
    edited, lengths = np.zeros((len(rows), length + 1), dtype=tokens.dtype), np.zeros(len(rows), dtype=np.int64)
    for k, row in enumerate(rows):
        kind = random.choice(np.flatnonzero(counts[:, row].any(axis=1)))
        i = _choose(counts[kind, row], random)
        symbol = 0
        if kind != DELETE:
            changed = after[row, i + (kind == REPLACE), table[states[row, i]]] != labels[row]
            symbol = _choose(changed.astype(np.int64), random)
        string = apply_edit(tokens[row], kind, i, symbol)
        edited[k, : len(string)], lengths[k] = string, len(string)
    ends = _final_states(machine, edited, lengths)
    return EditPairs(tokens[rows], outputs[states[rows, -1]], edited, lengths, outputs[ends])


def count_edits(machine: Machine, states: Ints, after: Ints, labels: Ints) -> Ints:
    """Return how many edits change the label of each string, by kind and position: (3, B, L + 1).

    `states` and `after` are the results of `forward_states` and `labels_after`, `labels` are those of the strings.
    """
    length = states.shape[1] - 1
    symbols = np.zeros((machine.n_states, machine.n_states), dtype=np.int32)  # that lead from one state to another
    np.add.at(symbols, (np.arange(machine.n_states)[:, None], machine.table), 1)
    is_changed = after != labels[:, None, None]  # (B, L + 1, Q)
    following = symbols[states]  # (B, L + 1, Q): counted by state, since symbols are many
    counts = np.zeros((3, *states.shape), dtype=np.int64)
    counts[INSERT] = np.einsum("blq,blq->bl", following, is_changed)
    counts[REPLACE, :, :length] = np.einsum("blq,blq->bl", following[:, :length], is_changed[:, 1:])
    if length > 1:
        here = np.take_along_axis(is_changed[:, 1:], states[:, :length, None], axis=2)[:, :, 0]
        counts[DELETE, :, :length] = here
    return counts


def apply_edit(string: Ints, kind: int, position: int, symbol: int) -> Ints:
    """Return a string (L,) after one edit.

    >>> apply_edit(np.array([0, 1, 2]), INSERT, 1, 9).tolist(), apply_edit(np.array([0, 1, 2]), DELETE, 0, 0).tolist()
    ([0, 9, 1, 2], [1, 2])
    """
    if kind == DELETE:
        return np.delete(string, position)
    if kind == INSERT:
        return np.insert(string, position, symbol)
    edited = string.copy()
    edited[position] = symbol
    return edited


def forward_states(machine: Machine, tokens: Ints) -> Ints:
    """Return the state before each symbol of strings (B, L), and after the last: (B, L + 1)."""
    states = np.empty((len(tokens), tokens.shape[1] + 1), dtype=np.int64)
    states[:, 0] = machine.start
    for i in range(tokens.shape[1]):
        states[:, i + 1] = machine.table[states[:, i], tokens[:, i]]
    return states


def labels_after(machine: Machine, tokens: Ints) -> Ints:
    """Return the label after reading each suffix of strings (B, L) from each state: (B, L + 1, Q)."""
    length = tokens.shape[1]
    outputs = machine.outputs.astype(np.min_scalar_type(machine.n_outputs))  # bytes: these are many
    labels = np.empty((len(tokens), length + 1, machine.n_states), dtype=outputs.dtype)
    labels[:, length] = outputs
    columns, rows = np.ascontiguousarray(machine.table.T), np.arange(len(tokens))[:, None]  # (V, Q)
    for i in range(length - 1, -1, -1):
        labels[:, i] = labels[rows, i + 1, columns[tokens[:, i]]]
    return labels


def _final_states(machine: Machine, tokens: Ints, lengths: Ints) -> Ints:
    ends: Ints = forward_states(machine, tokens)[np.arange(len(tokens)), lengths]
    return ends


def _choose(counts: Ints, random: np.random.Generator) -> int:
    """Return an index with a probability in proportion to its count."""
    cumulative = counts.cumsum()
    return int(np.searchsorted(cumulative, random.integers(cumulative[-1]), side="right"))
