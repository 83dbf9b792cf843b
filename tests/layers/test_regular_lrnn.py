"""RegularLRNN: block-diagonal matrices that an MLP computes from each input."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from sdssm.errors import ModelError, SettingsError
from sdssm.layers.regular_lrnn import RegularLrnn
from sdssm.layers.settings import RegularLrnnSettings
from tests.ops.tolerances import RELATIVE

WIDTH, STATE, BLOCK = 3, 6, 3
#: Each setting with a value other than its default.
FORMS: dict[str, dict[str, Any]] = {
    "published": {},
    "the paper's text": {"normalisation": "columns"},
    "another norm": {"column_norm": 2.5},
    "text, blocks of one": {"normalisation": "columns", "block_size": 1},
    "one block": {"block_size": STATE, "column_norm": 1.0},
}
each_form = pytest.mark.parametrize("form", FORMS)


def make_layer(*, seed: int = 0, width: int = WIDTH, **changes: Any) -> RegularLrnn:
    settings = RegularLrnnSettings(**{"state": STATE, "block_size": BLOCK, **changes})
    layer = RegularLrnn(width, settings, generator=torch.Generator().manual_seed(seed)).double()
    with torch.no_grad():  # so that some columns have a norm above 1 before normalisation, and some do not
        linear(layer, 2).weight.mul_(4)
    return layer


def linear(layer: RegularLrnn, at: int) -> nn.Linear:
    """Return the first (0) or the last (2) linear map of the generator of A."""
    module = layer.generator[at]
    assert isinstance(module, nn.Linear)
    return module


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def norm(column: list[float], p: float) -> float:
    return float(sum(abs(entry) ** p for entry in column) ** (1 / p))


def by_hand(layer: RegularLrnn, u: Tensor) -> Tensor:
    """Compute one sequence (L, D) with a full matrix for each input, column by column."""
    settings = layer.settings
    S, p = settings.block_size, settings.column_norm
    x, states = layer.initial_state, []
    for u_t in u:
        entries = layer.generator(u_t).reshape(-1, S, S).tolist()
        A = torch.zeros(STATE, STATE, dtype=torch.float64)
        for h, block in enumerate(entries):
            columns = [[row[j] for row in block] for j in range(S)]
            if settings.normalisation == "largest":
                columns = [[entry - sum(column) / S for entry in column] for column in columns]
                divisors = [max(norm(column, p) for column in columns)] * S
            else:
                divisors = [max(1.0, norm(column, p)) for column in columns]
            for j in range(S):
                for i in range(S):
                    A[h * S + i, h * S + j] = columns[j][i] / divisors[j]
        x = A @ x + layer.drive(u_t)
        states.append(x)
    return torch.stack(states)


# -- outputs -----------------------------------------------------------------------------------------------------------


@each_form
def test_outputs_follow_the_equations(form: str) -> None:
    layer, u = make_layer(**FORMS[form]), random_tensor(2, 6, WIDTH)
    outputs, final = layer(u)
    assert outputs.shape == (2, 6, layer.outputs) == (2, 6, STATE) and final.shape == (2, STATE)
    for row in range(2):
        assert_same(outputs[row], by_hand(layer, u[row]))
    assert_same(final, outputs[:, -1])


def test_the_two_normalisations() -> None:
    u = random_tensor(20, WIDTH)
    centred = make_layer().parts(u)[0]
    sizes = torch.linalg.vector_norm(centred, ord=1.2, dim=-2)
    assert centred.shape == (20, STATE // BLOCK, BLOCK, BLOCK)
    assert_same(centred.sum(-2), torch.zeros_like(sizes))
    assert_same(sizes.amax(-1), torch.ones(20, STATE // BLOCK, dtype=torch.float64))
    assert sizes.amin() < 0.9  # one divisor for each block
    plain = make_layer(normalisation="columns").parts(u)[0]
    sizes = torch.linalg.vector_norm(plain, ord=1.2, dim=-2)
    assert sizes.max() < 1 + 1e-12 and sizes.min() < 0.9 and (sizes - 1).abs().min() < 1e-12
    assert plain.sum(-2).abs().max() > 0.1


def test_number_of_parameters_as_published() -> None:
    """308,736 + 64 V + 65 |Q| minus embedding, two LayerNorms (256) and the readout (4,160 + 65 |Q|)."""
    layer = make_layer(width=64, state=64, block_size=8)
    total = sum(parameter.numel() for parameter in layer.parameters())
    assert total == 304_256 + 64 and total + 2 * 128 + 64 * 64 + 64 == 308_736
    assert layer.transition_parameters() == 295_936
    biases = 2 * 64 * 8
    assert layer.transition_parameters() - biases == 64 * 64 * 8 + 64**3  # d n sqrt(n) + n^3


def test_initial_values() -> None:
    layer = make_layer(state=1_024, block_size=2)
    assert isinstance(layer.initial_state, nn.Parameter) and (layer.initial_state.std() - 1).abs() < 0.1
    assert torch.equal(make_layer().initial_state, make_layer().initial_state)
    assert not torch.equal(make_layer(seed=1).initial_state, make_layer().initial_state)


def test_blocks_of_zeros_stay_zero() -> None:
    """A norm of zero: the block stays zero, and its gradient is finite."""
    for normalisation in ("largest", "columns"):
        layer = make_layer(normalisation=normalisation)
        with torch.no_grad():
            linear(layer, 2).weight.zero_()
            linear(layer, 2).bias.zero_()
        outputs, _ = layer(random_tensor(2, 4, WIDTH))
        outputs.square().sum().backward()
        assert outputs.isfinite().all() and layer.parts(random_tensor(2, WIDTH))[0].abs().max() == 0
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_a_block_emulates_any_automaton_of_its_size() -> None:
    """The claim of `emulates` for normalisation "columns", by construction: columns are one-hot."""
    states, symbols = 5, 4
    layer = make_layer(width=symbols, state=10, block_size=states, normalisation="columns")
    generator = torch.Generator().manual_seed(7)
    table = torch.randint(states, (symbols, states), generator=generator)
    matrices = torch.zeros(symbols, 2, states, states, dtype=torch.float64)
    for symbol in range(symbols):
        matrices[symbol, 0, table[symbol], torch.arange(states)] = 1
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        linear(layer, 0).weight[:symbols] = torch.eye(symbols)
        linear(layer, 2).weight[:, :symbols] = matrices.flatten(1).mT
        layer.initial_state[0] = 1
    tokens = torch.randint(symbols, (300,), generator=generator)
    outputs, _ = layer(torch.eye(symbols, dtype=torch.float64)[tokens])
    state = 0
    for token, output in zip(tokens.tolist(), outputs, strict=True):
        state = int(table[token, state])
        assert output.tolist() == [float(i == state) for i in range(10)]


# -- laws --------------------------------------------------------------------------------------------------------------


@each_form
def test_gradients_agree_with_finite_differences(form: str) -> None:
    layer = make_layer(**{"state": 4, "block_size": 2, **FORMS[form], **({"state": 6} if form == "one block" else {})})
    leaves = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    u, lengths = random_tensor(2, 2, WIDTH).requires_grad_(), torch.tensor([1, 2])

    def run(u: Tensor, *values: Tensor) -> Tensor:
        tensors = dict(zip(leaves, values, strict=True))
        outputs: Tensor = functional_call(layer, tensors, (u,), {"lengths": lengths})[0]
        return outputs

    assert torch.autograd.gradcheck(run, (u, *leaves.values()), fast_mode=True)


@each_form
def test_long_sequences(form: str) -> None:
    """At length 500 gradients are finite, and float32 agrees with float64."""
    double = make_layer(**FORMS[form])
    single, u = copy.deepcopy(double).float(), random_tensor(2, 500, WIDTH)
    expected, actual = double(u)[0], single(u.float())[0]
    assert actual.dtype == torch.float32
    assert (actual - expected).abs().max() / expected.abs().max() < RELATIVE[torch.float32][1]
    actual[:, -1].square().sum().backward()
    for name, parameter in single.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert name == "initial_state" or parameter.grad.abs().max() > 0, name


# -- invalid input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": 0}, "state is 0; it must be from 1"),
        ({"block_size": 4}, "block_size is 4, but state is 6; the blocks must divide the state"),
        ({"block_size": 7}, "block_size is 7; it must be from 1 to 6"),
        ({"block_size": 1}, "set normalisation=columns or a larger block_size"),
        ({"column_norm": 0.5}, "column_norm is 0.5; it must be from 1 to 16"),
        ({"normalisation": "column"}, "'columns'"),
    ],
)
def test_invalid_settings(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        make_layer(**changes)


def test_inputs_of_the_wrong_width() -> None:
    with pytest.raises(ModelError, match="vectors of 3 entries"):
        make_layer()(random_tensor(2, 5, WIDTH + 1))
