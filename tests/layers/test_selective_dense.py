"""SelectiveDense as a module by itself, for real input vectors."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from sdssm.errors import ModelError, SettingsError
from sdssm.layers import SelectiveDense, SelectiveDenseSettings
from sdssm.ops.errors import OpsError
from tests.ops.tolerances import RELATIVE

WIDTH, STATE, DICTIONARY = 3, 4, 5
DRIVEN: dict[str, Any] = {"input_matrix": True, "rescale": False, "initial_state": "zero"}
#: Each setting of the layer with a value other than its default.
FORMS: dict[str, dict[str, Any]] = {
    "published": DRIVEN,
    "driven, learned start": {**DRIVEN, "initial_state": "learned", "column_norm": 1.5},
    "scale-free": {},
    "no B, no rescale": {"rescale": False},
    "no column norm": {"column_norm": None},
    "no column norm, driven": {**DRIVEN, "column_norm": None},
    "temperature": {"temperature": 0.3, "column_norm": 1.0},
    "skip": {"skip": True},
    "skip, driven": {**DRIVEN, "skip": True},
    "given start": {"initial_state": "given"},
    "stochastic": {"transition": "stochastic"},
    "stochastic, skip, no rescale": {
        "transition": "stochastic",
        "rescale": False,
        "skip": True,
        "column_temperature": 0.3,
    },
    "nonnegative": {"transition": "nonnegative", "column_norm": 1.5},
    "sum-one": {"transition": "sum-one"},
    "sum-one, no column norm": {"transition": "sum-one", "column_norm": None, "rescale": False},
    "annealed to stochastic": {"transition": "stochastic", "constraint": 0.4, "column_temperature": 0.5},
    "annealed to sum-one": {"transition": "sum-one", "constraint": 0.3, "constraint_end": 1.0},
}


def make_layer(*, seed: int = 0, **changes: Any) -> SelectiveDense:
    settings = SelectiveDenseSettings(**{"state": STATE, "dictionary": DICTIONARY, **changes})
    return SelectiveDense(WIDTH, settings, generator=torch.Generator().manual_seed(seed)).double()


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def start_of(layer: SelectiveDense, *lead: int) -> Tensor | None:
    """Return an initial state if the layer needs one."""
    return random_tensor(*lead, STATE, seed=2) if layer.settings.initial_state == "given" else None


def assert_same(actual: Any, expected: Any) -> None:
    """Compare with the tolerance of the scan implementations."""
    torch.testing.assert_close(actual, expected, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def normalised(column: Tensor, layer: SelectiveDense) -> Tensor:
    if layer.column_norm is None:
        return column
    p = float(layer.column_norm)
    return column / (column.abs() ** p).sum() ** (1 / p)


def column_by_hand(layer: SelectiveDense, column: Tensor) -> Tensor:
    """Compute one column of a transition matrix from that of the mixture."""
    settings = layer.settings
    if layer.column_temperature is not None:  # stochastic and nonnegative
        powers = (column / float(layer.column_temperature)).exp()
        form: Tensor = powers / powers.sum()
        form = normalised(form, layer) if settings.transition == "nonnegative" else form
    elif settings.transition == "sum-one":
        size = 1 if layer.column_norm is None else STATE ** (1 / float(layer.column_norm) - 0.5)
        form = normalised(column - column.mean(), layer) * size + 1 / STATE
    else:
        return normalised(column, layer)
    share = 1.0 if layer.constraint is None else float(layer.constraint)
    return share * form + (1 - share) * normalised(column, layer)


def start_by_hand(layer: SelectiveDense, x: Tensor) -> Tensor:
    settings = layer.settings
    if settings.transition == "signed":
        return x
    if layer.column_temperature is None:  # sum-one
        start: Tensor = (x - x.mean()) / STATE**0.5 + 1 / STATE
    else:
        start = (x / float(layer.column_temperature)).exp() / (x / float(layer.column_temperature)).exp().sum()
    share = 1.0 if layer.constraint is None else float(layer.constraint)
    return share * start + (1 - share) * x * ((start**2).sum() / (x**2).sum()).sqrt()


def by_hand(layer: SelectiveDense, u: Tensor, x: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute one sequence (L, D) equation by equation: outputs (L, N), final state (N,)."""
    settings, S, s = layer.settings, layer.selection.weight, layer.selection.bias
    if x is None:
        x = random_tensor(STATE) * 0 if layer.initial_state is None else start_by_hand(layer, layer.initial_state)
    outputs = []
    for u_t in u:
        logits = (S @ u_t + s) / float(layer.temperature)
        alpha = logits.exp() / logits.exp().sum()
        A = torch.zeros(STATE, STATE, dtype=torch.float64)
        for i in range(DICTIONARY):
            A = A + alpha[i] * layer.dictionary[i]
        x = torch.stack([column_by_hand(layer, A[:, j]) for j in range(STATE)], dim=1) @ x
        if layer.input_matrix is not None:
            x = x + layer.input_matrix @ u_t
        if settings.rescale:
            x = x / (x**2).sum().sqrt()
        outputs.append(x if layer.skip is None else x + layer.skip @ u_t)
    return torch.stack(outputs), x


