"""The tables that a string stream reads: the machine, and thresholds to draw valid strings.

A valid string is drawn symbol by symbol by comparing a random word with integer thresholds. Counting backwards,
ways[r, q] is the number of strings of r symbols from state q to an accepting state. With r symbols remaining after it,
symbol v has the probability ways[r, table[q, v]] / ways[r + 1, q] in state q. The thresholds are the cumulative
probabilities in units of 2^-32. They are computed with additions, divisions and powers of two only, so they are the
same on every platform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sdssm.automata.refinement import Ints
from sdssm.tasks.sampling import UNIFORM, sampling_kinds
from sdssm.tasks.string_counts import ZERO_EXPONENT
from sdssm.tasks.task import Task
from sdssm.tasks.validity import LabelledTable
from sdssm.tasks.walk_tables import SHARED_TABLES, WalkTables


def symbol_thresholds(table: Ints, accepting: np.ndarray, longest: int) -> Ints:
    """Return thresholds that turn a random 32-bit word into a symbol of a valid string.

    The result is int64 (longest, Q, V).

    For a word u in state q, with r symbols remaining after it, the symbol is the number of thresholds[r, q] <= u. A
    symbol after which no valid string exists is never chosen.

    >>> at_least_one_1 = np.array([[0, 1], [1, 1]]), np.array([False, True])
    >>> symbol_thresholds(*at_least_one_1, 2)[1] / 2**32  # strings of two symbols
    array([[0.33333333, 1.        ],
           [0.5       , 1.        ]])
    """
    n_states, n_symbols = table.shape
    thresholds = np.empty((longest, n_states, n_symbols), dtype=np.int64)
    # A count is mantissa * 2^exponent with an integer exponent of its own: it does not overflow at any length.
    mantissa, exponent = np.where(accepting, 1.0, 0.0), np.where(accepting, 0, ZERO_EXPONENT)
    for r in range(longest):
        next_exponent = exponent[table]
        top = next_exponent.max(axis=1)  # (Q,)
        cumulative = np.ldexp(mantissa[table], np.maximum(next_exponent - top[:, None], -2000)).cumsum(axis=1)
        total = cumulative[:, -1]
        shares = np.divide(cumulative, total[:, None], out=np.ones_like(cumulative), where=total[:, None] > 0)
        thresholds[r] = shares * 2.0**32
        mantissa, shift = np.frexp(total)
        exponent = np.where(total > 0, top + shift, ZERO_EXPONENT)
    return thresholds


@dataclass(frozen=True, eq=False)
class StreamTables:
    """The tables that all implementations read, int64 on one device.

    The tables of several machines over one alphabet are concatenated along the states; the start state of a replica
    selects its machine. `valid_table` and `thresholds` are empty if every string is valid, or if no string is uniform,
    and `walk` is None if all strings are uniform.
    """

    table: Tensor  # (Q, V)
    outputs: Tensor  # (Q,)
    start: Tensor  # (R,)
    states: Tensor  # (2, R): the first and the last state of the machine of each replica
    valid_table: Tensor
    valid_start: int
    thresholds: Tensor
    kinds: Tensor  # (R, P): the samplings that the strings of a replica take in turn, numbers of SAMPLINGS
    walk: WalkTables | None

    @classmethod
    def build(
        cls,
        tasks: Sequence[Task],
        samplings: Sequence[str],
        longest: int,
        device: torch.device,
        *,
        random_start: bool = False,
    ) -> StreamTables:
        """Build the tables for one task and one sampling per replica.

        If not every string is valid, all tasks must be the same. With `random_start` the states are those of the
        machine of the task, else those of its minimal machine.
        """
        numbers, machines = dict[str, int](), list[LabelledTable]()
        for task in tasks:
            if task.digest not in numbers:
                numbers[task.digest] = len(machines)
                machines.append(LabelledTable.of_machine(task.machine) if random_start else task.minimal)
        replicas = [numbers[task.digest] for task in tasks]
        valid_table, valid_start = np.zeros((0, 0), dtype=np.int64), 0
        thresholds = np.zeros((0, 0, 0), dtype=np.int64)
        first = np.cumsum([0, *(machine.n_states for machine in machines)])
        table = np.concatenate([machine.table + k for machine, k in zip(machines, first, strict=False)])
        kinds = np.array([sampling_kinds(sampling) for sampling in samplings])
        if (kinds == kinds[:, :1]).all():
            kinds = kinds[:, :1]
        if tasks[0].valid is not None and (kinds == UNIFORM).any():
            valid = tasks[0].valid.minimise()
            valid_table, valid_start = valid.table, valid.start
            thresholds = symbol_thresholds(valid.table, valid.outputs != 0, longest)
        walk, walked = None, {k for k, row in zip(replicas, kinds, strict=True) if (row != UNIFORM).any()}
        if walked and replicas == [0]:
            walk = SHARED_TABLES.get(machines[0], longest, torch.device(device))
        elif walked:
            walk = WalkTables.build(machines, replicas, walked, longest, device)
        return cls(
            table=torch.tensor(table, dtype=torch.int64, device=device),
            outputs=torch.tensor(np.concatenate([machine.labels for machine in machines]), device=device),
            start=torch.tensor([int(first[k]) + machines[k].start for k in replicas], device=device),
            states=torch.tensor(np.stack([first[replicas], first[1:][replicas] - 1]), device=device),
            valid_table=torch.tensor(valid_table, dtype=torch.int64, device=device),
            valid_start=valid_start,
            thresholds=torch.tensor(thresholds, device=device),
            kinds=torch.tensor(kinds, device=device),
            walk=walk,
        )
