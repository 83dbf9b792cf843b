"""Tasks: sampled strings, and the labels of their prefixes."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sdssm
from sdssm.automata import Machine, get_machine
from sdssm.errors import TaskError
from sdssm.tasks import EXAMPLE_TASKS, PAPER_TASKS, Task
from sdssm.tasks import labels as labels_module
from sdssm.tasks.labels import PrefixLabeller
from sdssm.tasks.sampler import StringSampler
from tests.strategies import machines


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", [*PAPER_TASKS, *EXAMPLE_TASKS])
def test_sampled_strings_are_valid_and_labelled(name: str) -> None:
    task = sdssm.task(name)
    length = task.longest_valid_length(40)
    batch = task.sample(16, length, generator=generator())
    assert batch.tokens.dtype == batch.labels.dtype == torch.int64
    assert batch.tokens.shape == batch.labels.shape == (16, length)
    assert torch.equal(task.labels(batch.tokens), batch.labels)
    assert int(batch.tokens.min()) >= 0
    assert int(batch.tokens.max()) < task.n_symbols
    for tokens, labels in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True):
        expected = task.machine.outputs[task.machine.trace(tokens)]
        is_valid = [True] * length if task.valid is None else (task.valid.outputs[task.valid.trace(tokens)] != 0)
        assert labels == [int(q) if ok else -1 for q, ok in zip(expected, is_valid, strict=True)]
        assert labels[-1] >= 0
    assert torch.equal(task.sample(16, length, generator=generator()).tokens, batch.tokens)


def test_arithmetic_strings() -> None:
    task = sdssm.task("arithmetic")
    assert task.longest_valid_length(40) == 39
    assert [task.has_length(length) for length in range(6)] == [False, True, False, True, False, True]
    batch = task.sample(500, 39, generator=generator())
    assert int(batch.tokens[:, ::2].max()) == 4
    assert int(batch.tokens[:, 1::2].min()) == 5
    assert (batch.labels[:, 1::2] == -1).all()
    assert (batch.labels[:, ::2] >= 0).all()
    # an ill-formed string has no label from its first invalid symbol on
    assert task.labels(torch.tensor([[1, 5, 5, 1, 5, 2]])).tolist() == [[1, -1, -1, -1, -1, -1]]
    with pytest.raises(TaskError, match="arithmetic has no valid string of length 40; the nearest with one: 39 and 41"):
        task.sample(1, 40, generator=generator())


def test_lengths_without_strings() -> None:
    never = Machine(table=[[0, 0]], outputs=[0])
    task = Task(name="never", machine=get_machine("parity"), valid=never)
    with pytest.raises(TaskError, match="no string is valid"):
        task.sample(1, 3, generator=generator())
    with pytest.raises(TaskError, match="no string is valid"):
        task.longest_valid_length(3)
    only_long = Task(name="long", machine=get_machine("parity"), valid=get_machine("regex[01]:.{5,}"))
    with pytest.raises(TaskError, match="no valid string of length 3 or less; the nearest with one: 5"):
        only_long.longest_valid_length(3)
    with pytest.raises(TaskError, match="length must be at least 1 and at most .*, got 0"):
        sdssm.task("parity").sample(1, 0, generator=generator())
    with pytest.raises(TaskError, match="batch must be at least 1, got 0"):
        sdssm.task("parity").sample(0, 1, generator=generator())
    with pytest.raises(TaskError, match="both need the same alphabet"):
        Task(name="odd", machine=get_machine("parity"), valid=Machine(table=[[0]]))


@settings(max_examples=50, deadline=None)
@given(valid=machines(symbols=2, outputs=2))
def test_lengths_with_strings(valid: Machine) -> None:
    reached, known = {valid.start}, list[int]()
    for length in range(1, 100):
        reached = set(valid.table[sorted(reached)].flatten().tolist())
        known += [length] * bool((valid.outputs[sorted(reached)] != 0).any())
    task = Task(name="lengths", machine=Machine(table=[[0, 0]], outputs=[0]), valid=valid)
    assert task.valid_lengths(99).tolist() == known
    assert [length for length in range(1, 100) if task.has_length(length)] == known


def is_uniform(counts: Counter[Any], possible: int) -> bool:
    """Whether the counts are consistent with a uniform choice: a chi-square test with a false alarm rate of 1e-8."""
    expected = counts.total() / possible
    statistic = float(sum((count - expected) ** 2 / expected for count in counts.values()))
    statistic += (possible - len(counts)) * expected
    return bool(abs(statistic - (possible - 1)) < 30 + 5 * (2 * possible) ** 0.5)


@settings(max_examples=25)
@given(machines(symbols=2, most_states=4, outputs=2), st.integers(1, 5))
def test_strings_are_uniform_among_the_valid_ones(valid: Machine, length: int) -> None:
    task = Task(name="random", machine=get_machine("parity"), valid=valid)
    possible = [word for word in product((0, 1), repeat=length) if valid.output(word)]
    assert task.has_length(length) == bool(possible)
    if possible:
        drawn = task.sample(100 * len(possible), length, generator=generator()).tokens
        counts = Counter(map(tuple, drawn.tolist()))
        assert set(counts) <= set(possible)
        assert is_uniform(counts, len(possible))


@settings(max_examples=25)
@given(machines(symbols=2, most_states=4, outputs=3), st.none() | machines(symbols=2, most_states=3, outputs=2))
def test_balanced_labels(machine: Machine, valid: Machine | None) -> None:
    task = Task(name="random", machine=machine, valid=valid)
    length = 4
    by_label: dict[int, set[tuple[int, ...]]] = {}
    for word in product((0, 1), repeat=length):
        if valid is None or valid.output(word):
            by_label.setdefault(machine.output(word), set()).add(word)
    if not by_label:
        return
    batch = task.sample(3_000, length, generator=generator(), sampling="balanced")
    labels = Counter((label,) for label in batch.labels[:, -1].tolist())
    assert set(labels) == {(label,) for label in by_label}
    assert is_uniform(labels, len(by_label))
    for label, words in by_label.items():
        rows = batch.tokens[batch.labels[:, -1] == label]
        assert is_uniform(Counter(map(tuple, rows.tolist())), len(words))


def test_balanced_sampling_reaches_rare_labels() -> None:
    """One string in 2^300 is in the language; its label is still drawn half of the time, without overflow."""
    task = sdssm.task("regex[01]:1*")
    labels = task.sample(400, 300, generator=generator(), sampling="balanced").labels[:, -1]
    assert 150 < int(labels.sum()) < 250


def test_single_path_draws_the_same_strings() -> None:
    """If every string visits the same states, all symbols are drawn at once, with the same result."""
    task = sdssm.task("arithmetic")
    sampler = task._valid_sampler
    at_once = sampler.draw(50, 39, generator())
    one_by_one = sampler._walk(torch.rand(50, 39, generator=generator(), dtype=torch.float64))
    assert torch.equal(at_once, one_by_one)
    table = torch.tensor([[0, 1], [1, 0]])
    assert StringSampler(table, 0, torch.tensor([True, True]))._single_path(4, torch.device("cpu")) is None


@pytest.mark.parametrize("name", ["a5", "arithmetic", "even_pairs", "s5:32:0", "random:300x2:0"])
@pytest.mark.parametrize("few", [0, 48], ids=["tensors", "loop"])
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 63, 64, 65, 1_000, 5_003])
def test_labels_at_every_length(name: str, length: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels_module, "FEW_STRINGS", few)
    task = sdssm.task(name)
    tokens = torch.randint(task.n_symbols, (3, length), generator=generator())
    all_labels = task.labels(tokens)
    for row, labels in zip(tokens, all_labels, strict=True):
        expected = torch.tensor(task.machine.outputs[task.machine.trace(row.numpy())])
        if task.valid is None:
            assert torch.equal(labels, expected)
        else:
            assert torch.equal(labels[labels >= 0], expected[labels >= 0])


def test_word_length_is_limited_by_the_table_size() -> None:
    def word_length(name: str) -> int:
        machine = get_machine(name)
        table = torch.tensor(machine.table)
        return PrefixLabeller.build(table, machine.start, torch.tensor(machine.outputs)).word_length

    assert word_length("parity") > word_length("a5") > word_length("s5:32:0") == 1


def test_labels_accept_any_shape_and_integer_type() -> None:
    task = sdssm.task("parity")
    assert task.labels(torch.tensor([1, 1, 1])).tolist() == [1, 0, 1]
    assert task.labels(torch.zeros(2, 3, 4, dtype=torch.int32)).shape == (2, 3, 4)
    assert task.labels(torch.zeros(2, 3, dtype=torch.uint8)).dtype == torch.int64
    assert task.labels(torch.zeros(0, 3, dtype=torch.long)).shape == (0, 3)
    tokens = torch.randint(2, (6, 4), generator=generator()).t()
    assert torch.equal(task.labels(tokens), task.labels(tokens.contiguous()))
    with pytest.raises(TaskError, match="token 2 is not a symbol of parity; symbols are 0..1"):
        task.labels(torch.tensor([[0, 2]]))
    with pytest.raises(TaskError, match="token -1 is not a symbol"):
        task.labels(torch.tensor([[0, -1]]))
    with pytest.raises(TaskError, match=r"tokens are torch.float32; symbols are whole numbers"):
        task.labels(torch.zeros(2, 3))
    with pytest.raises(TaskError, match=r"pass a tensor, as in torch.tensor"):
        task.labels([[1, 0]])  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="a string needs at least one symbol"):
        task.labels(torch.zeros(2, 0, dtype=torch.long))


def test_labels_of_a_million_symbols() -> None:
    task = sdssm.task("a5")
    tokens = torch.randint(2, (1, 1_000_000), generator=generator())
    assert task.labels(tokens)[0].tolist() == task.machine.trace(tokens[0].numpy()).tolist()


def test_arguments_of_the_wrong_type() -> None:
    task = sdssm.task("parity")
    with pytest.raises(TaskError, match="length is 4.0; it must be a whole number"):
        task.sample(2, 4.0, generator=generator())  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="length is 40.5; it must be a whole number"):
        task.longest_valid_length(40.5)  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="batch is '2'; it must be a whole number"):
        task.sample("2", 4, generator=generator())  # type: ignore[arg-type]
    with pytest.raises(TaskError, match=r"the generator is None; pass a torch.Generator"):
        task.sample(2, 4, generator=None)  # type: ignore[arg-type]


def test_pickled_task_contains_no_tables() -> None:
    task = sdssm.task("arithmetic")
    task.sample(4, 39, generator=generator(), sampling="balanced")
    packed = pickle.dumps(task)
    assert len(packed) < 20_000
    assert pickle.loads(packed) == task


def test_largest_possible_output_is_a_label() -> None:
    task = sdssm.task(Machine(table=[[0]], outputs=[2**31 - 1]))
    assert task.labels(torch.tensor([[0]])).tolist() == [[2**31 - 1]]


def test_task_of_a_machine() -> None:
    task = sdssm.task(Machine(table=[[1], [0]]))
    assert task.labels(torch.tensor([[0, 0]])).tolist() == [[1, 0]]
    assert sdssm.task("regex:(ab)*").n_classes == 2
    assert repr(sdssm.task("d4")) == "Task('d4', Machine(8 states, 2 symbols, 8 outputs))"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_strings_are_on_the_device_of_the_generator() -> None:
    device = torch.device("cuda")
    for name in ("a5", "arithmetic"):
        task = sdssm.task(name)
        batch = task.sample(8, 39, generator=torch.Generator(device).manual_seed(0))
        assert batch.tokens.device.type == batch.labels.device.type == "cuda"
        assert torch.equal(task.labels(batch.tokens.cpu()), batch.labels.cpu())


def test_chance_accuracy() -> None:
    assert sdssm.task("parity").chance_accuracy == 50.0
    assert sdssm.task("a5").chance_accuracy == pytest.approx(100 / 60)


def test_list_tasks() -> None:
    names = sdssm.tasks.list_tasks()
    assert names[: len(PAPER_TASKS)] == list(PAPER_TASKS)
    assert all(sdssm.task(name).n_classes >= 2 for name in names)
