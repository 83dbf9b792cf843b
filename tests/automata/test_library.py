"""The named machines, compared with reference data and with their definitions."""

from __future__ import annotations

import csv
from itertools import groupby, pairwise, product
from pathlib import Path

import numpy as np
import pytest

from sdssm.automata import Machine, get_machine, regex_machine, write_machine
from sdssm.automata.languages import _draw_by_counting, random_machine
from sdssm.automata.refinement import reachable_states
from sdssm.errors import AutomatonError, SdssmError, UnknownNameError

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("name", ["parity", "even_pairs", "cycle", "arithmetic", "c2xc4", "d4", "a5"])
def test_tables_match_the_reference_data(name: str) -> None:
    rows = list(csv.DictReader((DATA / f"automaton_{name}.csv").open()))
    machine = get_machine(name)
    assert machine.table.tolist() == [[int(row[key]) for key in row if key.startswith("next_on_")] for row in rows]
    assert machine.outputs.tolist() == [int(row["output_label"]) for row in rows]
    assert [int(row["is_initial"]) for row in rows] == [int(q == machine.start) for q in range(machine.n_states)]


def test_labels_match_the_reference_data() -> None:
    rows = list(csv.DictReader((DATA / "golden_examples.csv").open()))
    assert len(rows) == 90
    for row in rows:
        tokens = [int(token) for token in row["tokens"].split()]
        assert len(tokens) == int(row["length"])
        assert get_machine(row["task"]).output(tokens) == int(row["label"]), row


def test_arithmetic_agrees_with_python() -> None:
    machine, rng = get_machine("arithmetic"), np.random.default_rng(0)
    for _ in range(200):
        text = "".join(rng.choice([*"01234"]) + rng.choice([*"+-*"]) for _ in range(rng.integers(0, 20))) + "3"
        assert machine.output(text) == eval(text) % 5
    assert machine.output("2*4+1-2") == 2


@pytest.mark.parametrize("n", [2, 3, 4, 7, 30])
def test_rings_agree_with_their_definition(n: int) -> None:
    for name, direction in ((f"c2xc{n}", 1), (f"d{n}", -1)):
        machine = get_machine(name)
        for t, x in product((0, 1), range(n)):
            assert machine.step(n * t + x, "toggle") == n * (1 - t) + x
            assert machine.step(n * t + x, "move") == n * t + (x + (direction if t else 1)) % n


@pytest.mark.parametrize(
    ("name", "states", "symbols"),
    [
        ("z7", 7, 2),
        ("s3", 6, 2),
        ("s5", 120, 2),
        ("a3", 3, 2),
        ("a4", 12, 2),
        ("a5", 60, 2),
        ("a6", 360, 2),
        ("s5:32:0", 120, 32),
        ("a5:6:1", 60, 6),
        ("z12:3:5", 12, 3),
        ("d6:2:0", 12, 2),
        ("c2xc4:4:9", 8, 4),
        ("z3*d5", 30, 4),
        ("z2*z2*z2", 8, 6),
        ("random:10x2:0", 10, 2),
        ("random:1x1:0", 1, 1),
    ],
)
def test_sizes_of_named_machines(name: str, states: int, symbols: int) -> None:
    machine = get_machine(name)
    assert (machine.n_states, machine.n_symbols, machine.n_outputs) == (states, symbols, states)
    assert reachable_states(machine.table, machine.start).all()
    assert machine.minimise() is machine
    assert get_machine(name) == machine
    if not name.startswith("random"):
        assert machine.is_group
        assert machine.algebra.monoid_size == states


def test_standard_generators() -> None:
    assert get_machine("z7").step(3, "stay") == 3
    assert get_machine("z7").step(6, "+1") == 0
    s4 = get_machine("s4")
    assert s4.state_names[s4.step(0, "swap")] == "1023"
    assert s4.state_names[s4.step(0, "cycle")] == "1230"
    assert [get_machine("a6").state_names[q] for q in get_machine("a6").table[0]] == ["120345", "023451"]
    assert [get_machine("a7").state_names[q] for q in get_machine("a7").table[0]] == ["1203456", "1234560"]


def test_random_generators_are_distinct_and_never_the_identity() -> None:
    for seed in range(20):
        machine = get_machine(f"s4:5:{seed}")
        images = machine.table[machine.start].tolist()
        assert len(set(images)) == 5
        assert machine.start not in images
    assert get_machine("s5:4:0") != get_machine("s5:4:1")


