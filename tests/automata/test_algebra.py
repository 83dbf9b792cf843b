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
from sdssm.automata import permutations as permutations_module
from sdssm.automata.algebra import Algebra, index_and_period
from sdssm.automata.chains import BUDGET, Purse, StabiliserChain, is_even
from sdssm.automata.permutations import regular_generators
from tests.strategies import machines


def group_of(generators: list[np.ndarray], budget: int = BUDGET) -> permutations_module.PermutationGroup:
    """Our group (PermutationGroup is sympy's here), with so much work for all questions together."""
    return permutations_module.PermutationGroup(generators, Purse(budget))


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
    machine = get_machine(name)
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
    machine = get_machine("arithmetic")
    assert machine.algebra.monoid_size is None
    assert machine.algebra.group_orders is None
    assert machine.algebra.unknown == "unknown (monoid > 20)"
    large = get_machine("random:100x2:0")
    assert large.is_solvable is None
    assert large.is_aperiodic is False  # a symbol alone shows it
    assert get_machine("regex:(a|b)*a(a|b){6}").is_aperiodic is None


def test_solvable_is_known_far_past_the_size_of_the_monoid() -> None:
    algebra = get_machine("random:20x2:0").algebra
    assert algebra.monoid_size is None
    assert algebra.is_solvable is not None
    assert algebra.is_aperiodic is False


def test_non_commuting_names_a_witness() -> None:
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


def test_large_permutation_machines_are_not_listed() -> None:
    s8 = Machine(table=np.array(symmetric(8)).T)
    assert s8.algebra.monoid_size == 40_320
    assert s8.is_solvable is False
    s7 = get_machine("s7")
    assert s7.n_states == 5_040
    assert (s7.algebra.monoid_size, s7.is_solvable) == (5_040, False)
    d = get_machine("d5000")
    assert (d.algebra.monoid_size, d.is_solvable, d.is_commutative) == (10_000, True, False)


def test_a_budget_too_small_gives_no_wrong_answer() -> None:
    for budget in (0, 10_000, 200_000, 1_000_000):
        assert group_of(symmetric(12), budget).order in (None, 479_001_600)
        assert group_of(symmetric(12), budget).is_solvable in (None, False)
        assert group_of(symmetric(12), budget).floor <= 479_001_600


def wreath(n: int) -> np.ndarray:
    """Z2 wr Z_n on 2n points: swap one pair, turn the ring of pairs."""
    swap = np.arange(2 * n)
    swap[[0, n]] = [n, 0]
    ring = np.roll(np.arange(n), -1)
    return np.stack([swap, np.concatenate([ring, n + ring])], axis=1)


def shuffles(n: int) -> np.ndarray:
    """Two random permutations of n points: the symmetric group, unless both are even."""
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
    "shuffle 5,000": (lambda: shuffles(5_000), (False, True, False, False, None, None)),  # too long to write
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
def test_large_tables_cost_seconds(name: str) -> None:
    make, expected = LARGE[name]
    algebra = Algebra(make())
    started = time.process_time()
    found = (
        algebra.is_commutative,
        algebra.is_group,
        algebra.is_solvable,
        algebra.is_aperiodic,
        algebra.monoid_size,
        algebra.group_orders,
    )
    unknown = algebra.unknown
    assert time.process_time() - started < 8  # about 2 on two cores
    assert found == expected
    assert unknown.startswith("unknown (monoid > ") == (algebra.monoid_size is None)


def test_a_listing_is_bounded_in_memory() -> None:
    algebra = Algebra(LARGE["up and down"][0]())
    tracemalloc.start()
    assert algebra.monoid_size is None
    assert tracemalloc.get_traced_memory()[1] < 300_000_000
    tracemalloc.stop()


def test_a_bound_on_the_monoid_uses_the_powers_of_a_symbol() -> None:
    assert Algebra(table("random:10000x256:0")()).unknown == "unknown (monoid > 20,000)"


