"""Tests of streams of balanced, covering and mixed strings."""

from __future__ import annotations

import time
from importlib.util import find_spec
from itertools import product

import pytest
import torch

import sdssm
from sdssm.automata import Machine, get_machine
from sdssm.errors import TaskError
from sdssm.tasks import PAPER_TASKS, Task
from sdssm.tasks.sampling import MIXTURE, SAMPLINGS
from sdssm.tasks.stream import StringBatch, StringStream
from tests.tasks.test_sampling import NO_11, assert_follows, digest, probabilities

QUICK = ["torch", *(["numba"] if find_spec("numba") else [])]
HUGE = (1 << 63) - 1
STRING_PARTS = ("tokens", "labels", "states", "before")
SETTINGS = [*SAMPLINGS, "mixed"]
#: Machines over one alphabet; two of them are the same.
LANGUAGES = [sdssm.task(f"regex[ab]:{expression}") for expression in ("a*b", "(ab)*", "a*b", "a|bb")]


def draw(
    tasks: Task | list[Task], sampling: str | list[str], lengths: torch.Tensor, *, batch: int = 9, name: str = "torch"
) -> StringBatch:
    seeds = [0, 1, HUGE, 7][: lengths.shape[1]]
    longest = int(lengths.max())
    stream = StringStream(
        tasks, seeds=seeds, batch=batch, max_length=longest, device="cpu", sampling=sampling, implementation=name
    )
    return stream.draw(torch.tensor(2**32 - 3), lengths, longest)  # the step counter wraps around


def assert_same_strings(actual: StringBatch, expected: StringBatch) -> None:
    for name in STRING_PARTS:
        assert torch.equal(getattr(actual, name).cpu(), getattr(expected, name)), name


#: Fingerprints of uniform strings as drawn by version 0.1.0.
UNIFORM_STRINGS = {
    "parity": "4cd9e73a5dc61318",
    "even_pairs": "8d4c090849b37f74",
    "cycle": "6070cc3e224b5379",
    "arithmetic": "fe5e7080e298312f",
    "c2xc4": "f3c49fbf8f758795",
    "d4": "2d0507d339b233df",
    "a5": "36c4b0392e4409f0",
    "c2xc30": "bf8ce3e58bfa543e",
    "d30": "90932ed9d99c7386",
    "regex:(ab|c)*": "020a8b293331b9cd",
    "s5:32:0": "90796802588d9baa",
    "no-11": "e0a2852a67790f69",
}


@pytest.mark.parametrize("implementation", QUICK)
@pytest.mark.parametrize("name", UNIFORM_STRINGS)
def test_uniform_strings_are_those_of_earlier_versions(name: str, implementation: str) -> None:
    task = Task(name=name, machine=get_machine("parity"), valid=NO_11) if name == "no-11" else sdssm.task(name)
    options = {"seeds": [0, HUGE], "batch": 9, "max_length": 40, "device": "cpu", "implementation": implementation}
    stream = StringStream(task, **options)  # type: ignore[arg-type]
    lengths = torch.from_numpy(stream.draw_lengths(7, 6, [40, 40]))
    strings = stream.draw(torch.tensor(7), lengths, 40)
    assert digest(strings.tokens, strings.labels) == UNIFORM_STRINGS[name]
    # Beside strings of another sampling they are the same.
    beside = StringStream(task, sampling=["uniform", "mixed"], **options)  # type: ignore[arg-type]
    assert torch.equal(beside.draw(torch.tensor(7), lengths, 40).tokens[:, 0], strings.tokens[:, 0])


@pytest.mark.parametrize("sampling", SETTINGS)
@pytest.mark.parametrize("name", [*PAPER_TASKS, "s5:32:0", "regex:(ab|c)*", "random:50x8:0"])
def test_implementations_agree_and_states_match_the_minimal_machine(name: str, sampling: str) -> None:
    task = sdssm.task(name)
    lengths = torch.tensor([[39, 1], [7, 29]])
    first, *others = (draw(task, sampling, lengths, name=implementation) for implementation in QUICK)
    assert first.states is not None and first.before is not None
    for other in others:
        assert_same_strings(other, first)
    minimal = Machine(table=task.minimal.table, start=task.minimal.start)
    for m, r in product(range(2), range(2)):
        length = int(lengths[m, r])
        strings = first.tokens[m, r, :, :length]
        assert torch.equal(task.labels(strings)[:, -1], first.labels[m, r])
        assert first.states[m, r].tolist() == [minimal.run(string) for string in strings.tolist()]
        assert first.before[m, r].tolist() == [minimal.run(string[:-1]) for string in strings.tolist()]
        assert (first.labels[m, r] >= 0).all()
        assert (first.tokens[m, r, :, length:] == 0).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("sampling", [*SETTINGS, ["mixed", "uniform"]])