# -- outputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_outputs_follow_the_equations(form: str) -> None:
    layer, u = make_layer(**FORMS[form]), random_tensor(2, 6, WIDTH)
    start = start_of(layer, 2)
    outputs, final = layer(u, start)
    assert outputs.shape == (2, 6, STATE) and final.shape == (2, STATE)
    for row in range(2):
        assert_same((outputs[row], final[row]), by_hand(layer, u[row], None if start is None else start[row]))


def test_parameters_for_each_setting() -> None:
    free = {"dictionary": (5, 4, 4), "selection.weight": (5, 3), "selection.bias": (5,), "initial_state": (4,)}
    assert {name: tuple(value.shape) for name, value in make_layer().named_parameters()} == free
    driven = {name: tuple(value.shape) for name, value in make_layer(**DRIVEN, skip=True).named_parameters()}
    del free["initial_state"]
    assert driven == {**free, "input_matrix": (4, 3), "skip": (4, 3)}
    assert dict(make_layer(column_norm=1.5, temperature=0.25).named_buffers()) == {
        "column_norm": 1.5,
        "temperature": 0.25,
    }
    assert dict(make_layer(column_norm=None).named_buffers()) == {"temperature": 1.0}


def test_parameters_depend_only_on_the_generator() -> None:
    def weights(seed: int) -> Tensor:
        return torch.cat([value.flatten() for value in make_layer(seed=seed, skip=True).parameters()])

    torch.manual_seed(3)
    first = weights(0)
    before = torch.get_rng_state()
    assert torch.equal(weights(0), first) and not torch.equal(weights(1), first)
    assert torch.equal(torch.get_rng_state(), before)


# -- shapes, lengths and states ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_single_sequence(form: str) -> None:
    layer, u = make_layer(**FORMS[form]), random_tensor(5, WIDTH)
    start = start_of(layer)
    outputs, final = layer(u, start)
    assert outputs.shape == (5, STATE) and final.shape == (STATE,)
    assert_same((outputs, final), by_hand(layer, u, start))
    cut, last = layer(u, start, torch.tensor(2))
    assert_same((cut[:2], last), by_hand(layer, u[:2], start))
    assert_same(layer(u[2:], last)[1], final)


def test_a_single_step() -> None:
    layer, u = make_layer(), random_tensor(WIDTH)
    output, state = layer.step(u)
    assert output.shape == state.shape == (STATE,)
    assert_same(state, by_hand(layer, u[None])[1])


def test_inputs_of_the_wrong_width() -> None:
    for shape in ((2, 5, WIDTH + 1), (5, 1), (2, 2, 5, WIDTH - 1)):
        with pytest.raises(ModelError, match="vectors of 3 entries"):
            make_layer()(random_tensor(*shape))


@pytest.mark.parametrize("form", FORMS)
def test_inputs_past_the_length_of_a_row_are_ignored(form: str) -> None:
    layer, u = make_layer(**FORMS[form]), random_tensor(3, 6, WIDTH)
    start, lengths = start_of(layer, 3), torch.tensor([4, 6, 1])
    outputs, final = layer(u, start, lengths)
    noise = u.clone()
    for row, length in enumerate(lengths.tolist()):
        alone, last = layer(u[row : row + 1, :length], None if start is None else start[row : row + 1])
        assert_same((outputs[row : row + 1, :length], final[row : row + 1]), (alone, last))
        noise[row, length:] = 1e6
        assert not outputs[row, length:].any()
    again, also = layer(noise, start, lengths)
    assert_same(also, final)  # inputs past the end of a row are not read
    assert_same(again[0, :4], outputs[0, :4])


