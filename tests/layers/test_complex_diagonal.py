"""The complex diagonal recurrence: phases that depend on the inputs."""

from __future__ import annotations

import cmath
import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from sdssm.errors import ModelError, SettingsError
from sdssm.layers.complex_diagonal import ComplexDiagonal, ComplexDiagonalSettings
from sdssm.layers.mixer import pick
from tests.ops.tolerances import RELATIVE

WIDTH, STATE = 3, 4
#: Each setting somewhere away from its default.
FORMS: dict[str, dict[str, Any]] = {
    "published": {},
    "B = 0": {"input_matrix": False},
    "smaller radius": {"radius": 0.9},
    "the paper's text": {"generator": "separate"},
    "text, B = 0": {"generator": "separate", "input_matrix": False},
}
EACH = pytest.mark.parametrize("form", FORMS)


def made(*, seed: int = 0, width: int = WIDTH, **changes: Any) -> ComplexDiagonal:
    settings = ComplexDiagonalSettings(**{"state": STATE, **changes})
    return ComplexDiagonal(width, settings, generator=torch.Generator().manual_seed(seed)).double()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def relu_mlp(mlp: Any, u: Tensor) -> Tensor:
    first, _, last = mlp
    hidden = first.weight @ u + (0 if first.bias is None else first.bias)
    outputs: Tensor = last.weight @ (hidden * (hidden > 0)) + (0 if last.bias is None else last.bias)
    return outputs


def by_hand(layer: ComplexDiagonal, u: Tensor) -> list[list[float]]:
    """One string (L, D) with Python's complex numbers, entry by entry: outputs (L, 2n)."""
    x = [cmath.exp(1j * phase) for phase in layer.phase.tolist()]
    outputs = []
    for u_t in u:
        raw = torch.cat([relu_mlp(mlp, u_t) for mlp in layer.generator]).tolist()
        for i in range(STATE):
            angle = cmath.phase(complex(raw[i], raw[STATE + i]))
            x[i] *= layer.settings.radius * cmath.exp(1j * angle)
            if layer.input_matrix is not None:
                for j in range(WIDTH):
                    x[i] += complex(*layer.input_matrix[:, i, j].tolist()) * float(u_t[j])
        outputs.append([entry.real for entry in x] + [entry.imag for entry in x])
    return outputs


# -- what it computes --------------------------------------------------------------------------------------------------


@EACH
def test_the_equations(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 6, WIDTH)
    outputs, final = layer(u)
    assert outputs.shape == (2, 6, layer.outputs) == (2, 6, 2 * STATE) and final.shape == (2, STATE)
    for row in range(2):
        same(outputs[row], torch.tensor(by_hand(layer, u[row]), dtype=torch.float64))
    same(torch.cat([final.real, final.imag], dim=-1), outputs[:, -1])


@EACH
def test_every_transition_lies_on_the_circle(form: str) -> None:
    layer = made(**FORMS[form])
    a, *added = layer.parts(drawn(5, 7, WIDTH))
    assert a.shape == (5, 7, STATE, 2) and len(added) == layer.settings.input_matrix
    same(torch.hypot(*a.unbind(-1)), torch.full((5, 7, STATE), layer.settings.radius, dtype=torch.float64))
    (start, _) = layer.mix_step(torch.zeros(1, WIDTH, dtype=torch.float64))
    if not layer.settings.input_matrix:
        same(torch.hypot(*start[0].chunk(2)), torch.ones(STATE, dtype=torch.float64) * layer.settings.radius)


def test_proposition_1() -> None:
    """Without B only how often each input occurs matters at the end; with it the order does too."""
    order = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    for form, blind in (("B = 0", True), ("text, B = 0", True), ("published", False), ("the paper's text", False)):
        layer, u = made(**FORMS[form]), drawn(2, 40, WIDTH)
        apart = (layer(u)[0][:, -1] - layer(u[:, order])[0][:, -1]).abs().max()
        assert apart < 1e-12 if blind else apart > 0.1, form


