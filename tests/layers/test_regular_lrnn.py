"""RegularLRNN: block-diagonal matrices that an MLP makes of each input."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from sdssm.errors import ModelError, SettingsError
from sdssm.layers.mixer import pick
from sdssm.layers.regular_lrnn import RegularLrnn, RegularLrnnSettings
from tests.ops.tolerances import RELATIVE

WIDTH, STATE, BLOCK = 3, 6, 3
#: Each setting somewhere away from its default.
FORMS: dict[str, dict[str, Any]] = {
    "published": {},
    "the paper's text": {"normalisation": "columns"},
    "another norm": {"column_norm": 2.5},
    "text, blocks of one": {"normalisation": "columns", "block_size": 1},
    "one block": {"block_size": STATE, "column_norm": 1.0},
}
EACH = pytest.mark.parametrize("form", FORMS)


def made(*, seed: int = 0, width: int = WIDTH, **changes: Any) -> RegularLrnn:
    settings = RegularLrnnSettings(**{"state": STATE, "block_size": BLOCK, **changes})
    layer = RegularLrnn(width, settings, generator=torch.Generator().manual_seed(seed)).double()
    with torch.no_grad():  # so that some columns of the text's form are longer than 1, and some are not
        linear(layer, 2).weight.mul_(4)
    return layer


def linear(layer: RegularLrnn, at: int) -> nn.Linear:
    """The first (0) or the last (2) map of the generator of matrices."""
    found = layer.generator[at]
    assert isinstance(found, nn.Linear)
    return found


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def norm(column: list[float], p: float) -> float:
    return float(sum(abs(entry) ** p for entry in column) ** (1 / p))


def by_hand(layer: RegularLrnn, u: Tensor) -> Tensor:
    """One string (L, D), with one whole matrix for each input, column by column."""
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


# -- what it computes --------------------------------------------------------------------------------------------------


@EACH
def test_the_equations(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 6, WIDTH)
    outputs, final = layer(u)
    assert outputs.shape == (2, 6, layer.outputs) == (2, 6, STATE) and final.shape == (2, STATE)
    for row in range(2):
        same(outputs[row], by_hand(layer, u[row]))
    same(final, outputs[:, -1])


def test_the_two_normalisations() -> None:
    u = drawn(20, WIDTH)
    centred = made().parts(u)[0]
    sizes = torch.linalg.vector_norm(centred, ord=1.2, dim=-2)
    assert centred.shape == (20, STATE // BLOCK, BLOCK, BLOCK)
    same(centred.sum(-2), torch.zeros_like(sizes))
    same(sizes.amax(-1), torch.ones(20, STATE // BLOCK, dtype=torch.float64))
    assert sizes.amin() < 0.9  # one divisor for the whole block
    plain = made(normalisation="columns").parts(u)[0]
    sizes = torch.linalg.vector_norm(plain, ord=1.2, dim=-2)
    assert sizes.max() < 1 + 1e-12 and sizes.min() < 0.9 and (sizes - 1).abs().min() < 1e-12
    assert plain.sum(-2).abs().max() > 0.1


def test_parameters_as_published() -> None:
    """308,736 + 64 V + 65 |Q| less embedding, two LayerNorms (256) and the readout (4,160 + 65 |Q|)."""
    layer = made(width=64, state=64, block_size=8)
    total = sum(parameter.numel() for parameter in layer.parameters())
    assert total == 304_256 + 64 and total + 2 * 128 + 64 * 64 + 64 == 308_736
    assert layer.transition_parameters() == 295_936
    biases = 2 * 64 * 8
    assert layer.transition_parameters() - biases == 64 * 64 * 8 + 64**3  # d n sqrt(n) + n^3


def test_how_it_begins() -> None:
    layer = made(state=1_024, block_size=2)
    assert isinstance(layer.initial_state, nn.Parameter) and (layer.initial_state.std() - 1).abs() < 0.1
    assert torch.equal(made().initial_state, made().initial_state)
    assert not torch.equal(made(seed=1).initial_state, made().initial_state)


def test_blocks_of_zeros() -> None:
    """Nothing to divide by: the block stays zero, and its gradient is a number."""
    for normalisation in ("largest", "columns"):
        layer = made(normalisation=normalisation)
        with torch.no_grad():
            linear(layer, 2).weight.zero_()
            linear(layer, 2).bias.zero_()
        outputs, _ = layer(drawn(2, 4, WIDTH))
        outputs.square().sum().backward()
        assert outputs.isfinite().all() and layer.parts(drawn(2, WIDTH))[0].abs().max() == 0
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_any_small_automaton_fits_into_a_block() -> None:
    """What `emulates` says of the text's normalisation, by construction: columns that are one-hot."""
    states, symbols = 5, 4
    layer = made(width=symbols, state=10, block_size=states, normalisation="columns")
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