def test_a_row_of_length_zero_keeps_its_initial_state() -> None:
    layer, start = make_layer(), random_tensor(2, STATE)
    assert_same(layer(random_tensor(2, 3, WIDTH), start, torch.tensor([0, 3]))[1][0], start[0])
    with pytest.raises(OpsError, match="lengths"):
        layer(random_tensor(2, 3, WIDTH), None, torch.tensor([4, 3]))


@pytest.mark.parametrize("form", FORMS)
def test_a_given_state_replaces_the_initial_state(form: str) -> None:
    layer, u, start = make_layer(**FORMS[form]), random_tensor(2, 5, WIDTH), random_tensor(2, STATE, seed=7)
    outputs, final = layer(u, start)
    for row in range(2):
        assert_same((outputs[row], final[row]), by_hand(layer, u[row], start[row]))
    assert_same(layer(u, start[0])[0][0], outputs[0])  # one state for all rows


@pytest.mark.parametrize("form", FORMS)
def test_symbols_agree_with_their_input_vectors(form: str) -> None:
    layer, table = make_layer(**FORMS[form]), random_tensor(4, WIDTH)
    tokens = torch.tensor([[0, 3, 1, 1, 2], [2, 2, 0, 3, 3]])
    start = start_of(layer, 2)
    outputs, final = layer(table[tokens], start)
    symbols = layer.symbol_parts(table)
    assert_same(layer.mix_symbols(symbols, tokens, start), (outputs, final))
    states = layer.mix_symbols(symbols._replace(skip=None), tokens, start)[0]
    assert_same(layer.step_symbol(symbols, 3, states[0, 0]), states[0, 1])
    hot, one_hot = layer.symbol_parts(None), torch.eye(WIDTH, dtype=torch.float64)
    assert_same(hot.A, layer.symbol_parts(one_hot).A)
    assert (hot.b is None) == (layer.input_matrix is None)
    if hot.b is not None:
        assert_same(hot.b, layer.symbol_parts(one_hot).b)


def test_a_missing_initial_state_is_refused() -> None:
    layer = make_layer(initial_state="given")
    for call in (lambda: layer(random_tensor(2, 3, WIDTH)), lambda: layer.step(random_tensor(2, WIDTH))):
        with pytest.raises(SettingsError, match="initial_state is 'given' but no state was passed; pass state="):
            call()
    with pytest.raises(OpsError, match="N=4"):
        make_layer()(random_tensor(2, 3, WIDTH), random_tensor(2, STATE + 1))


# -- as a module of torch ----------------------------------------------------------------------------------------------