@pytest.mark.parametrize("width", [2, 64])
def test_parameters_as_published(width: int) -> None:
    """41,408 and 41,664 for two symbols and sixty classes, less the embedding (4) and the linear readout (7,740)."""
    for driven in (False, True):
        layer = made(width=width, state=64, input_matrix=driven)
        joint = width * 256 + 256 + 256 * 128 + 128
        assert layer.transition_parameters() == joint
        total = sum(parameter.numel() for parameter in layer.parameters())
        assert total == joint + driven * 2 * 64 * width
        if width == 2:
            assert 4 + total + 128 * 60 + 60 == (41_664 if driven else 41_408)
    separate = made(width=width, state=64, input_matrix=False, generator="separate")
    assert separate.transition_parameters() == 2 * (width * 64 + 64 * 64)


def test_how_it_begins() -> None:
    layer = made(state=1_000)
    bound = (3 / (1_000 + WIDTH)) ** 0.5
    assert layer.input_matrix is not None and 0.99 * bound < layer.input_matrix.abs().max() <= bound
    assert layer.phase.min() >= 0 and 0.99 < layer.phase.max() / (2 * torch.pi) <= 1
    assert "phase" in dict(layer.named_buffers()) and all(p.is_floating_point() for p in layer.parameters())
    assert not torch.equal(made(seed=1).phase, made(seed=2).phase) and torch.equal(made().phase, made().phase)


def test_a_number_without_a_phase() -> None:
    """Exactly zero: the phase is 0, no gradient, no NaN; beside it all is as it was."""
    layer = made(generator="separate", input_matrix=False)
    u = torch.stack([torch.zeros(WIDTH, dtype=torch.float64), *drawn(2, WIDTH)])[None].requires_grad_()
    a = layer.parts(u)[0]
    same(a[0, 0], torch.tensor([[1.0, 0.0]] * STATE, dtype=torch.float64))
    (layer(u)[0] * drawn(1, 3, 2 * STATE)).sum().backward()
    assert u.grad is not None and u.grad.isfinite().all() and u.grad[0, 1:].abs().min() > 0
    assert u.grad[0, 0].abs().max() == 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


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
    layer = made(**{**FORMS[form], "state": 2})
    leaves = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    u, lengths = drawn(2, 3, WIDTH).requires_grad_(), torch.tensor([2, 3])

    def run(u: Tensor, *values: Tensor) -> Tensor:
        given = dict(zip(leaves, values, strict=True))
        outputs: Tensor = functional_call(layer, given, (u,), {"lengths": lengths})[0]
        return outputs

    assert torch.autograd.gradcheck(run, (u, *leaves.values()))


@EACH
def test_models_side_by_side(form: str) -> None:
    layers = [made(seed=seed, **FORMS[form]) for seed in (0, 1)]
    parameters, buffers = stack_module_state(nn.ModuleList(layers))
    u, lengths = drawn(2, 3, 5, WIDTH), torch.tensor([[5, 5, 5], [3, 2, 5]])

    def run(given: Any, buffers: Any, u: Tensor, lengths: Tensor) -> Tensor:
        outputs: Tensor = functional_call(layers[0], (given, buffers), (u,), {"lengths": lengths})[0]
        return outputs

    outputs = vmap(run)(parameters, buffers, u, lengths)
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
    double = made(**{**FORMS[form], "state": 16})
    single, u = copy.deepcopy(double).float(), drawn(2, 500, WIDTH)
    wanted, found = double(u)[0], single(u.float())[0]
    assert (
        found.dtype == torch.float32 and (found - wanted).abs().max() / wanted.abs().max() < RELATIVE[torch.float32][1]
    )
    found[:, -1].square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in single.parameters())
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in single.generator.parameters())


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": 0}, "state is 0; it must be from 1"),
        ({"radius": 0.0}, "radius is 0.0; it must be above 0 and at most 1"),
        ({"radius": 1.5}, "radius is 1.5; it must be above 0 and at most 1"),
        ({"generator": "join"}, "'joint'"),
        ({"input_matrix": 1}, "input_matrix is 1; it must be true or false"),
    ],
)
def test_bad_settings(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        made(**changes)


def test_inputs_of_another_width() -> None:
    with pytest.raises(ModelError, match="vectors of 3 entries"):
        made()(drawn(2, 5, WIDTH + 1))
