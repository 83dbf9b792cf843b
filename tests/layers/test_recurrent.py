"""RNN and LSTM: agreement with torch, properties of a mixer, and the automata that they emulate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from sdssm import ops
from sdssm.errors import ModelError, SettingsError
from sdssm.layers.mixer import map_state
from sdssm.layers.recurrent import Lstm, RecurrentNetwork, Rnn
from sdssm.layers.settings import LstmSettings, RnnSettings

WIDTH, STATE = 3, 5
KINDS: dict[str, type[RecurrentNetwork]] = {"rnn": Rnn, "lstm": Lstm}
STARTS = ("zero", "learned", "given")


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


#: The implementations that may run: torch's own network, our CPU scan, and the reference loop.
@pytest.fixture(params=["torch", "cpu", "reference"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "cpu":
        monkeypatch.setattr("sdssm.layers.recurrent.can_use_torch_rnn", lambda u: False)
    with ops.use_backend("reference" if request.param == "reference" else "cpu"):
        yield str(request.param)


def make_layer(
    kind: str, seed: int = 0, width: int = WIDTH, state: int = STATE, initial_state: str = "zero"
) -> RecurrentNetwork:
    layer = KINDS[kind]
    settings = layer.Settings(state=state, initial_state=initial_state)
    return layer(width, settings, generator=torch.Generator().manual_seed(seed)).double()


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def start_of(layer: RecurrentNetwork, *lead: int) -> Any:
    return random_tensor(*lead, STATE, seed=7) if layer.settings.initial_state == "given" else None


def assert_same(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


# -- outputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("initial_state", STARTS)
def test_outputs_and_gradients_agree_with_torch(kind: str, way: str, initial_state: str) -> None:
    layer, u = make_layer(kind, initial_state=initial_state), random_tensor(4, 7, WIDTH).requires_grad_()
    own: Any = nn.RNN(WIDTH, STATE, nonlinearity="relu", batch_first=True) if kind == "rnn" else None
    own = (own or nn.LSTM(WIDTH, STATE, batch_first=True)).double()
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    for name, weight in zip(names, layer.weights, strict=True):
        getattr(own, name).data.copy_(weight)
    start = start_of(layer, 4)
    zero = torch.zeros(STATE, dtype=torch.float64)
    if initial_state == "given":
        first = [start] * layer.starts
    else:
        first = [zero] * layer.starts if layer.initial_state is None else list(layer.initial_state.chunk(layer.starts))
    vectors = [vector.expand(1, 4, STATE).contiguous() for vector in first]
    expected, after = own(u, vectors[0] if kind == "rnn" else tuple(vectors))
    outputs, state = layer(u, start)
    assert_same(outputs, expected)
    assert_same(state, map_state(lambda x: x[0], after))
    weights = random_tensor(*outputs.shape, seed=3)
    actual = torch.autograd.grad((outputs * weights).sum(), (u, *layer.weights))
    assert_same(actual, torch.autograd.grad((expected * weights).sum(), (u, *(getattr(own, name) for name in names))))


@pytest.mark.parametrize(("kind", "gates"), [("rnn", 1), ("lstm", 4)])
@pytest.mark.parametrize("symbols", [2, 5, 60])
def test_number_of_parameters_as_published(kind: str, gates: int, symbols: int) -> None:
    layer = make_layer(kind, width=symbols, state=64)
    assert sum(parameter.numel() for parameter in layer.parameters()) == gates * 64 * (symbols + 64 + 2)
    assert layer.outputs == 64 and layer.transition_parameters() == 0


def test_parameters_for_each_setting() -> None:
    weights = {"input_weight": (5, 3), "recurrent_weight": (5, 5), "input_bias": (5,), "recurrent_bias": (5,)}
    shapes = {name: tuple(value.shape) for name, value in make_layer("rnn", initial_state="learned").named_parameters()}
    assert shapes == {**weights, "initial_state": (5,)}
    shapes = {
        name: tuple(value.shape) for name, value in make_layer("lstm", initial_state="learned").named_parameters()
    }
    assert shapes == {name: (20, *shape[1:]) for name, shape in weights.items()} | {"initial_state": (10,)}


def test_parameters_are_uniform_and_depend_only_on_the_generator(kind: str) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for value in make_layer(kind, state=64, initial_state="learned").parameters():
        assert value.abs().max() <= 1 / 8 and value.abs().max() > 0.11
    first, again, other = (nn.utils.parameters_to_vector(make_layer(kind, seed).parameters()) for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


# -- properties of a mixer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("initial_state", STARTS)
def test_steps_and_pieces_agree_with_the_whole_sequence(kind: str, way: str, initial_state: str) -> None:
    layer, u = make_layer(kind, initial_state=initial_state), random_tensor(2, 3, 7, WIDTH)
    start = start_of(layer, 2, 3)
    all_outputs, final = layer(u, start)
    assert all_outputs.shape == (2, 3, 7, STATE)
    first, state = layer(u[..., :4, :], start)
    rest, state = layer(u[..., 4:, :], state)
    assert_same((torch.cat([first, rest], -2), state), (all_outputs, final))
    state = start
    for t in range(7):
        output, state = layer.step(u[..., t, :], state)
        assert_same(output, all_outputs[..., t, :])
    assert_same(state, final)


def test_a_single_sequence_needs_no_batch_dimension(kind: str) -> None:
    layer, u = make_layer(kind), random_tensor(2, 6, WIDTH)
    outputs, final = layer(u[0])
    both, finals = layer(u)
    assert_same((outputs, final), (both[0], map_state(lambda x: x[0], finals)))
    assert_same(layer.step(u[0, 0]), (outputs[0], map_state(lambda x: x, layer(u[0, :1])[1])))


def test_inputs_past_the_length_of_a_row_are_ignored(kind: str, way: str) -> None:
    layer, u = make_layer(kind), random_tensor(4, 6, WIDTH)
    lengths = torch.tensor([6, 1, 4, 3])
    outputs, state = layer(u, lengths=lengths)
    all_outputs, _ = layer(u)
    assert state is None
    for row, length in enumerate(lengths.tolist()):
        assert_same(outputs[row, :length], all_outputs[row, :length])
        assert not outputs[row, length:].any()


def test_symbols_agree_with_one_hot_inputs(kind: str, way: str) -> None:
    layer, tokens = make_layer(kind), torch.tensor([[0, 2, 1, 1], [2, 2, 0, 1]])
    outputs, state = layer.mix_symbols(layer.symbol_parts(None), tokens)
    one_hot = torch.eye(WIDTH, dtype=torch.float64)[tokens]
    assert_same((outputs, state), layer(one_hot))
    assert layer.mix_symbols(layer.symbol_parts(None), tokens, carry=False)[1] is None


def test_vmap_over_replicas_agrees_with_each_layer_alone(kind: str) -> None:
    layers = [make_layer(kind, seed) for seed in range(3)]
    stacked = {
        name: torch.stack([dict(layer.named_parameters())[name].detach() for layer in layers]).requires_grad_()
        for name, _ in layers[0].named_parameters()
    }
    tokens = torch.randint(WIDTH, (3, 4, 6), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([[6, 1, 4, 3], [2, 6, 6, 5], [1, 2, 3, 4]])

    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layers[0]

        def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
            outputs: Tensor = self.layer.mix_symbols(self.layer.symbol_parts(None), tokens, lengths=lengths)[0]
            return outputs

    def run(tensors: dict[str, Tensor], tokens: Tensor, lengths: Tensor) -> Any:
        return functional_call(Read(), {f"layer.{name}": value for name, value in tensors.items()}, (tokens, lengths))

    outputs = vmap(run)(stacked, tokens, lengths)
    weights = random_tensor(*outputs.shape, seed=3)
    grads = torch.autograd.grad((outputs * weights).sum(), list(stacked.values()))
    for r, layer in enumerate(layers):
        alone = layer.mix_symbols(layer.symbol_parts(None), tokens[r], lengths=lengths[r])[0]
        assert_same(outputs[r], alone)
        assert_same(
            [grad[r] for grad in grads], list(torch.autograd.grad((alone * weights[r]).sum(), list(layer.parameters())))
        )


def test_gradients_are_finite_at_length_500(kind: str) -> None:
    layer = make_layer(kind, state=64).float()
    outputs, _ = layer(torch.eye(WIDTH)[torch.randint(WIDTH, (8, 500), generator=torch.Generator().manual_seed(0))])
    grads = torch.autograd.grad(outputs[:, -1].square().sum(), list(layer.parameters()))
    assert all(grad.isfinite().all() for grad in grads) and grads[0].any()


# -- given states ------------------------------------------------------------------------------------------------------


def test_a_single_initial_vector_is_used_for_h_and_c_of_an_lstm() -> None:
    layer, u, x = make_layer("lstm", initial_state="given"), random_tensor(2, 4, WIDTH), random_tensor(2, STATE, seed=4)
    assert_same(layer(u, x), layer(u, (x, x)))
    assert_same(layer.step(u[:, 0], x), layer.step(u[:, 0], (x, x)))


def test_a_given_state_must_be_passed_and_have_the_right_shape(kind: str) -> None:
    layer, u = make_layer(kind, initial_state="given"), random_tensor(2, 4, WIDTH)
    with pytest.raises(SettingsError, match="'given' but no state was"):
        layer(u)
    with pytest.raises(SettingsError, match="'given' but no state was"):
        layer.step(u[:, 0])
    with pytest.raises(ModelError, match=rf"the state of {kind} must be . x \(..., 5\), got \(2, 4\)"):
        layer(u, random_tensor(2, 4))
    with pytest.raises(ModelError, match="the state of"):
        layer(u, (random_tensor(2, STATE),) * 3)


def test_invalid_settings() -> None:
    for settings in (RnnSettings, LstmSettings):
        assert settings().state == 64 and settings().initial_state == "zero"
        with pytest.raises(SettingsError, match="state is 257; it must be from 1 to 256"):
            settings(state=257)
        with pytest.raises(SettingsError, match="initial_state is 'zeros'"):
            settings(initial_state="zeros")
    with pytest.raises(SettingsError, match="width is 0"):
        Rnn(0, generator=torch.Generator())
    with pytest.raises(ModelError, match="reads torch.float64 vectors of 3 entries"):
        make_layer("rnn")(random_tensor(2, 4, 2))


# -- what they emulate -------------------------------------------------------------------------------------------------

Q, V = 4, 3
DELTA = torch.randint(Q, (Q, V), generator=torch.Generator().manual_seed(3))  # the next state for each state and symbol
WORDS = torch.randint(V, (6, 200), generator=torch.Generator().manual_seed(4))


def labels() -> Tensor:
    """Return the states after every symbol, from state 0."""
    state, actual = torch.zeros(len(WORDS), dtype=torch.long), []
    for symbols in WORDS.unbind(1):
        state = DELTA[state, symbols]
        actual.append(state)
    return torch.stack(actual, 1)


def test_an_rnn_emulates_any_automaton() -> None:
    """Entry (q, a) is 1 if a was read in state q. Before the first symbol all entries are 0, which is also state 0."""
    layer = make_layer("rnn", width=V, state=Q * V)
    before, reads = torch.arange(Q).repeat_interleave(V), torch.arange(V).repeat(Q)
    reached = torch.nn.functional.one_hot(
        DELTA.flatten(), Q
    ).mT.double()  # (Q, Q V): the state that each entry leads to
    is_state, bias = reached.clone(), torch.zeros(Q, dtype=torch.float64)
    is_state[0], bias[0] = reached[0] - 1, 1  # state 0 is: no entry leads to another state
    with torch.no_grad():
        layer.recurrent_weight.copy_(is_state[before])
        layer.input_weight.copy_(torch.eye(V)[reads])
        layer.input_bias.fill_(-1)
        layer.recurrent_bias.copy_(bias[before])
    outputs, _ = layer.mix_symbols(layer.symbol_parts(None), WORDS)
    assert torch.equal((outputs @ reached.mT).argmax(-1), labels())
    assert set(outputs.flatten().tolist()) == {0, 1}


def test_an_lstm_with_saturated_gates_emulates_any_automaton() -> None:
    """With i and o open and f closed, h = tanh(tanh(g)), and entries are +-tanh(1) instead of 1 and 0."""
    layer = make_layer("lstm", width=V, state=Q * V, initial_state="given")
    before, reads = torch.arange(Q).repeat_interleave(V), torch.arange(V).repeat(Q)
    reached = torch.nn.functional.one_hot(DELTA.flatten(), Q).mT.double()
    n, large, level = Q * V, 40.0, torch.tensor(1.0, dtype=torch.float64).tanh()
    with torch.no_grad():
        for weight in layer.weights:
            weight.zero_()
        gate = slice(2 * n, 3 * n)
        layer.recurrent_weight[gate] = large * reached[before] / (2 * level)
        layer.input_weight[gate] = large * torch.eye(V, dtype=torch.float64)[reads]
        layer.input_bias[gate] = large * (reached[before].sum(1) / 2 - 1.5)
        for at, sign in ((0, 1), (1, -1), (3, 1)):  # i open, f closed, o open
            layer.input_bias[at * n : (at + 1) * n] = sign * large
    entry = int((DELTA.flatten() == 0).nonzero()[0])  # an entry that leads to state 0
    start = torch.full((len(WORDS), n), -level.item(), dtype=torch.float64)
    start[:, entry] = level
    outputs, _ = layer.mix_symbols(layer.symbol_parts(None), WORDS, start)
    assert torch.equal(((outputs + level) @ reached.mT).argmax(-1), labels())
    assert_same(outputs.abs(), torch.full_like(outputs, level.item()))
