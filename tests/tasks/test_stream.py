"""Tests of the stream of training strings.

The Triton kernels are compared with the other implementations in Triton's interpreter, in a child process: Triton
decides at import whether kernels are interpreted.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sdssm
from sdssm.automata import Machine
from sdssm.errors import TaskError
from sdssm.tasks import PAPER_TASKS, Task
from sdssm.tasks.philox import philox4x32
from sdssm.tasks.stream import StringBatch, StringStream, uniform_numbers
from sdssm.tasks.stream_tables import symbol_thresholds
from tests.interpreted import interpreted

QUICK = ["torch", *(["numba"] if find_spec("numba") else [])]
HUGE = (1 << 63) - 1
LANGUAGES = [sdssm.task(f"regex[ab]:{expression}") for expression in ("a*b", "(ab)*", "a|b")]


def stream(task: str | Task | list[Task] = "a5", **options: Any) -> StringStream:
    defaults = {"seeds": [0, 1, HUGE], "batch": 5, "max_length": 40, "device": "cpu"}
    return StringStream(sdssm.task(task) if isinstance(task, str) else task, **{**defaults, **options})


def steps(source: StringStream, first: int, count: int, width: int | None = None) -> tuple[Tensor, StringBatch]:
    lengths = torch.from_numpy(source.draw_lengths(first, count, [source.max_length] * len(source.seeds)))
    return lengths, source.draw(torch.tensor(first), lengths, width or source.max_length)


def parts(strings: StringBatch) -> list[Tensor]:
    tensors = strings.tokens, strings.labels, strings.states, strings.before, strings.starts
    return [part for part in tensors if part is not None]


def same(left: StringBatch, right: StringBatch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(parts(left), parts(right), strict=True))


@pytest.mark.parametrize("implementation", QUICK)
def test_strings_of_a_task_do_not_depend_on_other_tasks(implementation: str) -> None:
    names, seeds = ["d4", "c2xc4", "d4", "parity"], [5, 5, 6, 7]
    tasks = [sdssm.task(name) for name in names]
    lengths, together = steps(stream(tasks, seeds=seeds, implementation=implementation), 3, 4)
    for k, (task, seed) in enumerate(zip(tasks, seeds, strict=True)):
        alone = stream(task, seeds=[seed], implementation=implementation)
        assert torch.equal(steps(alone, 3, 4)[0][:, 0], lengths[:, k])
        strings = alone.draw(torch.tensor(3), lengths[:, k : k + 1].contiguous(), 40)
        assert torch.equal(strings.tokens[:, 0], together.tokens[:, k])
        assert torch.equal(strings.labels[:, 0], together.labels[:, k])


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["d4", "cycle", "d4"], {}, "need the same alphabet"),
        (["d4", "parity"], {}, "2 tasks were passed for 3 seeds"),
        (["d4", "parity", "d4"], {"random_start": True}, "cannot share a stream"),
    ],
)
def test_tasks_that_cannot_share_a_stream(names: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        stream([sdssm.task(name) for name in names], **options)


# -- Philox ----------------------------------------------------------------------------------------------------------

#: The test vectors of Random123 (kat_vectors, philox4x32 with 10 rounds): counter, key, result.
TEST_VECTORS = [
    "00000000 00000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    "ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd",
    "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1",
]


@pytest.mark.parametrize("line", TEST_VECTORS)
def test_philox_test_vectors(line: str) -> None:
    numbers = [int(word, 16) for word in line.split()]
    tensors = [torch.tensor([number]) for number in numbers]
    words = philox4x32((tensors[0], tensors[1], tensors[2], tensors[3]), (tensors[4], tensors[5]))
    assert [int(word) for word in words] == numbers[6:]
    arrays = [tensor.numpy() for tensor in tensors]
    array_words = philox4x32((arrays[0], arrays[1], arrays[2], arrays[3]), (arrays[4], arrays[5]))
    assert [int(word[0]) for word in array_words] == numbers[6:]


def test_symbols_come_from_the_words_of_their_counters() -> None:
    tokens = stream(seeds=[HUGE], batch=3, max_length=9).draw(torch.tensor(7), torch.tensor([[9]]), 9).tokens[0, 0]
    for string, t in product(range(3), range(9)):
        counter = [torch.tensor(number) for number in (t // 4, string, 7, 0)]
        key = torch.tensor(HUGE & 0xFFFFFFFF), torch.tensor(HUGE >> 32)
        word = philox4x32((counter[0], counter[1], counter[2], counter[3]), key)[t % 4]
        assert int(tokens[string, t]) == int(word) * 2 >> 32


# -- a function of seed and step -------------------------------------------------------------------------------------


@pytest.mark.parametrize("implementation", QUICK)
@pytest.mark.parametrize("name", ["a5", "arithmetic"])
def test_strings_depend_only_on_seed_and_step(name: str, implementation: str) -> None:
    lengths, together = steps(stream(name, implementation=implementation), 100, 6)
    for r, seed in enumerate([0, 1, HUGE]):
        alone = stream(name, seeds=[seed], implementation=implementation)
        for first, count in ((100, 2), (102, 1), (103, 3)):
            alone_lengths, strings = steps(alone, first, count, width=40)
            window = slice(first - 100, first - 100 + count)
            assert torch.equal(alone_lengths, lengths[window, r : r + 1])
            assert torch.equal(strings.tokens[:, 0], together.tokens[window, r])
            assert torch.equal(strings.labels[:, 0], together.labels[window, r])


def test_strings_do_not_depend_on_batch_size_and_width() -> None:
    lengths = torch.full((4, 3), 9)
    wide = stream(batch=17).draw(torch.tensor(3), lengths, 40)
    narrow = stream(batch=4, max_length=10).draw(torch.tensor(3), lengths, 9)
    assert torch.equal(wide.tokens[:, :, :4, :9], narrow.tokens)
    assert torch.equal(wide.labels[:, :, :4], narrow.labels)


def test_different_seeds_and_steps_give_different_strings() -> None:
    tokens = stream(batch=8, seeds=[0, 1, 1 << 32, HUGE]).draw(torch.tensor(0), torch.full((3, 4), 40), 40).tokens
    assert len({tuple(string) for string in tokens.flatten(0, 2).tolist()}) == 3 * 4 * 8


@pytest.mark.parametrize("name", [*PAPER_TASKS, "s5:32:0", "regex:(ab|c)*"])
def test_implementations_agree_and_labels_match_the_task(name: str) -> None:
    task = sdssm.task(name)
    lengths, strings = steps(stream(name, implementation=QUICK[-1]), 2**32 - 3, 6)  # the step counter wraps around
    assert same(strings, steps(stream(name, implementation="torch"), 2**32 - 3, 6)[1])
    for m, r in product(range(6), range(3)):
        length = int(lengths[m, r])
        tokens = strings.tokens[m, r]
        assert torch.equal(task.labels(tokens[:, :length])[:, -1], strings.labels[m, r])
        assert strings.states is not None
        minimal = Machine(table=task.minimal.table, start=task.minimal.start)
        assert strings.states[m, r].tolist() == [minimal.run(string) for string in tokens[:, :length].tolist()]
        assert (strings.labels[m, r] >= 0).all()
        assert (tokens[:, length:] == 0).all()


@pytest.mark.parametrize("implementation", QUICK)
def test_random_starts(implementation: str) -> None:
    source = stream("d4", batch=2000, seeds=[4], random_start=True, implementation=implementation)
    strings = source.draw(torch.tensor(0), torch.tensor([[5]]), 5)
    assert strings.starts is not None
    machine = source.task.machine
    for start, tokens, label in zip(
        strings.starts[0, 0, :50].tolist(), strings.tokens[0, 0].tolist(), strings.labels[0, 0].tolist(), strict=False
    ):
        assert machine.outputs[machine.run(tokens, start=start)] == label
    assert chi_square(strings.starts.flatten(), machine.n_states) < 4
    assert torch.equal(
        strings.tokens, stream("d4", batch=2000, seeds=[4]).draw(torch.tensor(0), torch.tensor([[5]]), 5).tokens
    )


# -- uniform ---------------------------------------------------------------------------------------------------------


def chi_square(values: Tensor, kinds: int) -> float:
    """Pearson's statistic for a uniform choice among `kinds`, in standard deviations above its mean."""
    counts = torch.bincount(values, minlength=kinds).double()
    assert len(counts) == kinds
    expected = counts.sum() / kinds
    statistic = float(((counts - expected).square() / expected).sum())
    return (statistic - (kinds - 1)) / math.sqrt(2 * (kinds - 1))