@settings(max_examples=80)
@given(st.integers(1, 9).flatmap(lambda n: st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
def test_one_symbol_is_answered_by_its_powers(column: list[int]) -> None:
    one = np.array(column)[:, None]
    monoid = elements(one)
    groups = maximal_groups(monoid)
    found = Algebra(one)
    assert sum(index_and_period(one[:, 0])) == found.monoid_size == len(monoid)
    assert found.is_aperiodic == all(len(group) == 1 for group in groups)
    assert found.group_orders == tuple(sorted({len(group) for group in groups} - {1}))


@settings(max_examples=60)
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, n - 1), min_size=n, max_size=n), min_size=1, max_size=2)
    )
)
def test_any_table_agrees_with_its_listing(columns: list[list[int]]) -> None:
    """Also tables that have states no start reaches."""
    found, monoid = Algebra(np.array(columns).T), elements(np.array(columns).T)
    assert found.monoid_size == len(monoid)
    groups = maximal_groups(monoid) if len(monoid) < 300 else None
    if groups is not None:
        assert found.group_orders == tuple(sorted({len(group) for group in groups} - {1}))
        assert found.is_aperiodic == all(len(group) == 1 for group in groups)


def test_solvable_has_one_purse_and_stops_at_the_first_false(monkeypatch: pytest.MonkeyPatch) -> None:
    """S5 on six states, and on five of them after a letter that forgets one: the second group is never asked."""
    purses = []

    class Watched(permutations_module.PermutationGroup):
        def __init__(self, generators: list[np.ndarray], purse: Purse | None = None) -> None:
            purses.append((purse, len(generators[0])))
            super().__init__(generators, purse)

    monkeypatch.setattr(algebra_module, "PermutationGroup", Watched)
    columns = [np.arange(6) for _ in range(3)]
    columns[0][:2], columns[1][:5], columns[2][:] = [1, 0], [1, 2, 3, 4, 0], [0, 1, 2, 3, 4, 0]
    assert Algebra(np.stack(columns, axis=1)).is_solvable is False
    assert len(purses) == 1
    purses.clear()
    assert get_machine("arithmetic").algebra.is_solvable is True
    assert len({id(purse) for purse, _ in purses}) == 1


@settings(max_examples=30)
@given(st.integers(8, 14).flatmap(lambda n: st.lists(st.permutations(range(n)), min_size=2, max_size=3)))
def test_larger_permutation_groups_agree_with_sympy(generators: list[list[int]]) -> None:
    theirs = PermutationGroup([Permutation(list(g)) for g in generators])
    ours = [np.array(g) for g in generators]
    assert (group_of(ours).order, group_of(ours).is_solvable) == (theirs.order(), theirs.is_solvable)
    chain = StabiliserChain(len(ours[0]), Purse(BUDGET))  # without the short cuts
    chain.add(ours)
    chain.complete(Purse(BUDGET))
    assert chain.size == theirs.order()


@pytest.mark.parametrize(("outer", "inner"), [(2, 5), (3, 4), (5, 2), (4, 3), (2, 8), (7, 2)])
def test_imprimitive_groups_agree_with_sympy(outer: int, inner: int) -> None:
    """All permutations within blocks, and a turn of the blocks."""
    points = np.arange(outer * inner)
    swap, cycle = points.copy(), points.copy()
    swap[:2], cycle[:inner] = [1, 0], np.roll(points[:inner], -1)
    ours = [swap, cycle, np.roll(points, inner)]
    theirs = PermutationGroup([Permutation(g.tolist()) for g in ours])
    assert group_of(ours).order == theirs.order() == factorial(inner) ** outer * outer
    assert group_of(ours).is_solvable == theirs.is_solvable == (inner < 5)


def test_a_chain_completes_what_chance_left_out() -> None:
    """Generators alone, no random elements: Schreier's lemma must find the rest."""
    for n in (4, 7, 9):
        chain = StabiliserChain(n, Purse(BUDGET))
        chain.generators += chain.absorb(np.stack(symmetric(n)))
        chain.complete(Purse(BUDGET))
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
def test_theory(name: str, start: str) -> None:
    assert get_machine(name).theory.startswith(start)
