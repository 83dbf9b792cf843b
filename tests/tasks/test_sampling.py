"""Tests of balanced and covering strings: exact laws by enumeration, and limits of size and length."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import sdssm
from sdssm.automata import Machine, get_machine
from sdssm.errors import TaskError
from sdssm.tasks import PAPER_TASKS, Task, evaluation_strings, streamed_strings
from sdssm.tasks.evaluation_strings import EvaluationStrings
from sdssm.tasks.sampling import SAMPLINGS
from sdssm.tasks.string_counts import Counts, StringCounts
from sdssm.tasks.validity import LabelledTable
from tests.strategies import machines

CPU = torch.device("cpu")
NO_11 = Machine(table=[[0, 1], [0, 2], [2, 2]], outputs=[1, 1, 0])
String = tuple[int, ...]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# -- the law by enumeration ------------------------------------------------------------------------------------------


def probabilities(task: Task, length: int, sampling: str) -> dict[String, float]:
    """Return the probability of every string of a length, straight from the definition of the sampling."""
    table, start, labels = task.minimal
    groups: dict[object, list[String]] = {}
    for string in product(range(task.n_symbols), repeat=length):
        state, before = start, start
        for symbol in string:
            before, state = state, int(table[state, symbol])
        if labels[state] >= 0:
            key = {"uniform": None, "balanced": labels[state], "covering": (before, string[-1])}[sampling]
            groups.setdefault(key, []).append(string)
    return {string: 1 / len(groups) / len(group) for group in groups.values() for string in group}


def assert_follows(drawn: Tensor, expected: dict[String, float]) -> None:
    """Check the frequencies of strings (n, L): no other strings, and a chi-square test with 6 standard deviations."""
    counts = Counter(map(tuple, drawn.tolist()))
    assert set(counts) <= set(expected)
    # Rare strings are counted together: the test needs at least a few expected occurrences.
    rare = {string for string, p in expected.items() if p * len(drawn) < 5}
    cells = [(counts[s], p * len(drawn)) for s, p in expected.items() if s not in rare]
    cells.append((sum(counts[s] for s in rare), sum(expected[s] for s in rare) * len(drawn)))
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells if mean > 0)
    free = max(len(cells) - 1, 1)
    assert statistic < free + 6 * math.sqrt(2 * free) + 20


@settings(max_examples=40)
@given(
    machines(symbols=2, most_states=5, outputs=3),
    st.none() | machines(symbols=2, most_states=3, outputs=2),
    st.integers(1, 6),
    st.sampled_from(SAMPLINGS),
)
def test_samples_follow_the_definition(machine: Machine, valid: Machine | None, length: int, sampling: str) -> None:
    task = Task(name="random", machine=machine, valid=valid)
    expected = probabilities(task, length, sampling)
    assert task.has_length(length) == bool(expected)
    if expected:
        assert_follows(task.sample(2_000, length, generator=generator(), sampling=sampling).tokens, expected)


@pytest.mark.parametrize("sampling", SAMPLINGS[1:])
@pytest.mark.parametrize("name", [*PAPER_TASKS, "regex[abc]:(ab|c)*", "regex[01]:1*", "z7", "s5:4:0"])
def test_samples_of_tasks_follow_the_definition(name: str, sampling: str) -> None:
    task = sdssm.task(name)
    length = task.longest_valid_length(3 if task.n_symbols > 2 else 7)
    expected = probabilities(task, length, sampling)
    assert_follows(task.sample(20 * len(expected), length, generator=generator(), sampling=sampling).tokens, expected)


@pytest.mark.parametrize("name", ["a5", "d4", "even_pairs", "cycle", "arithmetic", "tomita4", "regex[ab]:(a|b)*abb"])
def test_counts_by_length_are_those_of_each_length(name: str) -> None:
    """Most tasks repeat their counts, up to powers of two; those of `cycle` grow by a factor of 3 and do not."""
    counts = StringCounts(sdssm.task(name).minimal)
    by_length = counts.up_to(1500)
    assert (len(by_length.counts.mantissa) < 1000) == (name not in ("cycle", "arithmetic", "tomita4"))
    for length in range(1501):
        row = by_length.row[length]
        found = Counts(by_length.counts.mantissa[row], by_length.counts.exponent[row])
        assert found.ratios() == counts.at(length).ratios()


def test_counts_of_very_different_sizes() -> None:
    """A string stays in state 0 with one symbol of 17, so that some states have 17^L times as many strings."""
    table = np.array([[0, *[1] * 16], [1] * 17])
    counts = StringCounts(LabelledTable(table, 0, np.array([0, 1])))
    by_length = counts.up_to(400)
    exponent = by_length.counts.exponent[by_length.row[400]]
    assert exponent[1] - exponent[0] > 1_500
    for length in range(401):
        row = by_length.row[length]
        found = Counts(by_length.counts.mantissa[row], by_length.counts.exponent[row])
        assert found.ratios() == counts.at(length).ratios()


def test_counts_match_python_integers() -> None:
    task = sdssm.task("random:6x3:1")
    counts, exact = StringCounts(task.minimal), [0] * task.minimal.n_states
    exact[task.minimal.start] = 1
    for length in range(600):
        if length in (1, 2, 100, 255, 256, 257, 599):
            mantissa, exponent = counts.at(length)
            for q, number in enumerate(exact):
                bits = number.bit_length()
                assert (mantissa[q] == 0) == (number == 0)
                if number:
                    ratio = (number << 60 >> bits) / 2**60
                    assert abs(math.ldexp(mantissa[q], int(exponent[q]) - bits) / ratio - 1) < 1e-12
        after = [0] * len(exact)
        for q, row in enumerate(task.minimal.table.tolist()):
            for target in row:
                after[target] += exact[q]
        exact = after


# -- strings that existed before ---------------------------------------------------------------------------------------

#: Fingerprints of uniform strings as drawn by version 0.1.0: by `Task.sample`, and by `EvaluationStrings`.
UNIFORM_STRINGS = {
    "parity": ("0bbe027a807519c5", "4be52c781b5a8d07"),
    "even_pairs": ("f3e702dc6f46071f", "565c60fc26a945f8"),
    "cycle": ("5a9b271b0a3b2e24", "f7ad7a93954cd5a9"),
    "arithmetic": ("2d7fdd6a77f46fd8", "ead653bbb241722f"),
    "c2xc4": ("6ed7a50d20b07147", "21149f179d1dd581"),
    "d4": ("fb247abaed73537f", "871fdd90680c76f2"),
    "a5": ("ab975a48e020c1ea", "6a28754637793c6a"),
    "c2xc30": ("848abdb66d3ea47d", "e159c0d4a660a75e"),
    "d30": ("aba2380f7bc95b00", "3e42222fb86103c3"),
    "regex:(ab|c)*": ("dccae1ea8b232ef2", "09e5d2e2aeca5546"),
    "s5:32:0": ("518ed8aabc7e76be", "80f9bd4ceebf97b7"),
    "no-11": ("828ed16e5e063a76", "c89c0f12832df7f1"),
}


def digest(*tensors: Tensor) -> str:
    """Return the fingerprint of tensors of integers."""
    content = b"".join(tensor.long().contiguous().numpy().astype("<i8").tobytes() for tensor in tensors)
    return hashlib.sha256(content).hexdigest()[:16]


@pytest.mark.parametrize("name", UNIFORM_STRINGS)
def test_uniform_strings_are_those_of_earlier_versions(name: str) -> None:
    task = Task(name=name, machine=get_machine("parity"), valid=NO_11) if name == "no-11" else sdssm.task(name)
    g = generator(3)
    samples = [*task.sample(20, (1, 40), generator=g), *task.sample(20, task.longest_valid_length(40), generator=g)]
    tokens, labels, _ = next(EvaluationStrings(task, 70, 5, CPU).draw_fresh(40))
    assert (digest(*samples), digest(tokens, labels)) == UNIFORM_STRINGS[name]


# -- limits ------------------------------------------------------------------------------------------------------------


def test_many_states_and_symbols() -> None:
    task = sdssm.task("random:5040x256:0")
    for sampling in SAMPLINGS[1:]:
        batch = task.sample(500, 4, generator=generator(), sampling=sampling)
        assert len(set(batch.last_labels.tolist())) > 400


def test_rare_transitions_of_long_strings() -> None:
    """One string in 2^1999 reaches the last transition of 1*, and it is drawn as often as the others."""
    task = sdssm.task("regex[01]:1*")  # two states: only 1s, and a 0
    tokens = task.sample(400, 2_000, generator=generator(), sampling="covering").tokens
    only_1s = (tokens[:, :-1] == 1).all(1)
    assert 150 < int(only_1s.sum()) < 250
    assert 60 < int((only_1s & (tokens[:, -1] == 1)).sum()) < 140
    # After the first 0 of the other strings symbols are uniform, and a 0 is likely to be among the first symbols.
    assert 0.4 < float(tokens[~only_1s, 100:].float().mean()) < 0.6
    assert (tokens[~only_1s, :100] == 0).any(1).all()


@pytest.mark.parametrize("sampling", SAMPLINGS[1:])
def test_a_single_string(sampling: str) -> None:
    only_0s = Machine(table=[[0, 1], [1, 1]], outputs=[1, 0])
    task = Task(name="0s", machine=get_machine("parity"), valid=only_0s)
    assert not task.sample(5, 9, generator=generator(), sampling=sampling).tokens.any()
    never = Task(name="never", machine=get_machine("parity"), valid=Machine(table=[[0, 0]], outputs=[0]))
    with pytest.raises(TaskError, match="no string is valid"):
        never.sample(1, 3, generator=generator(), sampling=sampling)


def test_labels_that_a_length_does_not_have() -> None:
    task = sdssm.task("z7")  # a counter: short strings do not reach every state
    for length in (1, 2, 3):
        labels = task.sample(300, length, generator=generator(), sampling="balanced").last_labels
        assert set(labels.tolist()) == task.possible_labels(length, shortest=length)


def test_unknown_sampling() -> None:
    with pytest.raises(TaskError, match="did you mean 'covering'"):
        sdssm.task("a5").sample(1, 3, generator=generator(), sampling="coverin")
    with pytest.raises(TaskError, match="did you mean 'balanced'"):
        sdssm.task("a5").dataset(3, seed=0, sampling="balance")
    with pytest.raises(TaskError, match="did you mean 'uniform'"):
        EvaluationStrings(sdssm.task("a5"), 4, 0, CPU, sampling="unifrom")
    with pytest.raises(TaskError, match="use random_start=False"):
        EvaluationStrings(sdssm.task("a5"), 4, 0, CPU, random_start=True, sampling="covering")


# -- evaluation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLINGS[1:])
def test_evaluation_strings_depend_only_on_seed_and_length(sampling: str) -> None:
    task = sdssm.task("arithmetic")
    strings = EvaluationStrings(task, 70, 5, CPU, sampling=sampling)
    assert strings.positions is None
    [(tokens, labels, starts)] = strings.draw_fresh(40)
    assert tokens.shape == (70, 39) and starts is None
    assert torch.equal(task.labels(tokens)[:, -1], labels)
    [(again, _, _)] = EvaluationStrings(task, 130, 5, CPU, sampling=sampling).draw_fresh(40)
    assert torch.equal(again[:64], tokens[:64])
    [(other, _, _)] = EvaluationStrings(task, 70, 6, CPU, sampling=sampling).draw_fresh(40)
    assert not torch.equal(other, tokens)


def test_evaluation_strings_of_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    task = sdssm.task("tomita4")
    [(whole, _, _)] = EvaluationStrings(task, 128, 5, CPU, sampling="covering").draw_fresh(9)
    monkeypatch.setattr(evaluation_strings, "MOST_SYMBOLS", 64 * 9)
    first, second = (part[0] for part in EvaluationStrings(task, 100, 5, CPU, sampling="covering").draw_fresh(9))
    assert torch.equal(first, whole[:64])
    assert second.shape == (36, 9) and not torch.equal(second, whole[64:100])


@pytest.mark.parametrize("sampling", SAMPLINGS[1:])
@pytest.mark.parametrize("most", [0, 1 << 26])
def test_evaluation_strings_follow_the_definition(sampling: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tables of a string stream, and without: drawn on the CPU, with less memory."""
    monkeypatch.setattr(streamed_strings, "MOST_THRESHOLDS", most)
    task = Task(name="no-11", machine=get_machine("random:4x2:1"), valid=NO_11)
    strings = EvaluationStrings(task, 4_000, 1, CPU, sampling=sampling)
    for length in (2, 5, 4):
        [(tokens, labels, _)] = strings.draw_fresh(length)
        assert torch.equal(task.labels(tokens)[:, -1], labels)
        assert_follows(tokens, probabilities(task, length, sampling))


def test_evaluation_strings_are_balanced() -> None:
    strings = EvaluationStrings(sdssm.task("regex[01]:1*"), 1_000, 1, CPU, sampling="balanced")
    [(_, labels, _)] = strings.draw_fresh(300)
    assert 400 < int(labels.sum()) < 600
    assert np.isin(labels.numpy(), (0, 1)).all()
