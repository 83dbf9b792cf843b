"""The languages of LDRU and the word problem of groups, against their definitions as plain loops."""

from __future__ import annotations

import random
from itertools import product

import pytest

from sdssm.automata import get_machine
from sdssm.automata.groups import MOST_ELEMENTS
from sdssm.errors import AutomatonError
from sdssm.experiments.specs.catalogue import get_spec
from sdssm.tasks import get_task


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 6, 8, 12])
def test_bounded_dyck_language(depth: int) -> None:
    machine = get_machine(f"dyck{depth}")
    assert machine.n_states == machine.minimise().n_states == depth + 2
    rng = random.Random(depth)
    words = [*product("()", repeat=8), *(("(" * k + ")" * k) for k in range(1, depth + 3))]
    words += [rng.choices("()", k=30) for _ in range(20)]
    for word in words:
        depths = [sum(1 if c == "(" else -1 for c in word[: k + 1]) for k in range(len(word))]
        is_member = depths[-1] == 0 and min(depths) >= 0 and max(depths) <= depth
        assert machine.output(list(word)) == is_member


@pytest.mark.parametrize(("length", "symbols"), [(1, 2), (1, 4), (2, 2), (2, 4), (4, 2), (4, 4)])
def test_prefix_language(length: int, symbols: int) -> None:
    machine = get_machine(f"prefix:{length}x{symbols}")
    assert machine.n_outputs == symbols**length + 1
    assert machine.n_states == machine.minimise().n_states == sum(symbols**k for k in range(length + 1))
    rng = random.Random(0)
    for _ in range(50):
        word = rng.choices(range(symbols), k=rng.randint(1, 12))
        number = sum(a * symbols ** (length - 1 - k) for k, a in enumerate(word[:length]))
        assert machine.output(word) == (number if len(word) >= length else symbols**length)


def test_arithmetic_from_left_to_right() -> None:
    task = get_task("left_arithmetic")
    assert task.valid is not None and task.longest_valid_length(40) == 39
    rng = random.Random(0)
    for _ in range(100):
        word = [str(rng.randrange(5))]
        value = int(word[0])
        for _ in range(rng.randrange(8)):
            operator, digit = rng.choice("+-*"), rng.randrange(5)
            word += [operator, str(digit)]
            value = {"+": value + digit, "-": value - digit, "*": value * digit}[operator] % 5
        assert task.machine.output(word) == value
    assert task.machine.distinguish("arithmetic", valid=task.valid) is not None  # precedence makes a difference


@pytest.mark.parametrize("name", ["c2", "c6", "s3", "d4", "c2xc4", "a5"])
def test_word_problem(name: str) -> None:
    task = get_task(f"{name}:all")
    table = task.machine.table
    size = len(table)
    assert table.shape == (size, size) and task.n_classes == size
    assert (task.train_length, task.test_length) == (128, 512)
    assert table[0].tolist() == list(range(size))  # the identity is the start, and a symbol leads to its element
    elements = range(0, size, max(1, size // 8))
    assert all(table[table[x, y], z] == table[x, table[y, z]] for x in elements for y in elements for z in elements)
    assert task.machine.is_group


def test_the_cyclic_group_has_two_names() -> None:
    assert get_machine("c6") == get_machine("z6")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dyck0", "dyck{n} starts at n = 1"),
        ("dyck99999", "the most is 10,000"),
        ("prefix:0x2", "use at least 1 symbol, out of 2 to 256"),
        ("prefix:9x9", "the most is 10,000"),
        ("prefix:999999999x2", "the most is 10,000"),
        ("a7:all", f"would have 2,520 symbols; the most is {MOST_ELEMENTS:,}"),
    ],
)
def test_sizes_that_are_refused(name: str, message: str) -> None:
    with pytest.raises(AutomatonError) as caught:
        get_machine(name)
    assert message in str(caught.value)


def test_the_experiment_has_21_languages() -> None:
    tasks = [task for row in get_spec("regular-21").rows for task in row.tasks]
    assert len(set(tasks)) == 21
    assert all(get_task(task).train_length == 40 for task in tasks)
