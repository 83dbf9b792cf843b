"""`extract`, `snap`, `horizon` and `certify` for modules that someone else wrote, and for folders with such a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sdssm.errors import ModelError, SdssmError
from sdssm.exact import ExactError, certify, extract, horizon, snap
from sdssm.exact.errors import TimeIsUpError
from sdssm.exact.extraction.lstar import QueriedLabels
from sdssm.exact.extraction.model_reader import ModelReader
from sdssm.models import Classifier, ModelSettings, registry
from sdssm.models.building import untrained_model
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.registry import find_entry
from sdssm.models.settings import default_settings
from sdssm.tasks import get_task
from sdssm.testing.model_under_test import wrap_unchecked
from tests.checking.machine_modules import DictStateModule, PrefixModule, RecurrentModule, StringModule, machine_model
from tests.exact.test_extract import random_machine

PARITY = """
import torch

class Parity(torch.nn.Module):
    def __init__(self, n_symbols, n_classes):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, tokens):
        return self.advance(tokens, None)[0]

    def advance(self, tokens, state):
        before = tokens.new_zeros(len(tokens), 1) if state is None else state.long()
        parity = (before + tokens.cumsum(1)) % 2
        return self.weight * torch.stack([1.0 - parity, parity.float()], 2), parity[:, -1:].float()
