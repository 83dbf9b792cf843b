"""The shortest misclassified string: found, proved to be the shortest, or how far the search went."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from sdssm.automata import Machine
from sdssm.checking.automaton_search import find_automaton
from sdssm.checking.misclassified import ALL_STRINGS, find_misclassified
from sdssm.checking.section_results import MisclassifiedSection
from sdssm.errors import ModelError, SettingsError
from sdssm.exact import compile as compile_model
from sdssm.models import wrap_module
from sdssm.models.module_settings import ModuleSettings
from sdssm.tasks import Task, get_task
from sdssm.testing.model_under_test import wrap_unchecked
from tests.checking.machine_modules import (
    KINDS,
    machine_model,
    shortest_by_brute_force,
    wrong_from,
    wrong_on,
    wrong_transition,
)

#: Tasks whose strings are all valid, and whose valid strings have odd lengths.
TASKS = ("cycle", "arithmetic")


def valid_word(task: Task, length: int) -> tuple[int, ...]:
    return tuple(task.sample(1, length, generator=torch.Generator().manual_seed(3)).tokens[0].tolist())


def planted(task: Task) -> dict[str, Machine]:
    return {
        "one string": wrong_on(task.machine, valid_word(task, 5)),
        "long strings": wrong_from(task.machine, 3),
        "one transition": wrong_transition(task.machine, 1, 0, 2),
        "no error": task.machine,
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("error", ["one string", "long strings", "one transition", "no error"])
def test_the_result_is_that_of_brute_force(name: str, error: str, kind: str) -> None:
    task, longest = get_task(name), 5
    machine = planted(task)[error]
    expected = shortest_by_brute_force(machine, task, longest)
    result = find_misclassified(machine_model(machine, kind), task, longest=longest, max_seconds=20)
    assert result.string == expected
    assert (expected is None) == (error == "no error")
    if expected is None:
        assert not result.is_shortest and result.all_strings_up_to == longest and result.method is None
    else:
        assert result.is_shortest and result.method == ALL_STRINGS and result.length == len(expected)
        assert (result.label, result.prediction) == (task.machine.output(expected), machine.output(expected))
        assert result.symbols == tuple(task.machine.symbol_names[symbol] for symbol in expected)
        assert "no shorter one exists" in result.describe()
    if error == "no error":  # the number of strings is that of the valid strings
        total = sum(int((task.labels(all_strings(task, length))[:, -1] >= 0).sum()) for length in range(1, longest + 1))
        assert result.strings == total


def all_strings(task: Task, length: int) -> Tensor:
    return torch.cartesian_prod(*[torch.arange(task.n_symbols)] * length).reshape(-1, length)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_beyond_the_strings_that_are_read_one_by_one_are_found_and_shortened(kind: str) -> None:
    task = get_task("cycle")
    machine = wrong_from(task.machine, 30)
    model = machine_model(machine, kind)
    result = find_misclassified(model, task, max_strings=1_000, longest=300, max_seconds=20)
    assert result.string is not None and result.length == 30 and not result.is_shortest and result.method != ALL_STRINGS
    assert result.all_strings_up_to == 5  # 3 + 9 + ... + 3^5 strings; one length more has 729
    assert task.machine.output(result.string) == result.label != result.prediction == machine.output(result.string)
    assert "shorter ones may exist" in result.describe()


def test_a_wrong_transition_that_random_strings_miss_is_found() -> None:
    """A counter of ones in a row: a random string of moderate length does not reach the last state."""
    n = 40
    chain = Machine(table=[[0, min(q + 1, n)] for q in range(n + 1)], outputs=[int(q == n) for q in range(n + 1)])
    task = Task(name="ones", machine=chain)
    wrong = wrong_transition(chain, n - 1, 1, 0)
    result = find_misclassified(machine_model(wrong, "prefixes"), task, max_strings=100, longest=100, max_seconds=20)
    assert result.string == (1,) * n and result.method == "transitions" and not result.is_shortest


def test_the_rest_of_the_time_proves_that_a_string_is_shortest() -> None:
    """Shortening may lead to a string one longer than those that were read one by one."""
    task = get_task("parity")
    model = machine_model(wrong_from(task.machine, 7), "recurrent")
    result = find_misclassified(model, task, max_strings=130, longest=300, max_seconds=20)
    assert (result.length, result.all_strings_up_to, result.is_shortest) == (7, 6, True)


def test_a_model_of_the_catalogue_and_finitely_many_valid_strings() -> None:
    task = get_task("parity")
    exact = compile_model("parity")
    result = find_misclassified(exact, task, max_strings=2_000, longest=64, max_seconds=20)
    assert result.string is None and result.all_strings_up_to == 9
    assert {part.method: part.length for part in result.searched}["smallest margins"] == 64
    assert result.joined > 0
    assert exact.training is False
    json.dumps(result.to_json())
    short = Machine(table=[[1, 1], [2, 2], [3, 3], [3, 3]], outputs=[0, 1, 1, 0])  # lengths 1 and 2 are valid
    finite = find_misclassified(exact, Task(name="short", machine=task.machine, valid=short), max_seconds=20)
    assert (
        finite.all_strings_up_to is None and finite.strings == 6 and "all valid strings were read" in finite.describe()
    )


class Overflows(nn.Module):
    """Parity, which is right on short strings, and not finite from length 11 on."""

    def forward(self, tokens: Tensor) -> Tensor:
        parity = tokens.cumsum(1) % 2
        logits = torch.stack([1.0 - parity, parity.float()], 2)
        logits[:, 10:] = torch.nan
        return logits


def test_logits_that_are_not_finite_are_an_error_of_the_model() -> None:
    model = wrap_module(Overflows(), 2, 2)
    result = find_misclassified(model, get_task("parity"), max_strings=100, max_seconds=20, longest=64)
    assert result.length == 11 and result.prediction is None and "not finite" in result.describe()


class FewPositions(nn.Module):
    """Parity of at most 50 symbols; it does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(50, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        seen: Tensor = self.positions(torch.arange(tokens.shape[1]))[:, 0]
        parity = tokens.cumsum(1) % 2
        return torch.stack([1.0 - parity, parity.float()], 2) + 0 * seen[:, None]


def test_a_module_may_fail_on_long_strings() -> None:
    task, model = get_task("parity"), wrap_module(FewPositions(), 2, 2)
    result = find_misclassified(model, task, max_strings=100, max_seconds=20)
    assert result.string is None and result.note is not None and "FewPositions raises IndexError" in result.note
    assert {part.method: part.length for part in result.searched}["random and repeated words"] == 32  # 64 is too long
    assert find_automaton(model, task).validated_length == 40
    assert "FewPositions raises IndexError" in MisclassifiedSection(result).facts()["no longer strings"]


class Inconsistent(nn.Module):
    """Right on whole strings; the state is wrong."""

    def forward(self, tokens: Tensor) -> Tensor:
        parity = tokens.cumsum(1) % 2
        return torch.stack([1.0 - parity, parity.float()], 2)

    def advance(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        return 1 - self.forward(tokens), tokens[:, :1].float()


def test_whole_strings_are_read_if_the_state_of_a_module_leads_to_other_predictions() -> None:
    model = wrap_unchecked(Inconsistent(), ModuleSettings(name="Inconsistent"), 2, 2)  # wrap_module refuses it
    result = find_misclassified(model, get_task("parity"), max_strings=100, longest=12, max_seconds=20)
    assert result.string is None and result.unconfirmed == 0


class Rounds(nn.Module):
    """Parity; all strings of eight symbols that start with 0 are wrong symbol by symbol only, the others as a whole."""

    def compute_logits(self, parity: Tensor, first: Tensor, position: Tensor, rounded: float) -> Tensor:
        size = torch.where(first[:, None] == 1, -1e-4, rounded)
        return torch.stack([0.0 * parity, (2.0 * parity - 1) * torch.where(position == 8, size, 1.0)], 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.compute_logits(tokens.cumsum(1) % 2, tokens[:, 0], torch.arange(tokens.shape[1]) + 1, 1e-4)

    def advance(
        self, tokens: Tensor, state: tuple[Tensor, Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        parity, read, first = (tokens[:, 0] * 0, tokens[:, 0] * 0, tokens[:, 0]) if state is None else state
        parities = (parity[:, None] + tokens.cumsum(1)) % 2
        position = read[:, None] + torch.arange(tokens.shape[1]) + 1
        return self.compute_logits(parities, first, position, -1e-4), (parities[:, -1], position[:, -1], first)


def test_all_strings_that_are_wrong_symbol_by_symbol_are_read_as_a_whole() -> None:
    """The first 128 strings of length 8 are correct as a whole, the next one is not."""
    result = find_misclassified(wrap_module(Rounds(), 2, 2), get_task("parity"), longest=10, max_seconds=20)
    assert result.string == (1, *[0] * 7) and result.is_shortest

    class RoundsOnly(Rounds):
        def compute_logits(self, parity: Tensor, first: Tensor, position: Tensor, rounded: float) -> Tensor:
            return super().compute_logits(parity, 0 * first, position, rounded)

    result = find_misclassified(wrap_module(RoundsOnly(), 2, 2), get_task("parity"), longest=10, max_seconds=20)
    assert result.string is None and result.unconfirmed == 256 and "read symbol by symbol" in result.describe()


def test_bad_input() -> None:
    parity = compile_model("parity")
    with pytest.raises(ModelError, match="has 2 symbols and 2 classes, but a5 has 2 and 60"):
        find_misclassified(parity, get_task("a5"))
    with pytest.raises(SettingsError, match="longest is 0; it must be at least 1"):
        find_misclassified(parity, get_task("parity"), longest=0)
    with pytest.raises(SettingsError, match="max_seconds"):
        find_misclassified(parity, get_task("parity"), max_seconds=-1)


def test_a_module_that_reads_one_symbol_only_is_searched() -> None:
    class OneSymbol(nn.Embedding):
        longest = 1

    result = find_misclassified(wrap_module(OneSymbol(2, 2), n_symbols=2, n_classes=2), get_task("parity"))
    assert result.all_strings_up_to == 1 or result.length == 1
