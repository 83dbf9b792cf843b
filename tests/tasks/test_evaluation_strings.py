"""Evaluation strings: labels, seeds and distributions."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sdssm.automata import Machine, get_machine
from sdssm.errors import TaskError
from sdssm.tasks import Task, evaluation_strings, get_task, streamed_strings
from sdssm.tasks.evaluation_strings import BLOCK, NEVER, EvaluationStrings
from sdssm.tasks.positions import PositionSymbols
from sdssm.tasks.stream import StringStream
from sdssm.tasks.streamed_strings import SharedStrings, StreamedStrings
from sdssm.tasks.walk_tables import SHARED_TABLES, WalkTables

CPU = torch.device("cpu")


def read_blocks(strings: EvaluationStrings, length: int) -> tuple[Tensor, Tensor]:
    """Concatenate all blocks."""
    tokens, labels = zip(*strings.blocks(length), strict=True)
    return torch.cat(tokens, dim=1), torch.cat(labels, dim=1)


@pytest.mark.parametrize("name", ["a5", "arithmetic", "even_pairs", "cycle", "s5:32:0", "random:10x3:0"])
@pytest.mark.parametrize("length", [1, 13, BLOCK, BLOCK + 7, 3 * BLOCK + 1])
def test_labels_are_carried_from_block_to_block(name: str, length: int) -> None:
    task = get_task(name)
    tokens, labels = read_blocks(EvaluationStrings(task, 20, 1, CPU), length)
    assert tokens.shape == labels.shape == (20, length)
    expected = task.labels(tokens)
    valid = expected >= 0
    assert torch.equal(labels[valid], expected[valid])
    assert valid.any()


def test_strings_depend_only_on_the_seed() -> None:
    task = get_task("arithmetic")
    long, _ = read_blocks(EvaluationStrings(task, 9, 5, CPU), 2 * BLOCK)
    short, _ = read_blocks(EvaluationStrings(task, 9, 5, CPU), BLOCK + 3)
    other, _ = read_blocks(EvaluationStrings(task, 9, 6, CPU), BLOCK)
    assert torch.equal(long[:, : BLOCK + 3], short)  # a longer evaluation only appends symbols
    assert not torch.equal(long[:, :BLOCK], other)
    first, second = ([batch[0] for batch in EvaluationStrings(task, 70, 5, CPU).draw_fresh(39)] for _ in range(2))
    assert torch.equal(torch.cat(first), torch.cat(second))
    assert torch.cat(first).shape == (70, 39)


@pytest.mark.parametrize("name", ["arithmetic", "a5"])
def test_labels_of_fresh_strings(name: str) -> None:
    task = get_task(name)
    [(tokens, labels, starts)] = EvaluationStrings(task, 100, 1, CPU).draw_fresh(40)
    assert starts is None
    assert tokens.shape == (100, task.longest_valid_length(40))
    assert torch.equal(labels, task.labels(tokens)[:, -1])


def test_long_fresh_strings_are_split_into_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    strings = EvaluationStrings(get_task("a5"), 150, 1, CPU)
    [(tokens, labels, _)] = strings.draw_fresh(30)
    monkeypatch.setattr(evaluation_strings, "MOST_SYMBOLS", 1)
    parts = list(strings.draw_fresh(30))
    assert [len(part[0]) for part in parts] == [64, 64, 22]
    assert torch.equal(torch.cat([part[0] for part in parts]), tokens)
    assert torch.equal(torch.cat([part[1] for part in parts]), labels)


def test_prefixes_of_arithmetic_are_uniform() -> None:
    """At every position each digit has probability 1/5, or each operator 1/3."""
    tokens, _ = read_blocks(EvaluationStrings(get_task("arithmetic"), 20_000, 1, CPU), 6)
    for position, column in enumerate(tokens.T):
        share = torch.bincount(column, minlength=8) / len(column)
        expected = torch.tensor([0.2] * 5 + [0.0] * 3 if position % 2 == 0 else [0.0] * 5 + [1 / 3] * 3)
        assert (share - expected).abs().max() < 0.015


def test_which_tasks_have_uniform_prefixes() -> None:
    ends_in_one = Task(
        name="ends", machine=get_machine("parity"), valid=Machine(table=[[0, 1], [0, 1]], outputs=[0, 1])
    )
    assert PositionSymbols.from_task(ends_in_one) is None  # a prefix need not end in 1
    assert PositionSymbols.from_task(get_task("a5")) == PositionSymbols(
        symbols=((0, 1),), can_end=(True,), loop_start=0
    )
    # First symbol 0, then any of 1 and 2: one position, and then a loop.
    tail = Machine(table=[[1, 3, 3], [3, 2, 2], [3, 2, 2], [3, 3, 3]], outputs=[0, 0, 1, 0])
    positions = PositionSymbols.from_task(Task(name="tail", machine=get_machine("cycle"), valid=tail))
    assert positions is not None
    assert positions.longest_valid_lengths(np.arange(6)).tolist() == [0, 0, 2, 3, 4, 5]
    drawn = positions.draw(50, 0, 9, torch.Generator().manual_seed(0))
    assert set(drawn[:, 0].tolist()) == {0}
    assert set(drawn[:, 1:].flatten().tolist()) == {1, 2}


@pytest.mark.parametrize("length", range(1, 9))
def test_longest_valid_lengths_agree_with_the_task(length: int) -> None:
    task = get_task("arithmetic")
    positions = PositionSymbols.from_task(task)
    assert positions is not None
    assert positions.longest_valid_lengths(np.array([length])).tolist() == [task.longest_valid_length(length)]


def test_shortest_length() -> None:
    third = Machine(table=[[1, 1], [2, 2], [3, 3], [1, 1]], outputs=[0, 0, 0, 1])
    never = Machine(table=[[0, 0]], outputs=[0])
    parity = get_machine("parity")
    assert EvaluationStrings(get_task("a5"), 1, 1, CPU).shortest_length == 1
    assert EvaluationStrings(Task(name="third", machine=parity, valid=third), 1, 1, CPU).shortest_length == 3
    assert EvaluationStrings(Task(name="never", machine=parity, valid=never), 1, 1, CPU).shortest_length == NEVER


def test_random_starts() -> None:
    task = get_task("a5")
    strings = EvaluationStrings(task, 300, 1, CPU, random_start=True)
    starts = strings.start_states()
    assert starts is not None
    assert len(set(starts.tolist())) > 50
    tokens, labels = read_blocks(strings, BLOCK + 5)
    for row in range(3):
        state = int(starts[row])
        for position, symbol in enumerate(tokens[row].tolist()):
            state = int(task.machine.table[state, symbol])
            assert labels[row, position] == task.machine.outputs[state]
    [(fresh, last, fresh_starts)] = strings.draw_fresh(7)
    assert fresh_starts is not None
    state = int(fresh_starts[0])
    for symbol in fresh[0].tolist():
        state = int(task.machine.table[state, symbol])
    assert last[0] == task.machine.outputs[state]
    with pytest.raises(TaskError, match="cannot start in a random state"):
        EvaluationStrings(get_task("arithmetic"), 1, 1, CPU, random_start=True)


@pytest.mark.parametrize("sampling", ["balanced", "covering"])
def test_models_of_a_task_share_the_tables_of_its_strings(sampling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdssm.tasks.evaluation_strings.SHARED_STRINGS", SharedStrings())
    built = list[int]()

    class CountedStream(StringStream):
        def __init__(self, task: Task, *, seeds: list[int], batch: int, max_length: int, **options: Any) -> None:
            built.append(max_length)
            super().__init__(task, seeds=seeds, batch=batch, max_length=max_length, **options)

    monkeypatch.setattr("sdssm.tasks.streamed_strings.StringStream", CountedStream)

    def draw(length: int) -> Tensor:  # each model is evaluated on a task of its own, read from its folder
        strings = EvaluationStrings(get_task("dyck4"), 8, 1, CPU, sampling=sampling)
        return torch.cat([tokens for tokens, *_ in strings.draw_fresh(length)])

    short, long = draw(10), draw(300)
    assert torch.equal(draw(300), long) and torch.equal(draw(10), short) and built == [10, 300]


def test_balanced_and_covering_strings_share_their_tables() -> None:
    task = get_task("arithmetic")
    streams = [
        StringStream(task, seeds=[seed], batch=1, max_length=99, device=CPU, sampling=sampling)
        for seed, sampling in enumerate(("balanced", "covering"))
    ]
    balanced, covering = (stream._tables for stream in streams)
    assert balanced.walk is covering.walk is not None
    assert balanced.thresholds.numel() == 0  # those of uniform strings
    before = balanced.walk
    longer = StringStream(task, seeds=[3], batch=1, max_length=101, device=CPU, sampling="balanced")
    assert longer._tables.walk is not before


def test_threads_build_the_same_tables_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built, build = list[int](), WalkTables.build

    def counted_build(*args: Any) -> WalkTables:
        built.append(args[3])
        time.sleep(0.05)  # the other threads come meanwhile
        return build(*args)

    monkeypatch.setattr(WalkTables, "build", counted_build)
    machine = get_task("dyck4").minimal
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda length: SHARED_TABLES.get(machine, length, CPU), [31, 31, 32, 31]))
    assert sorted(built) == [31, 32] and tables[0] is tables[1] is tables[3]


def test_tables_for_longer_strings_replace_none_that_a_thread_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    task = get_task("tomita4")
    monkeypatch.setattr(streamed_strings, "MOST_THRESHOLDS", 100 * task.minimal.table.size)
    growing = StreamedStrings(task, "covering", 3, CPU)
    drawn = [growing.draw(8, length, part=0)[0] for length in (30, 31, 90, 100, 7)]
    assert [stream.max_length for stream in growing._streams] == [30, 60, 100]  # twice as long, up to the limit
    assert growing.has_length(100) and not growing.has_length(101)
    for tokens in drawn:
        fresh = StreamedStrings(task, "covering", 3, CPU)
        assert torch.equal(tokens, fresh.draw(8, tokens.shape[1], part=0)[0])
