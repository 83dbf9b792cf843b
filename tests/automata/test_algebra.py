"""The algebra of machines, compared with its definitions and with sympy."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy.combinatorics import Permutation, PermutationGroup

from sdssm.automata import Machine, get_machine
from sdssm.automata import algebra as algebra_module
from sdssm.automata import permutation_group as group_module
from sdssm.automata.algebra import Algebra, index_and_period
from sdssm.automata.permutation_group import regular_generators
from sdssm.automata.permutations import BUDGET, WorkBudget, is_even
from sdssm.automata.stabiliser_chain import StabiliserChain
from tests.strategies import machines


def group_of(generators: list[np.ndarray], budget: int = BUDGET) -> group_module.PermutationGroup:
    """Return our group (in this file PermutationGroup is sympy's), with one budget for all its properties."""
    return group_module.PermutationGroup(generators, WorkBudget(budget))


#: name -> commutative, group, solvable, aperiodic, size of the monoid, orders of the groups inside it.
KNOWN = {
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


@pytest.mark.parametrize("name", KNOWN)
def test_known_algebras(name: str) -> None:
    machine = get_machine(name)
    properties = (
        machine.is_commutative,
        machine.is_group,
        machine.is_solvable,
        machine.is_aperiodic,
        machine.algebra.monoid_size,
        machine.algebra.group_orders,
    )
    assert properties == KNOWN[name]


def elements(table: np.ndarray) -> set[tuple[int, ...]]:
    """Return the monoid by definition: all products of the maps of the symbols."""
    monoid = {tuple(range(len(table)))}
    pending = list(monoid)
    while pending:
        m = pending.pop()
        for a in range(table.shape[1]):
            product = tuple(int(table[q, a]) for q in m)
            if product not in monoid:
                monoid.add(product)
                pending.append(product)
    return monoid


def maximal_groups(monoid: set[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Return the group of each idempotent e by definition: x with ex = xe = x and some y with xy = yx = e."""

    def times(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(y[q] for q in x)

    groups = []
    for e in monoid:
        if times(e, e) == e:
            local = [x for x in monoid if times(e, x) == times(x, e) == x]
            groups.append([x for x in local if any(times(x, y) == times(y, x) == e for y in local)])
    return groups


@settings(max_examples=60)
@given(machines(most_states=4, most_symbols=2, outputs=4))
def test_algebra_agrees_with_the_definitions(machine: Machine) -> None:
    table = machine.minimise().table
    monoid = elements(table)
    groups = maximal_groups(monoid)
    algebra = machine.algebra
    assert algebra.monoid_size == len(monoid)
    assert algebra.is_commutative == all(
        tuple(y[q] for q in x) == tuple(x[q] for q in y) for x in monoid for y in monoid
    )
    assert algebra.is_group == any(len(group) == len(monoid) for group in groups)
    assert algebra.is_aperiodic == all(len(group) == 1 for group in groups)
    assert algebra.group_orders == tuple(sorted({len(group) for group in groups} - {1}))
    assert algebra.is_solvable is True  # every group on four points is


@settings(max_examples=40)
@given(machines(symbols=2, most_states=4), machines(symbols=1, most_states=4))
def test_monoid_of_a_direct_product_is_the_product(machine: Machine, other: Machine) -> None:
    both = (machine * other).algebra
    assert both.monoid_size == machine.algebra.monoid_size * other.algebra.monoid_size  # type: ignore[operator]
    assert both.is_commutative == (machine.is_commutative and other.is_commutative)
    assert both.is_group == (machine.is_group and other.is_group)
    assert both.is_aperiodic == (machine.is_aperiodic and other.is_aperiodic)


def test_group_inside_a_monoid_is_found() -> None:
    """Two symbols permute 0..4 as S5 and fix 5; a third maps everything to 5: not a group, but not solvable."""
    swap, cycle, reset = [1, 0, 2, 3, 4, 5], [1, 2, 3, 4, 0, 5], [5] * 6
    machine = Machine(table=np.array([swap, cycle, reset]).T)
    assert (machine.is_group, machine.is_solvable, machine.is_aperiodic) == (False, False, False)
    assert machine.algebra.monoid_size == 121
    assert machine.algebra.group_orders == (120,)


def test_properties_are_unknown_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algebra_module, "MOST_ELEMENTS", 20)
    machine = get_machine("arithmetic")
    assert machine.algebra.monoid_size is None
    assert machine.algebra.group_orders is None
    assert machine.algebra.unknown == "unknown (monoid > 20)"
    large = get_machine("random:100x2:0")
    assert large.is_solvable is None
    assert large.is_aperiodic is False  # proved by a single symbol
    assert get_machine("regex:(a|b)*a(a|b){6}").is_aperiodic is None


def test_solvability_is_known_for_a_monoid_too_large_to_list() -> None:
    algebra = get_machine("random:20x2:0").algebra
    assert algebra.monoid_size is None
    assert algebra.is_solvable is not None
    assert algebra.is_aperiodic is False


def test_non_commuting_returns_a_witness() -> None:
    table = get_machine("d4").table
    state, a, b = Algebra(table).non_commuting() or (0, 0, 0)
    assert table[table[state, a], b] != table[table[state, b], a]
    assert Algebra(get_machine("c2xc4").table).non_commuting() is None


@settings(max_examples=80)
@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.permutations(range(n)), min_size=1, max_size=3)))
def test_permutation_groups_agree_with_sympy(generators: list[list[int]]) -> None:
    ours = [np.array(g) for g in generators]
    theirs = PermutationGroup([Permutation(list(g)) for g in generators])
    assert group_of(ours).order == theirs.order()
    assert group_of(ours).is_solvable == theirs.is_solvable
    assert all(is_even(g) == Permutation(list(g.tolist())).is_even for g in ours)
    assert (regular_generators(ours) is not None) == (theirs.is_transitive() and theirs.order() == len(ours[0]))


def symmetric(n: int) -> list[np.ndarray]:
    swap = np.arange(n)
    swap[:2] = [1, 0]
    return [swap, np.roll(np.arange(n), -1)]


def test_large_permutation_groups_are_not_listed() -> None:
    s8 = Machine(table=np.array(symmetric(8)).T)
    assert s8.algebra.monoid_size == 40_320
    assert s8.is_solvable is False
    s7 = get_machine("s7")
    assert s7.n_states == 5_040
    assert (s7.algebra.monoid_size, s7.is_solvable) == (5_040, False)
    d = get_machine("d5000")
    assert (d.algebra.monoid_size, d.is_solvable, d.is_commutative) == (10_000, True, False)


def test_small_budget_gives_no_wrong_answer() -> None:
    for budget in (0, 10_000, 200_000, 1_000_000):
        assert group_of(symmetric(12), budget).order in (None, 479_001_600)
        assert group_of(symmetric(12), budget).is_solvable in (None, False)
        assert group_of(symmetric(12), budget).order_at_least <= 479_001_600


def wreath(n: int) -> np.ndarray:
    """Return Z2 wr Z_n on 2n points: swap one pair, rotate the ring of pairs."""
    swap = np.arange(2 * n)
    swap[[0, n]] = [n, 0]
    ring = np.roll(np.arange(n), -1)
    return np.stack([swap, np.concatenate([ring, n + ring])], axis=1)


def shuffles(n: int) -> np.ndarray:
    """Return two random permutations of n points: they generate the symmetric group unless both are even."""
    rng = np.random.default_rng(0)
    return np.stack([rng.permutation(n), rng.permutation(n)], axis=1)


def table(name: str) -> Callable[[], np.ndarray]:
    return lambda: get_machine(name).minimise().table


CHAIN = np.arange(10_000)
#: name -> table, commutative, group, solvable, aperiodic, size of the monoid, orders of the groups inside it.
LARGE: dict[str, tuple] = {
    "semilattice": (
        lambda: np.stack([np.arange(4096) | (1 << i) for i in range(12)], axis=1),
        (True, False, True, True, 4096, ()),
    ),
    "a{5990}": (table("regex:a{5990}"), (True, False, True, True, 5992, ())),
    "count to 10,000": (lambda: np.minimum(CHAIN + 1, 9_999)[:, None], (True, False, True, True, 10_000, ())),
    "up and down": (
        lambda: np.stack([np.minimum(CHAIN + 1, 9_999), np.maximum(CHAIN - 1, 0)], axis=1),
        (False, False, None, None, None, None),
    ),
    "Z2 wr Z60": (lambda: wreath(60), (False, True, True, False, 60 * 2**60, (60 * 2**60,))),
    "Z2 wr Z100": (lambda: wreath(100), (False, True, True, False, 100 * 2**100, (100 * 2**100,))),
    "shuffle 60": (lambda: shuffles(60), (False, True, False, False, factorial(60), (factorial(60),))),
    "shuffle 300": (lambda: shuffles(300), (False, True, False, False, factorial(300) // 2, (factorial(300) // 2,))),
    "shuffle 5,000": (lambda: shuffles(5_000), (False, True, False, False, None, None)),  # too long to print
    "z9973:255:0": (table("z9973:255:0"), (True, True, True, False, 9_973, (9_973,))),
    "d5000:255:0": (table("d5000:255:0"), (False, True, True, False, 10_000, (10_000,))),
    "d5000 on its ring": (
        lambda: np.stack([(np.arange(5_000) + 1) % 5_000, -np.arange(5_000) % 5_000], axis=1),
        (False, True, True, False, 10_000, (10_000,)),
    ),
    "random:10000x256:0": (table("random:10000x256:0"), (False, False, None, False, None, None)),
    "random:9x3:1": (table("random:9x3:1"), (False, False, False, False, None, None)),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_tables_take_seconds(name: str) -> None:
    make, expected = LARGE[name]
    algebra = Algebra(make())
    started = time.process_time()
    properties = (
        algebra.is_commutative,
        algebra.is_group,
        algebra.is_solvable,
        algebra.is_aperiodic,
        algebra.monoid_size,
        algebra.group_orders,
    )
    unknown = algebra.unknown
    assert time.process_time() - started < 8  # about 2 on two cores
    assert properties == expected
    assert unknown.startswith("unknown (monoid > ") == (algebra.monoid_size is None)


def test_memory_of_a_listing_is_bounded() -> None:
    algebra = Algebra(LARGE["up and down"][0]())
    tracemalloc.start()
    assert algebra.monoid_size is None
    assert tracemalloc.get_traced_memory()[1] < 300_000_000
    tracemalloc.stop()


def test_lower_bound_of_the_monoid_uses_the_powers_of_a_symbol() -> None:
    assert Algebra(table("random:10000x256:0")()).unknown == "unknown (monoid > 20,000)"


@settings(max_examples=80)
@given(st.integers(1, 9).flatmap(lambda n: st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
def test_algebra_of_one_symbol(column: list[int]) -> None:
    table = np.array(column)[:, None]
    monoid = elements(table)
    groups = maximal_groups(monoid)
    algebra = Algebra(table)
    assert sum(index_and_period(table[:, 0])) == algebra.monoid_size == len(monoid)
    assert algebra.is_aperiodic == all(len(group) == 1 for group in groups)
    assert algebra.group_orders == tuple(sorted({len(group) for group in groups} - {1}))


@settings(max_examples=60)
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, n - 1), min_size=n, max_size=n), min_size=1, max_size=2)
    )
)
def test_algebra_of_any_table_agrees_with_the_definitions(columns: list[list[int]]) -> None:
    """Including tables with unreachable states."""
    algebra, monoid = Algebra(np.array(columns).T), elements(np.array(columns).T)
    assert algebra.monoid_size == len(monoid)
    groups = maximal_groups(monoid) if len(monoid) < 300 else None
    if groups is not None:
        assert algebra.group_orders == tuple(sorted({len(group) for group in groups} - {1}))
        assert algebra.is_aperiodic == all(len(group) == 1 for group in groups)


def test_solvability_uses_one_budget_and_stops_at_the_first_false(monkeypatch: pytest.MonkeyPatch) -> None:
    """S5 on six states, and on five of them after a symbol that merges two: the second group is not computed."""
    created = []

    class RecordedGroup(group_module.PermutationGroup):
        def __init__(self, generators: list[np.ndarray], budget: WorkBudget | None = None) -> None:
            created.append((budget, len(generators[0])))
            super().__init__(generators, budget)

    monkeypatch.setattr(algebra_module, "PermutationGroup", RecordedGroup)
    columns = [np.arange(6) for _ in range(3)]
    columns[0][:2], columns[1][:5], columns[2][:] = [1, 0], [1, 2, 3, 4, 0], [0, 1, 2, 3, 4, 0]
    assert Algebra(np.stack(columns, axis=1)).is_solvable is False
    assert len(created) == 1
    created.clear()
    assert get_machine("arithmetic").algebra.is_solvable is True
    assert len({id(budget) for budget, _ in created}) == 1


@settings(max_examples=30)
@given(st.integers(8, 14).flatmap(lambda n: st.lists(st.permutations(range(n)), min_size=2, max_size=3)))
def test_larger_permutation_groups_agree_with_sympy(generators: list[list[int]]) -> None:
    theirs = PermutationGroup([Permutation(list(g)) for g in generators])
    ours = [np.array(g) for g in generators]
    assert (group_of(ours).order, group_of(ours).is_solvable) == (theirs.order(), theirs.is_solvable)
    chain = StabiliserChain(len(ours[0]), WorkBudget(BUDGET))  # without the shortcuts
    chain.add(ours)
    chain.complete(WorkBudget(BUDGET))
    assert chain.size == theirs.order()


@pytest.mark.parametrize(("outer", "inner"), [(2, 5), (3, 4), (5, 2), (4, 3), (2, 8), (7, 2)])
def test_imprimitive_groups_agree_with_sympy(outer: int, inner: int) -> None:
    """All permutations within blocks, and a rotation of the blocks."""
    points = np.arange(outer * inner)
    swap, cycle = points.copy(), points.copy()
    swap[:2], cycle[:inner] = [1, 0], np.roll(points[:inner], -1)
    ours = [swap, cycle, np.roll(points, inner)]
    theirs = PermutationGroup([Permutation(g.tolist()) for g in ours])
    assert group_of(ours).order == theirs.order() == factorial(inner) ** outer * outer
    assert group_of(ours).is_solvable == theirs.is_solvable == (inner < 5)


def test_chain_is_completed_without_random_elements() -> None:
    """Only generators are added: Schreier generators must complete the chain."""
    for n in (4, 7, 9):
        chain = StabiliserChain(n, WorkBudget(BUDGET))
        chain.generators += chain.absorb(np.stack(symmetric(n)))
        chain.complete(WorkBudget(BUDGET))
        assert chain.size == factorial(n)


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
def test_theory_sentence(name: str, start: str) -> None:
    assert get_machine(name).theory.startswith(start)