@pytest.mark.parametrize("name", ["a5", "cycle", "s5:32:0"])
def test_all_strings_are_equally_likely(name: str) -> None:
    source = stream(name, batch=4000, seeds=[1, 2], max_length=8)
    tokens = source.draw(torch.tensor(0), torch.full((8, 2), 8), 8).tokens
    V = source.task.n_symbols
    for t in range(8):
        assert chi_square(tokens[..., t].flatten(), V) < 5
    pair = tokens[..., 2] * V + tokens[..., 7]
    assert chi_square(pair.flatten(), V * V) < 5


def test_valid_strings_are_equally_likely() -> None:
    source = stream("arithmetic", batch=20000, seeds=[1, 2], max_length=3)
    tokens = source.draw(torch.tensor(0), torch.full((2, 2), 3), 3).tokens
    code = (tokens * torch.tensor([64, 8, 1])).sum(-1).flatten()
    valid = [w for w in product(range(8), repeat=3) if int(source.task.labels(torch.tensor([w]))[0, -1]) >= 0]
    number = torch.full((512,), -1)
    for position, (a, b, c) in enumerate(valid):
        number[64 * a + 8 * b + c] = position
    assert chi_square(number[code], len(valid)) < 4


def test_thresholds_match_exact_counts() -> None:
    """The strings over {0, 1} without 11 are counted by Fibonacci numbers."""
    table, accepting = np.array([[0, 1], [0, 2], [2, 2]]), np.array([True, True, False])
    thresholds = symbol_thresholds(table, accepting, 2000)
    fibonacci = [1, 2]
    while len(fibonacci) < 2002:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    for r in (0, 1, 2, 10, 1999):
        assert abs(int(thresholds[r, 0, 0]) - fibonacci[r] * 2**32 // fibonacci[r + 1]) <= 1
        assert thresholds[r, 0, 1] == thresholds[r, 1, 0] == 2**32


def test_thresholds_of_a_branch_with_few_strings() -> None:
    """After 0 one string of each length is valid, after 1 all are; the ratio of the counts exceeds a float's range."""
    table, outputs = [[1, 2], [1, 3], [2, 2], [3, 3]], [1, 1, 1, 0]
    thresholds = symbol_thresholds(np.array(table), np.array(outputs) != 0, 3000)
    assert thresholds[2999, 0, 0] == 0
    assert (thresholds[:, 1, 0] == 2**32).all()
    assert (thresholds[:, 2, 0] == 2**31).all()


def test_uniform_numbers() -> None:
    seeds, step = torch.tensor([0, 5]), torch.tensor(3)
    numbers = uniform_numbers(seeds, step, 3, (100, 7, 3))
    assert numbers.shape == (2, 100, 7, 3)
    assert numbers.dtype == torch.float32
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1
    assert chi_square((numbers.flatten() * 16).long(), 16) < 4
    for implementation in QUICK:
        assert torch.equal(uniform_numbers(seeds[1:], step, 3, (60, 21), implementation)[0], numbers[1, :60].flatten(1))
    assert not torch.equal(uniform_numbers(seeds, step, 4, (100, 7, 3)), numbers)
    assert uniform_numbers(seeds, step, 3, ()).shape == (2,)


# -- lengths ---------------------------------------------------------------------------------------------------------


def test_lengths_are_uniform_up_to_the_limit_of_each_seed() -> None:
    lengths = stream().draw_lengths(0, 20000, np.array([1, 8, 40]))
    assert lengths.dtype == np.int64
    assert (lengths[:, 0] == 1).all()
    for r, most in ((1, 8), (2, 40)):
        assert chi_square(torch.from_numpy(lengths[:, r] - 1), most) < 4
    assert (stream().draw_lengths(11, 3, [1, 8, 40]) == lengths[11:14]).all()
    growing = np.array([[1, 8, 40], [1, 1, 40]])
    assert (stream().draw_lengths(11, 2, growing) == np.minimum(lengths[11:13], growing)).all()


def test_lengths_without_valid_strings_are_not_drawn() -> None:
    lengths = stream("arithmetic").draw_lengths(0, 1000, [40, 39, 2])
    assert set(lengths[:, 0]) == set(range(1, 40, 2))
    assert set(lengths[:, 2]) == {1}
    words = Machine(table=[[1], [2], [3], [1]], outputs=[0, 0, 0, 1])  # lengths 3, 6, 9, ...
    task = Task(name="threes", machine=Machine(table=[[0]]), valid=words)
    assert set(stream(task).draw_lengths(0, 500, [2, 5, 40])[:, 0]) == {3}
    assert set(stream(task).draw_lengths(0, 500, [2, 5, 7])[:, 2]) == {3, 6}
    with pytest.raises(TaskError, match="has no valid string of length 2 or less; the nearest with one: 3"):
        stream(task, max_length=2)


def test_lengths_are_uniform_from_the_smallest() -> None:
    lengths = stream().draw_lengths(0, 20000, [40, 8, 40], least=[3, 8, 1])
    assert chi_square(torch.from_numpy(lengths[:, 0] - 3), 38) < 4
    assert set(lengths[:, 1]) == {8}
    assert (lengths[:, 2] == stream().draw_lengths(0, 20000, [40, 8, 40])[:, 2]).all()  # 1 is the default
    odd = stream("arithmetic").draw_lengths(0, 4000, [40, 40, 4], least=[3, 4, 4])
    assert set(odd[:, 0]) == set(range(3, 40, 2))
    assert set(odd[:, 1]) == set(range(5, 40, 2))  # never below the least
    assert set(odd[:, 2]) == {5}
    assert chi_square(torch.from_numpy(odd[:, 0] // 2 - 1), 19) < 4


@pytest.mark.parametrize("least", [[1, 1], [0, 1, 1], [1, 1, 6], [1.5, 1, 1], [4, 1, 1]])
def test_invalid_smallest_lengths(least: list[Any]) -> None:
    odd = Machine(table=[[1], [0]], outputs=[0, 1])  # lengths 1, 3, 5, ...
    source = stream(Task(name="odd", machine=Machine(table=[[0]]), valid=odd), max_length=4)
    with pytest.raises(TaskError, match="least is|odd has no valid string of length 4..4"):
        source.draw_lengths(0, 1, [4, 4, 4], least)


# -- invalid input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": []}, "seeds is empty"),
        ({"seeds": [-1]}, "seed is -1; it must be in 0..9223372036854775807"),
        ({"seeds": [1 << 63]}, "seed is 9223372036854775808"),
        ({"seeds": [0.5]}, "seed is 0.5; it must be a whole number"),
        ({"batch": 0}, "batch is 0"),
        ({"max_length": 0}, "max_length is 0"),
        ({"task": "arithmetic", "random_start": True}, "use random_start=False"),
        ({"implementation": "numbas"}, "did you mean 'numba'?"),
    ],
)
def test_invalid_streams(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        stream(**options)


@pytest.mark.parametrize(
    ("first", "lengths", "width", "message"),
    [
        (torch.tensor([0]), torch.ones(1, 3, dtype=torch.int64), 4, "first is torch.int64 (1,) on cpu"),
        (torch.tensor(0.0), torch.ones(1, 3, dtype=torch.int64), 4, "first is torch.float32"),
        (torch.tensor(0), torch.ones(1, 2, dtype=torch.int64), 4, "this stream takes torch.int64 (M, 3) on cpu"),
        (torch.tensor(0), torch.ones(1, 3, dtype=torch.int32), 4, "lengths is torch.int32"),
        (torch.tensor(0), torch.ones(1, 3, dtype=torch.int64), 41, "width is 41; it must be in 1..40"),
        (torch.tensor(0), torch.tensor([[1, 5, 1]]), 4, "a length is 5; with this width it must be in 1..4"),
        (torch.tensor(0), torch.tensor([[1, 0, 1]]), 4, "a length is 0"),
        (torch.tensor(0), torch.tensor([[1, 2, 1]]), 4, "arithmetic has no valid string of length 2"),
    ],
)
def test_invalid_draws(first: Tensor, lengths: Tensor, width: int, message: str) -> None:
    with pytest.raises(TaskError) as caught:
        stream("arithmetic").draw(first, lengths, width)
    assert message in str(caught.value)


@pytest.mark.parametrize("most", [[40, 40], [0, 1, 1], [1, 1, 41], [1.5, 2, 2]])
def test_invalid_greatest_lengths(most: list[Any]) -> None:
    with pytest.raises(TaskError, match="most is"):
        stream().draw_lengths(0, 1, most)


# -- Triton ----------------------------------------------------------------------------------------------------------


@interpreted
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"task": "arithmetic"},
        {"random_start": True, "batch": 33},
        {"task": "arithmetic", "sampling": ["mixed", "covering", "uniform"], "max_length": 9},
        {"task": LANGUAGES, "sampling": ["mixed", "covering", "balanced"], "max_length": 9},
    ],
    ids=str,
)
def test_triton_draws_the_same(options: dict[str, Any]) -> None:
    width = options.get("max_length", 39)
    triton, torch_ = (
        steps(stream(**options, implementation=name), 2**32 - 1, 2, width)[1] for name in ("triton", "torch")
    )
    assert same(triton, torch_)


@interpreted
def test_triton_uniform_numbers() -> None:
    triton, torch_ = (
        uniform_numbers(torch.tensor([3, HUGE]), torch.tensor(9), 3, (5, 7), name) for name in ("triton", "torch")
    )
    assert torch.equal(triton, torch_)
