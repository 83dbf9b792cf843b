"""What each form of the transition matrices guarantees, and settings that contradict a form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sdssm
from sdssm.errors import SettingsError
from sdssm.exporting.arrays import collect_arrays
from sdssm.layers import SelectiveDense, SelectiveDenseSettings
from sdssm.layers.settings import TRANSITIONS
from sdssm.models import Classifier, ModelSettings
from sdssm.runs.schema import create_config, resolve_settings
from sdssm.tasks import get_task
from sdssm.training.engine import TrainingEngine

N, V = 16, 3


def make_layer(**changes: Any) -> SelectiveDense:
    settings = SelectiveDenseSettings(**{"state": N, "dictionary": 4, **changes})
    return SelectiveDense(V, settings, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("p", [1.0, 1.2, 2.0])
def test_columns_of_each_form(p: float) -> None:
    matrices = {form: make_layer(transition=form, column_norm=p).symbol_parts(None).A for form in TRANSITIONS}
    for form in ("stochastic", "sum-one"):
        torch.testing.assert_close(matrices[form].sum(-2), torch.ones(V, N))
    for form in ("stochastic", "nonnegative"):
        assert bool((matrices[form] >= 0).all())
    for form in ("signed", "nonnegative"):
        torch.testing.assert_close((matrices[form].abs() ** p).sum(-2), torch.ones(V, N))
    for form in ("signed", "sum-one"):
        assert bool((matrices[form] < 0).any())
    # Columns with equal entries have l2 norm 1 whatever p is, so that no state is forgotten from the start.
    assert 0.7 < float(torch.linalg.vector_norm(matrices["sum-one"].detach() - 1 / N, dim=-2).mean()) < 1.3


@pytest.mark.parametrize("form", ["stochastic", "sum-one"])
def test_the_sum_of_a_state_never_changes(form: str) -> None:
    layer = make_layer(transition=form, rescale=False)
    assert layer.first_state is not None
    torch.testing.assert_close(layer.first_state.sum(), torch.tensor(1.0))
    tokens = torch.randint(V, (5, 60), generator=torch.Generator().manual_seed(1))
    states, _ = layer.mix_symbols(layer.symbol_parts(None), tokens)
    torch.testing.assert_close(states.sum(-1), torch.ones(5, 60), rtol=1e-3, atol=1e-3)


def test_differences_of_stochastic_states_never_grow() -> None:
    layer = make_layer(transition="stochastic", rescale=False)
    states = torch.softmax(torch.randn(7, N, generator=torch.Generator().manual_seed(2)), -1)
    for symbol in (0, 1, 2, 1, 0):
        after = layer.step_symbol(layer.symbol_parts(None), symbol, states)
        assert bool(((after[1:] - after[0]).abs().sum(-1) <= (states[1:] - states[0]).abs().sum(-1) + 1e-6).all())
        states = after


def test_a_low_column_temperature_gives_an_automaton() -> None:
    layer = make_layer(transition="stochastic")
    assert layer.column_temperature is not None
    layer.column_temperature.fill_(1e-6)
    A = layer.symbol_parts(None).A
    assert torch.equal(A.sort(-2).values[:, -1], torch.ones(V, N)) and torch.equal(A.sum(-2), torch.ones(V, N))


def test_the_constraint_leads_from_the_signed_form_to_the_other() -> None:
    signed = make_layer()
    for form in ("stochastic", "nonnegative", "sum-one"):
        annealed, whole = make_layer(transition=form, constraint=0), make_layer(transition=form)
        for layer in (annealed, whole):
            layer.dictionary.data.copy_(signed.dictionary.data)
        assert annealed.constraint is not None and annealed.first_state is not None and whole.first_state is not None
        torch.testing.assert_close(annealed.symbol_parts(None).A, signed.symbol_parts(None).A)
        annealed.constraint.fill_(1.0)
        torch.testing.assert_close(annealed.symbol_parts(None).A, whole.symbol_parts(None).A)
        torch.testing.assert_close(annealed.first_state, whole.first_state)


def test_training_ramps_constraint_and_temperature() -> None:
    changes = {
        "transition": "stochastic",
        "constraint": 0.0,
        "constraint_end": 1.0,
        "column_temperature_end": 0.002,
        "state": 8,
        "dictionary": 3,
        "steps": 6,
        "batch": 4,
        "train_length": 5,
    }
    task = get_task("parity")
    settings = resolve_settings("sd-ssm", "scale-free", "parity", changes)
    engine = TrainingEngine(
        task, [create_config(task, seed, settings, "scale-free") for seed in (0, 1)], torch.device("cpu")
    )
    engine.advance(6)
    model = engine.model(1)
    assert isinstance(model, Classifier)
    layer = model.mixers[0]
    assert isinstance(layer, SelectiveDense) and layer.constraint is not None and layer.column_temperature is not None
    assert float(layer.constraint) == 1 and abs(float(layer.column_temperature) - 0.002) < 1e-6
    torch.testing.assert_close(layer.symbol_parts(None).A.sum(-2), torch.ones(2, 8))


@pytest.mark.parametrize("form", TRANSITIONS)
def test_every_form_is_certified_extracted_and_exported(form: str) -> None:
    """An automaton in each form: the numbers that other packages read are those that the layer computes with."""
    mixer = SelectiveDenseSettings(state=2, dictionary=2, transition=form, column_temperature=0.01)
    settings = ModelSettings(mixer=mixer)
    model = Classifier(settings, 2, 2, generator=torch.Generator().manual_seed(0))
    eye, swap = torch.eye(2), torch.eye(2).flip(0)
    with torch.no_grad():
        model.dictionary.copy_(torch.stack([eye, swap]) * (1 if form in ("signed", "sum-one") else 50))
        model.selection.weight.copy_(1000 * eye)
        model.selection.bias.zero_()
        model.initial_state.copy_(torch.tensor([2.0, 0.0]))
        model.readout.weight.copy_(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    arrays = collect_arrays(model)
    x = arrays.get("first_state", arrays["initial_state"])
    for symbol in (0, 1, 1, 1):
        x = arrays["symbol_matrices"][symbol] @ x
    assert x[1] > x[0]
    certificate = sdssm.certify(model, "parity")
    assert certificate.horizon is None or certificate.horizon > 100
    assert sdssm.extract(model, task="parity").machine.n_states == 2


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"transition": "stochastc"}, "did you mean 'stochastic'"),
    ({"constraint": 0.5}, "transition.*'signed'; set transition=stochastic"),
    ({"transition": "stochastic", "constraint": 1.5}, "constraint is 1.5; it must be from 0 to 1"),
    ({"transition": "stochastic", "input_matrix": True, "rescale": False}, "set input_matrix=false"),
    ({"transition": "sum-one", "initial_state": "given"}, "set initial_state=learned"),
    ({"transition": "nonnegative", "column_norm": None}, "set transition=stochastic"),
    ({"transition": "sum-one", "state": 1}, "set state=2"),
    ({"transition": "stochastic", "column_temperature": 0}, "above 0"),
]


@pytest.mark.parametrize(("values", "message"), WRONG)
def test_settings_that_contradict_a_form(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        SelectiveDenseSettings(**values)