"""


def module(kind: type[PrefixModule], name: str) -> nn.Module:
    machine = get_task(name).machine
    return kind(machine, machine.n_outputs)


@pytest.mark.parametrize("kind", [RecurrentModule, DictStateModule])
def test_a_recurrent_module_is_read_through_its_states(kind: type[PrefixModule]) -> None:
    cycle = module(kind, "cycle")
    extraction = extract(cycle, "cycle", lengths=[5, 40], strings=32)
    assert extraction.faithful and extraction.difference is None and extraction.machine.symbols is not None
    measured = horizon(cycle, "cycle", max_length=1_000, strings=4)
    assert measured.reached and measured.method == "pieces"
    snapped = snap(cycle, "cycle")
    assert snapped.certificate.horizon is None and snapped.difference is None and isinstance(snapped.model, Classifier)
    assert horizon(module(RecurrentModule, "arithmetic"), "arithmetic", max_length=20, strings=4).reached


@pytest.mark.parametrize("kind", [PrefixModule, StringModule])
def test_any_other_module_is_asked_for_labels(kind: type[PrefixModule]) -> None:
    cycle = module(kind, "cycle").train()
    extraction = extract(cycle, "cycle", method="lstar", lengths=[5, 20], strings=32)
    assert extraction.faithful and extraction.difference is None
    assert cycle.training  # as before
    assert snap(cycle, "cycle", method="lstar").difference is None


def test_what_is_impossible_is_refused_with_advice() -> None:
    cycle = module(PrefixModule, "cycle")
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: extract(cycle), r"extract\(model, 'a5'\)"),
        (lambda: extract(cycle, "cycle"), "PrefixModule carries no state; use method='lstar'"),
        (lambda: snap(cycle, "cycle"), "PrefixModule carries no state; use method='lstar'"),
        (lambda: horizon(cycle, "cycle"), "PrefixModule carries no state .*; use sdssm evaluate"),
        (lambda: certify(cycle, "cycle"), "PrefixModule has no transition matrices, .* certify snap"),
        (lambda: extract(cycle, "parity"), r"it must be \(3, 7, 2\)"),
    ]
    for call, message in cases:
        with pytest.raises(SdssmError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


class Short(RecurrentModule):
    longest = 12

    def read(self, tokens: Tensor, states: Tensor | None) -> tuple[Tensor, Tensor]:
        assert tokens.shape[1] <= self.longest
        return super().read(tokens, states)


def test_strings_are_no_longer_than_a_module_can_read() -> None:
    short = module(Short, "parity")
    for method in ("states", "lstar"):
        extraction = extract(short, "parity", method=method, strings=8)
        assert extraction.difference is None and extraction.fidelity[-1].length == 12
    with pytest.raises(ExactError, match="at most 12 symbols; pass max_length=12"):
        horizon(short, "parity")
    assert horizon(short, "parity", max_length=12, strings=4).reached


class WrongState(RecurrentModule):
    """Loses its state between pieces."""

    def advance(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        return super().advance(tokens, None)


def test_a_state_that_leads_to_other_predictions_is_refused() -> None:
    with pytest.raises(ExactError, match="reading symbol by symbol changes the logits of WrongState by 1; use method"):
        extract(wrap_unchecked(module(WrongState, "parity"), ModuleSettings(name="WrongState"), 2, 2), "parity")


def test_a_folder_imports_code_only_with_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    Path("parity_of_others.py").write_text(PARITY)
    entry = find_entry("parity_of_others.py:Parity")
    model = untrained_model(default_settings(entry.name), 2, 2, seed=0)
    model.task = get_task("parity")
    model.save("saved")
    for function in (extract, snap, horizon, certify):
        monkeypatch.setattr(registry, "_registered", {})  # as in a new process
        with pytest.raises(ModelError, match="would import .*parity_of_others.py:Parity; if you trust it"):
            function("saved")
    assert extract("saved", trust=True, lengths=[5], strings=8).difference is None
    assert snap("saved", trust=True).difference is None
    assert horizon("saved", trust=True, max_length=64, strings=4).reached
    with pytest.raises(ExactError, match="has no transition matrices"):
        certify("saved", trust=True)
    sys.modules.pop("parity_of_others", None)


def test_models_of_several_layers_and_without_a_state() -> None:
    generator = torch.Generator().manual_seed(0)
    stack = Classifier(ModelSettings(name="lstm", layers=2), 2, 2, generator=generator)
    extraction = extract(stack, "parity", lengths=[3], strings=8, max_states=8, max_seconds=5)
    assert extraction.method == "states" and extraction.fidelity[0].throughout == 8  # it predicts what the model does
    transformer = Classifier(ModelSettings(name="transformer", embedding=16), 2, 2, generator=generator)
    extraction = extract(transformer, "parity", method="lstar", lengths=[3], strings=8, max_states=16, max_seconds=5)
    assert extraction.method == "lstar" and extraction.fidelity[0].throughout == 8


@pytest.mark.parametrize("kind", ["recurrent", "prefixes", "strings"])
def test_labels_of_many_words_are_those_of_each(kind: str) -> None:
    task = get_task("arithmetic")
    reader = ModelReader(machine_model(task.machine, kind), task.valid)
    words = [tuple(range(n % 3, n % 3 + n)) for n in (1, 9, 2, 4)]
    words = [tuple(symbol % task.n_symbols for symbol in word) for word in words]
    expected = [int(task.labels(torch.tensor([word]))[0, -1]) for word in words]
    assert reader.labels_of_words(words) == expected


def test_lstar_asks_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """AALpy asks for one word after the other; all but one or two in each round were read in a batch before."""
    batches: list[int] = []
    ask = QueriedLabels.ask

    def counted(self: QueriedLabels, words: Iterable[tuple[int, ...]]) -> None:
        before = self.words_read
        ask(self, words)
        batches.append(self.words_read - before)

    monkeypatch.setattr(QueriedLabels, "ask", counted)
    machine = random_machine(0, states=30)
    extraction = extract(machine_model(machine, "prefixes"), machine, method="lstar", lengths=[5], strings=8)
    assert extraction.difference is None and extraction.machine.n_states == machine.minimise().n_states > 20
    assert extraction.rounds > 1 and sum(batches) > 100
    assert batches.count(1) + batches.count(2) <= 3 * extraction.rounds


def test_lstar_may_be_stopped_before_its_first_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: QueriedLabels) -> None:
        raise TimeIsUpError

    monkeypatch.setattr(QueriedLabels, "start", stop)
    with pytest.raises(ExactError, match="no machine is known by then; pass a larger max_seconds"):
        extract(module(PrefixModule, "parity"), "parity", method="lstar")
