"""Attention with randomised rotary positions."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from sdssm.errors import ModelError, SettingsError
from sdssm.layers.attention import PRIME, Attention, AttentionSettings, rotate
from sdssm.layers.mixer import pick
from tests.ops.tolerances import RELATIVE

WIDTH, HEADS, POSITIONS = 8, 2, 50
SIZE = WIDTH // HEADS
#: Each setting somewhere away from its default.
FORMS: dict[str, dict[str, Any]] = {
    "published": {},
    "causal": {"causal_mask": True},
    "one head": {"heads": 1},
    "one head, causal": {"heads": 1, "causal_mask": True},
    "as many positions as inputs": {"positions": 6},
}
EACH = pytest.mark.parametrize("form", FORMS)
CAUSAL = pytest.mark.parametrize("causal_mask", [False, True])


def made(*, seed: int = 0, width: int = WIDTH, **changes: Any) -> Attention:
    settings = AttentionSettings(**{"heads": HEADS, "positions": POSITIONS, **changes})
    return Attention(width, settings, generator=torch.Generator().manual_seed(seed)).double()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def chance(layer: Attention, *lead: int, seed: int = 2) -> Tensor:
    return torch.rand(*lead, *layer.chance(1), generator=torch.Generator().manual_seed(seed))


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def by_hand(layer: Attention, u: Tensor, places: list[int]) -> Tensor:
    """One string (L, D), query by query; pairs of entries are complex numbers that turn with their places."""
    heads = layer.settings.heads
    size = WIDTH // heads
    Q, K, V = (u @ weight.mT for weight in layer.queries_keys_values.chunk(3))
    angular = torch.tensor([10_000 ** (-2 * i / size) for i in range(size // 2)], dtype=torch.float64)
    turns = torch.exp(1j * torch.tensor(places, dtype=torch.float64)[:, None] * angular)
    outputs = []
    for t in range(len(u)):
        seen = range(t + 1) if layer.settings.causal_mask else range(len(u))
        heard = []
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            q = torch.view_as_complex(Q[t, part].reshape(-1, 2)) * turns[t]
            logits = []
            for s in seen:
                k = torch.view_as_complex(K[s, part].reshape(-1, 2)) * turns[s]
                logits.append((q * k.conj()).real.sum() / size**0.5)
            weights = torch.stack(logits).exp()
            heard.append(sum(w * V[s, part] for w, s in zip(weights / weights.sum(), seen, strict=True)))
        outputs.append(layer.projection @ torch.cat([torch.as_tensor(x) for x in heard]))
    return torch.stack(outputs)


def places_of(noise: Tensor, length: int) -> list[int]:
    """Where the smallest numbers are."""
    return sorted(sorted(range(len(noise)), key=lambda i: float(noise[i]))[:length])


# -- what it computes --------------------------------------------------------------------------------------------------


@EACH
def test_the_equations(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 6, WIDTH)
    noise = chance(layer)
    outputs, state = layer(u, noise=noise)
    assert outputs.shape == (2, 6, layer.outputs) == (2, 6, WIDTH) and state is None
    for row in range(2):
        same(outputs[row], by_hand(layer, u[row], places_of(noise, 6)))


def test_turning_is_a_complex_product() -> None:
    x, places = drawn(3, 5, 8), torch.tensor([0, 1, 7, 100, 2_047])
    pairs = torch.view_as_complex(x.reshape(3, 5, 4, 2))
    angular = torch.tensor([1, 0.1, 0.01, 0.001], dtype=torch.float64)
    turned = pairs * torch.polar(torch.ones(5, 4, dtype=torch.float64), places[:, None] * angular)
    same(rotate(x, places), torch.view_as_real(turned).reshape(3, 5, 8))


def test_only_distances_matter() -> None:
    q, k = drawn(8), drawn(8, seed=2)
    found = [rotate(q, torch.tensor(a)) @ rotate(k, torch.tensor(a + 9)) for a in (0, 5, 1_900)]
    same(found, [found[0]] * 3)


def test_parameters_and_how_they_begin() -> None:
    layer = made(width=256, heads=8)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "queries_keys_values": (768, 256),
        "projection": (256, 256),
    }
    for parameter in layer.parameters():  # a normal cut at two standard deviations of 1/16 has 0.88 of its spread
        assert 0.99 / 8 < parameter.abs().max() <= 1 / 8
        assert (parameter.std() * 16 - 0.8796).abs() < 0.01
    assert torch.equal(made().projection, made().projection) and not torch.equal(made(seed=1).draw, made().draw)
    assert sum(p.numel() for p in made(width=64, heads=8).parameters()) == 4 * 64 * 64
    assert layer.transition_parameters() == 0 and layer.numbers == 8 * 256


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
@pytest.mark.parametrize("causal_mask", [False, True])
def test_who_only_reads_hears_the_same(causal_mask: bool, device: str) -> None:
    """Fused attention where nothing is trained, against the products that training takes; a row without inputs too."""
    layer = made(causal_mask=causal_mask).to(device)
    u = drawn(4, 7, layer.width).to(device)
    for lengths in (None, torch.tensor([7, 4, 1, 0], device=device)):
        wanted, _ = layer(u, lengths=lengths)
        with torch.no_grad():
            found, _ = layer(u, lengths=lengths)
        same(found, wanted.detach())


# -- places ------------------------------------------------------------------------------------------------------------


def test_places_are_sorted_draws_without_replacement() -> None:
    layer, lengths = made(), torch.tensor([12, 1, 7, 0])
    noise = chance(layer)
    places = layer.places(12, lengths, noise, lengths.device)
    for row, length in enumerate(lengths.tolist()):
        assert places[row].tolist() == places_of(noise, length) + [POSITIONS] * (12 - length)
    whole = layer.places(12, None, noise, lengths.device)
    assert whole.tolist() == [places_of(noise, 12)] and len(set(whole[0].tolist())) == 12


def test_places_without_chance_are_those_of_the_length() -> None:
    layer, device = made(positions=2_048), torch.device("cpu")
    five, many = layer.places(5, None, None, device), layer.places(9, torch.tensor([5, 9, 5]), None, device)
    assert many[:, :5].tolist() == [five[0].tolist(), many[1, :5].tolist(), five[0].tolist()]
    assert many[1].tolist() == layer.places(9, None, None, device)[0].tolist()
    assert torch.equal(many, layer.float().places(9, torch.tensor([5, 9, 5]), None, device))
    other = made(positions=2_048, seed=1).places(9, None, None, device)
    assert not torch.equal(other, many[1:2])  # another layer, another draw


def test_places_without_chance_look_like_chance() -> None:
    """Over layers and lengths: places spread evenly, neighbouring lengths and layers with nothing in common."""
    device, rows, shared = torch.device("cpu"), [], []
    for seed in range(10):
        found = made(positions=2_048, seed=seed).places(239, torch.arange(200, 240), None, device)
        rows += [row[:length] for row, length in zip(found, range(200, 240), strict=True)]
    for one, next_one, far in zip(rows, rows[1:], rows[40:], strict=False):  # of the next length, of another layer
        shared += [len(set(one.tolist()) & set(x.tolist())) / (len(one) * len(x) / 2_048) for x in (next_one, far)]
    counts = torch.bincount(torch.cat(rows), minlength=2_048).double()  # 43 draws of each, on average
    assert len(counts) == 2_048 and 0.8 < counts.var() / (counts.mean() * (1 - counts.mean() / 400)) < 1.2
    gaps = torch.cat([places.diff() for places in rows]).double()
    assert 0.9 < gaps.std() / gaps.mean() < 1.0  # nearly geometric: sqrt(1 - 1 / mean)
    assert abs(sum(shared) / len(shared) - 1) < 0.05


def test_whole_numbers_of_the_fixed_draw_stay_apart() -> None:
    layer = made(positions=2_048)
    for draw in (0, 1, PRIME - 1, PRIME - 7):  # the sums run past the prime
        layer.draw.fill_(draw)
        keys = layer._fixed(torch.tensor([1, 2_048]), torch.arange(2_048))
        assert keys.min() >= 0 and keys.max() < PRIME and all(len(row.unique()) == 2_048 for row in keys)


# -- laws --------------------------------------------------------------------------------------------------------------


@EACH
def test_what_an_output_depends_on(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 6, WIDTH)
    noise = chance(layer)
    other = torch.cat([u[:, :4], drawn(2, 2, WIDTH, seed=5)], dim=1)
    assert layer.causal is layer.settings.causal_mask
    for given in (noise, None):
        apart = (layer(other, noise=given)[0] - layer(u, noise=given)[0])[:, :4].abs().max()
        assert apart < 1e-12 if layer.causal else apart > 1e-3
        same(layer(u[1:], noise=given)[0], layer(u, noise=given)[0][1:])


@EACH
def test_lengths_cut_each_row(form: str) -> None:
    layer, u, lengths = made(**FORMS[form]), drawn(3, 6, WIDTH), torch.tensor([4, 6, 1])
    for noise in (chance(layer), None):
        outputs, _ = layer(u, lengths=lengths, noise=noise)
        for row, length in enumerate(lengths.tolist()):
            same(outputs[row, :length], layer(u[row, :length], noise=noise)[0])
    beyond = torch.where(torch.arange(6)[:, None] < lengths[:, None, None], u, 1e6)
    again = layer(beyond, lengths=lengths)[0]
    assert again.isfinite().all()
    same(again[0, :4], outputs[0, :4])


@CAUSAL
def test_a_row_without_inputs_is_finite(causal_mask: bool) -> None:
    layer, u = made(causal_mask=causal_mask), drawn(2, 3, WIDTH).requires_grad_()
    outputs, _ = layer(u, lengths=torch.tensor([0, 3]))
    outputs[1].square().sum().backward()
    assert outputs.isfinite().all() and u.grad is not None and u.grad.isfinite().all()
    assert u.grad[0].abs().max() == 0


@EACH
def test_leading_dimensions_and_symbols(form: str) -> None:
    layer, table = made(**FORMS[form]), drawn(5, WIDTH)
    tokens = torch.tensor([[0, 3, 1, 1, 4], [2, 2, 0, 3, 3]])
    parts = tuple(pick(part, tokens) for part in layer.parts(table))
    wanted = layer(table[tokens])[0]
    same(layer.mix(parts)[0], wanted)
    same(layer(table[tokens][None])[0], wanted[None])
    same(layer(table[tokens[0]])[0], wanted[0])


@EACH
def test_gradients_are_those_of_finite_differences(form: str) -> None:
    layer = made(**FORMS[form])
    leaves = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    u, lengths, noise = drawn(2, 3, WIDTH).requires_grad_(), torch.tensor([2, 3]), chance(layer)

    def run(u: Tensor, *values: Tensor) -> Tensor:
        given = dict(zip(leaves, values, strict=True))
        outputs: Tensor = functional_call(layer, given, (u,), {"lengths": lengths, "noise": noise})[0]
        return outputs

    assert torch.autograd.gradcheck(run, (u, *leaves.values()), fast_mode=True)


@pytest.mark.parametrize("noisy", [True, False])
@EACH
def test_models_side_by_side(form: str, noisy: bool) -> None:
    layers = [made(seed=seed, **FORMS[form]) for seed in (0, 1)]
    parameters, buffers = stack_module_state(nn.ModuleList(layers))
    u, lengths = drawn(2, 3, 5, WIDTH), torch.tensor([[5, 5, 5], [3, 2, 5]])
    noise = chance(layers[0], 2) if noisy else None

    def run(given: Any, buffers: Any, u: Tensor, lengths: Tensor, noise: Tensor | None) -> Tensor:
        options = {"lengths": lengths, "noise": noise}
        outputs: Tensor = functional_call(layers[0], (given, buffers), (u,), options)[0]
        return outputs

    outputs = vmap(run, in_dims=(0, 0, 0, 0, 0 if noisy else None))(parameters, buffers, u, lengths, noise)
    weights = drawn(*outputs.shape, seed=4)
    together = torch.autograd.grad((outputs * weights).sum(), list(parameters.values()))
    for i, layer in enumerate(layers):
        alone = layer(u[i], lengths=lengths[i], noise=None if noise is None else noise[i])[0]
        torch.testing.assert_close(outputs[i], alone)
        grads = torch.autograd.grad((alone * weights[i]).sum(), list(layer.parameters()))
        torch.testing.assert_close([grad[i] for grad in together], list(grads))


@CAUSAL
def test_long_strings(causal_mask: bool) -> None:
    """At length 500: finite gradients, and float32 near float64."""
    double = made(positions=2_048, causal_mask=causal_mask)
    single, u = copy.deepcopy(double).float(), drawn(2, 500, WIDTH)
    wanted, found = double(u)[0], single(u.float())[0]
    assert found.dtype == torch.float32
    assert (found - wanted).abs().max() / wanted.abs().max() < RELATIVE[torch.float32][1]
    found[:, -1].square().sum().backward()
    for parameter in single.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.abs().max() > 0


# -- bad input ---------------------------------------------------------------------------------------------------------


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
def test_bad_settings(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        made(**changes)


def test_bad_inputs() -> None:
    layer = made()
    with pytest.raises(ModelError, match="at most 50 inputs, and 51 were given"):
        layer(drawn(1, 51, WIDTH))
    with pytest.raises(ModelError, match="at most 50 inputs, and 51 were given"):
        layer.mix(layer.parts(drawn(1, 51, WIDTH)))
    assert layer(drawn(1, 50, WIDTH))[0].shape == (1, 50, WIDTH) and layer.longest == 50
    with pytest.raises(ModelError, match="no state"):
        layer(drawn(1, 5, WIDTH), torch.zeros(1, 2))
    with pytest.raises(ModelError, match="no state to step from"):
        layer.step(drawn(1, WIDTH))
    with pytest.raises(ModelError, match="vectors of 8 entries"):
        layer(drawn(1, 5, WIDTH + 1))
