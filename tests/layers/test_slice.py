"""Block-diagonal SLiCE: its equations, properties of a mixer, and an automaton in its weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sdssm.errors import SettingsError
from sdssm.layers.settings import SliceSettings
from sdssm.layers.slice import Slice
from tests.ops.tolerances import RELATIVE

WIDTH, STATE = 3, 6
FORMS: dict[str, dict[str, Any]] = {
    "published": {},
    "with B": {"input_matrix": True, "block_size": 3},
    "learned start": {"initial_state": "learned", "block_size": 1},
    "learned start, B": {"initial_state": "learned", "input_matrix": True, "block_size": 6},
}


def make_layer(*, seed: int = 0, **changes: Any) -> Slice:
    settings = SliceSettings(**{"state": STATE, "block_size": 2, "dt": 0.3, **changes})
    return Slice(WIDTH, settings, generator=torch.Generator().manual_seed(seed)).double()


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def by_hand(layer: Slice, u: Tensor) -> Tensor:
    """Compute one sequence (L, D) equation by equation, block by block: outputs (L, N)."""
    outputs: list[Tensor] = []
    size = layer.settings.block_size
    x: Tensor = layer.initial_state
    for t, u_t in enumerate(u):
        if t == 0 and layer.start is not None:
            x = layer.start @ u_t + layer.initial_state
            outputs.append(x)
            continue
        increment = layer.settings.dt * torch.cat([torch.ones(1, dtype=torch.float64), u_t])
        change = torch.zeros(STATE, dtype=torch.float64)
        for i, dw in enumerate(increment):
            blocks = [block @ part for block, part in zip(layer.field[i], x.reshape(-1, size), strict=True)]
            change = change + dw * torch.cat(blocks)
            if layer.input_matrix is not None:
                change = change + dw * layer.input_matrix[i]
        x = x + change
        outputs.append(x)
    return torch.stack(outputs)


@pytest.mark.parametrize("length", [1, 6])
@pytest.mark.parametrize("form", FORMS)
def test_outputs_and_gradients_follow_the_equations(form: str, length: int) -> None:
    layer, u = make_layer(**FORMS[form]), random_tensor(2, length, WIDTH).requires_grad_()
    leaves = [u, *layer.parameters()]
    actual, expected = layer(u)[0], torch.stack([by_hand(layer, row) for row in u])
    assert actual.shape == (2, length, STATE) and layer.outputs == STATE
    assert_same(actual, expected)
    weights = random_tensor(*actual.shape, seed=4)
    for grad, expected_grad in zip(
        torch.autograd.grad((actual * weights).sum(), leaves),
        torch.autograd.grad((expected * weights).sum(), leaves, allow_unused=True, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(grad, expected_grad, rtol=1e-9, atol=1e-11)


def test_gradcheck() -> None:
    layer, u = make_layer(input_matrix=True), random_tensor(1, 3, WIDTH).requires_grad_()
    assert torch.autograd.gradcheck(lambda inputs: layer(inputs)[0], (u,))


# -- properties of a mixer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symbols", [2, 20])
@pytest.mark.parametrize("form", FORMS)
def test_symbols_agree_with_their_input_vectors(form: str, symbols: int) -> None:
    layer, table = make_layer(**FORMS[form]), random_tensor(symbols, WIDTH)
    tokens = torch.randint(symbols, (3, 6), generator=torch.Generator().manual_seed(2))
    assert_same(layer.mix_symbols(layer.symbol_parts(table), tokens), layer(table[tokens]))
    assert layer.mix_symbols(layer.symbol_parts(table), tokens, carry=False)[1] is None


def test_gradients_are_finite_at_length_500() -> None:
    layer = Slice(64, SliceSettings(), generator=torch.Generator().manual_seed(0))
    u = torch.randn(2, 500, 64, generator=torch.Generator().manual_seed(1))
    outputs, _ = layer(u)
    outputs[:, -1].square().sum().backward()
    assert outputs.isfinite().all()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


# -- parameters --------------------------------------------------------------------------------------------------------


def test_shapes_and_initial_values_of_parameters() -> None:
    layer = Slice(32, SliceSettings(input_matrix=True), generator=torch.Generator().manual_seed(0))
    shapes = {name: tuple(value.shape) for name, value in layer.named_parameters()}
    assert shapes == {
        "field": (33, 16, 4, 4),
        "input_matrix": (33, 64),
        "start": (64, 32),
        "initial_state": (64,),
    }
    assert layer.transition_parameters() == 33 * 64 * 4
    assert layer.field.std().item() == pytest.approx(0.25, rel=0.05)
    assert layer.start is not None and layer.start.std().item() == pytest.approx(0.5, rel=0.05)
    assert {name for name, _ in make_layer(initial_state="learned").named_parameters()} == {"field", "initial_state"}


@pytest.mark.parametrize("initial_state", ["input", "learned"])
def test_one_block_emulates_any_automaton(initial_state: str) -> None:
    Q, V = 5, 3
    table = torch.randint(Q, (V, Q), generator=torch.Generator().manual_seed(3))  # symbol, state -> state
    settings = SliceSettings(state=Q, block_size=Q, dt=0.5, initial_state=initial_state)
    layer = Slice(V, settings, generator=torch.Generator().manual_seed(0))
    maps = nn.functional.one_hot(table, Q).mT.float()
    with torch.no_grad():
        layer.field[0] = 0
        layer.field[1:, 0] = (maps - torch.eye(Q)) / settings.dt
        layer.initial_state.copy_(torch.eye(Q)[0])
        if layer.start is not None:
            layer.initial_state.zero_()
            layer.start.copy_(nn.functional.one_hot(table[:, 0], Q).mT)
        tokens = torch.randint(V, (1, 2_000), generator=torch.Generator().manual_seed(4))
        outputs, _ = layer(torch.eye(V)[tokens])
    state, states = 0, []
    for token in tokens[0].tolist():
        state = int(table[token, state])
        states.append(state)
    assert torch.equal(outputs[0], nn.functional.one_hot(torch.tensor(states), Q).float())


# -- invalid settings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": 0}, "state is 0; it must be "),
        ({"block_size": 0}, "block_size is 0; it must be "),
        ({"state": 10}, "state is 10 and block_size 4; state must be a multiple of block_size"),
        ({"dt": 0.0}, "dt is 0.0; it must be above 0"),
        ({"spread": -1.0}, "spread is -1.0; it must be above 0"),
        ({"initial_state": "inputs"}, "initial_state is 'inputs'; did you mean 'input'?"),
    ],
)
def test_invalid_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        SliceSettings(**changes)
    assert message in str(error.value)
