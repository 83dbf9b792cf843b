from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy.combinatorics import Permutation, PermutationGroup

from sdssm.automata import Machine, named
from sdssm.automata import algebra as algebra_module
from sdssm.automata.algebra import Algebra
from sdssm.automata.permutations import is_even, is_regular, is_solvable, order, order_floor
from tests.strategies import machines

#: name -> commutative, group, solvable, aperiodic, size of the monoid, orders of the groups inside it.
ANCHORS = {
    "parity": (True, True, True, False, 2, (2,)),
    "even_pairs": (False, False, True, True, 5, ()),
    "cycle": (True, True, True, False, 5, (5,)),
    "arithmetic": (False, False, True, False, 129, (4, 5)),
    "c2xc4": (True, True, True, False, 8, (8,)),
    "d4": (False, True, True, False, 8, (8,)),
    "a5": (False, True, False, False, 60, (60,)),
    "c2xc30": (True, True, True, False, 60, (60,)),
    "d30": (False, True, True, False, 60, (60,)),
    "s4": (False, True, True, False, 24, (24,)),
    "s5": (False, True, False, False, 120, (120,)),
    "z12": (True, True, True, False, 12, (12,)),
    "tomita1": (True, False, True, True, 2, ()),
    "tomita2": (False, False, True, True, 6, ()),
    "regex:(ab)*": (False, False, True, True, 6, ()),
    "z3*d5": (False, True, True, False, 30, (30,)),
}


@pytest.mark.parametrize("name", ANCHORS)
def test_anchors(name: str) -> None:
    machine = named(name)
    found = (
        machine.is_commutative,
        machine.is_group,
        machine.is_solvable,
        machine.is_aperiodic,
        machine.algebra.monoid_size,
        machine.algebra.group_orders,
    )
    assert found == ANCHORS[name]


def elements(table: np.ndarray) -> set[tuple[int, ...]]:
    """The monoid by the definition: all products of the symbols' maps."""
    found = {tuple(range(len(table)))}
    waiting = list(found)
    while waiting:
        m = waiting.pop()
        for a in range(table.shape[1]):
            product = tuple(int(table[q, a]) for q in m)
            if product not in found:
                found.add(product)
                waiting.append(product)
    return found


def maximal_groups(monoid: set[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """The group of each idempotent e by the definition: x with ex = xe = x and some y with xy = yx = e."""

    def times(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(y[q] for q in x)

    out = []
    for e in monoid:
        if times(e, e) == e:
            local = [x for x in monoid if times(e, x) == times(x, e) == x]
            out.append([x for x in local if any(times(x, y) == times(y, x) == e for y in local)])
    return out


@settings(max_examples=60)
@given(machines(most_states=4, most_symbols=2, outputs=4))
def test_the_definitions_agree(machine: Machine) -> None:
    table = machine.minimise().table
    monoid = elements(table)
    groups = maximal_groups(monoid)
    found = machine.algebra
    assert found.monoid_size == len(monoid)
    assert found.is_commutative == all(tuple(y[q] for q in x) == tuple(x[q] for q in y) for x in monoid for y in monoid)
    assert found.is_group == any(len(group) == len(monoid) for group in groups)
    assert found.is_aperiodic == all(len(group) == 1 for group in groups)
    assert found.group_orders == tuple(sorted({len(group) for group in groups} - {1}))
    assert found.is_solvable is True  # every group that acts on four points is


@settings(max_examples=40)
@given(machines(symbols=2, most_states=4), machines(symbols=1, most_states=4))
def test_the_monoid_of_a_direct_product_is_the_product(one: Machine, other: Machine) -> None:
    both = (one * other).algebra
    assert both.monoid_size == one.algebra.monoid_size * other.algebra.monoid_size  # type: ignore[operator]
    assert both.is_commutative == (one.is_commutative and other.is_commutative)
    assert both.is_group == (one.is_group and other.is_group)
    assert both.is_aperiodic == (one.is_aperiodic and other.is_aperiodic)


def test_a_group_inside_a_monoid_is_found() -> None:
    """Two letters permute 0..4 as S5 does and fix 5; a third sends everything to 5: no group, yet not solvable."""
    swap, cycle, reset = [1, 0, 2, 3, 4, 5], [1, 2, 3, 4, 0, 5], [5] * 6
    machine = Machine(table=np.array([swap, cycle, reset]).T)
    assert (machine.is_group, machine.is_solvable, machine.is_aperiodic) == (False, False, False)
    assert machine.algebra.monoid_size == 121
    assert machine.algebra.group_orders == (120,)


def test_past_the_cap_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algebra_module, "CAP", 20)
    machine = named("arithmetic")
    assert machine.algebra.monoid_size is None
    assert machine.algebra.group_orders is None
    assert machine.algebra.unknown == "unknown (monoid > 20)"
    large = named("random:100x2:0")
    assert large.is_solvable is None
    assert large.is_aperiodic is None


def test_solvable_is_known_far_past_the_size_of_the_monoid() -> None:
    algebra = named("random:20x2:0").algebra
    assert algebra.monoid_size is None
    assert algebra.is_solvable is not None
    assert algebra.is_aperiodic is False


def test_non_commuting_names_a_witness() -> None:
    table = named("d4").table
    state, a, b = Algebra(table).non_commuting() or (0, 0, 0)
    assert table[table[state, a], b] != table[table[state, b], a]
    assert Algebra(named("c2xc4").table).non_commuting() is None


@settings(max_examples=80)
@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.permutations(range(n)), min_size=1, max_size=3)))
def test_permutation_groups_agree_with_sympy(generators: list[list[int]]) -> None:
    ours = [np.array(g) for g in generators]
    theirs = PermutationGroup([Permutation(list(g)) for g in generators])
    assert order(ours) == theirs.order()
    assert is_solvable(ours) == theirs.is_solvable
    assert all(is_even(g) == Permutation(list(g.tolist())).is_even for g in ours)
    assert is_regular(ours) == (theirs.is_transitive() and theirs.order() == len(ours[0]))


def symmetric(n: int) -> list[np.ndarray]:
    swap = np.arange(n)
    swap[:2] = [1, 0]
    return [swap, np.roll(np.arange(n), -1)]


def test_large_permutation_machines_are_not_listed() -> None:
    s8 = Machine(table=np.array(symmetric(8)).T)
    assert s8.algebra.monoid_size == 40_320
    assert s8.is_solvable is False
    s7 = named("s7")
    assert s7.n_states == 5_040
    assert (s7.algebra.monoid_size, s7.is_solvable) == (5_040, False)
    d = named("d5000")
    assert (d.algebra.monoid_size, d.is_solvable, d.is_commutative) == (10_000, True, False)


def test_a_budget_too_small_gives_no_wrong_answer() -> None:
    for budget in (0, 10_000, 200_000, 1_000_000):
        assert order(symmetric(12), budget) in (None, 479_001_600)
        assert is_solvable(symmetric(12), budget) in (None, False)
        assert order_floor(symmetric(12), budget) <= 479_001_600


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("c2xc30", "a commutative group: unit-modulus diagonal matrices emulate it exactly"),
        ("d30", "not commutative: one diagonal layer without input matrix cannot emulate it (Proposition 1)"),
        ("tomita1", "commutative but not a group"),
        (
            "a5",
            "not commutative: one diagonal layer without input matrix cannot emulate it (Proposition 1); not solvable",
        ),
    ],
)
def test_theory(name: str, start: str) -> None:
    assert named(name).theory.startswith(start)
