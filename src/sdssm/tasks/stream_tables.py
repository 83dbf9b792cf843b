"""The tables that a stream of strings reads: the machine, and how valid strings are drawn from 32-bit words.

A valid string is drawn symbol by symbol, a word compared with whole numbers. Counting backwards, ways[r, q] is the
number of strings of r symbols from state q to a wanted state. The share of symbol v at q with r symbols to come after
it is ways[r, table[q, v]] / ways[r + 1, q]; the thresholds are the sums of the shares up to each symbol, in units of
2^-32. Additions, divisions and powers of two alone make them: they are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints
from sdssm.tasks.task import Task

#: An exponent below that of any count, for counts of zero.
NOTHING = -(1 << 40)


def thresholds(table: Ints, wanted: np.ndarray, longest: int) -> Ints:
    """int64 (longest, Q, V): with word u in state q and r symbols to come, the symbol is the number of thresholds <= u.

    A symbol without a way is never taken; the last symbol with one takes the rest.

    >>> thresholds(np.array([[0, 1], [1, 1]]), np.array([False, True]), 2)[1] / 2**32  # at least one 1 in two symbols
    array([[0.33333333, 1.        ],
           [0.5       , 1.        ]])
    """
    n_states, n_symbols = table.shape
    out = np.empty((longest, n_states, n_symbols), dtype=np.int64)
    # A count is mantissa * 2^exponent, the exponent a whole number of its own: no length overflows it.
    mantissa, exponent = np.where(wanted, 1.0, 0.0), np.where(wanted, 0, NOTHING)
    for r in range(longest):
        ahead = exponent[table]
        top = ahead.max(axis=1)  # (Q,)
        cumulative = np.ldexp(mantissa[table], np.maximum(ahead - top[:, None], -2000)).cumsum(axis=1)
        total = cumulative[:, -1]
        out[r] = np.divide(cumulative, total[:, None], out=np.ones_like(cumulative), where=total[:, None] > 0) * 2.0**32
        mantissa, shift = np.frexp(total)
        exponent = np.where(total > 0, top + shift, NOTHING)
    return out


@dataclass(frozen=True, eq=False)
class Tables:
    """What the implementations read, int64 on one device. Where every string is valid the last three are empty.

    Several machines over one alphabet stand below each other in one table: a replica walks the one it starts in.
    """

    table: Tensor  # (Q, V)
    outputs: Tensor  # (Q,)
    start: Tensor  # (R,)
    valid_table: Tensor
    valid_start: int
    thresholds: Tensor

    @classmethod
    def build(cls, tasks: Sequence[Task], longest: int, device: torch.device) -> Tables:
        """For a task a replica; where not every string is valid they are one and the same."""
        first, task = 0, tasks[0]
        starts, machines = dict[str, int](), list[Machine]()
        for one in tasks:
            if one.digest not in starts:
                starts[one.digest] = first + one.machine.start
                machines.append(one.machine)
                first += one.machine.n_states
        found = np.zeros((0, 0), dtype=np.int64), 0, np.zeros((0, 0, 0), dtype=np.int64)
        if task.valid is not None:
            valid = task.valid.minimise()
            found = valid.table, valid.start, thresholds(valid.table, valid.outputs != 0, longest)
        above = np.cumsum([0, *(machine.n_states for machine in machines)])
        table = np.concatenate([machine.table + k for machine, k in zip(machines, above[:-1], strict=True)])
        outputs = np.concatenate([machine.outputs for machine in machines])
        return cls(
            table=torch.tensor(table, dtype=torch.int64, device=device),
            outputs=torch.tensor(outputs, dtype=torch.int64, device=device),
            start=torch.tensor([starts[one.digest] for one in tasks], device=device),
            valid_table=torch.tensor(found[0], dtype=torch.int64, device=device),
            valid_start=found[1],
            thresholds=torch.tensor(found[2], device=device),
        )
