"""The kernel of S4 against its matrices, and properties of all convolutional layers: S4, S4D, H3 and Hyena."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sdssm.errors import ModelError, SettingsError
from sdssm.layers import channels, h3
from sdssm.layers.channels import SHORT, convolve, delay_matrices, fft_size, short_convolution
from sdssm.layers.h3 import H3
from sdssm.layers.hyena import Hyena
from sdssm.layers.mixer import Mixer
from sdssm.layers.s4 import S4, hippo_legs
from sdssm.layers.s4d import S4d
from sdssm.layers.settings import S4Settings
from tests.ops.tolerances import RELATIVE

WIDTH = 3
#: All convolutional layers, with small sizes.
FORMS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "s4": (S4, {"state": 8}),
    "s4d, lin": (S4d, {"state": 6}),
    "s4d, inv": (S4d, {"state": 6, "init": "inv"}),
    "h3": (H3, {"state": 4}),
    "hyena": (Hyena, {"longest": 600, "filter_width": 7}),
    "hyena, bands": (Hyena, {"longest": 20, "filter_width": 7, "bands": 2, "learned_features": False, "conv": 1}),
}
RECURRENT = [form for form, (kind, _) in FORMS.items() if kind.is_recurrent]


def make_layer(form: str, *, seed: int = 0, width: int = WIDTH) -> Any:
    kind, changes = FORMS[form]
    return kind(width, kind.Settings(**changes), generator=torch.Generator().manual_seed(seed)).double()


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same(actual: Tensor, expected: Tensor, *, tolerance: float = RELATIVE[torch.float64][0]) -> None:
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    error = (actual - expected).abs().max() / expected.abs().max()
    assert error <= tolerance, f"relative error {error:.1e}"


def assert_same_state(actual: Any, expected: Any) -> None:
    if isinstance(expected, Tensor):
        return assert_same(actual, expected)
    for actual_part, expected_part in zip(actual, expected, strict=True):
        assert_same_state(actual_part, expected_part)
    return None


# -- S4's matrices -----------------------------------------------------------------------------------------------------


def matrices(layer: S4) -> tuple[Tensor, Tensor, Tensor]:
    """Return Abar (D, N, N), Bbar (D, N), C (D, N) over all conjugate modes, by solving linear equations."""
    system: Any = layer.system

    def paired(x: Tensor) -> Tensor:
        return torch.cat([x, x.conj()], dim=-1)

    P, B, C = (paired(torch.complex(*getattr(system, name).detach().double())) for name in "PBC")
    eigenvalues = paired(torch.complex(-system.log_decay.detach().double().exp(), system.frequency.detach().double()))
    A = torch.diag_embed(eigenvalues) - P[..., :, None] * P.conj()[..., None, :]
    dt = system.log_dt.detach().double().exp()[:, None, None]
    eye = torch.eye(A.shape[-1], dtype=A.dtype)
    left = eye - dt / 2 * A
    return torch.linalg.solve(left, eye + dt / 2 * A), torch.linalg.solve(left, dt[..., 0] * B), C


def taps(layer: S4, length: int) -> Tensor:
    """Return C Abar^l Bbar, computed for one l after the other."""
    A, x, C = matrices(layer)
    actual = []
    for _ in range(length):
        actual.append((C * x).sum(-1))
        x = (A @ x[..., None])[..., 0]
    kernel = torch.stack(actual, dim=-1)
    assert kernel.imag.abs().max() < 1e-12 * kernel.real.abs().max()  # because modes come in conjugate pairs
    return kernel.real


@pytest.mark.parametrize("length", [1, 2, 7, 41, 64, 600])
def test_the_kernel_agrees_with_the_matrix_recurrence(length: int) -> None:
    layer = make_layer("s4")
    assert_same(layer.system.kernel(length), taps(layer, length))


@pytest.mark.parametrize("state", [64, 128])
@pytest.mark.parametrize("length", [1, 41, 600])
def test_the_kernel_in_single_precision(state: int, length: int) -> None:
    layer = S4(8, S4Settings(state=state), generator=torch.Generator().manual_seed(0))
    assert_same(layer.system.kernel(length).double(), taps(layer, length), tolerance=2e-5)


def test_the_kernel_of_other_parameters() -> None:
    """Far from the initial values the system is stable and the kernel correct."""
    layer = make_layer("s4")
    with torch.no_grad():
        for seed, parameter in enumerate(layer.system.parameters()):
            parameter += 2 * random_tensor(*parameter.shape, seed=seed)
    assert_same(layer.system.kernel(300), taps(layer, 300))
    assert torch.linalg.matrix_norm(matrices(layer)[0], ord=2).max() <= 1 + 1e-12


def test_the_initial_system_is_hippo_legs() -> None:
    """The HiPPO matrix is triangular with -1, -2, ... on its diagonal; B^T A^l B checks B."""
    state = 8
    i = torch.arange(state, dtype=torch.float64)
    b = (2 * i + 1).sqrt()
    real = -(torch.outer(b, b).tril(-1) + torch.diag(i + 1))
    eigenvalues, P, B = (torch.cat([x, x.conj()]) for x in hippo_legs(state))
    A = torch.diag(eigenvalues) - torch.outer(P, P.conj())
    actual = torch.linalg.eigvals(A)
    assert actual.imag.abs().max() < 1e-9
    torch.testing.assert_close(actual.real.sort().values, -(i.flip(0) + 1))
    unclipped = 2**0.5 * P
    torch.testing.assert_close(B.real, unclipped.real)
    torch.testing.assert_close(B.imag, unclipped.imag.clamp(-2, 2))
    for power in range(4):
        expected = b @ torch.linalg.matrix_power(real, power) @ b
        value = unclipped.conj() @ torch.linalg.matrix_power(A, power) @ unclipped
        torch.testing.assert_close(value, expected.to(value.dtype))
    assert hippo_legs(64)[2].imag.abs().max() == 2.0 and hippo_legs(64)[1].imag.abs().max() > 2


def test_outputs_follow_the_equations() -> None:
    layer, u = make_layer("s4"), random_tensor(2, 9, WIDTH)
    A, B, C = matrices(layer)
    x = torch.zeros(2, *B.shape, dtype=B.dtype)
    expected = []
    for u_t in u.unbind(1):
        x = torch.einsum("dnm,bdm->bdn", A, x) + B * u_t[..., None]
        y = nn.functional.gelu((C * x).sum(-1).real + layer.system.skip * u_t)
        a, b = (y @ layer.output.weight.mT + layer.output.bias).chunk(2, dim=-1)
        expected.append(a * torch.sigmoid(b))
    outputs, state = layer(u)
    assert_same(outputs, torch.stack(expected, dim=1))
    assert_same(state, x[..., : x.shape[-1] // 2])


def test_number_of_parameters() -> None:
    """For each channel dt, D, and of N/2 modes two numbers each for lambda, P, B, C; then D (2D) + 2D."""
    layer = S4(64, generator=torch.Generator())
    assert sum(p.numel() for p in layer.parameters()) == 64 * (1 + 1 + 4 * 64) + 64 * 128 + 128
    dt = layer.system.log_dt.exp()  # type: ignore[operator]  # a parameter
    assert 1e-3 <= dt.min() < 3e-3 and 3e-2 < dt.max() <= 0.1


# -- convolutions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "taps"), [(1, 1), (2, 2), (5, 3), (41, 41), (7, 1)])
def test_a_convolution_agrees_with_its_direct_sum(length: int, taps: int) -> None:
    u, kernel = random_tensor(2, 3, length), random_tensor(3, taps, seed=2)
    expected = torch.zeros_like(u)
    for t in range(length):
        for m in range(min(t + 1, taps)):
            expected[..., t] += kernel[:, m] * u[..., t - m]
    assert_same(convolve(u, kernel), expected)


@pytest.mark.parametrize("length", [1, 2, 7, SHORT, SHORT + 1])
def test_a_short_convolution_agrees_with_torch(length: int) -> None:
    u, weight, bias = random_tensor(2, length, 3), random_tensor(3, 4, seed=2), random_tensor(3, seed=3)
    expected = nn.functional.conv1d(u.mT, weight[:, None], bias, padding=3, groups=3)[..., :length].mT
    assert_same(channels.swap_channels(short_convolution(channels.swap_channels(u), weight, bias)), expected)


@pytest.mark.parametrize("form", FORMS)
def test_products_for_short_sequences_agree_with_ffts(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, u = make_layer(form), random_tensor(2, 20, WIDTH)
    short, _ = layer(u)
    gradients = torch.autograd.grad(short.square().sum(), list(layer.parameters()))
    for module in (channels, h3):
        monkeypatch.setattr(module, "SHORT", 0)
    long, _ = layer(u)
    assert_same(short, long)
    for actual_grad, expected_grad in zip(
        gradients, torch.autograd.grad(long.square().sum(), list(layer.parameters())), strict=True
    ):
        assert_same(actual_grad, expected_grad, tolerance=RELATIVE[torch.float64][1])


def test_cached_tables_work_under_every_transform() -> None:
    """The first call of a layer may be in inference mode, or inside a transform."""
    length = 37  # not used by another test
    u, layer = random_tensor(2, length, WIDTH).float(), make_layer("h3").float()
    with torch.inference_mode():
        layer(u)
    layer(u)[0].sum().backward()
    vmap(grad(lambda x: delay_matrices(x, length - 2).sum() * x.sum()))(u)
    assert (
        delay_matrices(u, length - 2) is delay_matrices(u, length - 2)
        and delay_matrices(u, length - 2).sum().isfinite()
    )


def test_fft_sizes() -> None:
    for least in range(1, 300):
        size = fft_size(least)
        assert size >= least and size % 2 == 0 and (2 * 3 * 5) ** 20 % size == 0 and size <= 1.4 * least + 2


# -- properties of all four --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_class_attributes(form: str) -> None:
    layer = make_layer(form)
    assert isinstance(layer, Mixer) and layer.has_output_projection and layer.is_causal and layer.outputs == WIDTH
    assert layer.emulates and layer.transition_parameters() == 0 and layer.noise_shape(5) is None
    assert all(p.dtype == torch.float32 for p in copy.deepcopy(layer).float().parameters())
    assert "width=3" in repr(layer)


@pytest.mark.parametrize("length", [1, 6, 19, 70])  # short convolutions are products, long ones FFTs
@pytest.mark.parametrize("form", FORMS)
def test_a_query_after_every_prefix(form: str, length: int) -> None:
    """The output is that of the prefix followed by the query, also when continuing from a state."""
    layer = make_layer(form)
    length = min(length, (layer.longest or length + 1) - 1)
    u, other = random_tensor(2, length, WIDTH), random_tensor(2, length, WIDTH, seed=2)
    _, state = layer(random_tensor(2, 5, WIDTH, seed=3)) if layer.is_recurrent else (None, None)
    for start in (None, state):
        actual = layer.mix_query(layer.parts(u), layer.parts(other), start)
        ends = [layer(torch.cat([u[:, : t + 1], other[:, t : t + 1]], 1), start)[0][:, -1] for t in range(length)]
        assert_same(actual, torch.stack(ends, 1))


@pytest.mark.parametrize("form", RECURRENT)
def test_long_pieces_in_single_precision(form: str) -> None:
    layer, u = make_layer(form).float(), random_tensor(2, 500, WIDTH).float()
    all_outputs, _ = layer(u)
    state, pieces = None, []
    for piece in u.tensor_split([250], dim=1):
        output, state = layer(piece, state)
        pieces.append(output)
    assert_same(torch.cat(pieces, dim=1), all_outputs, tolerance=RELATIVE[torch.float32][0])
    assert_same(
        all_outputs.double(), copy.deepcopy(layer).double()(u.double())[0], tolerance=RELATIVE[torch.float32][0]
    )


@pytest.mark.parametrize("form", FORMS)
def test_no_state_is_returned_unless_requested(form: str) -> None:
    layer, u = make_layer(form), random_tensor(2, 6, WIDTH)
    outputs, state = layer.mix(layer.parts(u), carry=False)
    assert state is None
    assert_same(outputs, layer(u)[0])
    cut, state = layer(u, lengths=torch.tensor([2, 6]))
    assert state is None
    assert_same(cut[0, :2], outputs[0, :2])


@pytest.mark.parametrize("form", FORMS)
def test_gradients_agree_with_finite_differences(form: str) -> None:
    """Of every parameter, of the inputs, and through a state."""
    layer = make_layer(form, width=2)
    leaves = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    leaves = {name: p for name, p in leaves.items() if not name.endswith("features")}  # hundreds of entries

    def run(u: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        tensors = dict(zip(leaves, values, strict=True))
        first, state = functional_call(layer, tensors, (u[:, :3],))
        if state is None:
            return (first,)
        return first, functional_call(layer, tensors, (u[:, 3:], state))[0]

    assert torch.autograd.gradcheck(run, (random_tensor(1, 5, 2).requires_grad_(), *leaves.values()), fast_mode=True)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_finite_at_length_500(form: str) -> None:
    kind, changes = FORMS[form]
    settings = kind.Settings(**({} if kind is not S4d else {"init": changes.get("init", "lin")}))
    layer = kind(16, settings, generator=torch.Generator().manual_seed(0))
    outputs, _ = layer(random_tensor(2, 500, 16).float())
    outputs[:, -1].square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("form", FORMS)
def test_parameters_may_be_views_of_one_buffer(form: str) -> None:
    """Training keeps all parameters in one buffer, where a pair of real numbers may be unaligned."""
    layer, u = make_layer(form), random_tensor(2, 5, WIDTH)
    flat = torch.cat([torch.zeros(1, dtype=torch.float64), *(p.detach().flatten() for p in layer.parameters())])
    views, at = {}, 1
    for name, parameter in layer.named_parameters():
        views[name] = flat[at : at + parameter.numel()].view(parameter.shape)
        at += parameter.numel()
    assert_same(functional_call(layer, views, (u,))[0], layer(u)[0])


@pytest.mark.parametrize("form", FORMS)
def test_parameters_depend_only_on_the_generator(form: str) -> None:
    def weights(seed: int) -> Tensor:
        return torch.cat([value.flatten() for value in make_layer(form, seed=seed).parameters()])

    before = torch.get_rng_state()
    assert torch.equal(weights(0), weights(0)) and not torch.equal(weights(0), weights(1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("form", FORMS)
def test_copies_are_independent(form: str) -> None:
    layer, u = make_layer(form), random_tensor(2, 3, WIDTH)
    expected = layer(u)[0]
    copied = pickle.loads(pickle.dumps(layer))
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    assert_same(copied(u)[0], expected)
    assert copied.settings == layer.settings


# -- invalid input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": 0}, "state is 0; it must be from 2 to 1,024"),
        ({"state": 7}, "state is 7; modes come in conjugate pairs, so it must be even"),
        ({"dt_min": 0.0}, "dt_min is 0.0; it must be above 0"),
        ({"dt_min": 0.5}, "dt_min is 0.5 and dt_max is 0.1"),
        ({"dt_max": "wide"}, "dt_max is 'wide'; it must be a finite number"),
    ],
)
@pytest.mark.parametrize("kind", [S4, S4d, H3])
def test_invalid_settings(kind: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        kind.Settings(**changes)
    assert message in str(error.value)


@pytest.mark.parametrize("form", FORMS)
def test_invalid_inputs(form: str) -> None:
    with pytest.raises(SettingsError, match="width is 0; it must be at least 1"):
        make_layer(form, width=0)
    with pytest.raises(ModelError, match="vectors of 3 entries"):
        make_layer(form)(random_tensor(2, 5, WIDTH + 1))
