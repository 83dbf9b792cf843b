"""Each law fails for a module that breaks it, with what was observed, and passes for modules that obey it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from sdssm.errors import ModelError, UnknownNameError
from sdssm.models import TokenModel, wrap_module
from sdssm.models.building import untrained_model
from sdssm.runs.schema import resolve_settings
from sdssm.tasks import get_task
from sdssm.testing import LAWS, LawResult, check_laws
from sdssm.testing.law_checks import check_law
from tests.testing import modules
from tests.testing.modules import any_symbol, wrapped

pytestmark = pytest.mark.usefixtures("one_thread")

Build = Callable[[int], TokenModel]
#: The law, how to build a model that breaks it from a seed, and what the result says.
BROKEN: list[tuple[str, Build, str]] = [
    ("shapes", partial(wrapped, modules.SqueezedBatch), r"returns shape \(7, 5\) for tokens of shape \(1, 7\)"),
    ("finite", partial(wrapped, modules.Overflowing), "a prediction after 500 symbols is infinite"),
    (
        "deterministic",
        partial(wrapped, modules.Noisy),
        r"of string \d changes by 0\.\d+ when the same strings are read",
    ),
    ("deterministic", partial(wrapped, modules.Counting), "changes by 8 when the same strings are read again"),
    ("rows", partial(wrapped, modules.BatchCentred), r"prefix \d of string 1 changes by [\d.]+ when it is read alone"),
    (
        "causal",
        partial(wrapped, modules.LooksAhead),
        "^the prediction for prefix 3 changes by .* when symbol 5 changes$",
    ),
    ("causal", partial(wrapped, modules.LooksFarAhead), r"prefix 24 changes by \d+ when symbol 64 changes"),
    ("prefixes", partial(wrapped, modules.KnowsTheLength), "prefix 1 of .* when the symbols after it are left out"),
    ("chunks", partial(wrapped, modules.ForgetsTheState), "when the string is read in pieces of 1, 6, 4 symbols"),
    ("padding", partial(wrapped, modules.LooksAhead), "the loss changes by .* after the end of string 1, which has 3,"),
    ("padding", partial(wrapped, modules.Plain, kind=modules.PaddedLoss), "the loss changes by .* of string 1"),
    ("gradients", partial(wrapped, modules.RootOfZero), "the gradient of embed.weight is NaN at length 500"),
    ("gradients", partial(wrapped, modules.Detached), "the loss has no gradient"),
    ("gradients", partial(wrapped, modules.ZeroGradient), "every gradient is 0 at length 500"),
    ("grad mode", partial(wrapped, modules.DoubledByGrad), "changes by .* when gradients are recorded"),
    ("training mode", partial(wrapped, modules.RunningMean), "changes by .* after a pass in training mode"),
    ("saving", partial(wrapped, modules.Unsaved), "changes by .* when the model is saved and loaded"),
    ("symbols", any_symbol, r"the symbol -1 is read, but symbols are 0\.\.2"),
    (
        "replicas",
        partial(wrapped, modules.UnsavedShift),
        "the loss changes by .* of model 2 when two models are computed",
    ),
]


def failed(results: tuple[LawResult, ...]) -> dict[str, str]:
    return {result.name: result.detail for result in results if result.passed is False}


@pytest.mark.parametrize(("name", "build", "detail"), BROKEN)
def test_a_law_fails_for_a_model_that_breaks_it(name: str, build: Build, detail: str) -> None:
    law = next(law for law in LAWS if law.name == name)
    result = check_law(law, build(0), build_another=build)
    assert result.passed is False
    assert re.search(detail, result.detail), result.detail
    assert result.title == law.title


def test_every_law_is_broken_by_a_model_above() -> None:
    assert {name for name, _, _ in BROKEN} == {law.name for law in LAWS}


@pytest.mark.parametrize(
    ("build", "inapplicable"),
    [
        (partial(wrapped, modules.GRU), {"symbols"}),
        (partial(wrapped, modules.Plain), {"chunks", "symbols"}),
        (partial(wrapped, modules.CausalTransformer), {"chunks", "symbols"}),
        (
            partial(wrapped, modules.WholeString, reads="strings"),
            {"causal", "prefixes", "chunks", "padding", "symbols"},
        ),
        (partial(wrapped, partial(nn.Embedding, 3, 5)), {"chunks", "symbols"}),
    ],
)
def test_models_of_others_obey_all_laws_that_apply(build: Build, inapplicable: set[str]) -> None:
    results = [check_law(law, build(0), build_another=build) for law in LAWS]
    assert failed(tuple(results)) == {}
    without = {result.name for result in results if result.passed is None}
    assert without - {"replicas"} == inapplicable  # torch.func cannot run every module of torch


# -- what a caller sees ------------------------------------------------------------------------------------------------


def test_a_model_that_raises_breaks_the_law_with_its_error() -> None:
    results = check_laws(wrapped(modules.Raising))
    assert failed(results)["causal"] == "it raises RuntimeError: no forward today"
    assert all("no forward today" in detail for detail in failed(results).values())
    assert len(results) == len(LAWS) - 1  # replicas need a factory


def test_the_model_the_random_numbers_and_the_gradients_are_left_alone() -> None:
    model = wrapped(modules.RunningMean).train()
    before, noise = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    check_laws(model)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), noise)


def test_a_model_with_a_longest_string_is_read_up_to_it() -> None:
    class Short(modules.Plain):
        longest = 5

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            assert tokens.shape[1] <= self.longest
            return super().forward(tokens)

    results = check_laws(wrapped(Short))
    assert failed(results) == {}
    assert next(result for result in results if result.name == "gradients").detail.endswith("at length 5")


def test_a_model_that_starts_from_a_state_of_the_automaton_gets_one() -> None:
    sizes = {"state": 4, "state_embedding": 3}
    settings = resolve_settings("rnn", "length-efficiency-4", "a5", sizes).model
    results = check_laws(untrained_model(settings, 2, 60, seed=0), task=get_task("a5"), laws=LAWS)
    assert failed(results) == {}
    assert all(result.passed for result in results)


def test_strings_of_the_task_are_valid() -> None:
    task = get_task("arithmetic")  # only odd lengths have valid strings
    seen: list[torch.Tensor] = []

    class Recording(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(task.n_symbols, task.n_classes)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            seen.append(tokens)
            logits: torch.Tensor = self.table(tokens)
            return logits

    model = wrap_module(Recording(), task.n_symbols, task.n_classes)
    seen.clear()
    assert failed(check_laws(model, task=task, laws=["deterministic"])) == {}
    assert len(seen) == 3
    assert task.valid is not None
    for string in seen[0].tolist():
        state = task.valid.start
        for symbol in string:
            state = task.valid.table[state, symbol]
        assert task.valid.outputs[state] != 0
    with pytest.raises(ModelError, match="reads 8 symbols but the task parity has 2"):
        check_laws(model, task=get_task("parity"))


def test_an_unknown_law_or_a_bare_module_is_an_error() -> None:
    with pytest.raises(UnknownNameError, match="there is no law 'casual'; did you mean 'causal'?"):
        check_laws(wrapped(modules.Plain), laws=["casual"])
    with pytest.raises(ModelError, match="wrap it with sdssm.models.wrap_module"):
        check_laws(modules.Plain())  # type: ignore[arg-type]  # the mistake


def test_a_small_model_takes_less_than_three_seconds() -> None:
    model = wrapped(modules.GRU)
    start = time.process_time()
    check_laws(model, laws=LAWS)
    assert time.process_time() - start < 3


def test_a_model_that_cannot_be_copied_keeps_its_mode() -> None:
    class KeepsLogits(nn.Embedding):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            self.last = super().forward(tokens)
            return self.last

    model = wrap_module(KeepsLogits(2, 2), n_symbols=2, n_classes=2).train()
    model.module(torch.tensor([[0]]))  # autograd has computed what it keeps, so it cannot be copied
    [result] = check_laws(model, laws=["finite"])
    assert result.passed and model.training