@pytest.mark.parametrize("name", ["a5", "arithmetic", "tomita4", "s5:32:0", "random:600x64:0"])
def test_a_gpu_draws_the_same_strings(name: str, sampling: str | list[str]) -> None:
    task, lengths = sdssm.task(name), torch.tensor([[39, 1], [7, 29], [40, 5]])
    lengths = torch.from_numpy(
        StringStream(task, seeds=[0, 1], batch=1, max_length=40, device="cpu").longest_valid_lengths
    )[lengths]
    for batch in (1, 70, 128):
        options = {"seeds": [0, HUGE], "batch": batch, "max_length": 40, "sampling": sampling}
        on_cpu = StringStream(task, device="cpu", **options).draw(torch.tensor(5), lengths, 40)  # type: ignore[arg-type]
        stream = StringStream(task, device="cuda", implementation="triton", **options)  # type: ignore[arg-type]
        on_gpu = stream.draw(torch.tensor(5, device="cuda"), lengths.cuda(), 40)
        assert_same_strings(on_gpu, on_cpu)


@pytest.mark.parametrize("implementation", QUICK)
def test_a_string_depends_on_its_own_seed_step_index_and_sampling_only(implementation: str) -> None:
    samplings = ["mixed", "covering", "uniform", "balanced"]
    lengths = torch.tensor([[5, 9, 6, 4], [1, 2, 9, 7]])
    together = draw(LANGUAGES, samplings, lengths, name=implementation)
    for r, task in enumerate(LANGUAGES):
        for m in range(2):
            stream = StringStream(
                task, seeds=[[0, 1, HUGE, 7][r]], batch=5, max_length=20, device="cpu", sampling=samplings[r]
            )
            alone = stream.draw(torch.tensor(2**32 - 3 + m), lengths[m : m + 1, r : r + 1], 9)
            for name in STRING_PARTS:
                assert torch.equal(getattr(alone, name)[0, 0], getattr(together, name)[m, r, :5]), name


@pytest.mark.parametrize("implementation", QUICK)
def test_mixed_strings_take_the_samplings_in_turn(implementation: str) -> None:
    task, lengths, period = LANGUAGES[0], torch.tensor([[9], [4]]), len(MIXTURE)
    mixed = draw(task, "mixed", lengths, name=implementation).tokens
    for sampling in SAMPLINGS:
        pure = draw(task, sampling, lengths, name=implementation).tokens
        for turn in range(period):
            if MIXTURE[turn] == sampling:
                assert torch.equal(mixed[:, :, turn::period], pure[:, :, turn::period])


@pytest.mark.parametrize("sampling", SAMPLINGS[1:])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_strings_follow_the_definition(length: int, sampling: str) -> None:
    no_11 = Task(name="no-11", machine=get_machine("random:4x2:1"), valid=NO_11)
    ends_in_1 = Task(name="1", machine=get_machine("parity"), valid=Machine(table=[[0, 1], [0, 1]], outputs=[0, 1]))
    for tasks in ([no_11], [ends_in_1], LANGUAGES):
        lengths = torch.full((1, len(tasks)), length)
        strings = draw(tasks, sampling, lengths, batch=4_000, name=QUICK[-1])
        for r, task in enumerate(tasks):
            assert_follows(strings.tokens[0, r], probabilities(task, length, sampling))


@pytest.mark.parametrize("sampling", SAMPLINGS[1:])
def test_strings_of_arithmetic_follow_the_definition(sampling: str) -> None:
    task = sdssm.task("arithmetic")
    tokens = draw(task, sampling, torch.tensor([[3, 3]]), batch=20_000, name=QUICK[-1]).tokens
    assert_follows(tokens.flatten(0, 2), probabilities(task, 3, sampling))


def test_many_states_and_symbols() -> None:
    task = sdssm.task("random:5040x256:0")
    begin = time.perf_counter()
    strings = draw(task, "mixed", torch.tensor([[8]]), batch=64, name=QUICK[-1])
    assert time.perf_counter() - begin < 30
    assert strings.states is not None
    assert torch.equal(task.labels(strings.tokens[0, 0])[:, -1], strings.labels[0, 0])
    assert len(set(strings.states.flatten().tolist())) > 32


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ("coverin", "did you mean 'covering'"),
        (["uniform"], "1 samplings were passed for 2 seeds"),
        (["uniform", "balance"], "did you mean 'balanced'"),
    ],
)
def test_invalid_samplings(sampling: str | list[str], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        draw(LANGUAGES[0], sampling, torch.tensor([[1, 1]]))


def test_streams_that_cannot_be_built() -> None:
    options = {"seeds": [0], "batch": 1, "device": "cpu", "sampling": "covering"}
    with pytest.raises(TaskError, match="use random_start=False"):
        StringStream(sdssm.task("d4"), max_length=9, random_start=True, **options)  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="thresholds, but the limit is"):
        StringStream(sdssm.task("s7"), max_length=100_000, **options)  # type: ignore[arg-type]