def accepted_by(number: int, word: str) -> bool:
    """Whether a word is in a Tomita language, by its definition."""
    runs = [(symbol, len(list(run))) for symbol, run in groupby(word)]
    zeros, ones = word.count("0"), word.count("1")
    return {
        1: zeros == 0,
        2: word == "10" * (len(word) // 2),
        3: not any(a[0] == "1" and a[1] % 2 and b[1] % 2 for a, b in pairwise(runs)),
        4: "000" not in word,
        5: zeros % 2 == 0 and ones % 2 == 0,
        6: (zeros - ones) % 3 == 0,
        7: "".join(symbol for symbol, _ in runs) in ("", "0", "1", "01", "10", "010", "101", "0101"),
    }[number]


@pytest.mark.parametrize("number", range(1, 8))
def test_tomita(number: int) -> None:
    machine = get_machine(f"tomita{number}")
    assert machine.minimise() is machine
    for length in range(11):
        for word in map("".join, product("01", repeat=length)):
            assert machine.output(word) == int(accepted_by(number, word)), word


@pytest.mark.parametrize(("number", "pattern"), [(1, "1*"), (2, "(10)*"), (4, "(0{0,2}1)*0{0,2}"), (7, "0*1*0*1*")])
def test_tomita_agrees_with_regular_expressions(number: int, pattern: str) -> None:
    assert get_machine(f"tomita{number}").distinguish(regex_machine(pattern, "01")) is None


def test_random_tables_drawn_by_counting_are_uniform() -> None:
    """All tables of 3 states and 1 or 2 symbols that reach every state are equally likely."""
    for symbols in (1, 2):
        rng = np.random.default_rng(0)
        possible = [
            table
            for table in product(range(3), repeat=3 * symbols)
            if reachable_states(np.array(table).reshape(3, symbols), 0).all()
        ]
        draws = 40 * len(possible)
        counts = dict.fromkeys(possible, 0)
        for _ in range(draws):
            counts[tuple(_draw_by_counting(3, symbols, rng).ravel().tolist())] += 1
        # chi-square statistic: its mean is the degrees of freedom, its variance twice that
        degrees = len(possible) - 1
        statistic = sum((count - 40) ** 2 / 40 for count in counts.values())
        assert abs(statistic - degrees) < 5 * (2 * degrees) ** 0.5


def test_random_machines_reach_every_state() -> None:
    for states, symbols in ((1, 1), (30, 1), (100, 2), (400, 2), (1000, 4)):
        machine = random_machine(states, symbols, seed=0)
        assert machine.n_states == states
        assert reachable_states(machine.table, machine.start).all()


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (
            "parety",
            UnknownNameError,
            "no task or automaton is called 'parety'; did you mean 'parity'? 'sdssm tasks' lists them",
        ),
        ("dd30", UnknownNameError, "did you mean 'd30'"),
        ("tomita8", UnknownNameError, "did you mean 'tomita7'"),
        ("random:10x2", UnknownNameError, "did you mean 'random:10x2:0'"),
        ("", UnknownNameError, "'sdssm tasks' lists the names"),
        ("z3*parety", UnknownNameError, "did you mean 'parity'"),
        ("z3*", UnknownNameError, "'z3*' has an empty factor"),
        ("s5:3", UnknownNameError, "random generators are written as in 's5:3:0'"),
        ("s5:-1:0", UnknownNameError, "'sdssm tasks' lists the names"),
        ("z٣", UnknownNameError, "no task or automaton is called"),
        ("x" * 100_000, UnknownNameError, "xxx...'; 'sdssm tasks' lists"),
        ("s99", AutomatonError, "s99 would have about 10^156 states; the most is 10,000, choose a smaller one"),
        ("a99", AutomatonError, "a99 would have about 10^156 states"),
        ("s8", AutomatonError, "s8 would have 40,320 states"),
        ("z10001", AutomatonError, "z10001 would have 10,001 states"),
        ("d5001", AutomatonError, "d5001 would have 10,002 states"),
        ("s7*z2", AutomatonError, "'s7*z2' would have 10,080 states"),
        ("z" + "9" * 5000, UnknownNameError, "no task or automaton is called"),
        ("d1", AutomatonError, "d1 is too small; d{n} starts at n = 2"),
        ("a2", AutomatonError, "a{n} starts at n = 3"),
        ("a5:60:0", AutomatonError, "needs 60 generators, but a5 has 59 elements other than the identity"),
        ("s4:1:0", AutomatonError, "never generated all of s4; use more generators"),
        ("random:20000x2:0", AutomatonError, "would have 20,000 states"),
        ("random:10x300:0", AutomatonError, "1 to 256 symbols"),
        ("random:10000x2:0", AutomatonError, "use at least 9 symbols"),
        ("nowhere.json", SdssmError, "cannot read nowhere.json: No such file"),
    ],
)
def test_invalid_names(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        get_machine(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_ignore_case_and_hyphens() -> None:
    assert get_machine("A5") == get_machine("a5")
    assert get_machine("Even-Pairs") == get_machine("even_pairs")
    assert isinstance(get_machine("z3*regex:ab*"), Machine)
    assert get_machine("regex:x.json").n_symbols == 5  # the letters j, n, o, s, x; the dot is a wildcard


def test_files_can_be_factors_of_a_product(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    write_machine(get_machine("parity"), path)
    assert get_machine(f"z3*{path}").n_states == 6
