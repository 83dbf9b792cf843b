"""Report cards of models that fail on long strings, of tasks with few lengths, and the limit of time."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sdssm.automata import Machine
from sdssm.checking import check
from sdssm.checking.accuracy_by_length import AccuracyByLength
from sdssm.checking.accuracy_measurement import AccuracyMeasurement, measure_accuracy
from sdssm.checking.cost_measurement import measure_costs
from sdssm.models import Classifier, wrap_module
from sdssm.tasks import Task, get_task
from sdssm.tasks.label_shares import best_constants
from tests.evaluation.machines import exact


class FewPositions(nn.Module):
    """A model with 50 learned positions, which does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.positions = nn.Embedding(2, 2), nn.Embedding(50, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.table(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return logits


class Slow(nn.Module):
    """A model that returns logits (B, C), and sleeps 0.2 ms for each string."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        sleep(2e-4 * len(tokens))
        logits: Tensor = self.table(tokens).mean(1)
        return logits


def test_a_model_that_fails_on_long_strings_keeps_what_was_measured() -> None:
    card = check(FewPositions(), "parity", sections=["accuracy", "laws", "costs"], strings=16, max_seconds=20.0)
    accuracy = card["accuracy"]
    assert accuracy.data is not None and accuracy.data["lengths"][-1] == 50
    assert accuracy.facts["longest measured"].startswith("length 50: the model raises an error for longer strings")
    assert not card.failed_laws
    assert "at most 50 symbols" in card["laws"].facts["finite"]
    assert "at length 50" in card["laws"].facts["gradients"]
    costs = card["costs"].data
    assert costs is not None and costs["training_tokens"] > 0
    assert costs["prefix_length"] == 50 and costs["generation_tokens"] > 0


def test_costs_are_measured_each_by_itself() -> None:
    class NoGradient(FewPositions):
        def forward(self, tokens: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                raise RuntimeError("no gradients today")
            return super().forward(tokens)

    costs = measure_costs(wrap_module(NoGradient(), 2, 2), get_task("parity"), seconds=0.01)
    assert "no gradients today" in costs.facts()["training"] and (costs.generation_tokens or 0) > 0


def test_a_model_without_parameters_says_so() -> None:
    class OneHot(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return nn.functional.one_hot(tokens, 2).float()

    costs = measure_costs(wrap_module(OneHot(), 2, 2), get_task("parity"), seconds=0.01)
    assert costs.facts()["training"] == "not measured: it has no parameters"


def test_the_time_limit_is_roughly_kept() -> None:
    model = wrap_module(Slow(), 2, 2)
    started = monotonic()
    result = measure_accuracy(model, get_task("parity"), max_seconds=1.0)  # 40 lengths of 512 strings take 4 s
    assert monotonic() - started < 2.0
    assert result.note is not None and "for lack of time, " in result.note
    assert result.lengths[-1] >= 40 and len(result.lengths) < 40
    started = monotonic()
    costs = measure_costs(model, get_task("parity"), seconds=0.001)
    assert monotonic() - started < 0.5 and costs.batch == 8


def test_samples_that_take_too_long_are_noted_once() -> None:
    model = exact(get_task("parity").machine)
    measurement = AccuracyMeasurement(model, get_task("parity"), 40, 8, 0, 0.0, None)
    measurement.by_length = dict.fromkeys((100, 1000), (100.0, 99.0, 100.0, 8))
    for done, length in ((40, 100), (100, 1000)):
        measurement._measure_sampled({length}, 8, done)
    assert measurement.notes == ["balanced and covering accuracy up to length 40 only, for lack of time"]


def test_lengths_without_valid_strings_are_left_out() -> None:
    late = Machine(table=[[1, 1], [2, 2], [3, 3], [3, 3]], outputs=[0, 0, 0, 1])  # at least three symbols
    task = Task(name="late", machine=get_task("parity").machine, valid=late)
    result = measure_accuracy(wrap_module(nn.Embedding(2, 2), 2, 2), task, max_length=10, strings=64)
    assert result.lengths[0] == 3 and result.longest_at_least(99.0) is None
    odd = measure_accuracy(exact(get_task("arithmetic").machine), get_task("arithmetic"), max_length=60, strings=8)
    assert all(length % 2 for length in odd.lengths)
    assert "length 40" not in odd.facts() and odd.facts()["length 39"].endswith("the longest of training")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_finite_language_has_no_long_strings() -> None:
    finite = Machine(table=[[1, 1], [2, 2], [3, 3], [3, 3]], outputs=[0, 1, 1, 0])
    task = Task(name="finite", machine=get_task("parity").machine, valid=finite)
    assert best_constants(task, [1, 2, 5]) == [50.0, 50.0, 50.0]
    assert measure_accuracy(wrap_module(nn.Embedding(2, 2), 2, 2), task, strings=16).lengths == (1, 2)


def make_accuracy(**shares: float) -> AccuracyByLength:
    lengths, values = tuple(int(name[1:]) for name in shares), tuple(shares.values())
    return AccuracyByLength(
        lengths=lengths,
        accuracy=values,
        low=values,
        high=values,
        strings=(64,) * len(values),
        best_constant=(50.0,) * len(values),
        chance=50.0,
        train_length=2,
    )


def test_the_failing_length_agrees_with_the_levels() -> None:
    dense = make_accuracy(_1=100.0, _2=91.0, _3=89.0, _4=95.0)
    assert dense.longest_at_least(90.0) == 2 and dense.failing_length == 3.0
    sparse = make_accuracy(_1=100.0, _2=95.0, _8=85.0)
    assert sparse.failing_length == pytest.approx(4.0) and sparse.longest_at_least(90.0) == 2
    assert make_accuracy(_1=100.0, _2=90.0).failing_length is None


def test_generation_uses_the_single_step_of_a_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    model, step, calls = exact(get_task("parity").machine), Classifier.step, 0

    def count_steps(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return step(*arguments, **options)

    monkeypatch.setattr(Classifier, "step", count_steps)
    assert measure_costs(model, get_task("parity"), seconds=0.001).generation_tokens
    assert calls > 2
