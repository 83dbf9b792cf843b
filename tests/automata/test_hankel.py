"""The label rank: against the rank of a Hankel matrix over the rationals, and for machines whose rank is known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from sdssm.automata import Machine, get_machine
from sdssm.automata.hankel import label_rank


def hankel_rank(machine: Machine) -> int:
    """Return the rank of the Hankel matrix of all pairs of strings of up to as many symbols as there are states."""
    words = [word for length in range(machine.n_states) for word in product(range(machine.n_symbols), repeat=length)]
    columns = []
    for word in words:
        after = np.arange(machine.n_states)
        for symbol in word:
            after = machine.table[after, symbol]
        columns += [machine.outputs[after] == label for label in range(machine.n_outputs)]
    return int(np.linalg.matrix_rank(np.array(columns, dtype=float)))


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_rank_of_the_hankel_matrix(seed: int) -> None:
    generator = np.random.default_rng(seed)
    states, symbols = int(generator.integers(1, 7)), int(generator.integers(1, 3))
    outputs = generator.integers(int(generator.integers(1, 4)), size=states)
    machine = Machine(table=generator.integers(states, size=(states, symbols)), outputs=outputs).reachable()
    assert label_rank(machine.table, machine.outputs) == hankel_rank(machine)


def test_machines_of_known_rank() -> None:
    table = np.arange(12)[:, None] + 1
    count = np.where(table < 12, table, 0)  # a counter modulo 12
    assert label_rank(count, (np.arange(12) == 0).astype(int)) == 12
    assert label_rank(count, np.arange(12) % 4) == 4
    assert label_rank(count, (np.arange(12) % 4 == 1).astype(int)) == 4
    assert label_rank(count, np.arange(12) // 6) == 7  # 1, and f with f(q + 6) = -f(q)
    assert label_rank(count, np.zeros(12, int)) == 1
    machine = get_machine("s5")
    assert label_rank(machine.table, machine.outputs) == 120


def test_states_without_a_label_count_for_nothing() -> None:
    table = np.array([[1, 2], [2, 2], [2, 2]])
    assert label_rank(table, np.array([0, 1, 2])) == 3
    assert label_rank(table, np.array([0, 1, -1])) == 2


@pytest.mark.parametrize("states", [10, 200])
def test_it_stops_at_a_bound(states: int) -> None:
    machine = get_machine(f"random:{states}x2:0")
    outputs = np.arange(machine.n_states) % 2
    rank = label_rank(machine.table, outputs)
    assert [label_rank(machine.table, outputs, most=most) for most in (1, rank - 1, rank, rank + 5)] == [
        1, rank - 1, rank, rank
    ]  # fmt: skip


def test_many_states_are_projected() -> None:
    """The function that counts modulo 5 has rank 5, on a cycle of 3,000 states too."""
    table = (np.arange(3_000)[:, None] + np.array([1, 6, 11])) % 3_000
    assert label_rank(table, np.arange(3_000) % 5, most=20) == 5
    assert label_rank(table, np.arange(3_000) % 30, most=20) == 20
