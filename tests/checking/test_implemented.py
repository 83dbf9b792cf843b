"""The automaton that a model implements: through its states, or with labels alone."""

from __future__ import annotations

import json
import re
import sys

import pytest
import torch
from torch import Tensor, nn

from sdssm.automata import from_json
from sdssm.checking.automaton_search import find_automaton
from sdssm.checking.implemented import LSTAR, STATES
from sdssm.exact import compile as compile_model
from sdssm.models import wrap_module
from sdssm.tasks import get_task
from tests.checking.machine_modules import KINDS, machine_model, wrong_from, wrong_on, wrong_transition


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["cycle", "arithmetic", "a5"])
def test_a_correct_module_implements_the_machine_of_its_task(name: str, kind: str) -> None:
    task = get_task(name)
    result = find_automaton(machine_model(task.machine, kind), task)
    assert result.method == (STATES if kind.startswith("recurrent") else LSTAR)
    assert result.machine is not None and result.is_equivalent and result.difference is None and result.reason is None
    assert result.n_states == task.machine.minimise().n_states
    assert result.validated_length >= 39 and result.validated_strings > 0
    assert f"equivalent to that of {name}" in result.describe()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_difference_from_the_task_is_named(kind: str) -> None:
    task = get_task("cycle")
    wrong = wrong_transition(task.machine, 3, 1, 0)
    result = find_automaton(machine_model(wrong, kind), task)
    expected = wrong.distinguish(task.machine)
    assert expected is not None and result.machine is not None
    assert result.machine.is_equivalent(wrong) and result.is_equivalent is False
    assert result.difference == expected
    assert result.difference_labels == (task.machine.output(expected), wrong.output(expected))
    assert result.difference_symbols == tuple(task.machine.symbol_names[symbol] for symbol in expected)
    assert "they first differ on" in result.describe()
    data = json.loads(json.dumps(result.to_json()))
    assert from_json(json.dumps(data["machine"])).is_equivalent(wrong)


def test_the_first_length_of_a_disagreement_is_named() -> None:
    """Strings of 200 symbols and more are misclassified: the automaton is not that of the model there."""
    task = get_task("parity")
    result = find_automaton(machine_model(wrong_from(task.machine, 150), "prefixes"), task)
    assert result.machine is not None and 40 <= result.validated_length < 150
    assert re.search(r" symbols, but after every symbol on 0.00 % of strings of length 500 \(chance", result.describe())


def test_a_hint_leads_to_an_error_that_random_strings_miss() -> None:
    task = get_task("parity")
    word = (1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0)
    model = machine_model(wrong_on(task.machine, word), "prefixes")
    assert find_automaton(model, task).is_equivalent
    assert find_automaton(model, task, hints=[word]).difference == word


class Unpredictable(nn.Module):
    """Classifies by a hash of the whole string: no small automaton does that."""

    def forward(self, tokens: Tensor) -> Tensor:
        code = torch.zeros(len(tokens), dtype=torch.float64)
        logits = []
        for symbols in tokens.T:
            code = (code * 7.31 + symbols + 0.37) % 1.618
            logits.append(torch.stack([torch.sin(1e3 * code), torch.cos(1e3 * code)], 1))
        return torch.stack(logits, 1).float()


def test_no_automaton_is_found_within_the_limits() -> None:
    result = find_automaton(wrap_module(Unpredictable(), 2, 2), get_task("parity"), max_states=20, max_seconds=5)
    assert result.machine is None and result.is_equivalent is None and result.n_states is None
    assert result.reason is not None and "20 states" in result.reason
    assert "no automaton was found" in result.describe()
    json.dumps(result.to_json())


def test_the_time_may_be_up_before_anything_is_known() -> None:
    task = get_task("cycle")
    for kind in KINDS:
        result = find_automaton(machine_model(task.machine, kind), task, max_seconds=0)
        assert result.machine is None or result.is_equivalent  # where one was found, it was compared
        assert result.machine is not None or (result.reason is not None and "time limit" in result.reason)


class GrowingState(nn.Module):
    """Parity of a state that holds all symbols."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.advance(tokens, None)[0]

    def advance(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        held = tokens if state is None else torch.cat([state, tokens], 1)
        parity = (held.cumsum(1) % 2)[:, -tokens.shape[1] :]
        return torch.stack([1.0 - parity, parity.float()], 2), held


def test_labels_are_used_if_the_states_cannot_be_compared() -> None:
    result = find_automaton(wrap_module(GrowingState(), 2, 2), get_task("parity"))
    assert result.method == LSTAR and result.is_equivalent


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    task = get_task("parity")
    monkeypatch.setitem(sys.modules, "aalpy.base", None)
    result = find_automaton(machine_model(task.machine, "prefixes"), task)
    assert result.machine is None and result.reason is not None and "sdssm[aalpy]" in result.reason
    assert find_automaton(compile_model("parity"), task).is_equivalent  # through its states
