"""The forecast of the failing length, on models whose failing length is known in closed form."""

import dataclasses
import math
from time import monotonic, sleep

import pytest
import torch
from torch import Tensor, nn

import sdssm.exact
from sdssm.checking.forecast import CALIBRATION, Forecast, forecast_failure
from sdssm.checking.forecast_measurement import measure_failing_length
from sdssm.models import wrap_module
from sdssm.models.building import untrained_model
from sdssm.models.settings import ModelSettings
from sdssm.tasks import Task, get_task

Z8, PARITY = get_task("z8"), get_task("parity")
#: Without the factor that trained models need.
EXACT = dataclasses.replace(CALIBRATION, factor=1.0)


class Recurrence(nn.Module):
    """Multiply a complex number by one factor for each symbol; classify it."""

    factors: Tensor

    def __init__(self, *factors: complex) -> None:
        super().__init__()
        self.register_buffer("factors", torch.tensor(factors, dtype=torch.complex64))

    def advance(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        now = torch.ones(len(tokens), 1, dtype=torch.complex64) if state is None else state
        path = []
        for symbols in tokens.T:
            now = now * self.factors[symbols][:, None]
            path.append(now)
        return self.classify(torch.stack(path, 1)[..., 0]), now

    def forward(self, tokens: Tensor) -> Tensor:
        return self.advance(tokens)[0]

    def classify(self, states: Tensor) -> Tensor:
        raise NotImplementedError


def turn(angle: float) -> complex:
    return complex(math.cos(angle), math.sin(angle))


class AngleCounter(Recurrence):
    """Counts the ones modulo 8 by the angle."""

    def classify(self, states: Tensor) -> Tensor:
        return (states[..., None] * torch.exp(-2j * math.pi * torch.arange(8) / 8)).real


class NarrowSector(Recurrence):
    """Even if the angle is at most pi / 8."""

    def classify(self, states: Tensor) -> Tensor:
        surplus = states.real / states.abs() - math.cos(math.pi / 8)
        return torch.stack([surplus, -surplus], -1)


class Leaky(Recurrence):
    """Odd if the number is below -0.2."""

    def classify(self, states: Tensor) -> Tensor:
        return torch.stack([states.real + 0.2, -states.real - 0.2], -1)


class Normalised(Recurrence):
    """The sign of the number, divided by the root of its square, which overflows."""

    def classify(self, states: Tensor) -> Tensor:
        direction = states.real / states.real.square().sqrt()
        return torch.stack([direction, -direction], -1)


def forecast(module: nn.Module, task: Task) -> Forecast:
    return forecast_failure(wrap_module(module, task.n_symbols, task.n_classes), task, calibration=EXACT)


def test_a_constant_error_of_the_angle_is_a_drift() -> None:
    error, length = 0.004, 1
    # Half of the symbols are ones; a tenth of the strings has 1.28 standard deviations more.
    while (length / 2 + 1.28 * math.sqrt(length) / 2) * error < math.pi / 8:
        length += 1
    result = forecast(AngleCounter(1, turn(math.pi / 4 + error)), Z8)
    assert result.cause == "drift"
    assert result.length is not None
    assert result.length == pytest.approx(length, rel=0.3)
    assert result.lower == CALIBRATION.lower * result.length
    assert result.upper == CALIBRATION.upper * result.length


def test_errors_that_cancel_on_average_are_a_diffusion() -> None:
    # The angle is a random walk. A fifth of the even strings is beyond 1.28 standard deviations.
    error = 0.015
    length = (math.pi / 8 / 1.28 / error) ** 2
    result = forecast(NarrowSector(turn(error), -turn(-error)), PARITY)
    assert result.cause == "diffusion"
    assert result.length == pytest.approx(length, rel=0.3)


@pytest.mark.parametrize(
    ("module", "length"),
    [
        # Odd strings are misclassified once the number has decayed to 0.2.
        (Leaky(0.99, -0.99), math.log(0.2) / math.log(0.99)),
        # The square overflows in float32 at 2 ** 128.
        (Normalised(1.3, -1.3), 64 * math.log(2) / math.log(1.3)),
    ],
)
def test_the_size_of_the_state_decays_or_explodes(module: nn.Module, length: float) -> None:
    result = forecast(module, PARITY)
    assert result.cause == "size"
    assert result.length == pytest.approx(length, rel=0.1)


def test_the_closed_form_is_what_is_measured() -> None:
    module = Leaky(0.99, -0.99)
    measured = measure_failing_length(wrap_module(module, 2, 2), PARITY, longest=400, strings=256)
    assert forecast(module, PARITY).length == pytest.approx(measured.length, rel=0.1)


@pytest.mark.parametrize("name", ["a5", "arithmetic"])  # of arithmetic, not all strings are valid
def test_an_exact_model_never_fails_and_is_forecast_in_seconds(name: str) -> None:
    model, task = sdssm.exact.compile(name), get_task(name)
    started = monotonic()
    result = forecast_failure(model, task)
    assert monotonic() - started < 10
    assert (result.length, result.cause, result.reason) == (None, "none", "")
    assert result.ratio == 0.0
    assert str(result) == "no failure expected before length 50,000"


def test_a_forecast_is_repeatable_and_leaves_the_model_as_it_was() -> None:
    model = wrap_module(AngleCounter(1, turn(math.pi / 4 + 0.01)), 2, 8)
    model.train()
    assert forecast_failure(model, Z8, seed=3) == forecast_failure(model, Z8, seed=3)
    assert model.training


def test_a_model_that_does_not_classify_training_lengths_has_no_forecast() -> None:
    result = forecast(AngleCounter(1, 1), Z8)
    assert result.length is None
    assert result.reason.startswith("the accuracy at training length 40 is")
    assert "chance 12.5 %" in str(result)


class ParityOfStrings(nn.Module):
    """Reads whole strings: (B, L) -> (B, 2), or (B, L, 2) with `prefixes`."""

    def __init__(self, prefixes: bool, longest: int | None = None) -> None:
        super().__init__()
        self.prefixes, self.longest = prefixes, longest

    def forward(self, tokens: Tensor) -> Tensor:
        odd = tokens.cumsum(1) % 2
        return nn.functional.one_hot(odd if self.prefixes else odd[:, -1], 2).float()


@pytest.mark.parametrize("prefixes", [False, True])
def test_a_module_without_advance_has_no_forecast(prefixes: bool) -> None:
    # It may have states, such as those of nn.GRU; they cannot be read.
    result = forecast(ParityOfStrings(prefixes), PARITY)
    assert result.length is None
    assert result.reason == "it has no advance(tokens, state), so its states cannot be read"


def test_a_model_of_the_catalogue_without_a_state_gets_the_typical_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdssm.checking.forecast._why_not_classified", lambda *_: None)  # it is not trained
    result = forecast_failure(untrained_model(ModelSettings(name="transformer", width=16), 2, 2, seed=0), PARITY)
    assert result.cause == "unseen positions"
    assert result.length == CALIBRATION.unseen * PARITY.train_length
    assert math.isnan(result.ratio)
    assert str(result) == "if it fails, near length 110 (69 to 350), the typical length of models without a state"


class Attracted(AngleCounter):
    """Counts modulo 8 with an error of the angle; each symbol takes it back towards the nearest right angle."""

    def __init__(self, error: float, kept: float) -> None:
        super().__init__(1, turn(math.pi / 4 + error))
        self.kept = kept

    def advance(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        now = torch.ones(len(tokens), 1, dtype=torch.complex64) if state is None else state
        path = []
        for symbols in tokens.T:
            angle = (now * self.factors[symbols][:, None]).angle() * 8 / (2 * math.pi)
            angle = angle.round() + self.kept * (angle - angle.round())
            now = torch.exp(2j * math.pi * angle / 8)
            path.append(now)
        return self.classify(torch.stack(path, 1)[..., 0]), now


def test_what_is_forgotten_does_not_add_up() -> None:
    # The same error of every symbol; 0.9 ** 8 of a deviation is left after a fifth of the training length, or all.
    forgets, keeps = forecast(Attracted(0.01, kept=0.9), Z8), forecast(Attracted(0.01, kept=1.0), Z8)
    assert forgets.retention == pytest.approx(0.9**8, rel=0.05)
    assert (forgets.length, forgets.cause) == (None, "none")
    assert keeps.retention == pytest.approx(1.0, rel=0.05)
    assert keeps.length is not None and keeps.cause == "drift"


class SlowCounter(AngleCounter):
    """Takes a tenth of a second for each piece."""

    def advance(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        sleep(0.1)
        return super().advance(tokens, state)


def test_a_forecast_stops_when_its_time_is_up() -> None:
    started = monotonic()
    model = wrap_module(SlowCounter(1, turn(math.pi / 4 + 0.001)), 2, 8)
    result = forecast_failure(model, Z8, max_seconds=0.5)
    assert monotonic() - started < 2
    assert result.reason == "it takes more than 0.5 s; allow more with max_seconds"


def test_a_model_that_cannot_read_training_strings_has_no_forecast() -> None:
    assert (
        forecast(ParityOfStrings(prefixes=True, longest=20), PARITY).reason
        == "the model reads at most 20 symbols, and training strings have 40"
    )
