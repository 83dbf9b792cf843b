"""The tables by which a string stream draws balanced and covering strings, from their ends to their starts.

A string is drawn in two parts. Its last state, or its last transition, is drawn first. Then for t = L, ..., 1 the
transition before the state after t symbols is drawn among all transitions into this state, with a weight that is the
number of strings of t - 1 symbols that reach its source. Every choice is a search in a list of ascending thresholds for
a random 32-bit word. Thresholds are unsigned 32-bit numbers, stored as int32 since torch has few operations on uint32.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdssm.automata.refinement import Ints
from sdssm.errors import TaskError
from sdssm.tasks.string_counts import StringCounts
from sdssm.tasks.validity import LabelledTable

#: The most thresholds of a stream (lengths x transitions), 4 bytes each.
MOST_THRESHOLDS = 1 << 29
#: About how many thresholds are computed at once.
ROWS_AT_ONCE = 1 << 18
#: Random words above this are lowered to it: the threshold of the last choice of a list, 2^32, is stored as 2^32 - 1.
LARGEST_WORD = (1 << 32) - 2


@dataclass(frozen=True, eq=False)
class WalkTables:
    """The tables of several machines on one device; E transitions, Q states and S labels of all machines together.

    Row L - 1 of a table with `longest` rows is for strings of length L, except in `thresholds`.
    """

    first_edge: Tensor  # int64 (Q + 1,): the first transition into each state
    edges: Tensor  # int32 (E,): the transitions by target, as source * V + symbol
    thresholds: Tensor  # int32 (longest, E): row t for a transition whose source is reached by t symbols
    states: Tensor  # int32 (Q,): the states of each machine by label
    state_thresholds: Tensor  # int32 (longest, Q): for a choice among the states with one label
    first_of_label: Tensor  # int32 (S,): the first index into `states` with this label
    last_of_label: Tensor  # int32 (S,)
    labels: Tensor  # int32 (longest, S): the indices of the labels that occur at each length, then zeros
    first_label: Tensor  # int64 (R,): the first column of `labels` of each replica
    n_labels: Tensor  # int64 (longest, R): the number of labels that occur
    pairs: Tensor  # int32 (longest, Q): the number of last transitions from the states of a machine up to each state
    n_pairs: Tensor  # int64 (longest, R)
    symbols: Tensor  # int32 (Q, V): the symbols after which a string is valid, then the others
    depth: int  # of a search: 2^depth is greater than the length of the longest list

    @classmethod
    def build(
        cls,
        machines: Sequence[LabelledTable],
        replicas: Sequence[int],
        walked: Collection[int],
        longest: int,
        device: torch.device,
    ) -> WalkTables:
        """Build the tables for strings up to a length.

        `replicas` has the index of the machine of each replica, and `walked` the indices of the machines whose strings
        are not all uniform. The others have states only.
        """
        edges = sum(machines[k].table.size for k in walked)
        if edges * longest > MOST_THRESHOLDS:
            raise TaskError(
                f"strings up to length {longest} of machines with {edges:,} transitions need {edges * longest:,} "
                f"thresholds, but the limit is {MOST_THRESHOLDS:,}; use shorter strings, or sampling='uniform'"
            )
        parts = [
            _shared_walk(machine, longest) if k in walked else _MachineWalk.empty(machine, longest)
            for k, machine in enumerate(machines)
        ]
        first_state, first_edge, first_label = (
            _offsets([size[k] for size in (part.sizes for part in parts)]) for k in range(3)
        )
        n_symbols = machines[0].n_symbols
        longest_list = max(part.longest_list for part in parts)

        def join(arrays: Sequence[np.ndarray], offsets: Ints | None = None) -> Tensor:
            shifted = arrays if offsets is None else [a + k for a, k in zip(arrays, offsets, strict=False)]
            joined = np.concatenate(shifted, axis=-1)
            stored = joined.view(np.int32) if joined.dtype == np.uint32 else joined.astype(np.int32)
            return torch.from_numpy(stored).to(device)

        def of_replicas(columns: Sequence[Ints]) -> Tensor:
            return torch.from_numpy(np.stack(columns, axis=-1)[:, list(replicas)].copy()).to(device)

        first_edges = np.concatenate([part.first_edge[:-1] + k for part, k in zip(parts, first_edge, strict=False)])
        return cls(
            first_edge=torch.from_numpy(np.append(first_edges, first_edge[-1])).to(device),
            edges=join([part.edges for part in parts], first_state * n_symbols),
            thresholds=join([part.thresholds for part in parts]),
            states=join([part.states for part in parts], first_state),
            state_thresholds=join([part.state_thresholds for part in parts]),
            first_of_label=join([part.first_of_label[:-1] for part in parts], first_state),
            last_of_label=join([part.first_of_label[1:] - 1 for part in parts], first_state),
            labels=join([part.labels for part in parts], first_label),
            first_label=torch.from_numpy(first_label[list(replicas)]).to(device),
            n_labels=of_replicas([part.n_labels for part in parts]),
            pairs=join([part.pairs for part in parts]),
            n_pairs=of_replicas([part.pairs[:, -1] for part in parts]),
            symbols=join([part.symbols.ravel() for part in parts]).view(-1, n_symbols),
            depth=longest_list.bit_length(),
        )


class _MachineWalk(NamedTuple):
    """The tables of one machine, with its own numbers of states, transitions and labels."""

    first_edge: Ints
    edges: Ints
    thresholds: NDArray[np.uint32]
    states: Ints
    state_thresholds: NDArray[np.uint32]
    first_of_label: Ints
    labels: Ints
    n_labels: Ints
    pairs: Ints
    symbols: Ints

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of states, transitions and labels."""
        return len(self.symbols), len(self.edges), len(self.first_of_label) - 1

    @property
    def longest_list(self) -> int:
        return max(len(self.symbols), int(np.diff(self.first_edge).max()))

    @classmethod
    def empty(cls, machine: LabelledTable, longest: int, n_edges: int = 0, n_labels: int = 0) -> _MachineWalk:
        """Return tables of zeros."""
        n_states, rows = machine.n_states, longest
        return cls(
            first_edge=np.zeros(n_states + 1, dtype=np.int64),
            edges=np.zeros(n_edges, dtype=np.int64),
            thresholds=np.zeros((rows, n_edges), dtype=np.uint32),
            states=np.zeros(n_states, dtype=np.int64),
            state_thresholds=np.zeros((rows, n_states), dtype=np.uint32),
            first_of_label=np.zeros(n_labels + 1, dtype=np.int64),
            labels=np.zeros((rows, n_labels), dtype=np.int64),
            n_labels=np.zeros(rows, dtype=np.int64),
            pairs=np.zeros((rows, n_states), dtype=np.int64),
            symbols=np.zeros((n_states, machine.n_symbols), dtype=np.int64),
        )

    @classmethod
    def build(cls, machine: LabelledTable, longest: int) -> _MachineWalk:
        counts = StringCounts(machine)
        in_edges, by_label = counts.in_edges, counts.by_label
        zeros = cls.empty(machine, longest, len(counts.edges), len(by_label.first) - 1)
        walk = zeros._replace(
            first_edge=in_edges.first,
            edges=counts.edges,
            first_of_label=by_label.first,
            symbols=counts.valid_symbols,
        )
        walk.states[: len(by_label.states)] = by_label.states
        all_counts = counts.up_to(longest)
        step = max(1, ROWS_AT_ONCE // max(1, len(counts.edges)))
        for rows in (slice(first, min(first + step, longest)) for first in range(0, longest, step)):
            before, after = all_counts.rows(rows), all_counts.rows(slice(rows.start + 1, rows.stop + 1))
            walk.pairs[rows] = counts.cumulative_pairs(before)
            walk.thresholds[rows] = in_edges.thresholds(in_edges.cumulative_weights(before))
            of_states = by_label.thresholds(by_label.cumulative_weights(after))
            walk.state_thresholds[rows, : len(by_label.states)] = of_states
            occurs = counts.has_label(after)
            walk.n_labels[rows] = occurs.sum(1)
            ascending = np.argsort(~occurs, axis=1, kind="stable")  # the labels that occur come first
            walk.labels[rows] = np.where(np.take_along_axis(occurs, ascending, 1), ascending, 0)
        return walk


def _shared_walk(machine: LabelledTable, longest: int) -> _MachineWalk:
    """Return the tables of a machine; those of the last call again if that was for the same machine and length.

    Balanced and covering strings need the same tables, which take seconds for strings of 50,000 symbols.
    """
    table, labels = machine.table, machine.labels
    return _cached_walk(table.tobytes(), table.shape, machine.start, labels.tobytes(), longest)


@lru_cache(maxsize=1)
def _cached_walk(table: bytes, shape: tuple[int, ...], start: int, labels: bytes, longest: int) -> _MachineWalk:
    states = np.frombuffer(table, dtype=np.int64).reshape(shape)
    return _MachineWalk.build(LabelledTable(states, start, np.frombuffer(labels, dtype=np.int64)), longest)


def _offsets(sizes: Sequence[int]) -> Ints:
    """Return the sums of the sizes before each machine, and the sum of all."""
    return np.concatenate(([0], np.cumsum(sizes)))
