"""Machines: validation, running, minimisation, comparison and products."""

from __future__ import annotations

import copy
import pickle
import time
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdssm.automata import Machine, draw, get_machine, to_automata_lib, to_json
from sdssm.errors import AutomatonError
from tests.strategies import machines, words

PARITY = Machine(table=[[0, 1], [1, 0]], states=["even", "odd"])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"table": [[0, 1], [2, 0]]}, "symbol 0 sends state 1 to 2; states are 0..1"),
        ({"table": [[0, -1], [0, 0]]}, "symbol 1 sends state 0 to -1; states are 0..1"),
        ({"table": [[0, 1], [1]]}, "state 1 has 1 of 2 entries"),
        ({"table": [[0, 1], [1, None]]}, "symbol 1 leads nowhere from state 1"),
        ({"table": []}, "at least one state"),
        ({"table": [[], []]}, "the alphabet is empty"),
        ({"table": np.zeros((2, 0), dtype=int)}, "the alphabet is empty"),
        ({"table": np.zeros((0, 2), dtype=int)}, "at least one state"),
        ({"table": np.zeros((1, 1, 1), dtype=int)}, "3 dimensions"),
        ({"table": np.zeros((1, 1))}, "float64"),
        ({"table": 7}, "must be a list of rows"),
        ({"table": ["ab"]}, "must be a list of next states"),
        ({"table": [[0, 1.5], [0, 0]]}, "whole numbers, not 1.5"),
        ({"table": [[True]]}, "whole numbers, not True"),
        ({"table": [["0"]]}, "whole numbers, not '0'"),
        ({"table": [[2**70]]}, "below 2^63"),
        ({"table": [[0]], "start": 1}, "the start state is 1; states are 0..0"),
        ({"table": [[0]], "start": "a"}, "the start state must be the number of a state, not 'a'"),
        ({"table": [[0]], "start": 0.5}, "not 0.5"),
        ({"table": [[0]], "outputs": [0, 1]}, "1 states but 2 outputs"),
        ({"table": [[0]], "outputs": [-1]}, "outputs are at least 0"),
        ({"table": [[0]], "outputs": [2**31]}, "below 2^31"),
        ({"table": [[0]], "outputs": ["x"]}, "whole numbers, not 'x'"),
        ({"table": [[0]], "outputs": 3}, "outputs must be a list"),
        ({"table": [[0], [0]], "states": ["a", "a"]}, "state name 'a' is used for both 0 and 1; rename one"),
        ({"table": [[0, 0]], "symbols": ["a", "a"]}, "symbol name 'a' is used for both 0 and 1; rename one"),
        ({"table": [[0]], "symbols": [""]}, "names are non-empty texts"),
        ({"table": [[0]], "symbols": [3]}, "names are non-empty texts"),
        ({"table": [[0]], "symbols": "a"}, "a list of texts"),
        ({"table": [[0]], "states": ["a", "b"]}, "1 states but 2 state names"),
    ],
)
def test_invalid_machines_are_refused(parts: dict, message: str) -> None:
    with pytest.raises(AutomatonError, match=message.replace("^", r"\^").replace("(", r"\(")) as caught:
        Machine(**parts)
    assert "\n" not in str(caught.value)


