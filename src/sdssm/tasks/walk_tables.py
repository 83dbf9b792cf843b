"""The tables by which a string stream draws balanced and covering strings, from their ends to their starts.

A string is drawn in two parts. Its last state, or its last transition, is drawn first. Then for t = L, ..., 1 the
transition before the state after t symbols is drawn among all transitions into this state, with a weight that is the
number of strings of t - 1 symbols that reach its source. Every choice is a search in a list of ascending thresholds for
a random 32-bit word. Thresholds are unsigned 32-bit numbers, stored as int32 since torch has few operations on uint32.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

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
            _MachineWalk.build(machine, longest) if k in walked else _MachineWalk.empty(machine, longest)
            for k, machine in enumerate(machines)
        ]
        joiner, n_symbols = _TableJoiner(parts, device), machines[0].n_symbols
        first_state, first_edge, first_label = map(_offsets, zip(*(part.sizes for part in parts), strict=True))
        first_edges = np.concatenate([part.first_edge[:-1] + k for part, k in zip(parts, first_edge, strict=False)])
        return cls(
            first_edge=torch.from_numpy(np.append(first_edges, first_edge[-1])).to(device),
            edges=joiner.join([part.edges for part in parts], first_state * n_symbols),
            thresholds=joiner.join_rows([part.thresholds for part in parts]),
            states=joiner.join([part.states for part in parts], first_state),
            state_thresholds=joiner.join_rows([part.state_thresholds for part in parts]),
            first_of_label=joiner.join([part.first_of_label[:-1] for part in parts], first_state),
            last_of_label=joiner.join([part.first_of_label[1:] - 1 for part in parts], first_state),
            labels=joiner.join_rows([part.labels for part in parts], first_label),
            first_label=torch.from_numpy(first_label[list(replicas)]).to(device),
            n_labels=joiner.stack([part.n_labels for part in parts], replicas),
            pairs=joiner.join_rows([part.pairs for part in parts]),
            n_pairs=joiner.stack([part.pairs[:, -1] for part in parts], replicas),
            symbols=joiner.join([part.symbols.ravel() for part in parts]).view(-1, n_symbols),
            depth=max(part.longest_list for part in parts).bit_length(),
        )


class _TableJoiner:
    """Joins the tables of several machines on a device; what counts states or labels is shifted by an offset each."""

    def __init__(self, parts: Sequence[_MachineWalk], device: torch.device) -> None:
        self._parts, self._device = parts, device

    def join(self, arrays: Sequence[np.ndarray], offsets: Ints | None = None) -> Tensor:
        """Concatenate arrays as int32."""
        return self._to_device(np.concatenate(_shift(arrays, offsets)), np.int32)

    def join_rows(self, arrays: Sequence[np.ndarray], offsets: Ints | None = None) -> Tensor:
        """Concatenate the columns of tables as int32, with a row for each length: (rows, ...) -> (longest, ...)."""
        columns = [
            part.repeat(self._to_device(rows, np.int32))
            for part, rows in zip(self._parts, _shift(arrays, offsets), strict=True)
        ]
        return columns[0] if len(columns) == 1 else torch.cat(columns, dim=-1)

    def stack(self, arrays: Sequence[Ints], replicas: Sequence[int]) -> Tensor:
        """Return the numbers for each length of the machine of each replica, as int64: (longest, R)."""
        columns = [part.repeat(self._to_device(rows, np.int64)) for part, rows in zip(self._parts, arrays, strict=True)]
        return torch.stack([columns[k] for k in replicas], dim=-1)

    def _to_device(self, array: np.ndarray, dtype: type[np.signedinteger[Any]]) -> Tensor:
        stored = array.view(np.int32) if array.dtype == np.uint32 else array.astype(dtype, copy=False)
        return torch.from_numpy(stored).to(self._device)


def _shift(arrays: Sequence[np.ndarray], offsets: Ints | None) -> Sequence[np.ndarray]:
    """Add to each array the offset of its machine; the last offset is the sum of all sizes."""
    return arrays if offsets is None else [a + k for a, k in zip(arrays, offsets, strict=False)]


class _MachineWalk(NamedTuple):
    """The tables of one machine, with its own numbers of states, transitions and labels.

    A table with a row for each length has only the rows that differ; `row` is the row of each length.
    """

    row: Ints
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

    def repeat(self, rows: Tensor) -> Tensor:
        """Return the rows of a table for each length, (rows, ...) -> (longest, ...)."""
        if len(rows) == len(self.row):
            return rows
        return rows.index_select(0, torch.from_numpy(self.row).to(rows.device))

    @classmethod
    def empty(cls, machine: LabelledTable, longest: int) -> _MachineWalk:
        """Return tables without transitions and labels."""
        n_states = machine.n_states
        return cls(
            row=np.zeros(longest, dtype=np.int64),
            first_edge=np.zeros(n_states + 1, dtype=np.int64),
            edges=np.zeros(0, dtype=np.int64),
            thresholds=np.zeros((1, 0), dtype=np.uint32),
            states=np.zeros(n_states, dtype=np.int64),
            state_thresholds=np.zeros((1, n_states), dtype=np.uint32),
            first_of_label=np.zeros(1, dtype=np.int64),
            labels=np.zeros((1, 0), dtype=np.int64),
            n_labels=np.zeros(1, dtype=np.int64),
            pairs=np.zeros((1, n_states), dtype=np.int64),
            symbols=np.zeros((n_states, machine.n_symbols), dtype=np.int64),
        )

    @classmethod
    def build(cls, machine: LabelledTable, longest: int) -> _MachineWalk:
        counts = StringCounts(machine)
        in_edges, by_label = counts.in_edges, counts.by_label
        by_length = counts.up_to(longest)
        row, n_states = by_length.row[:-1], machine.n_states
        n_rows = int(row.max()) + 1
        after = by_length.row[1 : n_rows + 1]  # the first lengths have a row each
        reached = by_length.counts.mantissa > 0
        # Most lengths reach the same states as the length before.
        is_new = np.append(True, (reached[1:n_rows] != reached[: n_rows - 1]).any(1))
        pairs = counts.cumulative_pairs(by_length.counts.rows(np.flatnonzero(is_new)))
        is_new_after = np.append(True, (reached[after[1:]] != reached[after[:-1]]).any(1))
        occurs = counts.has_label(by_length.counts.rows(after[is_new_after]))
        ascending = np.argsort(~occurs, axis=1, kind="stable")  # the labels that occur come first
        labels = np.where(np.take_along_axis(occurs, ascending, 1), ascending, 0)
        numbers = np.cumsum(is_new_after) - 1
        walk = cls(
            row=row,
            first_edge=in_edges.first,
            edges=counts.edges,
            thresholds=np.zeros((n_rows, len(counts.edges)), dtype=np.uint32),
            states=np.zeros(n_states, dtype=np.int64),
            state_thresholds=np.zeros((n_rows, n_states), dtype=np.uint32),
            first_of_label=by_label.first,
            labels=labels[numbers],
            n_labels=occurs.sum(1)[numbers],
            pairs=pairs[np.cumsum(is_new) - 1],
            symbols=counts.valid_symbols,
        )
        walk.states[: len(by_label.states)] = by_label.states
        step = max(1, ROWS_AT_ONCE // max(1, len(counts.edges)))
        for rows in (slice(first, min(first + step, n_rows)) for first in range(0, n_rows, step)):
            weights = in_edges.cumulative_weights(by_length.counts.rows(rows))
            walk.thresholds[rows] = in_edges.thresholds(weights)
            of_states = by_label.cumulative_weights(by_length.counts.rows(after[rows]))
            walk.state_thresholds[rows, : len(by_label.states)] = by_label.thresholds(of_states)
        return walk


class SharedWalkTables:
    """The tables of one machine, built once for each length and device as long as a stream holds them.

    Balanced and covering strings need the same tables, and those of 50,000 symbols take a while and much memory.
    """

    def __init__(self) -> None:
        self._tables = WeakValueDictionary[object, WalkTables]()
        self._locks = WeakValueDictionary[object, Lock]()  # other tables are built at the same time
        self._lock = Lock()

    def get(self, machine: LabelledTable, longest: int, device: torch.device) -> WalkTables:
        """Return the tables for strings up to a length, with one replica; in another thread the same object."""
        table, labels = machine.table, machine.labels
        key = table.tobytes(), table.shape, machine.start, labels.tobytes(), longest, device
        with self._lock:
            own_lock = self._locks.setdefault(key, Lock())
        with own_lock:
            with self._lock:
                tables = self._tables.get(key)
            if tables is None:
                tables = WalkTables.build([machine], [0], [0], longest, device)
                if device.type == "cuda":  # other threads read them on other CUDA streams
                    torch.cuda.current_stream(device).synchronize()
                with self._lock:
                    self._tables[key] = tables
        return tables


#: The tables of this process.
SHARED_TABLES = SharedWalkTables()


def _offsets(sizes: Sequence[int]) -> Ints:
    """Return the sums of the sizes before each machine, and the sum of all."""
    return np.concatenate(([0], np.cumsum(sizes)))
