from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from sdssm.automata import Machine, get_machine
from sdssm.errors import TaskError
from sdssm.evaluation import strings as module
from sdssm.evaluation.strings import BLOCK, NEVER, Places, TestStrings
from sdssm.tasks import Task, get_task

CPU = torch.device("cpu")


def whole(strings: TestStrings, length: int) -> tuple[Tensor, Tensor]:
    """All blocks side by side."""
    tokens, labels = zip(*strings.blocks(length), strict=True)
    return torch.cat(tokens, dim=1), torch.cat(labels, dim=1)


@pytest.mark.parametrize("name", ["a5", "arithmetic", "even_pairs", "cycle", "s5:32:0", "random:10x3:0"])
@pytest.mark.parametrize("length", [1, 13, BLOCK, BLOCK + 7, 3 * BLOCK + 1])
def test_labels_are_carried_from_block_to_block(name: str, length: int) -> None:
    of = get_task(name)
    tokens, labels = whole(TestStrings(of, 20, 1, CPU), length)
    assert tokens.shape == labels.shape == (20, length)
    wanted = of.labels(tokens)
    valid = wanted >= 0
    assert torch.equal(labels[valid], wanted[valid])
    assert valid.any()


def test_they_are_a_function_of_the_seed_alone() -> None:
    of = get_task("arithmetic")
    long, _ = whole(TestStrings(of, 9, 5, CPU), 2 * BLOCK)
    short, _ = whole(TestStrings(of, 9, 5, CPU), BLOCK + 3)
    other, _ = whole(TestStrings(of, 9, 6, CPU), BLOCK)
    assert torch.equal(long[:, : BLOCK + 3], short)  # a longer evaluation only adds places
    assert not torch.equal(long[:, :BLOCK], other)
    one, two = ([batch[0] for batch in TestStrings(of, 70, 5, CPU).fresh(39)] for _ in range(2))
    assert torch.equal(torch.cat(one), torch.cat(two))
    assert torch.cat(one).shape == (70, 39)


@pytest.mark.parametrize("name", ["arithmetic", "a5"])
def test_fresh_strings_and_their_labels(name: str) -> None:
    of = get_task(name)
    [(tokens, labels, starts)] = TestStrings(of, 100, 1, CPU).fresh(40)
    assert starts is None
    assert tokens.shape == (100, of.floor(40))
    assert torch.equal(labels, of.labels(tokens)[:, -1])


def test_long_fresh_strings_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    strings = TestStrings(get_task("a5"), 150, 1, CPU)
    [(together, labels, _)] = strings.fresh(30)
    monkeypatch.setattr(module, "MOST_SYMBOLS", 1)
    parts = list(strings.fresh(30))
    assert [len(part[0]) for part in parts] == [64, 64, 22]
    assert torch.equal(torch.cat([part[0] for part in parts]), together)
    assert torch.equal(torch.cat([part[1] for part in parts]), labels)


def test_prefixes_of_arithmetic_are_uniform() -> None:
    """Each digit with a fifth of the strings, each operator with a third, at every place."""
    tokens, _ = whole(TestStrings(get_task("arithmetic"), 20_000, 1, CPU), 6)
    for place, column in enumerate(tokens.T):
        share = torch.bincount(column, minlength=8) / len(column)
        wanted = torch.tensor([0.2] * 5 + [0.0] * 3 if place % 2 == 0 else [0.0] * 5 + [1 / 3] * 3)
        assert (share - wanted).abs().max() < 0.015


def test_which_prefixes_are_uniform() -> None:
    ends_in_one = Task(
        name="ends", machine=get_machine("parity"), valid=Machine(table=[[0, 1], [0, 1]], outputs=[0, 1])
    )
    assert Places.of(ends_in_one) is None  # a prefix need not end in 1
    assert Places.of(get_task("a5")) == Places(symbols=((0, 1),), valid=(True,), again=0)
    # One symbol to begin with, then any two that are not it: a tail, and then a loop.
    tail = Machine(table=[[1, 3, 3], [3, 2, 2], [3, 2, 2], [3, 3, 3]], outputs=[0, 0, 1, 0])
    places = Places.of(Task(name="tail", machine=get_machine("cycle"), valid=tail))
    assert places is not None
    assert places.floor(np.arange(6)).tolist() == [0, 0, 2, 3, 4, 5]
    drawn = places.draw(50, 0, 9, torch.Generator().manual_seed(0))
    assert set(drawn[:, 0].tolist()) == {0}
    assert set(drawn[:, 1:].flatten().tolist()) == {1, 2}


@pytest.mark.parametrize("length", range(1, 9))
def test_floors_are_those_of_the_task(length: int) -> None:
    of = get_task("arithmetic")
    places = Places.of(of)
    assert places is not None
    assert places.floor(np.array([length])).tolist() == [of.floor(length)]


def test_the_shortest_string() -> None:
    third = Machine(table=[[1, 1], [2, 2], [3, 3], [1, 1]], outputs=[0, 0, 0, 1])
    never = Machine(table=[[0, 0]], outputs=[0])
    parity = get_machine("parity")
    assert TestStrings(get_task("a5"), 1, 1, CPU).shortest == 1
    assert TestStrings(Task(name="third", machine=parity, valid=third), 1, 1, CPU).shortest == 3
    assert TestStrings(Task(name="never", machine=parity, valid=never), 1, 1, CPU).shortest == NEVER


def test_random_starts() -> None:
    of = get_task("a5")
    strings = TestStrings(of, 300, 1, CPU, random_start=True)
    starts = strings.starts()
    assert starts is not None
    assert len(set(starts.tolist())) > 50
    tokens, labels = whole(strings, BLOCK + 5)
    for row in range(3):
        state = int(starts[row])
        for place, symbol in enumerate(tokens[row].tolist()):
            state = int(of.machine.table[state, symbol])
            assert labels[row, place] == of.machine.outputs[state]
    [(fresh, last, begin)] = strings.fresh(7)
    assert begin is not None
    state = int(begin[0])
    for symbol in fresh[0].tolist():
        state = int(of.machine.table[state, symbol])
    assert last[0] == of.machine.outputs[state]
    with pytest.raises(TaskError, match="cannot begin in a random state"):
        TestStrings(get_task("arithmetic"), 1, 1, CPU, random_start=True)