class Both(nn.Module):
    """All states of a scan with lengths, its final ones, and one step."""

    def __init__(self, layer: SelectiveDense, lengths: Tensor) -> None:
        super().__init__()
        self.layer, self.lengths = layer, lengths

    def forward(self, u: Tensor, start: Tensor | None) -> tuple[Tensor, ...]:
        return *self.layer(u, start, self.lengths), self.layer.step(u[:, 0], start)[0]


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("published", "skip", "given start")])
def test_gradients_agree_with_finite_differences(form: str) -> None:
    """Of every parameter, of the inputs, and of a given state."""
    layer = make_layer(**{"state": 3, "dictionary": 2, **FORMS[form]})
    both = Both(layer, torch.tensor([2, 3]))
    leaves = {f"layer.{name}": p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    u, start = random_tensor(2, 3, WIDTH).requires_grad_(), random_tensor(2, 3, seed=2).requires_grad_()

    def run(u: Tensor, start: Tensor | None, *values: Tensor) -> tuple[Tensor, ...]:
        return functional_call(both, dict(zip(leaves, values, strict=True)), (u, start))  # type: ignore[no-any-return]  # result of a module

    def run_from(learned: Tensor) -> tuple[Tensor, ...]:
        return run(u.detach(), None, *({**leaves, "layer.initial_state": learned}).values())

    assert torch.autograd.gradcheck(run, (u, start, *leaves.values()))
    if layer.initial_state is not None:  # used only without a given state
        assert torch.autograd.gradcheck(run_from, (leaves["layer.initial_state"],))


@pytest.mark.parametrize("form", FORMS)
def test_float32_agrees_with_float64(form: str) -> None:
    single = make_layer(**FORMS[form]).float()
    double, u = copy.deepcopy(single).double(), random_tensor(2, 20, WIDTH)
    assert all(value.dtype == torch.float64 for value in double.state_dict().values())
    start = start_of(single, 2)
    expected, actual = double(u, start), single(u.float(), None if start is None else start.float())
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == torch.float32 and b.dtype == torch.float64
        error = (a.double() - b).abs().max() / b.abs().max()
        assert error < RELATIVE[torch.float32][0]


@pytest.mark.parametrize("form", ["skip, driven", "temperature"])
def test_compiled_layer_agrees_with_eager(form: str) -> None:
    torch._dynamo.reset()
    layer, u = make_layer(**FORMS[form]), random_tensor(2, 5, WIDTH).requires_grad_()
    start, lengths = random_tensor(2, STATE, seed=2).requires_grad_(), torch.tensor([3, 5])
    leaves = [u, start, *(value for name, value in layer.named_parameters() if name != "initial_state")]

    def outputs_and_gradients(run: Any) -> list[Tensor]:
        outputs, final = run(u, start, lengths)
        loss = (outputs * random_tensor(*outputs.shape, seed=4)).sum() + (
            final * random_tensor(*final.shape, seed=5)
        ).sum()
        return [outputs, final, *torch.autograd.grad(loss, leaves)]

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for actual, expected in zip(outputs_and_gradients(compiled), outputs_and_gradients(layer), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("form", FORMS)
def test_vmap_over_replicas_agrees_with_each_layer_alone(form: str) -> None:
    """vmap over stacked parameters gives the outputs and gradients of each layer alone."""
    layers = [make_layer(seed=seed, **FORMS[form]) for seed in (0, 1)]
    layers[1].temperature.mul_(0.5 if layers[1].settings.is_tempered else 1)
    if layers[1].column_norm is not None:
        layers[1].column_norm.add_(0.25)
    parameters, buffers = stack_module_state(nn.ModuleList(layers))
    u, start, lengths = random_tensor(2, 5, WIDTH), start_of(layers[0], 2), torch.tensor([3, 5])

    def run(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return functional_call(layers[0], (parameters, buffers), (u, start, lengths))  # type: ignore[no-any-return]  # result of a module

    outputs, final = vmap(run)(parameters, buffers)
    stacked = torch.autograd.grad(
        (outputs * random_tensor(*outputs.shape[1:], seed=4)).sum(), list(parameters.values())
    )
    for i, layer in enumerate(layers):
        alone = layer(u, start, lengths)
        torch.testing.assert_close((outputs[i], final[i]), alone)
        grads = torch.autograd.grad((alone[0] * random_tensor(*alone[0].shape, seed=4)).sum(), list(layer.parameters()))
        torch.testing.assert_close([grad[i] for grad in stacked], list(grads))


def test_copies_are_independent() -> None:
    layer, u = make_layer(skip=True), random_tensor(2, 3, WIDTH)
    expected = layer(u)
    copied, pickled = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    assert_same((copied(u), pickled(u)), (expected, expected))
    assert copied.settings == pickled.settings == layer.settings


def test_settings_are_immutable_values() -> None:
    settings = SelectiveDenseSettings(state=7, column_norm=None, temperature=0.5)
    assert copy.deepcopy(settings) == settings == pickle.loads(pickle.dumps(settings))
    assert hash(settings) == hash(copy.deepcopy(settings)) and settings != SelectiveDenseSettings()
    with pytest.raises(AttributeError):
        settings.state = 8  # type: ignore[misc]  # frozen, which is the point


def test_saved_weights_are_restored() -> None:
    layer, other, u = (
        make_layer(**DRIVEN, skip=True),
        make_layer(seed=1, **DRIVEN, skip=True),
        random_tensor(2, 3, WIDTH),
    )
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert_same(other(u), layer(u))


def test_use_inside_another_module() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixer, self.head = make_layer(), nn.Linear(STATE, 2).double()

        def forward(self, u: Tensor) -> Tensor:
            return self.head(self.mixer(u)[0])  # type: ignore[no-any-return]  # result of a module

    network = Network()
    assert "mixer.selection.weight" in network.state_dict()
    assert network(random_tensor(2, 3, WIDTH)).shape == (2, 3, 2)
    assert network.to(torch.float32).mixer.dictionary.dtype == torch.float32
    assert "state=4" in repr(network) and "width=3" in repr(network)


# -- invalid settings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": 0}, "state is 0; it must be "),
        ({"dictionary": 0}, "dictionary is 0; it must be "),
        ({"initial_state": "lerned"}, "initial_state is 'lerned'; did you mean 'learned'?"),
        ({"column_norm": 0.5}, "column_norm is 0.5"),
        ({"column_norm": float("nan")}, "column_norm is nan"),
        ({"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ({"temperature_end": -1.0}, "temperature_end is -1.0; it must be above 0"),
        ({"state": "4"}, "state is '4'; it must be a whole number"),
        ({"skip": 1}, "skip is 1; it must be true or false"),
        ({"input_matrix": True}, "set input_matrix=false"),
        ({"initial_state": "zero"}, "set initial_state=learned or input_matrix=true"),
    ],
)
def test_invalid_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        SelectiveDenseSettings(**changes)
    assert message in str(error.value)


def test_invalid_width() -> None:
    with pytest.raises(SettingsError, match="width is 0; it must be at least 1"):
        SelectiveDense(0, generator=torch.Generator())


# -- real inputs -------------------------------------------------------------------------------------------------------


def draw_waves(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Time series (B, L, 2) of three classes: sine and cosine of one of three frequencies, random phase, noise."""
    labels = torch.randint(3, (count,), generator=generator)
    frequency, phase = torch.tensor([0.04, 0.1, 0.25])[labels], torch.rand(count, generator=generator)
    angle = 2 * torch.pi * (frequency[:, None] * torch.arange(length) + phase[:, None])
    noise = torch.randn(count, length, 2, generator=generator)
    return torch.stack([angle.sin(), angle.cos()], -1) + 0.5 * noise, labels


def accuracy_on_waves(layer: SelectiveDense, *, steps: int, seed: int) -> float:
    """Train a layer and a linear readout of its final state; return the accuracy on new series in percent."""
    generator = torch.Generator().manual_seed(seed)
    readout = nn.Parameter(0.2 * torch.randn(3, layer.outputs, generator=generator))
    parameters = [*layer.parameters(), readout]
    adam = torch.optim.Adam(parameters, lr=1e-2)
    for _ in range(steps):
        inputs, labels = draw_waves(16, 100, generator)
        loss = nn.functional.cross_entropy(layer(inputs)[1] @ readout.mT, labels)
        adam.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        adam.step()
    inputs, labels = draw_waves(256, 100, generator)
    with torch.no_grad():
        return 100 * float(((layer(inputs)[1] @ readout.mT).argmax(-1) == labels).float().mean())


def test_a_layer_for_inputs_learns_a_time_series_at_which_the_defaults_fail(one_thread: None) -> None:
    """The chance level is 33 %."""
    small: dict[str, Any] = {"state": 16, "dictionary": 4}
    seed = 3
    for_inputs = SelectiveDense.for_inputs(2, **small, generator=torch.Generator().manual_seed(seed))
    assert accuracy_on_waves(for_inputs, steps=60, seed=seed) > 60
    default = SelectiveDense(2, SelectiveDenseSettings(**small), generator=torch.Generator().manual_seed(seed))
    assert accuracy_on_waves(default, steps=60, seed=seed) < 50


def test_for_inputs_changes_three_settings() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = SelectiveDense.for_inputs(3, generator=generator)
    assert layer.settings == SelectiveDenseSettings(input_matrix=True, rescale=False, initial_state="zero")
    changed = SelectiveDense.for_inputs(
        3, state=5, dictionary=2, column_norm=None, skip=True, generator=torch.Generator().manual_seed(0)
    )
    assert changed.settings == SelectiveDenseSettings(
        state=5, dictionary=2, column_norm=None, skip=True, input_matrix=True, rescale=False, initial_state="zero"
    )
    with pytest.raises(SettingsError, match="state is 0"):
        SelectiveDense.for_inputs(3, state=0, generator=generator)
