"""Batches of strings of different lengths, and datasets of them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader

import sdssm
from sdssm.automata import Machine, get_machine
from sdssm.errors import TaskError
from sdssm.tasks import Batch, Task, collate_strings, get_task, library
from sdssm.tasks.batch import PADDING_LABEL, PADDING_TOKEN
from sdssm.tasks.sampling import SAMPLINGS
from tests.strategies import machines

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def generator(seed: int = 0, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def assert_labelled_by_the_machine(task: Task, batch: Batch) -> None:
    """Every string is valid and has the labels of the machine, and past its end there is padding."""
    for tokens, labels, length in zip(*(tensor.tolist() for tensor in batch), strict=True):
        string = tokens[:length]
        expected = task.machine.outputs[task.machine.trace(string)]
        if task.valid is not None:
            assert task.valid.output(string) != 0
            expected = np.where(task.valid.outputs[task.valid.trace(string)] != 0, expected, -1)
        assert labels[:length] == expected.tolist()
        assert tokens[length:] == [PADDING_TOKEN] * (len(tokens) - length)
        assert labels[length:] == [PADDING_LABEL] * (len(labels) - length)
    assert batch.last_labels.tolist() == [
        task.machine.output(row[:n]) for row, n in zip(batch.tokens.tolist(), batch.lengths.tolist(), strict=True)
    ]


# -- sample ------------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    machines(symbols=2, most_states=5, outputs=3),
    st.none() | machines(symbols=2, most_states=3, outputs=2),
    st.lists(st.integers(1, 12), min_size=1, max_size=8),
    st.sampled_from(SAMPLINGS),
)
def test_every_string_has_its_length_and_the_labels_of_the_machine(
    machine: Machine, valid: Machine | None, lengths: list[int], sampling: str
) -> None:
    task = Task(name="random", machine=machine, valid=valid)
    impossible = [length for length in lengths if not task.has_length(length)]
    if impossible:
        with pytest.raises(TaskError, match=f"random has no valid string of length {min(impossible)}"):
            task.sample(len(lengths), lengths, generator=generator(), sampling=sampling)
        return
    batch = task.sample(len(lengths), lengths, generator=generator(), sampling=sampling)
    assert batch.lengths.tolist() == lengths
    assert batch.tokens.shape == (len(lengths), max(lengths))
    assert {tensor.dtype for tensor in batch} == {torch.int64}
    assert_labelled_by_the_machine(task, batch)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["a5", "arithmetic"])
def test_lengths_are_drawn_uniformly_among_the_valid_ones(name: str, device: str) -> None:
    task = sdssm.task(name)
    batch = task.sample(3_000, (2, 9), generator=generator(0, device))
    assert {tensor.device.type for tensor in batch} == {device}
    counts = Counter(batch.lengths.tolist())
    assert sorted(counts) == [length for length in range(2, 10) if task.has_length(length)]
    expected = 3_000 / len(counts)
    assert all(abs(count - expected) < 6 * expected**0.5 for count in counts.values())
    assert_labelled_by_the_machine(task, batch.to("cpu"))
    again = task.sample(3_000, (2, 9), generator=generator(0, device))
    assert all(torch.equal(one, two) for one, two in zip(batch, again, strict=True))


def test_a_ragged_batch_contains_uniform_strings() -> None:
    batch = sdssm.task("parity").sample(4_000, [1, 2] * 2_000, generator=generator())
    counts = Counter(tuple(row[:n]) for row, n in zip(batch.tokens.tolist(), batch.lengths.tolist(), strict=True))
    assert len(counts) == 2 + 4
    assert all(abs(count - 2_000 / 2 ** len(word)) < 200 for word, count in counts.items())


def test_one_length_draws_the_same_strings_in_any_form() -> None:
    task = sdssm.task("arithmetic")
    expected = task.sample(7, 9, generator=generator())
    assert expected.lengths.tolist() == [9] * 7
    for length in ([9] * 7, torch.full((7,), 9), np.full(7, 9), torch.tensor(9), np.int64(9)):
        batch = task.sample(7, length, generator=generator())  # type: ignore[arg-type]  # numpy is accepted
        assert all(torch.equal(one, two) for one, two in zip(batch, expected, strict=True))


def test_a_padded_batch_works_with_cross_entropy_and_with_the_loss_of_a_model() -> None:
    task = sdssm.task("parity")
    model = sdssm.compile(task).requires_grad_(False)
    batch = task.sample(16, (1, 20), generator=generator())
    logits = model(batch.tokens)
    assert float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())) < 0.5
    assert torch.equal(logits.argmax(-1)[batch.mask], batch.labels[batch.mask])
    assert int(batch.mask.sum()) == int(batch.lengths.sum())
    _, correct = model.loss(batch.tokens, batch.last_labels, lengths=batch.lengths)
    assert int(correct) == 16
    packed = pack_padded_sequence(batch.tokens, batch.lengths, batch_first=True, enforce_sorted=False)
    assert len(packed.data) == int(batch.lengths.sum())


@pytest.mark.parametrize(
    ("length", "message"),
    [
        ([3, 4], r"the lengths are \[3, 4\] for 3 strings; pass one length for each string"),
        ([3, 0, 4], "length must be at least 1 and at most .*, got 0"),
        ([3, 4, 2.5], "length is 2.5; it must be a whole number"),
        (torch.ones(3, 1).long(), "length is .*; it must be a whole number"),
        ((9, 5), r"the lengths are \(9, 5\); pass the least length first, as in \(5, 9\)"),
        ((0, 5), "length must be at least 1 and at most .*, got 0"),
        ((2, 2), "arithmetic has no valid string of length 2 to 2; the nearest with one: 1 and 3"),
        ([1, 2, 3], "arithmetic has no valid string of length 2; the nearest with one: 1 and 3"),
    ],
)
def test_wrong_lengths(length: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        sdssm.task("arithmetic").sample(3, length, generator=generator())


# -- datasets ----------------------------------------------------------------------------------------------------------


def equal_batches(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(one, two) for a, b in zip(first, second, strict=True) for one, two in zip(a, b, strict=True)
    )


def test_batches_are_the_same_for_any_number_of_workers() -> None:
    task = sdssm.task("arithmetic")
    dataset = task.dataset((1, 9), seed=3, batch=4, count=7)
    here = list(dataset)
    assert len(dataset) == len(here) == 7
    assert equal_batches(here, list(dataset))
    assert equal_batches(here, list(DataLoader(dataset, batch_size=None, num_workers=2)))
    for batch in here:
        assert_labelled_by_the_machine(task, batch)
    assert len({batch.tokens.tolist().__repr__() for batch in here}) == 7
    assert not equal_batches(here, list(task.dataset((1, 9), seed=4, batch=4, count=7)))


def test_workers_share_single_strings_without_repeating_any() -> None:
    task = sdssm.task("a5")
    dataset = task.dataset((10, 40), seed=0, count=150)
    strings = [tuple(string.tokens.tolist()) for string in dataset]
    assert len(strings) == 150 and {len(string) for string in strings} <= set(range(10, 41))
    loader = DataLoader(dataset, batch_size=16, num_workers=2, collate_fn=collate_strings)
    batches = list(loader)
    for batch in batches:
        assert_labelled_by_the_machine(task, batch)
    loaded = [
        tuple(row[:n])
        for batch in batches
        for row, n in zip(batch.tokens.tolist(), batch.lengths.tolist(), strict=True)
    ]
    assert Counter(loaded) == Counter(strings)


def test_a_dataset_of_one_length_needs_no_collate_function() -> None:
    dataset = sdssm.task("parity").dataset(12, seed=0)
    batch = next(iter(DataLoader(dataset, batch_size=8)))
    assert isinstance(batch, Batch) and batch.tokens.shape == (8, 12) and batch.lengths.tolist() == [12] * 8
    with pytest.raises(TypeError, match="no end"):
        len(dataset)
    assert sdssm.task("parity").dataset(seed=0).length == (1, 40)
    balanced = next(iter(sdssm.task("regex[01]:1*").dataset(30, seed=0, batch=100, sampling="balanced")))
    assert 20 < int(balanced.last_labels.sum()) < 80
    assert equal_batches([next(iter(pickle.loads(pickle.dumps(dataset))))], [next(iter(dataset))])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"batch": 0}, "batch is 0; it must be at least 1"),
        ({"count": 0}, "count is 0; it must be at least 1"),
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"seed": 0.5}, "seed is 0.5; it must be a whole number"),
        ({"length": 2}, "arithmetic has no valid string of length 2"),
        ({"length": [3, 5, 7]}, r"length is \[3, 5, 7\]; pass one length for all strings, or a range"),
        ({"length": (4, 2)}, "pass the least length first"),
    ],
)
def test_wrong_arguments_of_a_dataset(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        sdssm.task("arithmetic").dataset(**{"length": 3, "seed": 0, **changed})


# -- get_task ----------------------------------------------------------------------------------------------------------


def test_get_task_accepts_tasks_and_whatever_get_machine_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    task = get_task("arithmetic")
    assert get_task(task) is task
    parity = get_machine("parity")
    assert get_task(parity).machine is parity
    received: list[Any] = []

    def read(source: Any) -> Machine:
        received.append(source)
        return parity

    monkeypatch.setattr(library, "get_machine", read)
    table = {"a": {"x": "a"}}
    assert get_task(table).name == "machine"
    assert get_task(Path("some/machine.dot")).name == str(Path("some/machine.dot"))
    assert received == [table, Path("some/machine.dot")]


def test_tasks_are_listed_and_built_without_torch() -> None:
    """Importing torch takes seconds; only drawing and labelling strings needs it."""
    program = """
import sys, types
from pathlib import Path
package = types.ModuleType("sdssm")  # without the imports of the package itself
package.__path__ = [sys.argv[1]]
sys.modules["sdssm"] = package
from sdssm.tasks import chance_accuracy, get_task, list_tasks
task = get_task("arithmetic")
print(len(list_tasks()), task.n_classes, task.longest_valid_length(40), task.digest, "torch" in sys.modules)
"""
    arguments = [sys.executable, "-c", program, str(Path(sdssm.__file__).parent)]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    task = get_task("arithmetic")
    assert result.stdout.split() == [str(len(sdssm.list_tasks())), "5", "39", task.digest, "False"], result.stderr
