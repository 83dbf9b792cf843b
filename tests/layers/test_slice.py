"""Block-diagonal SLiCE: its equations, the laws of a mixer, and an automaton in its weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from sdssm.errors import SettingsError
from sdssm.layers.slice import Slice, SliceSettings
from tests.ops.tolerances import RELATIVE

WIDTH, STATE = 3, 6
FORMS: dict[str, dict[str, Any]] = {
    "published": {},
    "with B": {"input_matrix": True, "block_size": 3},
    "learned start": {"initial_state": "learned", "block_size": 1},
    "learned start, B": {"initial_state": "learned", "input_matrix": True, "block_size": 6},
}


def made(*, seed: int = 0, **changes: Any) -> Slice:
    settings = SliceSettings(**{"state": STATE, "block_size": 2, "dt": 0.3, **changes})
    return Slice(WIDTH, settings, generator=torch.Generator().manual_seed(seed)).double()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def by_hand(layer: Slice, u: Tensor) -> Tensor:
    """One string (L, D), equation by equation, block by block: outputs (L, N)."""
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
def test_the_equations_and_their_gradient(form: str, length: int) -> None:
    layer, u = made(**FORMS[form]), drawn(2, length, WIDTH).requires_grad_()
    leaves = [u, *layer.parameters()]
    found, wanted = layer(u)[0], torch.stack([by_hand(layer, row) for row in u])
    assert found.shape == (2, length, STATE) and layer.outputs == STATE
    same(found, wanted)
    weights = drawn(*found.shape, seed=4)
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), leaves),
        torch.autograd.grad((wanted * weights).sum(), leaves, allow_unused=True, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_gradcheck() -> None:
    layer, u = made(input_matrix=True), drawn(1, 3, WIDTH).requires_grad_()
    assert torch.autograd.gradcheck(lambda given: layer(given)[0], (u,))


@pytest.mark.parametrize("form", FORMS)
def test_every_parameter_learns(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 4, WIDTH)
    outputs, _ = layer(u)
    (outputs * drawn(*outputs.shape, seed=4)).sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


# -- the laws of a mixer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_later_inputs_change_nothing(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 6, WIDTH)
    other = torch.cat([u[:, :4], drawn(2, 2, WIDTH, seed=5)], dim=1)
    same(layer(other)[0][:, :4], layer(u)[0][:, :4])


@pytest.mark.parametrize("form", FORMS)
def test_steps_and_pieces(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 3, 7, WIDTH)
    whole, final = layer(u)
    assert final.shape == (2, 3, STATE)
    state, outputs = None, []
    for t in range(7):
        output, state = layer.step(u[..., t, :], state)
        outputs.append(output)
    same((torch.stack(outputs, dim=-2), state), (whole, final))
    for cut in (1, 3):
        first, state = layer(u[..., :cut, :])
        rest, state = layer(u[..., cut:, :], state)
        same((torch.cat([first, rest], dim=-2), state), (whole, final))


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_their_own_and_end_where_they_end(form: str) -> None:
    layer, u, lengths = made(**FORMS[form]), drawn(3, 6, WIDTH), torch.tensor([1, 6, 4])
    outputs, _ = layer(u, lengths=lengths)
    for row, steps in enumerate(lengths):
        same(outputs[row, :steps], layer(u[row])[0][:steps])


@pytest.mark.parametrize("symbols", [2, 20])
@pytest.mark.parametrize("form", FORMS)
def test_symbols_are_inputs(form: str, symbols: int) -> None:
    layer, table = made(**FORMS[form]), drawn(symbols, WIDTH)
    tokens = torch.randint(symbols, (3, 6), generator=torch.Generator().manual_seed(2))
    same(layer.mix_symbols(layer.symbol_parts(table), tokens), layer(table[tokens]))
    assert layer.mix_symbols(layer.symbol_parts(table), tokens, carry=False)[1] is None


@pytest.mark.parametrize("form", FORMS)
def test_models_side_by_side(form: str) -> None:
    """vmap over stacked parameters is each model alone, gradients too."""
    layers = [made(seed=seed, **FORMS[form]) for seed in (0, 1)]
    parameters, _ = stack_module_state(nn.ModuleList(layers))
    u, lengths = drawn(2, 2, 5, WIDTH), torch.tensor([3, 5])

    def run(given: dict[str, Tensor], u: Tensor) -> Tensor:
        return functional_call(layers[0], given, (u, None, lengths))[0]  # type: ignore[no-any-return]  # a module's

    outputs = vmap(run)(parameters, u)
    weights = drawn(*outputs.shape, seed=4)
    stacked = torch.autograd.grad((outputs * weights).sum(), list(parameters.values()))
    for i, layer in enumerate(layers):
        alone, _ = layer(u[i], lengths=lengths)
        torch.testing.assert_close(outputs[i], alone)
        grads = torch.autograd.grad((alone * weights[i]).sum(), list(layer.parameters()))
        torch.testing.assert_close([grad[i] for grad in stacked], list(grads))


def test_gradients_are_finite_at_500() -> None:
    layer = Slice(64, SliceSettings(), generator=torch.Generator().manual_seed(0))
    u = torch.randn(2, 500, 64, generator=torch.Generator().manual_seed(1))
    outputs, _ = layer(u)
    outputs[:, -1].square().sum().backward()
    assert outputs.isfinite().all()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


def test_double_and_back() -> None:
    single = made().float()
    double, u = copy.deepcopy(single).double(), drawn(2, 20, WIDTH)
    found, wanted = single(u.float())[0], double(u)[0]
    assert found.dtype == torch.float32 and wanted.dtype == torch.float64
    assert (found.double() - wanted).abs().max() / wanted.abs().max() < RELATIVE[torch.float32][0]


# -- parameters --------------------------------------------------------------------------------------------------------


def test_parameters_and_how_they_begin() -> None:
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
    assert {name for name, _ in made(initial_state="learned").named_parameters()} == {"field", "initial_state"}


def test_the_generator_decides_the_parameters() -> None:
    first, again, other = (nn.utils.parameters_to_vector(made(seed=seed).parameters()) for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("initial_state", ["input", "learned"])
def test_any_automaton_in_one_block(initial_state: str) -> None:
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


# -- settings that cannot be -------------------------------------------------------------------------------------------


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
def test_settings_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        SliceSettings(**changes)
    assert message in str(error.value)