def test_machines_are_immutable() -> None:
    table = np.array([[0, 1], [1, 0]])
    machine = Machine(table=table)
    table[0, 0] = 1
    assert machine.table[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        machine.table[0, 0] = 1
    with pytest.raises(AttributeError):
        machine.start = 1  # type: ignore[misc]


def test_copies_are_equal_and_immutable() -> None:
    for duplicate in (pickle.loads(pickle.dumps(PARITY)), copy.deepcopy(PARITY)):
        assert duplicate == PARITY
        assert hash(duplicate) == hash(PARITY)
        assert not duplicate.table.flags.writeable
    assert Machine(table=[[0, 1], [1, 0]]) != PARITY
    assert PARITY != "parity"


def test_running() -> None:
    assert PARITY.run("1101") == 1
    assert PARITY.run([]) == 0
    assert PARITY.run([], start=1) == 1
    assert PARITY.run(["1", 0, "1"]) == 0
    assert PARITY.trace("1101").tolist() == [1, 0, 0, 1]
    assert PARITY.trace(np.array([1, 1]), start=1).tolist() == [0, 1]
    assert PARITY.output("1") == 1
    assert PARITY.step(1, 1) == PARITY.step(1, "1") == 0
    assert PARITY.decode([1, 0]) == "10"
    a5 = get_machine("a5")
    assert a5.decode(a5.encode("cycle swap cycle")) == "cycle swap cycle"
    for symbol in (2, -1, "2", "x", 1.0, True, None):
        with pytest.raises(AutomatonError, match="is not a symbol of this machine; symbols are 0, 1"):
            PARITY.run([symbol])  # type: ignore[list-item]
    with pytest.raises(AutomatonError, match="the state is 2; states are 0..1"):
        PARITY.step(2, 0)


@given(st.data())
def test_minimise_preserves_the_outputs(data: st.DataObject) -> None:
    machine = data.draw(machines())
    small = machine.minimise()
    assert small.n_states <= machine.n_states
    assert small.minimise() is small
    assert machine.distinguish(small) is None
    word = data.draw(words(machine.n_symbols))
    assert machine.output(word) == small.output(word)


@given(machines(symbols=2, outputs=2, most_states=7))
def test_minimal_size_agrees_with_automata_lib(machine: Machine) -> None:
    assert machine.minimise().n_states == len(to_automata_lib(machine).minify(retain_names=False).states)


def test_minimise_keeps_names_and_order() -> None:
    machine = Machine(
        table=[[2, 1], [1, 2], [2, 1], [0, 0]],
        outputs=[0, 1, 0, 5],
        states=["a", "b", "a again", "far"],
        symbols=["x", "y"],
    )
    small = machine.minimise()
    assert small.states == ("a", "b")
    assert small.symbols == ("x", "y")
    assert small.table.tolist() == [[0, 1], [1, 0]]
    assert machine.reachable().states == ("a", "b", "a again")


@given(st.data())
def test_distinguish_finds_the_first_shortest_string(data: st.DataObject) -> None:
    machine = data.draw(machines(symbols=2, most_states=4, outputs=2))
    other = data.draw(machines(symbols=2, most_states=4, outputs=2))
    valid = data.draw(st.none() | machines(symbols=2, most_states=3, outputs=2))
    distinguishing = machine.distinguish(other, valid)
    # Machines of 4, 4 and 3 states differ within 4 * 4 * 3 symbols; all strings of up to 6 are tried here.
    for length in range(1, 7):
        for word in product((0, 1), repeat=length):
            if machine.output(word) != other.output(word) and (valid is None or valid.output(word)):
                assert distinguishing == word
                return
    assert distinguishing is None or len(distinguishing) > 6


@pytest.mark.parametrize(("n", "m"), [(1000, 999), (600, 601)])
def test_distinguish_is_fast_on_long_strings(n: int, m: int) -> None:
    def ring(size: int, marked: int | None) -> Machine:
        return Machine(table=(np.arange(1, size + 1) % size)[:, None], outputs=(np.arange(size) == marked).astype(int))

    started = time.process_time()
    assert ring(n, None).distinguish(ring(m, None)) is None
    assert ring(n, None).distinguish(ring(m, None), valid=ring(7, 3)) is None
    word = ring(n, n - 1).distinguish(ring(m, m - 1))
    assert word is not None
    assert len(word) == min(n, m) - 1
    assert time.process_time() - started < 5


def test_distinguish_ignores_the_empty_string() -> None:
    machine, other = Machine(table=[[1], [1]], outputs=[0, 0]), Machine(table=[[1], [1]], outputs=[1, 0])
    assert machine.distinguish(other) is None
    with pytest.raises(AutomatonError, match="2 and 1 symbols; both need the same alphabet"):
        PARITY.distinguish(machine)
    with pytest.raises(AutomatonError, match="both need the same alphabet"):
        get_machine("d4").distinguish(get_machine("z8"))


@given(st.data())
def test_isomorphism_finds_a_renaming(data: st.DataObject) -> None:
    machine = data.draw(machines()).reachable()
    renaming = np.array(data.draw(st.permutations(range(machine.n_states))))
    back = np.argsort(renaming)
    renamed = Machine(
        table=renaming[machine.table[back]], start=int(renaming[machine.start]), outputs=machine.outputs[back]
    )
    assert machine.isomorphism(renamed) == tuple(renaming)
    other = Machine(table=renamed.table, start=renamed.start, outputs=renamed.outputs + 1)
    assert machine.isomorphism(other) is None
    assert machine.isomorphism(other, outputs=False) == tuple(renaming)


def test_isomorphism_with_an_inverted_generator() -> None:
    left = get_machine("a5")
    right = Machine(table=np.stack([np.argsort(left.table[:, 0]), left.table[:, 1]], axis=1))
    assert left.isomorphism(right) is None
    assert left.isomorphism(right, outputs=False) is not None
    assert get_machine("d4").isomorphism(get_machine("c2xc4"), outputs=False) is None
    assert PARITY.isomorphism(get_machine("d4")) is None
    with pytest.raises(AutomatonError, match="call reachable"):
        Machine(table=[[0], [0]]).isomorphism(PARITY)


@given(st.data())
def test_products_run_both_machines(data: st.DataObject) -> None:
    machine, other = data.draw(machines(symbols=2)), data.draw(machines(symbols=2))
    word = data.draw(words(2))
    both = machine.product(other)
    assert both.output(word) == machine.output(word) * other.n_outputs + other.output(word)
    direct = machine * other
    assert direct.n_symbols == 4
    split = [(a, 0) for a in word] + [(a, 1) for a in word[::-1]]
    shuffled = data.draw(st.permutations(split))
    own_word = [a for a, factor in shuffled if factor == 0]
    other_word = [a for a, factor in shuffled if factor == 1]
    mixed = [a + 2 * factor for a, factor in shuffled]
    assert direct.output(mixed) == machine.output(own_word) * other.n_outputs + other.output(other_word)


def test_names_in_products() -> None:
    assert (get_machine("z3") * get_machine("d5")).symbols == ("stay", "+1", "toggle", "move")
    assert (get_machine("z2") * get_machine("z3")).symbols == ("stay.1", "+1.1", "stay.2", "+1.2")
    commas = Machine(table=[[0], [1]], states=["a", "a,b"]), Machine(table=[[0], [1]], states=["c", "b,c"])
    assert (commas[0] * commas[1]).states is None
    with pytest.raises(AutomatonError, match="pass the string as a list of symbols"):
        Machine(table=[[0, 0]], symbols=["a b", "a"]).run("a b a")
    with pytest.raises(AutomatonError, match="a string must be a text or a list of symbols, not None"):
        PARITY.run(None)  # type: ignore[arg-type]
    assert PARITY.product(PARITY).states == ("even,even", "even,odd", "odd,even", "odd,odd")


@given(machines(named=True), st.randoms(use_true_random=False))
def test_symbols_in_another_order_are_matched_by_name(machine: Machine, random: Random) -> None:
    machine = machine.reachable()
    order = list(range(machine.n_symbols))
    random.shuffle(order)
    names = [machine.symbol_names[a] for a in order]
    other = Machine(table=machine.table[:, order], start=machine.start, outputs=machine.outputs, symbols=names)
    assert machine.distinguish(other, valid=other) is None
    assert machine.is_equivalent(other)
    assert machine.isomorphism(other) == tuple(range(machine.n_states))
    both = machine.product(other).reachable()
    assert both.symbol_names == machine.symbol_names
    assert (both.outputs // machine.n_outputs == both.outputs % machine.n_outputs).all()


def test_symbols_with_other_names_cannot_be_compared() -> None:
    pairs = get_machine("regex:(ab)*")
    with pytest.raises(AutomatonError, match="only the first machine has a symbol 'a', only the second 'c'"):
        pairs.distinguish("regex:(bc)*")
    assert pairs.distinguish([[1, 2], [2, 0], [2, 2]]) == (0,)  # a table has no names: by number


def test_methods_take_whatever_names_a_machine() -> None:
    pairs = get_machine("regex:(ab)*")
    assert pairs.distinguish("regex:a(ba)*b", valid="regex[ab]:.{3,}") is None
    assert pairs.isomorphism("regex:(ab)*") == (0, 1, 2)
    assert pairs.product("regex:(ab)*").n_states == (pairs * "parity").n_states + 3
    assert to_json("parity") == to_json(PARITY)
    assert draw("parity") == draw(PARITY)


def test_equivalence_includes_the_empty_string() -> None:
    star, plus = get_machine("regex:(ab)*"), get_machine("regex:(ab)+")
    assert star.distinguish(plus) is None
    assert not star.is_equivalent(plus)
    assert star.is_equivalent("regex:()|(ab)+")
    assert not star.is_equivalent("regex[ab]:a*")


def test_names_with_spaces_are_quoted() -> None:
    machine = Machine(table=[[0, 0, 0]], symbols=["a b", "\u00fc\u2192", "q"])
    assert machine.decode([0, 1, 2]) == "'a b' \u00fc\u2192 q"
    with pytest.raises(AutomatonError, match="symbols are 'a b', \u00fc\u2192, q"):
        machine.encode(["x"])
    assert Machine(table=[[0, 0]], symbols=["a", " "]).decode([0, 1, 0]) == "a a"


SIZE = np.arange(10_000)


@pytest.mark.parametrize(
    ("column", "outputs", "expected"),
    [
        (np.minimum(SIZE + 1, 9_999), SIZE == 9_999, 10_000),  # a chain: one state is split off in each round
        ((SIZE + 1) % 10_000, SIZE == 0, 10_000),
        ((SIZE + 1) % 10_000, SIZE % 5_000 == 0, 5_000),
        (SIZE // 2, SIZE == 0, 1),  # state 0 leads only to itself
    ],
)
def test_large_tables_are_minimised_quickly(column: np.ndarray, outputs: np.ndarray, expected: int) -> None:
    table = np.tile(SIZE[:, None], (1, 256))
    table[:, ::2] = column[:, None]
    machine = Machine(table=table, outputs=outputs.astype(int))
    started = time.process_time()
    assert machine.minimise().n_states == expected
    assert time.process_time() - started < 5


def test_large_random_table_is_minimal_and_equals_itself() -> None:
    table = np.random.default_rng(0).integers(10_000, size=(10_000, 256))
    machine = Machine(table=table, outputs=SIZE % 2)
    started = time.process_time()
    assert machine.minimise().n_states == 10_000
    assert machine.distinguish(machine) is None
    assert time.process_time() - started < 5
