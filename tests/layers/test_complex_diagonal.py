"""The complex diagonal recurrence with input-dependent phases."""

from __future__ import annotations

import cmath
import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from sdssm.errors import ModelError, SettingsError
from sdssm.layers.complex_diagonal import ComplexDiagonal
from sdssm.layers.settings import ComplexDiagonalSettings
from tests.ops.tolerances import RELATIVE

WIDTH, STATE = 3, 4
#: Each setting with a value other than its default.
FORMS: dict[str, dict[str, Any]] = {
    "published": {},
    "B = 0": {"input_matrix": False},
    "smaller radius": {"radius": 0.9},
    "the paper's text": {"generator": "separate"},
    "text, B = 0": {"generator": "separate", "input_matrix": False},
}
each_form = pytest.mark.parametrize("form", FORMS)


def make_layer(*, seed: int = 0, width: int = WIDTH, **changes: Any) -> ComplexDiagonal:
    settings = ComplexDiagonalSettings(**{"state": STATE, **changes})
    return ComplexDiagonal(width, settings, generator=torch.Generator().manual_seed(seed)).double()


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def relu_mlp(mlp: Any, u: Tensor) -> Tensor:
    first, _, last = mlp
    hidden = first.weight @ u + (0 if first.bias is None else first.bias)
    outputs: Tensor = last.weight @ (hidden * (hidden > 0)) + (0 if last.bias is None else last.bias)
    return outputs


def by_hand(layer: ComplexDiagonal, u: Tensor) -> list[list[float]]:
    """Compute one sequence (L, D) with Python's complex numbers, entry by entry: outputs (L, 2n)."""
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


# -- outputs -----------------------------------------------------------------------------------------------------------


@each_form
def test_outputs_follow_the_equations(form: str) -> None:
    layer, u = make_layer(**FORMS[form]), random_tensor(2, 6, WIDTH)
    outputs, final = layer(u)
    assert outputs.shape == (2, 6, layer.outputs) == (2, 6, 2 * STATE) and final.shape == (2, STATE)
    for row in range(2):
        assert_same(outputs[row], torch.tensor(by_hand(layer, u[row]), dtype=torch.float64))
    assert_same(torch.cat([final.real, final.imag], dim=-1), outputs[:, -1])


@each_form
def test_every_transition_has_the_radius_as_absolute_value(form: str) -> None:
    layer = make_layer(**FORMS[form])
    a, *added = layer.parts(random_tensor(5, 7, WIDTH))
    assert a.shape == (5, 7, STATE, 2) and len(added) == layer.settings.input_matrix
    assert_same(torch.hypot(*a.unbind(-1)), torch.full((5, 7, STATE), layer.settings.radius, dtype=torch.float64))
    (start, _) = layer.mix_step(torch.zeros(1, WIDTH, dtype=torch.float64))
    if not layer.settings.input_matrix:
        assert_same(torch.hypot(*start[0].chunk(2)), torch.ones(STATE, dtype=torch.float64) * layer.settings.radius)


def test_proposition_1() -> None:
    """Without B the final state does not depend on the order of the inputs; with B it does."""
    order = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    for form, blind in (("B = 0", True), ("text, B = 0", True), ("published", False), ("the paper's text", False)):
        layer, u = make_layer(**FORMS[form]), random_tensor(2, 40, WIDTH)
        difference = (layer(u)[0][:, -1] - layer(u[:, order])[0][:, -1]).abs().max()
        assert difference < 1e-12 if blind else difference > 0.1, form


@pytest.mark.parametrize("width", [2, 64])
def test_number_of_parameters_as_published(width: int) -> None:
    """41,408 and 41,664 for two symbols and sixty classes, minus the embedding (4) and the linear readout (7,740)."""
    for driven in (False, True):
        layer = make_layer(width=width, state=64, input_matrix=driven)
        joint = width * 256 + 256 + 256 * 128 + 128
        assert layer.transition_parameters() == joint
        total = sum(parameter.numel() for parameter in layer.parameters())
        assert total == joint + driven * 2 * 64 * width
        if width == 2:
            assert 4 + total + 128 * 60 + 60 == (41_664 if driven else 41_408)
    separate = make_layer(width=width, state=64, input_matrix=False, generator="separate")
    assert separate.transition_parameters() == 2 * (width * 64 + 64 * 64)


def test_initial_values() -> None:
    layer = make_layer(state=1_000)
    bound = (3 / (1_000 + WIDTH)) ** 0.5
    assert layer.input_matrix is not None and 0.99 * bound < layer.input_matrix.abs().max() <= bound
    assert layer.phase.min() >= 0 and 0.99 < layer.phase.max() / (2 * torch.pi) <= 1
    assert "phase" in dict(layer.named_buffers()) and all(p.is_floating_point() for p in layer.parameters())
    assert not torch.equal(make_layer(seed=1).phase, make_layer(seed=2).phase) and torch.equal(
        make_layer().phase, make_layer().phase
    )


def test_a_transition_of_zero_has_phase_zero() -> None:
    """Exactly zero: the phase is 0, with zero gradient and no NaN; other positions are unaffected."""
    layer = make_layer(generator="separate", input_matrix=False)
    u = torch.stack([torch.zeros(WIDTH, dtype=torch.float64), *random_tensor(2, WIDTH)])[None].requires_grad_()
    a = layer.parts(u)[0]
    assert_same(a[0, 0], torch.tensor([[1.0, 0.0]] * STATE, dtype=torch.float64))
    (layer(u)[0] * random_tensor(1, 3, 2 * STATE)).sum().backward()
    assert u.grad is not None and u.grad.isfinite().all() and u.grad[0, 1:].abs().min() > 0
    assert u.grad[0, 0].abs().max() == 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


# -- laws --------------------------------------------------------------------------------------------------------------


@each_form
def test_gradients_agree_with_finite_differences(form: str) -> None:
    layer = make_layer(**{**FORMS[form], "state": 2})
    leaves = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    u, lengths = random_tensor(2, 3, WIDTH).requires_grad_(), torch.tensor([2, 3])

    def run(u: Tensor, *values: Tensor) -> Tensor:
        tensors = dict(zip(leaves, values, strict=True))
        outputs: Tensor = functional_call(layer, tensors, (u,), {"lengths": lengths})[0]
        return outputs

    assert torch.autograd.gradcheck(run, (u, *leaves.values()))


@each_form
def test_long_sequences(form: str) -> None:
    """At length 500 gradients are finite, and float32 agrees with float64."""
    double = make_layer(**{**FORMS[form], "state": 16})
    single, u = copy.deepcopy(double).float(), random_tensor(2, 500, WIDTH)
    expected, actual = double(u)[0], single(u.float())[0]
    assert (
        actual.dtype == torch.float32
        and (actual - expected).abs().max() / expected.abs().max() < RELATIVE[torch.float32][1]
    )
    actual[:, -1].square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in single.parameters())
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in single.generator.parameters())


# -- invalid input -----------------------------------------------------------------------------------------------------


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
def test_invalid_settings(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        make_layer(**changes)


def test_inputs_of_the_wrong_width() -> None:
    with pytest.raises(ModelError, match="vectors of 3 entries"):
        make_layer()(random_tensor(2, 5, WIDTH + 1))
