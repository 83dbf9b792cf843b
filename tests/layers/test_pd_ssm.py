"""PD-SSM: its equations, its straight-through gradient, properties of a mixer, and an automaton in its weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from sdssm.errors import ModelError, SettingsError
from sdssm.layers.pd_ssm import PdSsm
from sdssm.layers.settings import PdSsmSettings
from tests.ops.tolerances import RELATIVE

WIDTH, STATE, DICTIONARY = 3, 4, 5
FORMS: dict[str, dict[str, Any]] = {
    "published": {},
    "no B": {"input_matrix": False},
    "from zero": {"initial_state": "zero", "expansion": 1},
    "learned start": {"initial_state": "learned", "input_matrix": False},
}


def make_layer(*, seed: int = 0, **changes: Any) -> PdSsm:
    settings = PdSsmSettings(**{"state": STATE, "dictionary": DICTIONARY, **changes})
    return PdSsm(WIDTH, settings, generator=torch.Generator().manual_seed(seed)).double()


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def by_hand(layer: PdSsm, u: Tensor, *, harden: bool = True) -> Tensor:
    """Compute one sequence (L, D) equation by equation, with full complex matrices: outputs (L, 2N)."""
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
def test_outputs_and_gradients_follow_the_equations(form: str) -> None:
    layer, u = make_layer(**FORMS[form]), random_tensor(2, 6, WIDTH).requires_grad_()
    leaves = [u, *layer.parameters()]
    actual, expected = layer(u)[0], torch.stack([by_hand(layer, row) for row in u])
    assert actual.shape == (2, 6, 2 * STATE) and layer.outputs == 2 * STATE
    assert_same(actual, expected)
    weights = random_tensor(*actual.shape, seed=4)
    for grad, expected_grad in zip(
        torch.autograd.grad((actual * weights).sum(), leaves),
        torch.autograd.grad((expected * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(grad, expected_grad, rtol=1e-9, atol=1e-11)


def test_the_comparison_detects_a_soft_transition() -> None:
    layer, u = make_layer(), random_tensor(6, WIDTH)
    assert (layer(u)[0] - by_hand(layer, u, harden=False)).abs().max() > 1e-3


# -- properties of a mixer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [None, torch.tensor([2, 6, 4])], ids=["whole", "lengths"])
@pytest.mark.parametrize("symbols", [2, 20])
@pytest.mark.parametrize("form", FORMS)
def test_symbols_agree_with_their_input_vectors(form: str, symbols: int, lengths: Tensor | None) -> None:
    layer, table = make_layer(**FORMS[form]), random_tensor(symbols, WIDTH).requires_grad_()
    tokens = torch.randint(symbols, (3, 6), generator=torch.Generator().manual_seed(2))
    actual, final = layer.mix_symbols(layer.symbol_parts(table), tokens, lengths=lengths)
    expected, again = layer(table[tokens], lengths=lengths)
    kept = torch.ones(3, 6) if lengths is None else (torch.arange(6) < lengths[:, None]).double()
    weights = random_tensor(*actual.shape, seed=4) * kept[..., None]
    assert_same(actual * weights, expected * weights)
    if lengths is None:
        assert_same(final, again)
    leaves = [table, *layer.parameters()]
    for grad, expected_grad in zip(
        torch.autograd.grad((actual * weights).sum(), leaves),
        torch.autograd.grad((expected * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(grad, expected_grad, rtol=1e-9, atol=1e-11)
    assert layer.mix_symbols(layer.symbol_parts(table), tokens, carry=False)[1] is None


@pytest.mark.parametrize("as_symbols", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_vmap_over_replicas_agrees_with_each_layer_alone(form: str, as_symbols: bool) -> None:
    """vmap over stacked parameters gives the outputs and gradients of each layer alone."""
    layers = [make_layer(seed=seed, **FORMS[form]) for seed in (0, 1)]
    parameters, _ = stack_module_state(nn.ModuleList(layers))
    u, table = random_tensor(2, 2, 5, WIDTH), random_tensor(2, 3, WIDTH, seed=7)
    tokens, lengths = torch.randint(3, (2, 2, 5), generator=torch.Generator().manual_seed(2)), torch.tensor([3, 5])

    class Whole(nn.Module):
        def __init__(self, layer: PdSsm) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, u: Tensor, table: Tensor, tokens: Tensor) -> Tensor:
            if as_symbols:
                return self.layer.mix_symbols(self.layer.symbol_parts(table), tokens, lengths=lengths, carry=False)[0]
            return self.layer(u, lengths=lengths)[0]  # type: ignore[no-any-return]  # result of a module

    def run(tensors: dict[str, Tensor], *data: Tensor) -> Tensor:
        prefixed = {f"layer.{name}": value for name, value in tensors.items()}
        return functional_call(Whole(layers[0]), prefixed, data)  # type: ignore[no-any-return]  # result of a module

    outputs = vmap(run)(parameters, u, table, tokens)
    weights = random_tensor(*outputs.shape, seed=4)
    stacked = torch.autograd.grad((outputs * weights).sum(), list(parameters.values()))
    for i, layer in enumerate(layers):
        alone = Whole(layer)(u[i], table[i], tokens[i])
        torch.testing.assert_close(outputs[i], alone)
        grads = torch.autograd.grad((alone * weights[i]).sum(), list(layer.parameters()))
        torch.testing.assert_close([grad[i] for grad in stacked], list(grads))


def test_gradients_are_finite_at_length_500() -> None:
    layer = PdSsm(8, PdSsmSettings(state=16), generator=torch.Generator().manual_seed(0))
    table, tokens = torch.randn(2, 8, generator=torch.Generator().manual_seed(1)), torch.randint(2, (2, 500))
    outputs, _ = layer.mix_symbols(layer.symbol_parts(table), tokens)
    torch.autograd.backward(outputs[:, -1].square().sum())
    assert outputs.isfinite().all() and outputs.abs().max() < 100  # |D| < 1, so bounded inputs give bounded states
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


# -- parameters --------------------------------------------------------------------------------------------------------


def test_shapes_and_initial_values_of_parameters() -> None:
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


# -- an automaton in its weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_symbols", [False, True])
def test_any_automaton_is_emulated_exactly(as_symbols: bool) -> None:
    """Also if symbols are not permutations: a one-hot state is mapped to a one-hot state, 10,000 times."""
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
    expected = nn.functional.one_hot(torch.tensor(states), 2 * Q).float()
    assert torch.equal(outputs[0], expected)


# -- invalid input -----------------------------------------------------------------------------------------------------


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
def test_invalid_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        PdSsmSettings(**changes)
    assert message in str(error.value)


def test_invalid_inputs() -> None:
    with pytest.raises(ModelError, match="this layer reads"):
        make_layer()(random_tensor(2, 5, WIDTH + 1))