@EACH
def test_later_inputs_and_other_rows_change_nothing(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 6, WIDTH)
    other = torch.cat([u[:, :4], drawn(2, 2, WIDTH, seed=5)], dim=1)
    same(layer(other)[0][:, :4], layer(u)[0][:, :4])
    same(layer(u[1:])[0], layer(u)[0][1:])


@EACH
def test_in_pieces_and_in_steps(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 3, 7, WIDTH)
    whole, final = layer(u)
    first, state = layer(u[..., :3, :])
    rest, state = layer(u[..., 3:, :], state)
    same((torch.cat([first, rest], dim=-2), state), (whole, final))
    state, steps = None, []
    for u_t in u.unbind(-2):
        output, state = layer.step(u_t, state)
        steps.append(output)
    same((torch.stack(steps, dim=-2), state), (whole, final))


@EACH
def test_lengths_cut_each_row(form: str) -> None:
    layer, u, lengths = made(**FORMS[form]), drawn(3, 6, WIDTH), torch.tensor([4, 6, 1])
    outputs, state = layer(u, lengths=lengths)
    assert state is None
    for row, length in enumerate(lengths.tolist()):
        same(outputs[row, :length], layer(u[row, :length])[0])


@EACH
def test_symbols_are_inputs_that_recur(form: str) -> None:
    layer, table = made(**FORMS[form]), drawn(5, WIDTH)
    tokens = torch.tensor([[0, 3, 1, 1, 4], [2, 2, 0, 3, 3]])
    parts = tuple(pick(part, tokens) for part in layer.parts(table))
    same(layer.mix(parts), layer(table[tokens]))


@EACH
def test_gradients_are_those_of_finite_differences(form: str) -> None:
    layer = made(**{"state": 4, "block_size": 2, **FORMS[form], **({"state": 6} if form == "one block" else {})})
    leaves = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    u, lengths = drawn(2, 2, WIDTH).requires_grad_(), torch.tensor([1, 2])

    def run(u: Tensor, *values: Tensor) -> Tensor:
        given = dict(zip(leaves, values, strict=True))
        outputs: Tensor = functional_call(layer, given, (u,), {"lengths": lengths})[0]
        return outputs

    assert torch.autograd.gradcheck(run, (u, *leaves.values()), fast_mode=True)


@EACH
def test_models_side_by_side(form: str) -> None:
    layers = [made(seed=seed, **FORMS[form]) for seed in (0, 1)]
    parameters, _ = stack_module_state(nn.ModuleList(layers))
    u, lengths = drawn(2, 3, 5, WIDTH), torch.tensor([[5, 5, 5], [3, 2, 5]])

    def run(given: Any, u: Tensor, lengths: Tensor) -> Tensor:
        outputs: Tensor = functional_call(layers[0], given, (u,), {"lengths": lengths})[0]
        return outputs

    outputs = vmap(run)(parameters, u, lengths)
    weights = drawn(*outputs.shape, seed=4)
    together = torch.autograd.grad((outputs * weights).sum(), list(parameters.values()))
    for i, layer in enumerate(layers):
        alone = layer(u[i], lengths=lengths[i])[0]
        torch.testing.assert_close(outputs[i], alone)
        grads = torch.autograd.grad((alone * weights[i]).sum(), list(layer.parameters()))
        torch.testing.assert_close([grad[i] for grad in together], list(grads))


@EACH
def test_long_strings(form: str) -> None:
    """At length 500: finite gradients, and float32 near float64."""
    double = made(**FORMS[form])
    single, u = copy.deepcopy(double).float(), drawn(2, 500, WIDTH)
    wanted, found = double(u)[0], single(u.float())[0]
    assert found.dtype == torch.float32
    assert (found - wanted).abs().max() / wanted.abs().max() < RELATIVE[torch.float32][1]
    found[:, -1].square().sum().backward()
    for name, parameter in single.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert name == "initial_state" or parameter.grad.abs().max() > 0, name


# -- bad input ---------------------------------------------------------------------------------------------------------


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
def test_bad_settings(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        made(**changes)


def test_inputs_of_another_width() -> None:
    with pytest.raises(ModelError, match="vectors of 3 entries"):
        made()(drawn(2, 5, WIDTH + 1))
