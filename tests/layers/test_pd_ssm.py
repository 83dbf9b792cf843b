"""PD-SSM: its equations, its straight-through gradient, the laws of a mixer, and an automaton in its weights."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from sdssm.errors import ModelError, SettingsError
from sdssm.layers.pd_ssm import PdSsm, PdSsmSettings
from tests.ops.tolerances import RELATIVE

WIDTH, STATE, DICTIONARY = 3, 4, 5
FORMS: dict[str, dict[str, Any]] = {
    "published": {},
    "no B": {"input_matrix": False},
    "from zero": {"initial_state": "zero", "expansion": 1},
    "learned start": {"initial_state": "learned", "input_matrix": False},
}


def made(*, seed: int = 0, **changes: Any) -> PdSsm:
    settings = PdSsmSettings(**{"state": STATE, "dictionary": DICTIONARY, **changes})
    return PdSsm(WIDTH, settings, generator=torch.Generator().manual_seed(seed)).double()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def by_hand(layer: PdSsm, u: Tensor, *, harden: bool = True) -> Tensor:
    """One string (L, D), equation by equation, with whole complex matrices: outputs (L, 2N)."""
    x = torch.zeros(STATE, dtype=torch.complex128)
    if layer.settings.initial_state == "one-hot":
        x[0] = 1
    if layer.initial_state is not None:
        x = layer.initial_state[0] + 1j * layer.initial_state[1]
    outputs = []
    for u_t in u:
        logits = layer.selection.weight @ u_t
        weights = logits.exp() / logits.exp().sum()
        M = sum(weights[k] * layer.dictionary[k] for k in range(DICTIONARY))
        assert isinstance(M, Tensor)
        soft = M.exp() / M.exp().sum(0)
        hard = torch.zeros_like(soft)
        for j in range(STATE):
            hard[int(M[:, j].argmax()), j] = 1
        P = hard + soft - soft.detach() if harden else soft
        size, phase = (
            torch.sigmoid(second(nn.functional.gelu(first(u_t))))
            for first, second in ((layer.magnitude[0], layer.magnitude[2]), (layer.phase[0], layer.phase[2]))
        )
        A = P.to(torch.complex128) @ torch.diag(size * torch.exp(2j * math.pi * phase))
        x = A @ x
        if layer.input_matrix is not None:
            x = x + (layer.input_matrix[0] + 1j * layer.input_matrix[1]) @ u_t.to(torch.complex128)
        outputs.append(torch.cat([x.real, x.imag]))
    return torch.stack(outputs)


@pytest.mark.parametrize("form", FORMS)
def test_the_equations_and_their_gradient(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 6, WIDTH).requires_grad_()
    leaves = [u, *layer.parameters()]
    found, wanted = layer(u)[0], torch.stack([by_hand(layer, row) for row in u])
    assert found.shape == (2, 6, 2 * STATE) and layer.outputs == 2 * STATE
    same(found, wanted)
    weights = drawn(*found.shape, seed=4)
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), leaves),
        torch.autograd.grad((wanted * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_the_check_would_see_a_soft_transition() -> None:
    layer, u = made(), drawn(6, WIDTH)
    assert (layer(u)[0] - by_hand(layer, u, harden=False)).abs().max() > 1e-3


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
    assert final.shape == (2, 3, STATE) and final.dtype == torch.complex128
    state, outputs = None, []
    for t in range(7):
        output, state = layer.step(u[..., t, :], state)
        outputs.append(output)
    same((torch.stack(outputs, dim=-2), state), (whole, final))
    first, state = layer(u[..., :3, :])
    rest, state = layer(u[..., 3:, :], state)
    same((torch.cat([first, rest], dim=-2), state), (whole, final))


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_their_own_and_end_where_they_end(form: str) -> None:
    layer, u, lengths = made(**FORMS[form]), drawn(3, 6, WIDTH), torch.tensor([2, 6, 4])
    outputs, state = layer(u, lengths=lengths)
    assert state is None
    for row, steps in enumerate(lengths):
        same(outputs[row, :steps], layer(u[row])[0][:steps])


@pytest.mark.parametrize("lengths", [None, torch.tensor([2, 6, 4])], ids=["whole", "lengths"])
@pytest.mark.parametrize("symbols", [2, 20])
@pytest.mark.parametrize("form", FORMS)
def test_symbols_are_inputs(form: str, symbols: int, lengths: Tensor | None) -> None:
    layer, table = made(**FORMS[form]), drawn(symbols, WIDTH).requires_grad_()
    tokens = torch.randint(symbols, (3, 6), generator=torch.Generator().manual_seed(2))
    found, final = layer.mix_symbols(layer.symbol_parts(table), tokens, lengths=lengths)
    wanted, again = layer(table[tokens], lengths=lengths)
    kept = torch.ones(3, 6) if lengths is None else (torch.arange(6) < lengths[:, None]).double()
    weights = drawn(*found.shape, seed=4) * kept[..., None]
    same(found * weights, wanted * weights)
    if lengths is None:
        same(final, again)
    leaves = [table, *layer.parameters()]
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), leaves),
        torch.autograd.grad((wanted * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    assert layer.mix_symbols(layer.symbol_parts(table), tokens, carry=False)[1] is None


@pytest.mark.parametrize("as_symbols", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_models_side_by_side(form: str, as_symbols: bool) -> None:
    """vmap over stacked parameters is each model alone, gradients too."""
    layers = [made(seed=seed, **FORMS[form]) for seed in (0, 1)]
    parameters, _ = stack_module_state(nn.ModuleList(layers))
    u, table = drawn(2, 2, 5, WIDTH), drawn(2, 3, WIDTH, seed=7)
    tokens, lengths = torch.randint(3, (2, 2, 5), generator=torch.Generator().manual_seed(2)), torch.tensor([3, 5])

    class Whole(nn.Module):
        def __init__(self, layer: PdSsm) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, u: Tensor, table: Tensor, tokens: Tensor) -> Tensor:
            if as_symbols:
                return self.layer.mix_symbols(self.layer.symbol_parts(table), tokens, lengths=lengths, carry=False)[0]
            return self.layer(u, lengths=lengths)[0]  # type: ignore[no-any-return]  # a module's

    def run(given: dict[str, Tensor], *data: Tensor) -> Tensor:
        named = {f"layer.{name}": value for name, value in given.items()}
        return functional_call(Whole(layers[0]), named, data)  # type: ignore[no-any-return]  # a module's

    outputs = vmap(run)(parameters, u, table, tokens)
    weights = drawn(*outputs.shape, seed=4)
    stacked = torch.autograd.grad((outputs * weights).sum(), list(parameters.values()))
    for i, layer in enumerate(layers):
        alone = Whole(layer)(u[i], table[i], tokens[i])
        torch.testing.assert_close(outputs[i], alone)
        grads = torch.autograd.grad((alone * weights[i]).sum(), list(layer.parameters()))
        torch.testing.assert_close([grad[i] for grad in stacked], list(grads))


def test_gradients_are_finite_at_500() -> None:
    layer = PdSsm(8, PdSsmSettings(state=16), generator=torch.Generator().manual_seed(0))
    table, tokens = torch.randn(2, 8, generator=torch.Generator().manual_seed(1)), torch.randint(2, (2, 500))
    outputs, _ = layer.mix_symbols(layer.symbol_parts(table), tokens)
    torch.autograd.backward(outputs[:, -1].square().sum())
    assert outputs.isfinite().all() and outputs.abs().max() < 100  # |D| < 1: bounded inputs, bounded states
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
    layer = PdSsm(32, PdSsmSettings(), generator=torch.Generator().manual_seed(0))
    n, k, d = 64, 8, 32
    shapes = {name: tuple(value.shape) for name, value in layer.named_parameters()}
    mlp = {"0.weight": (2 * n, d), "0.bias": (2 * n,), "2.weight": (n, 2 * n), "2.bias": (n,)}
    assert shapes == {
        "dictionary": (k, n, n),
        "input_matrix": (2, n, d),
        "selection.weight": (k, d),
        **{f"{name}.{part}": shape for name in ("magnitude", "phase") for part, shape in mlp.items()},
    }
    assert layer.transition_parameters() == sum(p.numel() for p in layer.parameters()) - 2 * n * d
    assert all(parameter.dtype == torch.float32 for parameter in layer.parameters())
    assert layer.dictionary.std().item() == pytest.approx(n**-0.5, rel=0.02)
    assert layer.input_matrix is not None and layer.input_matrix.std().item() == pytest.approx(
        (2 * n) ** -0.5, rel=0.05
    )


def test_the_generator_decides_the_parameters() -> None:
    first, again, other = (nn.utils.parameters_to_vector(made(seed=seed).parameters()) for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


# -- an automaton in its weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_symbols", [False, True])
def test_any_automaton_exactly(as_symbols: bool) -> None:
    """Maps that are no permutations too: a one-hot state is sent to a one-hot state, 10,000 times."""
    Q, V = 7, 3
    table = torch.randint(Q, (V, Q), generator=torch.Generator().manual_seed(3))  # symbol, state -> state
    settings = PdSsmSettings(state=Q, dictionary=V, input_matrix=False)
    layer = PdSsm(V, settings, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        layer.dictionary.copy_(nn.functional.one_hot(table, Q).mT)
        layer.selection.weight.copy_(torch.eye(V) * 50)
        for mlp, limit in ((layer.magnitude, 50.0), (layer.phase, -200.0)):
            last = mlp[2]
            assert isinstance(last, nn.Linear)
            last.weight.zero_()
            last.bias.fill_(limit)
        tokens = torch.randint(V, (1, 10_000), generator=torch.Generator().manual_seed(4))
        if as_symbols:
            outputs, _ = layer.mix_symbols(layer.symbol_parts(torch.eye(V)), tokens)
        else:
            outputs, _ = layer(torch.eye(V)[tokens])
    state, states = 0, []
    for token in tokens[0].tolist():
        state = int(table[token, state])
        states.append(state)
    wanted = nn.functional.one_hot(torch.tensor(states), 2 * Q).float()
    assert torch.equal(outputs[0], wanted)


# -- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": 0}, "state is 0; it must be from 1 to 4,096"),
        ({"dictionary": 0}, "dictionary is 0; it must be "),
        ({"expansion": 0}, "expansion is 0; it must be "),
        ({"initial_state": "onehot"}, "initial_state is 'onehot'; did you mean 'one-hot'?"),
        ({"initial_state": "zero", "input_matrix": False}, "set initial_state=one-hot or input_matrix=true"),
        ({"input_matrix": 1}, "input_matrix is 1; it must be true or false"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        PdSsmSettings(**changes)
    assert message in str(error.value)


def test_inputs_that_cannot_be() -> None:
    with pytest.raises(ModelError, match="this layer reads"):
        made()(drawn(2, 5, WIDTH + 1))
