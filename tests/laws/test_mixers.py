"""Laws that every sequence mixer satisfies, with each of its settings away from the default somewhere.

A new mixer is covered as soon as it is in the catalogue; add settings that change its computation to `VARIANTS`.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from sdssm.errors import ModelError
from sdssm.layers import MIXERS
from tests.ops.tolerances import RELATIVE

WIDTH, STATE = 8, 4
#: Small sizes, for each mixer that has these settings.
SMALL: dict[str, Any] = {
    "state": STATE,
    "dictionary": 3,
    "heads": 2,
    "head_size": 3,
    "block_size": 2,
    "positions": 600,
    "longest": 600,
    "filter_width": 7,
}
DRIVEN: dict[str, Any] = {"input_matrix": True, "rescale": False, "initial_state": "zero"}
#: Settings of a mixer besides its defaults.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "sd-ssm": [
        DRIVEN,
        {**DRIVEN, "initial_state": "learned", "column_norm": 1.5},
        {"rescale": False},
        {"column_norm": None},
        {**DRIVEN, "column_norm": None},
        {"temperature": 0.3, "column_norm": 1.0},
        {"skip": True},
        {**DRIVEN, "skip": True},
        {"initial_state": "given"},
        {"transition": "stochastic", "rescale": False},
        {"transition": "nonnegative"},
        {"transition": "sum-one", "skip": True},
        {"transition": "stochastic", "constraint": 0.5, "column_temperature": 0.2},
    ],
    "rnn": [{"initial_state": "learned"}, {"initial_state": "given"}],
    "lstm": [{"initial_state": "learned"}, {"initial_state": "given"}],
    "transformer": [{"causal_mask": True}, {"heads": 1, "causal_mask": True}],
    "s4d": [{"init": "inv"}],
    "hyena": [{"bands": 2, "learned_features": False, "conv": 1}],
    "mamba": [{"state": 2, "expand": 1, "rank": 2}, {"conv": 6, "expand": 3}],
    "regular-lrnn": [
        {"normalisation": "columns"},
        {"column_norm": 2.5},
        {"normalisation": "columns", "block_size": 1},
        {"block_size": STATE, "column_norm": 1.0},
    ],
    "complex-diagonal": [
        {"input_matrix": False},
        {"radius": 0.9},
        {"generator": "separate"},
        {"generator": "separate", "input_matrix": False},
    ],
    "delta-net": [{"conv": None, "negative_eigenvalues": False}, {"output_gate": True}],
    "delta-product": [
        {"householders": 3, "forget_gate": False, "conv": 2},
        {"forget_gate": False, "output_gate": False, "conv": None},
    ],
    "pd-ssm": [
        {"input_matrix": False},
        {"initial_state": "zero", "expansion": 1},
        {"initial_state": "learned", "input_matrix": False},
    ],
    "slice": [
        {"input_matrix": True, "block_size": 1},
        {"initial_state": "learned", "block_size": 1},
        {"initial_state": "learned", "input_matrix": True, "block_size": STATE},
    ],
}
CASES = [(name, changes) for name in MIXERS for changes in ({}, *VARIANTS.get(name, []))]
IDS = ["-".join([name, *(f"{key}={value}" for key, value in changes.items())]) for name, changes in CASES]


pytestmark = pytest.mark.usefixtures("one_thread")


def build(name: str, seed: int = 0, **changes: Any) -> Any:
    """A mixer of the catalogue with small sizes, in float64."""
    mixer = MIXERS[name]
    known = mixer.Settings.__dataclass_fields__
    settings = mixer.Settings(**{**{key: value for key, value in SMALL.items() if key in known}, **changes})
    return mixer(WIDTH, settings, generator=torch.Generator().manual_seed(seed)).double()  # type: ignore[call-arg]


@pytest.fixture(params=CASES, ids=IDS)
def mixer(request: pytest.FixtureRequest) -> Any:
    name, changes = request.param
    return build(name, **changes)


@pytest.fixture(
    params=[case for case in CASES if MIXERS[case[0]].is_recurrent],
    ids=[label for (name, _), label in zip(CASES, IDS, strict=True) if MIXERS[name].is_recurrent],
)
def recurrent_mixer(request: pytest.FixtureRequest) -> Any:
    name, changes = request.param
    return build(name, **changes)


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def first_state(mixer: Any, *lead: int) -> Any:
    """The state before the first input, for a mixer that does not have its own."""
    return draw(*lead, STATE, seed=2) if getattr(mixer.settings, "initial_state", None) == "given" else None


def draw_noise(mixer: Any, length: int) -> Tensor | None:
    shape = mixer.noise_shape(length)
    return None if shape is None else torch.rand(shape, generator=torch.Generator().manual_seed(3))


def assert_same(actual: Any, expected: Any) -> None:
    tolerance = RELATIVE[torch.float64][0]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# -- inputs and outputs ------------------------------------------------------------------------------------------------


def test_later_inputs_change_no_output(mixer: Any) -> None:
    u = draw(2, 9, WIDTH)
    other = torch.cat([u[:, :5], draw(2, 4, WIDTH, seed=5)], dim=1)
    state, noise = first_state(mixer, 2), draw_noise(mixer, 9)
    outputs, changed = (mixer(inputs, state, noise=noise)[0] for inputs in (u, other))
    if not mixer.is_causal:
        assert not torch.allclose(changed[:, :5], outputs[:, :5], rtol=1e-6, atol=1e-6)
        return
    assert_same(changed[:, :5], outputs[:, :5])
    assert not torch.allclose(changed[:, 5:], outputs[:, 5:], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lengths", [None, [7, 1, 4]], ids=["equal", "different"])
def test_the_output_at_the_end_is_that_of_all_outputs(mixer: Any, lengths: list[int] | None) -> None:
    """`mix_end` and `mix_symbols_end` give the same output and the same gradients as all outputs do."""
    table, tokens = draw(3, WIDTH).requires_grad_(), torch.tensor([[0, 1, 2, 2, 0, 1, 1]] * 2 + [[2, 1, 0, 0, 1, 2, 2]])
    ends = None if lengths is None else torch.tensor(lengths)
    state, noise = first_state(mixer, 3), draw_noise(mixer, 7)
    symbols, parts = mixer.symbol_parts(table), mixer.parts(table[tokens])
    last = torch.arange(3), -1 if ends is None else ends - 1
    expected = mixer.mix(parts, state, lengths=ends, carry=False, noise=noise)[0][last]
    by_parts = mixer.mix_end(parts, state, lengths=ends, noise=noise)
    by_symbols = mixer.mix_symbols_end(symbols, tokens, state, lengths=ends, noise=noise)
    weights = draw(*expected.shape, seed=4)
    (gradient,) = torch.autograd.grad((expected * weights).sum(), table, retain_graph=True)
    for actual in (by_parts, by_symbols):
        assert_same(actual[:, 0], expected)
        assert_same(torch.autograd.grad((actual[:, 0] * weights).sum(), table, retain_graph=True)[0], gradient)


def test_rows_do_not_influence_each_other(mixer: Any) -> None:
    """Leading dimensions are rows, and a row is read as it would be alone."""
    u, state = draw(2, 3, 5, WIDTH), first_state(mixer, 2, 3)
    outputs = mixer(u, state)[0]
    assert outputs.shape == (2, 3, 5, mixer.outputs)
    for i in range(2):
        for j in range(3):
            assert_same(outputs[i, j], mixer(u[i, j], None if state is None else state[i, j])[0])


def test_a_mixer_without_a_state_cannot_step() -> None:
    for name in MIXERS:
        if not MIXERS[name].is_recurrent:
            with pytest.raises(ModelError, match="no state"):
                build(name).step(draw(2, WIDTH))


def test_step_by_step_equals_all_at_once(recurrent_mixer: Any) -> None:
    mixer = recurrent_mixer
    for lead in ((2,), (2, 3)):
        u, state = draw(*lead, 7, WIDTH), first_state(mixer, *lead)
        expected = mixer(u, state)
        steps = []
        for inputs in u.unbind(-2):
            output, state = mixer.step(inputs, state)
            steps.append(output)
        assert_same((torch.stack(steps, dim=-2), state), expected)


@pytest.mark.parametrize("cuts", [(1,), (2, 3, 6)])
def test_piece_by_piece_equals_all_at_once(recurrent_mixer: Any, cuts: tuple[int, ...]) -> None:
    mixer = recurrent_mixer
    u, state = draw(2, 7, WIDTH), first_state(mixer, 2)
    expected = mixer(u, state)
    pieces = []
    for piece in u.tensor_split(cuts, dim=1):
        outputs, state = mixer(piece, state)
        pieces.append(outputs)
    assert_same((torch.cat(pieces, dim=1), state), expected)


def test_gradients_pass_through_a_carried_state(recurrent_mixer: Any) -> None:
    mixer = recurrent_mixer
    u, state = draw(2, 6, WIDTH).requires_grad_(), first_state(mixer, 2)
    (expected,) = torch.autograd.grad(mixer(u, state)[0][:, -1].square().sum(), u)
    _, between = mixer(u[:, :4], state)
    (actual,) = torch.autograd.grad(mixer(u[:, 4:], between)[0][:, -1].square().sum(), u)
    torch.testing.assert_close(actual, expected, rtol=RELATIVE[torch.float64][1], atol=RELATIVE[torch.float64][1])


def test_lengths_cut_each_row(mixer: Any) -> None:
    u, lengths = draw(3, 6, WIDTH), torch.tensor([4, 6, 1])
    state = first_state(mixer, 3)
    outputs = mixer(u, state, lengths)[0]
    behind = u.clone()
    for row, length in enumerate(lengths.tolist()):
        alone = mixer(u[row : row + 1, :length], None if state is None else state[row : row + 1])[0]
        assert_same(outputs[row : row + 1, :length], alone)
        behind[row, length:] = 1e6
    unchanged = mixer(behind, state, lengths)[0]
    for row, length in enumerate(lengths.tolist()):  # inputs behind the end of a row are not read
        assert_same(unchanged[row, :length], outputs[row, :length])


def test_symbols_equal_their_inputs(mixer: Any) -> None:
    table, tokens = draw(5, WIDTH), torch.tensor([[0, 3, 1, 1, 4], [2, 2, 0, 3, 3]])
    state = first_state(mixer, 2)
    assert_same(mixer.mix_symbols(mixer.symbol_parts(table), tokens, state), mixer(table[tokens], state))
    one_hot, tokens = torch.eye(WIDTH, dtype=torch.float64), tokens % WIDTH
    assert_same(mixer.mix_symbols(mixer.symbol_parts(None), tokens, state), mixer(one_hot[tokens], state))


# -- parameters and gradients ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_generator_alone_decides_the_parameters(case: tuple[str, dict[str, Any]]) -> None:
    name, changes = case
    torch.manual_seed(1)
    first = build(name, seed=3, **changes).state_dict()
    torch.manual_seed(2)
    again, other = build(name, seed=3, **changes).state_dict(), build(name, seed=4, **changes).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_every_parameter_has_a_gradient(mixer: Any) -> None:
    u = draw(2, 6, WIDTH)
    outputs = mixer(u, first_state(mixer, 2))[0]
    (outputs * draw(*outputs.shape, seed=4)).sum().backward()
    for name, parameter in mixer.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_replicas_equal_each_model_alone(case: tuple[str, dict[str, Any]]) -> None:
    """`vmap` over stacked parameters gives the outputs and gradients of each model."""
    name, changes = case
    mixers = [build(name, seed=seed, **changes) for seed in (0, 1)]
    parameters, buffers = stack_module_state(nn.ModuleList(mixers))
    u, lengths = draw(2, 3, 5, WIDTH), torch.tensor([[5, 5, 5], [3, 2, 5]])
    state, noise = first_state(mixers[0], 3), draw_noise(mixers[0], 5)

    def run(parameters: Any, buffers: Any, u: Tensor, lengths: Tensor) -> Tensor:
        outputs: Tensor = functional_call(mixers[0], (parameters, buffers), (u, state, lengths, noise))[0]
        return outputs

    outputs = vmap(run)(parameters, buffers, u, lengths)
    weights = draw(*outputs.shape, seed=4)
    together = torch.autograd.grad((outputs * weights).sum(), list(parameters.values()))
    for i, mixer in enumerate(mixers):
        alone = mixer(u[i], state, lengths[i], noise)[0]
        torch.testing.assert_close(outputs[i], alone)
        gradients = torch.autograd.grad((alone * weights[i]).sum(), list(mixer.parameters()))
        torch.testing.assert_close([gradient[i] for gradient in together], list(gradients))


def test_double_precision_and_back(mixer: Any) -> None:
    single = copy.deepcopy(mixer).float()
    double, u = copy.deepcopy(single).double(), draw(2, 20, WIDTH)
    assert all(value.dtype == torch.float64 for value in double.state_dict().values() if value.is_floating_point())
    state, noise = first_state(mixer, 2), draw_noise(mixer, 20)
    expected = double(u, state, noise=noise)[0]
    actual = single(u.float(), None if state is None else state.float(), noise=noise)[0]
    assert actual.dtype == torch.float32 and expected.dtype == torch.float64
    assert (actual.double() - expected).abs().max() / expected.abs().max() < RELATIVE[torch.float32][0]


def test_gradients_are_finite_at_length_500(mixer: Any) -> None:
    single, state = mixer.float(), first_state(mixer, 2)
    outputs = single(draw(2, 500, WIDTH).float(), None if state is None else state.float())[0]
    outputs.square().sum().backward()
    assert outputs.isfinite().all()
    for name, parameter in single.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    assert any(parameter.grad.abs().max() > 0 for parameter in single.parameters())


def test_copies_share_nothing(mixer: Any) -> None:
    u, state = draw(2, 3, WIDTH), first_state(mixer, 2)
    expected, copied = mixer(u, state)[0], copy.deepcopy(mixer)
    for parameter in mixer.parameters():
        nn.init.zeros_(parameter)
    assert_same(copied(u, state)[0], expected)
    assert copied.settings == mixer.settings
