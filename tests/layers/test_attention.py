"""Attention with randomised rotary positions."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from sdssm.errors import ModelError, SettingsError
from sdssm.layers.attention import PRIME, Attention
from sdssm.layers.mixer import select_rows
from sdssm.layers.settings import AttentionSettings
from tests.ops.tolerances import RELATIVE

WIDTH, HEADS, POSITIONS = 8, 2, 50
SIZE = WIDTH // HEADS
#: Each setting with a value other than its default.
FORMS: dict[str, dict[str, Any]] = {
    "published": {},
    "causal": {"causal_mask": True},
    "one head": {"heads": 1},
    "one head, causal": {"heads": 1, "causal_mask": True},
    "as many positions as inputs": {"positions": 6},
}
each_form = pytest.mark.parametrize("form", FORMS)
CAUSAL = pytest.mark.parametrize("causal_mask", [False, True])


def make_layer(*, seed: int = 0, width: int = WIDTH, **changes: Any) -> Attention:
    settings = AttentionSettings(**{"heads": HEADS, "positions": POSITIONS, **changes})
    return Attention(width, settings, generator=torch.Generator().manual_seed(seed)).double()


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_noise(layer: Attention, *lead: int, seed: int = 2) -> Tensor:
    return torch.rand(*lead, *layer.noise_shape(1), generator=torch.Generator().manual_seed(seed))


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def by_hand(layer: Attention, u: Tensor, positions: list[int]) -> Tensor:
    """Compute one sequence (L, D), query by query; pairs of entries are complex numbers rotated by their positions."""
    heads = layer.settings.heads
    size = WIDTH // heads
    Q, K, V = (u @ weight.mT for weight in layer.queries_keys_values.chunk(3))
    angular = torch.tensor([10_000 ** (-2 * i / size) for i in range(size // 2)], dtype=torch.float64)
    rotations = torch.exp(1j * torch.tensor(positions, dtype=torch.float64)[:, None] * angular)
    outputs = []
    for t in range(len(u)):
        seen = range(t + 1) if layer.settings.causal_mask else range(len(u))
        outputs_of_heads = []
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            q = torch.view_as_complex(Q[t, part].reshape(-1, 2)) * rotations[t]
            logits = []
            for s in seen:
                k = torch.view_as_complex(K[s, part].reshape(-1, 2)) * rotations[s]
                logits.append((q * k.conj()).real.sum() / size**0.5)
            weights = torch.stack(logits).exp()
            outputs_of_heads.append(sum(w * V[s, part] for w, s in zip(weights / weights.sum(), seen, strict=True)))
        outputs.append(layer.projection @ torch.cat([torch.as_tensor(x) for x in outputs_of_heads]))
    return torch.stack(outputs)


def positions_of(noise: Tensor, length: int) -> list[int]:
    """Return the positions of the smallest numbers."""
    return sorted(sorted(range(len(noise)), key=lambda i: float(noise[i]))[:length])


# -- outputs -----------------------------------------------------------------------------------------------------------


@each_form
def test_outputs_follow_the_equations(form: str) -> None:
    layer, u = make_layer(**FORMS[form]), random_tensor(2, 6, WIDTH)
    noise = make_noise(layer)
    outputs, state = layer(u, noise=noise)
    assert outputs.shape == (2, 6, layer.outputs) == (2, 6, WIDTH) and state is None
    for row in range(2):
        assert_same(outputs[row], by_hand(layer, u[row], positions_of(noise, 6)))


def test_shapes_and_initial_values_of_parameters() -> None:
    layer = make_layer(width=256, heads=8)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "queries_keys_values": (768, 256),
        "projection": (256, 256),
    }
    for (
        parameter
    ) in layer.parameters():  # truncated at two standard deviations of 1/16, which leaves 0.88 of the deviation
        assert 0.99 / 8 < parameter.abs().max() <= 1 / 8
        assert (parameter.std() * 16 - 0.8796).abs() < 0.01
    assert torch.equal(make_layer().projection, make_layer().projection) and not torch.equal(
        make_layer(seed=1).draw, make_layer().draw
    )
    assert sum(p.numel() for p in make_layer(width=64, heads=8).parameters()) == 4 * 64 * 64
    assert layer.transition_parameters() == 0 and layer.numbers_per_symbol == 8 * 256


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
@pytest.mark.parametrize("causal_mask", [False, True])
def test_fused_attention_gives_the_same_outputs(causal_mask: bool, device: str) -> None:
    """Fused attention without gradients agrees with the products of training, also for a row of length zero."""
    layer = make_layer(causal_mask=causal_mask).to(device)
    u = random_tensor(4, 7, layer.width).to(device)
    for lengths in (None, torch.tensor([7, 4, 1, 0], device=device)):
        expected, _ = layer(u, lengths=lengths)
        with torch.no_grad():
            actual, _ = layer(u, lengths=lengths)
        assert_same(actual, expected.detach())


# -- positions ---------------------------------------------------------------------------------------------------------


def test_positions_are_sorted_draws_without_replacement() -> None:
    layer, lengths = make_layer(), torch.tensor([12, 1, 7, 0])
    noise = make_noise(layer)
    positions = layer.draw_positions(12, lengths, noise, lengths.device)
    for row, length in enumerate(lengths.tolist()):
        assert positions[row].tolist() == positions_of(noise, length) + [POSITIONS] * (12 - length)
    all_positions = layer.draw_positions(12, None, noise, lengths.device)
    assert all_positions.tolist() == [positions_of(noise, 12)] and len(set(all_positions[0].tolist())) == 12


@pytest.mark.parametrize("lengths", [None, torch.tensor([12, 1, 7, 0])], ids=["one length", "lengths"])
def test_positions_of_all_layers_are_those_of_each(lengths: Tensor | None) -> None:
    layer, u = make_layer(), random_tensor(4, 12, WIDTH)
    noise = make_noise(layer, 3)
    prepared = layer.prepare_noise(noise, 12, lengths)
    for own, positions in zip(noise, prepared, strict=True):
        assert torch.equal(positions, layer.draw_positions(12, lengths, own, own.device))
        outputs = [layer.mix(layer.parts(u), lengths=lengths, noise=given)[0] for given in (own, positions)]
        assert torch.equal(*outputs)


def test_positions_without_noise_depend_only_on_the_length() -> None:
    layer, device = make_layer(positions=2_048), torch.device("cpu")
    five, many = (
        layer.draw_positions(5, None, None, device),
        layer.draw_positions(9, torch.tensor([5, 9, 5]), None, device),
    )
    assert many[:, :5].tolist() == [five[0].tolist(), many[1, :5].tolist(), five[0].tolist()]
    assert many[1].tolist() == layer.draw_positions(9, None, None, device)[0].tolist()
    assert torch.equal(many, layer.float().draw_positions(9, torch.tensor([5, 9, 5]), None, device))
    other = make_layer(positions=2_048, seed=1).draw_positions(9, None, None, device)
    assert not torch.equal(other, many[1:2])  # another layer has other positions


def test_positions_without_noise_look_random() -> None:
    """Over layers and lengths, positions are uniform and independent between neighbouring lengths and layers."""
    device, rows, shared = torch.device("cpu"), [], []
    for seed in range(10):
        actual = make_layer(positions=2_048, seed=seed).draw_positions(239, torch.arange(200, 240), None, device)
        rows += [row[:length] for row, length in zip(actual, range(200, 240), strict=True)]
    for row, next_row, far_row in zip(rows, rows[1:], rows[40:], strict=False):  # next length, another layer
        shared += [len(set(row.tolist()) & set(x.tolist())) / (len(row) * len(x) / 2_048) for x in (next_row, far_row)]
    counts = torch.bincount(torch.cat(rows), minlength=2_048).double()  # 43 draws of each, on average
    assert len(counts) == 2_048 and 0.8 < counts.var() / (counts.mean() * (1 - counts.mean() / 400)) < 1.2
    gaps = torch.cat([positions.diff() for positions in rows]).double()
    assert 0.9 < gaps.std() / gaps.mean() < 1.0  # nearly geometric: sqrt(1 - 1 / mean)
    assert abs(sum(shared) / len(shared) - 1) < 0.05


def test_integers_of_the_fixed_noise_are_distinct() -> None:
    layer = make_layer(positions=2_048)
    for draw in (0, 1, PRIME - 1, PRIME - 7):  # sums exceed the prime
        layer.draw.fill_(draw)
        keys = layer._fixed_noise(torch.tensor([1, 2_048]), torch.arange(2_048))
        assert keys.min() >= 0 and keys.max() < PRIME and all(len(row.unique()) == 2_048 for row in keys)


# -- laws --------------------------------------------------------------------------------------------------------------


@each_form
def test_only_a_causal_layer_ignores_later_inputs(form: str) -> None:
    layer, u = make_layer(**FORMS[form]), random_tensor(2, 6, WIDTH)
    noise = make_noise(layer)
    other = torch.cat([u[:, :4], random_tensor(2, 2, WIDTH, seed=5)], dim=1)
    assert layer.is_causal is layer.settings.causal_mask
    for draw in (noise, None):
        difference = (layer(other, noise=draw)[0] - layer(u, noise=draw)[0])[:, :4].abs().max()
        assert difference < 1e-12 if layer.is_causal else difference > 1e-3
        assert_same(layer(u[1:], noise=draw)[0], layer(u, noise=draw)[0][1:])


@each_form
def test_inputs_past_the_length_of_a_row_are_ignored(form: str) -> None:
    layer, u, lengths = make_layer(**FORMS[form]), random_tensor(3, 6, WIDTH), torch.tensor([4, 6, 1])
    for noise in (make_noise(layer), None):
        outputs, _ = layer(u, lengths=lengths, noise=noise)
        for row, length in enumerate(lengths.tolist()):
            assert_same(outputs[row, :length], layer(u[row, :length], noise=noise)[0])
    beyond = torch.where(torch.arange(6)[:, None] < lengths[:, None, None], u, 1e6)
    again = layer(beyond, lengths=lengths)[0]
    assert again.isfinite().all()
    assert_same(again[0, :4], outputs[0, :4])


@CAUSAL
def test_a_row_of_length_zero_is_finite(causal_mask: bool) -> None:
    layer, u = make_layer(causal_mask=causal_mask), random_tensor(2, 3, WIDTH).requires_grad_()
    outputs, _ = layer(u, lengths=torch.tensor([0, 3]))
    outputs[1].square().sum().backward()
    assert outputs.isfinite().all() and u.grad is not None and u.grad.isfinite().all()
    assert u.grad[0].abs().max() == 0


@each_form
def test_leading_dimensions_and_symbols(form: str) -> None:
    layer, table = make_layer(**FORMS[form]), random_tensor(5, WIDTH)
    tokens = torch.tensor([[0, 3, 1, 1, 4], [2, 2, 0, 3, 3]])
    parts = tuple(select_rows(part, tokens) for part in layer.parts(table))
    expected = layer(table[tokens])[0]
    assert_same(layer.mix(parts)[0], expected)
    assert_same(layer(table[tokens][None])[0], expected[None])
    assert_same(layer(table[tokens[0]])[0], expected[0])


@each_form
def test_gradients_agree_with_finite_differences(form: str) -> None:
    layer = make_layer(**FORMS[form])
    leaves = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    u, lengths, noise = random_tensor(2, 3, WIDTH).requires_grad_(), torch.tensor([2, 3]), make_noise(layer)

    def run(u: Tensor, *values: Tensor) -> Tensor:
        tensors = dict(zip(leaves, values, strict=True))
        outputs: Tensor = functional_call(layer, tensors, (u,), {"lengths": lengths, "noise": noise})[0]
        return outputs

    assert torch.autograd.gradcheck(run, (u, *leaves.values()), fast_mode=True)


@pytest.mark.parametrize("noisy", [True, False])
@each_form
def test_vmap_over_replicas_agrees_with_each_layer_alone(form: str, noisy: bool) -> None:
    layers = [make_layer(seed=seed, **FORMS[form]) for seed in (0, 1)]
    parameters, buffers = stack_module_state(nn.ModuleList(layers))
    u, lengths = random_tensor(2, 3, 5, WIDTH), torch.tensor([[5, 5, 5], [3, 2, 5]])
    noise = make_noise(layers[0], 2) if noisy else None

    def run(tensors: Any, buffers: Any, u: Tensor, lengths: Tensor, noise: Tensor | None) -> Tensor:
        options = {"lengths": lengths, "noise": noise}
        outputs: Tensor = functional_call(layers[0], (tensors, buffers), (u,), options)[0]
        return outputs

    outputs = vmap(run, in_dims=(0, 0, 0, 0, 0 if noisy else None))(parameters, buffers, u, lengths, noise)
    weights = random_tensor(*outputs.shape, seed=4)
    together = torch.autograd.grad((outputs * weights).sum(), list(parameters.values()))
    for i, layer in enumerate(layers):
        alone = layer(u[i], lengths=lengths[i], noise=None if noise is None else noise[i])[0]
        torch.testing.assert_close(outputs[i], alone)
        grads = torch.autograd.grad((alone * weights[i]).sum(), list(layer.parameters()))
        torch.testing.assert_close([grad[i] for grad in together], list(grads))


@CAUSAL
def test_long_sequences(causal_mask: bool) -> None:
    """At length 500: finite gradients, and float32 near float64."""
    double = make_layer(positions=2_048, causal_mask=causal_mask)
    single, u = copy.deepcopy(double).float(), random_tensor(2, 500, WIDTH)
    expected, actual = double(u)[0], single(u.float())[0]
    assert actual.dtype == torch.float32
    assert (actual - expected).abs().max() / expected.abs().max() < RELATIVE[torch.float32][1]
    actual[:, -1].square().sum().backward()
    for parameter in single.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.abs().max() > 0


# -- invalid input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 0}, "heads is 0; it must be from 1"),
        ({"heads": 3}, "heads is 3, but the width is 8; heads must divide it into even sizes"),
        ({"heads": 8}, "heads is 8, but the width is 8; heads must divide it into even sizes"),
        ({"positions": 0}, "positions is 0; it must be from 1"),
        ({"causal_mask": "yes"}, "causal_mask is 'yes'; it must be true or false"),
    ],
)
def test_invalid_settings(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        make_layer(**changes)


def test_invalid_inputs() -> None:
    layer = make_layer()
    with pytest.raises(ModelError, match="at most 50 inputs, got 51"):
        layer(random_tensor(1, 51, WIDTH))
    with pytest.raises(ModelError, match="at most 50 inputs, got 51"):
        layer.mix(layer.parts(random_tensor(1, 51, WIDTH)))
    assert layer(random_tensor(1, 50, WIDTH))[0].shape == (1, 50, WIDTH) and layer.longest == 50
    with pytest.raises(ModelError, match="no state"):
        layer(random_tensor(1, 5, WIDTH), torch.zeros(1, 2))
    with pytest.raises(ModelError, match="no state to step from"):
        layer.step(random_tensor(1, WIDTH))
    with pytest.raises(ModelError, match="vectors of 8 entries"):
        layer(random_tensor(1, 5, WIDTH + 1))
