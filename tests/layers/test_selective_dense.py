"""The selective dense recurrence as a module of its own, for inputs that are real vectors."""

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
#: Each setting of the layer somewhere away from its default.
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
}


def made(*, seed: int = 0, **changes: Any) -> SelectiveDense:
    settings = SelectiveDenseSettings(**{"state": STATE, "dictionary": DICTIONARY, **changes})
    return SelectiveDense(WIDTH, settings, generator=torch.Generator().manual_seed(seed)).double()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def start_of(layer: SelectiveDense, *lead: int) -> Tensor | None:
    """A state where one must be given."""
    return drawn(*lead, STATE, seed=2) if layer.settings.initial_state == "given" else None


def same(found: Any, wanted: Any) -> None:
    """As close as the implementations of a scan are to each other."""
    torch.testing.assert_close(found, wanted, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def by_hand(layer: SelectiveDense, u: Tensor, x: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """One string (L, D), equation by equation, entry by entry: outputs (L, N), final state (N,)."""
    settings, S, s = layer.settings, layer.selection.weight, layer.selection.bias
    if x is None:
        x = drawn(STATE) * 0 if layer.initial_state is None else layer.initial_state
    outputs = []
    for u_t in u:
        logits = (S @ u_t + s) / float(layer.temperature)
        alpha = logits.exp() / logits.exp().sum()
        A = torch.zeros(STATE, STATE, dtype=torch.float64)
        for i in range(DICTIONARY):
            A = A + alpha[i] * layer.dictionary[i]
        if layer.column_norm is not None:
            p = float(layer.column_norm)
            A = torch.stack([A[:, j] / (A[:, j].abs() ** p).sum() ** (1 / p) for j in range(STATE)], dim=1)
        x = A @ x
        if layer.input_matrix is not None:
            x = x + layer.input_matrix @ u_t
        if settings.rescale:
            x = x / (x**2).sum().sqrt()
        outputs.append(x if layer.skip is None else x + layer.skip @ u_t)
    return torch.stack(outputs), x


# -- what it computes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_the_equations(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 6, WIDTH)
    start = start_of(layer, 2)
    outputs, final = layer(u, start)
    assert outputs.shape == (2, 6, STATE) and final.shape == (2, STATE)
    for row in range(2):
        same((outputs[row], final[row]), by_hand(layer, u[row], None if start is None else start[row]))


def test_the_parts_are_those_of_the_settings() -> None:
    free = {"dictionary": (5, 4, 4), "selection.weight": (5, 3), "selection.bias": (5,), "initial_state": (4,)}
    assert {name: tuple(value.shape) for name, value in made().named_parameters()} == free
    driven = {name: tuple(value.shape) for name, value in made(**DRIVEN, skip=True).named_parameters()}
    del free["initial_state"]
    assert driven == {**free, "input_matrix": (4, 3), "skip": (4, 3)}
    assert dict(made(column_norm=1.5, temperature=0.25).named_buffers()) == {"column_norm": 1.5, "temperature": 0.25}
    assert dict(made(column_norm=None).named_buffers()) == {"temperature": 1.0}


def test_the_generator_decides_the_parameters_and_nothing_else_does() -> None:
    def weights(seed: int) -> Tensor:
        return torch.cat([value.flatten() for value in made(seed=seed, skip=True).parameters()])

    torch.manual_seed(3)
    first = weights(0)
    before = torch.get_rng_state()
    assert torch.equal(weights(0), first) and not torch.equal(weights(1), first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("form", FORMS)
def test_later_inputs_change_nothing(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 6, WIDTH)
    other = torch.cat([u[:, :4], drawn(2, 2, WIDTH, seed=5)], dim=1)
    start = start_of(layer, 2)
    same(layer(other, start)[0][:, :4], layer(u, start)[0][:, :4])


# -- shapes, lengths and states ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_leading_dimensions_are_rows(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 3, 5, WIDTH)
    start = start_of(layer, 2, 3)
    outputs, final = layer(u, start)
    assert outputs.shape == (2, 3, 5, STATE) and final.shape == (2, 3, STATE)
    for i in range(2):
        same((outputs[i], final[i]), layer(u[i], None if start is None else start[i]))


@pytest.mark.parametrize("form", FORMS)
def test_a_single_string(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(5, WIDTH)
    start = start_of(layer)
    outputs, final = layer(u, start)
    assert outputs.shape == (5, STATE) and final.shape == (STATE,)
    same((outputs, final), by_hand(layer, u, start))
    cut, last = layer(u, start, torch.tensor(2))
    same((cut[:2], last), by_hand(layer, u[:2], start))
    same(layer(u[2:], last)[1], final)


def test_a_single_step() -> None:
    layer, u = made(), drawn(WIDTH)
    output, state = layer.step(u)
    assert output.shape == state.shape == (STATE,)
    same(state, by_hand(layer, u[None])[1])


def test_inputs_of_another_width() -> None:
    for shape in ((2, 5, WIDTH + 1), (5, 1), (2, 2, 5, WIDTH - 1)):
        with pytest.raises(ModelError, match="vectors of 3 entries"):
            made()(drawn(*shape))


@pytest.mark.parametrize("form", FORMS)
def test_lengths_cut_each_row(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(3, 6, WIDTH)
    start, lengths = start_of(layer, 3), torch.tensor([4, 6, 1])
    outputs, final = layer(u, start, lengths)
    noise = u.clone()
    for row, length in enumerate(lengths.tolist()):
        one, last = layer(u[row : row + 1, :length], None if start is None else start[row : row + 1])
        same((outputs[row : row + 1, :length], final[row : row + 1]), (one, last))
        noise[row, length:] = 1e6
    again, also = layer(noise, start, lengths)
    same(also, final)  # what stands behind a row's end is not read
    same(again[0, :4], outputs[0, :4])


def test_a_row_of_length_zero_keeps_its_start() -> None:
    layer, start = made(), drawn(2, STATE)
    same(layer(drawn(2, 3, WIDTH), start, torch.tensor([0, 3]))[1][0], start[0])
    with pytest.raises(OpsError, match="lengths"):
        layer(drawn(2, 3, WIDTH), None, torch.tensor([4, 3]))


@pytest.mark.parametrize("form", FORMS)
def test_a_given_state_takes_the_place_of_the_start(form: str) -> None:
    layer, u, start = made(**FORMS[form]), drawn(2, 5, WIDTH), drawn(2, STATE, seed=7)
    outputs, final = layer(u, start)
    for row in range(2):
        same((outputs[row], final[row]), by_hand(layer, u[row], start[row]))
    same(layer(u, start[0])[0][0], outputs[0])  # one state for all rows


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cuts", [(1,), (2, 3, 6)])
def test_piece_by_piece(form: str, cuts: tuple[int, ...]) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 7, WIDTH)
    state = start_of(layer, 2)
    whole, final = layer(u, state)
    pieces = []
    for piece in u.tensor_split(cuts, dim=1):
        outputs, state = layer(piece, state)
        pieces.append(outputs)
    same((torch.cat(pieces, dim=1), state), (whole, final))


@pytest.mark.parametrize("lead", [(2,), (2, 3)])
@pytest.mark.parametrize("form", FORMS)
def test_step_by_step(form: str, lead: tuple[int, ...]) -> None:
    layer, u = made(**FORMS[form]), drawn(*lead, 5, WIDTH)
    state = start_of(layer, *lead)
    whole, final = layer(u, state)
    steps = []
    for u_t in u.unbind(dim=-2):
        output, state = layer.step(u_t, state)
        steps.append(output)
    same((torch.stack(steps, dim=-2), state), (whole, final))


@pytest.mark.parametrize("form", FORMS)
def test_symbols_are_inputs_that_recur(form: str) -> None:
    layer, table = made(**FORMS[form]), drawn(4, WIDTH)
    tokens = torch.tensor([[0, 3, 1, 1, 2], [2, 2, 0, 3, 3]])
    start = start_of(layer, 2)
    outputs, final = layer(table[tokens], start)
    symbols = layer.symbols(table)
    same(layer.mix_symbols(symbols, tokens, start), (outputs, final))
    states = layer.mix_symbols(symbols._replace(skip=None), tokens, start)[0]
    same(layer.step_symbol(symbols, 3, states[0, 0]), states[0, 1])
    hot, one_hot = layer.symbols(None), torch.eye(WIDTH, dtype=torch.float64)
    same(hot.A, layer.symbols(one_hot).A)
    assert (hot.b is None) == (layer.input_matrix is None)
    if hot.b is not None:
        same(hot.b, layer.symbols(one_hot).b)


def test_a_start_that_must_be_given() -> None:
    layer = made(initial_state="given")
    for call in (lambda: layer(drawn(2, 3, WIDTH)), lambda: layer.step(drawn(2, WIDTH))):
        with pytest.raises(SettingsError, match="initial_state is 'given' but no state was; pass state="):
            call()
    with pytest.raises(OpsError, match="N=4"):
        made()(drawn(2, 3, WIDTH), drawn(2, STATE + 1))


# -- what torch does with modules --------------------------------------------------------------------------------------


class Both(nn.Module):
    """All states of a scan with lengths, its final ones, and one step."""

    def __init__(self, layer: SelectiveDense, lengths: Tensor) -> None:
        super().__init__()
        self.layer, self.lengths = layer, lengths

    def forward(self, u: Tensor, start: Tensor | None) -> tuple[Tensor, ...]:
        return *self.layer(u, start, self.lengths), self.layer.step(u[:, 0], start)[0]


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("published", "skip", "given start")])
def test_gradients_are_those_of_finite_differences(form: str) -> None:
    """Of every parameter, of the inputs, and of a state that is given."""
    layer = made(**{"state": 3, "dictionary": 2, **FORMS[form]})
    both = Both(layer, torch.tensor([2, 3]))
    leaves = {f"layer.{name}": p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    u, start = drawn(2, 3, WIDTH).requires_grad_(), drawn(2, 3, seed=2).requires_grad_()

    def run(u: Tensor, start: Tensor | None, *values: Tensor) -> tuple[Tensor, ...]:
        return functional_call(both, dict(zip(leaves, values, strict=True)), (u, start))  # type: ignore[no-any-return]  # a module's

    def begin(learned: Tensor) -> tuple[Tensor, ...]:
        return run(u.detach(), None, *({**leaves, "layer.initial_state": learned}).values())

    assert torch.autograd.gradcheck(run, (u, start, *leaves.values()))
    if layer.initial_state is not None:  # it is only read where no state is given
        assert torch.autograd.gradcheck(begin, (leaves["layer.initial_state"],))


@pytest.mark.parametrize("form", FORMS)
def test_every_parameter_learns(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 3, WIDTH)
    outputs, _ = layer(u, start_of(layer, 2))
    (outputs * drawn(*outputs.shape, seed=4)).sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("form", FORMS)
def test_double_and_back(form: str) -> None:
    single = made(**FORMS[form]).float()
    double, u = copy.deepcopy(single).double(), drawn(2, 20, WIDTH)
    assert all(value.dtype == torch.float64 for value in double.state_dict().values())
    start = start_of(single, 2)
    wanted, found = double(u, start), single(u.float(), None if start is None else start.float())
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == torch.float32 and b.dtype == torch.float64
        error = (a.double() - b).abs().max() / b.abs().max()
        assert error < RELATIVE[torch.float32][0]


@pytest.mark.parametrize("form", ["skip, driven", "temperature"])
def test_compiled(form: str) -> None:
    torch._dynamo.reset()
    layer, u = made(**FORMS[form]), drawn(2, 5, WIDTH).requires_grad_()
    start, lengths = drawn(2, STATE, seed=2).requires_grad_(), torch.tensor([3, 5])
    leaves = [u, start, *(value for name, value in layer.named_parameters() if name != "initial_state")]

    def outputs_and_gradients(run: Any) -> list[Tensor]:
        outputs, final = run(u, start, lengths)
        loss = (outputs * drawn(*outputs.shape, seed=4)).sum() + (final * drawn(*final.shape, seed=5)).sum()
        return [outputs, final, *torch.autograd.grad(loss, leaves)]

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for found, wanted in zip(outputs_and_gradients(compiled), outputs_and_gradients(layer), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("form", FORMS)
def test_models_side_by_side(form: str) -> None:
    """vmap over stacked parameters is each model alone, gradients too."""
    layers = [made(seed=seed, **FORMS[form]) for seed in (0, 1)]
    layers[1].temperature.mul_(0.5 if layers[1].settings.is_tempered else 1)
    if layers[1].column_norm is not None:
        layers[1].column_norm.add_(0.25)
    parameters, buffers = stack_module_state(nn.ModuleList(layers))
    u, start, lengths = drawn(2, 5, WIDTH), start_of(layers[0], 2), torch.tensor([3, 5])

    def run(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return functional_call(layers[0], (parameters, buffers), (u, start, lengths))  # type: ignore[no-any-return]  # a module's

    outputs, final = vmap(run)(parameters, buffers)
    stacked = torch.autograd.grad((outputs * drawn(*outputs.shape[1:], seed=4)).sum(), list(parameters.values()))
    for i, layer in enumerate(layers):
        alone = layer(u, start, lengths)
        torch.testing.assert_close((outputs[i], final[i]), alone)
        grads = torch.autograd.grad((alone[0] * drawn(*alone[0].shape, seed=4)).sum(), list(layer.parameters()))
        torch.testing.assert_close([grad[i] for grad in stacked], list(grads))


def test_copies_are_their_own() -> None:
    layer, u = made(skip=True), drawn(2, 3, WIDTH)
    wanted = layer(u)
    copied, pickled = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    same((copied(u), pickled(u)), (wanted, wanted))
    assert copied.settings == pickled.settings == layer.settings


def test_settings_are_values() -> None:
    settings = SelectiveDenseSettings(state=7, column_norm=None, temperature=0.5)
    assert copy.deepcopy(settings) == settings == pickle.loads(pickle.dumps(settings))
    assert hash(settings) == hash(copy.deepcopy(settings)) and settings != SelectiveDenseSettings()
    with pytest.raises(AttributeError):
        settings.state = 8  # type: ignore[misc]  # frozen, which is the point


def test_saved_weights_come_back() -> None:
    layer, other, u = made(**DRIVEN, skip=True), made(seed=1, **DRIVEN, skip=True), drawn(2, 3, WIDTH)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    same(other(u), layer(u))


def test_inside_another_module() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixer, self.head = made(), nn.Linear(STATE, 2).double()

        def forward(self, u: Tensor) -> Tensor:
            return self.head(self.mixer(u)[0])  # type: ignore[no-any-return]  # a module's

    network = Network()
    assert "mixer.selection.weight" in network.state_dict()
    assert network(drawn(2, 3, WIDTH)).shape == (2, 3, 2)
    assert network.to(torch.float32).mixer.dictionary.dtype == torch.float32
    assert "state=4" in repr(network) and "width=3" in repr(network)


# -- settings that cannot be -------------------------------------------------------------------------------------------


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
def test_settings_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        SelectiveDenseSettings(**changes)
    assert message in str(error.value)


def test_a_width_that_cannot_be() -> None:
    with pytest.raises(SettingsError, match="width is 0; it must be at least 1"):
        SelectiveDense(0, generator=torch.Generator())
