"""Certificates are sound: every claim of a certificate is compared with brute force."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sdssm
from sdssm.automata import Machine, get_machine
from sdssm.cli import main
from sdssm.exact.certification import Certificate, Misclassified, certifier, certify
from sdssm.exact.certification.ball_arithmetic import MatrixBall, spectral_norm
from sdssm.exact.certification.coordinates import Coordinates, choose_coordinates
from sdssm.exact.certification.counterexamples import Counterexample, find_counterexample
from sdssm.exact.certification.exhaustive import ExhaustiveResult
from sdssm.exact.certification.linear_system import build_system
from sdssm.exact.certification.transformed_system import TransformedSystem
from sdssm.exact.certification.trim_machine import TrimMachine
from sdssm.exact.compilation.compiler import compile as compiled
from sdssm.exact.errors import ExactError
from sdssm.models import Classifier, ModelSettings

PARITY = sdssm.task("parity").machine
D4 = sdssm.task("d4").machine


def rescaled(model: Classifier) -> Classifier:
    """Return a model with the same weights that divides each state by its norm."""
    mixer = replace(model.settings.mixer, rescale=True)  # type: ignore[call-arg]
    copy = Classifier(
        replace(model.settings, mixer=mixer), model.n_symbols, model.n_classes, generator=torch.Generator()
    )
    copy.load_state_dict(model.state_dict())
    return copy.eval()


def noisy_model(machine: Machine, noise: float, seed: int = 0) -> Classifier:
    """Return a compiled model with noise on all of its matrices."""
    model, generator = compiled(machine), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.dictionary.add_(noise * torch.randn(model.dictionary.shape, generator=generator))
    return rescaled(model)


def correct_prefixes(model: Classifier, machine: Machine, strings: np.ndarray) -> np.ndarray:
    """Whether float64 classifies each prefix of strings (B, L) correctly with the float32 matrices: (B, L)."""
    system = build_system(model, machine, None)
    x, q = np.tile(system.x0, (len(strings), 1)), np.full(len(strings), machine.start)
    correct = []
    for symbols in strings.T:
        x = np.einsum("bij,bj->bi", system.A[symbols], x)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        q = machine.table[q, symbols]
        correct.append((x @ system.rows.T).argmax(1) == machine.outputs[q])
    return np.stack(correct, 1)


def all_strings(n_symbols: int, length: int) -> np.ndarray:
    return np.array(list(itertools.product(range(n_symbols), repeat=length)))


def first_wrong_length(model: Classifier, machine: Machine, length: int, periodic: int = 0) -> int | None:
    """Return the smallest length of a misclassified string.

    All strings up to `length` are checked, and short words repeated up to the length `periodic`.
    """
    correct = [correct_prefixes(model, machine, all_strings(machine.n_symbols, length)).all(0)]
    for m in range(1, 5 if periodic else 1):
        words = all_strings(machine.n_symbols, m)
        correct.append(correct_prefixes(model, machine, np.tile(words, (1, periodic // m + 1))[:, :periodic]).all(0))
    wrong = [int(np.argmin(row)) + 1 for row in correct if not row.all()]
    return min(wrong, default=None)


@pytest.mark.parametrize("name", ["parity", "cycle", "a5", "even_pairs", "arithmetic", "d4"])
def test_compiled_models_are_certified_for_every_length(name: str) -> None:
    task = sdssm.task(name)
    for model in (compiled(task), rescaled(compiled(task))):
        certificate = certify(model, task.machine, task.valid)
        assert (certificate.horizon, certificate.float_horizon, certificate.exact, certificate.residual) == (
            None,
            None,
            True,
            0.0,
        )
        assert certificate.to_json()["fails_at"] is None


def test_one_changed_transition_is_found_with_a_counterexample() -> None:
    table = D4.table.copy()
    table[5] = table[5][::-1]
    other = Machine(table=table, outputs=D4.outputs)
    shortest = other.distinguish(D4)
    assert shortest is not None
    certificate = certify(compiled(other), D4)
    assert certificate.horizon == certificate.float_horizon == len(shortest) - 1
    assert certificate.counterexample is not None and len(certificate.counterexample) == len(shortest)
    assert other.output(certificate.counterexample) != D4.output(certificate.counterexample)
    # With noise the exact search does not apply, and the bounds must find it.
    certificate = certify(noisy_model(other, 1e-4), D4)
    assert certificate.horizon == len(shortest) - 1 and not certificate.exact
    assert certificate.counterexample is not None and D4.output(certificate.counterexample) != other.output(
        certificate.counterexample
    )


@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_one_changed_readout_row_is_found(noise: float) -> None:
    model = noisy_model(D4, noise) if noise else compiled(D4)
    with torch.no_grad():
        model.readout.weight[3] = model.readout.weight[6]
    certificate = certify(model, D4)
    wrong = first_wrong_length(model, D4, 8)
    assert wrong is not None and certificate.horizon is not None and certificate.horizon < wrong


def test_perturbed_weight_that_misclassifies_only_long_strings() -> None:
    model = rescaled(compiled(PARITY))
    with torch.no_grad():
        model.dictionary[0, 0, 1] = 0.01  # symbol 0 moves a little weight from odd to even
    wrong = first_wrong_length(model, PARITY, 10, periodic=400)
    assert wrong is not None and 50 < wrong < 400
    certificate = certify(model, PARITY, strings=1 << 10)
    assert certificate.horizon is not None and 10 <= certificate.horizon < wrong
    assert certificate.float_horizon is not None and certificate.float_horizon <= certificate.horizon
    assert certificate.counterexample is not None and len(certificate.counterexample) <= 400
    tokens = torch.tensor([certificate.counterexample])
    assert int(model(tokens)[0, -1].argmax()) != PARITY.output(certificate.counterexample)


@pytest.mark.parametrize("seed", range(12))
def test_horizon_is_below_the_first_wrong_length(seed: int) -> None:
    """Few strings are checked one by one, so that the bound is tested, at noise from harmless to fatal."""
    machine = (PARITY, D4)[seed % 2]
    model = noisy_model(machine, (0.3, 0.1, 0.05, 0.02)[seed % 4], seed)
    certificate = certify(model, machine, strings=1 << 4, search=0)
    wrong = first_wrong_length(model, machine, 12, periodic=300)
    assert wrong is None or (certificate.horizon is not None and certificate.horizon < wrong)


def test_bound_is_not_trivial() -> None:
    model = noisy_model(D4, 1e-4)
    certificate = certify(model, D4, strings=1 << 10)
    assert certificate.horizon is not None and certificate.horizon >= 100 and certificate.exhaustive == 9
    assert certificate.float_horizon is not None and certificate.float_horizon >= 100
    assert (
        certificate.margin is not None
        and certificate.residual is not None
        and certificate.residual < certificate.margin / 100
    )
    strings = np.random.default_rng(0).integers(2, size=(200, certificate.horizon))
    assert correct_prefixes(model, D4, strings).all()


def test_errors_stay_below_their_bound() -> None:
    """The inequality holds along random strings, for single symbols and words, in float64 and in float32."""
    model = noisy_model(D4, 3e-3)
    system = build_system(model, D4, None)
    coordinates = choose_coordinates(system, np.random.default_rng(0))
    assert coordinates is not None
    transformed = TransformedSystem.build(system, coordinates)
    assert transformed is not None
    strings = np.random.default_rng(1).integers(2, size=(100, 24))
    for rounded in (False, True):
        dtype = np.float32 if rounded else np.float64
        A = system.A.astype(dtype)
        for m in (1, 3):
            x, q = np.tile(system.x0.astype(dtype), (100, 1)), np.full(100, D4.start)
            recurrence, bounds = transformed.error_recurrence(m, rounded=rounded), np.empty(0)
            for t, symbols in enumerate(strings.T):
                if t % m == 0:
                    e = errors_of(coordinates, x, q)
                    bounds = np.full((8, 2), -1.0) if t == 0 else recurrence(bounds)
                    if t == 0:
                        np.maximum.at(bounds, q, e)  # the errors of the start state
                    assert (e <= bounds[q] * (1 + 1e-9)).all(), (rounded, m, t)
                x = np.stack([A[s] @ row for s, row in zip(symbols, x, strict=True)])
                x /= np.linalg.norm(x, axis=1, keepdims=True)
                q = D4.table[q, symbols]


def errors_of(coordinates: Coordinates, x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Compute e1 and e2 of states (B, N) from their definition: (B, 2)."""
    y, d = x.astype(np.float64) @ coordinates.forward.T, coordinates.dimension
    functionals, centres = coordinates.functionals[q], coordinates.centres[q]
    along = (functionals * y[:, :d]).sum(1) / (functionals * centres[:, :d]).sum(1)
    e = y / along[:, None] - centres
    measured = np.einsum("bij,bj->bi", coordinates.metrics[q], e[:, :d])
    return np.stack([np.linalg.norm(measured, axis=1), np.linalg.norm(e[:, d:], axis=1)], 1)


def test_float32_model_is_correct_up_to_the_float_horizon() -> None:
    model = noisy_model(D4, 1e-3)
    certificate = certify(model, D4, strings=1 << 10)
    assert certificate.float_horizon is not None and certificate.float_horizon >= 40
    tokens = torch.randint(2, (100, certificate.float_horizon), generator=torch.Generator().manual_seed(0))
    labels = torch.from_numpy(D4.outputs[np.stack([D4.trace(row.numpy()) for row in tokens])])
    assert (model(tokens).argmax(-1) == labels).all()


def test_contracting_model_is_certified_for_every_length() -> None:
    """The machine outputs the last symbol, so that errors of earlier symbols almost vanish."""
    last_symbol = Machine(table=[[0, 1, 2]] * 3)
    model = noisy_model(last_symbol, 1e-2)
    certificate = certify(model, last_symbol, strings=1 << 6)
    assert (certificate.horizon, certificate.float_horizon, certificate.exact) == (None, None, False)
    assert correct_prefixes(model, last_symbol, np.random.default_rng(0).integers(3, size=(50, 2_000))).all()


def test_only_valid_strings_are_checked() -> None:
    """The model is correct on strings with a 0 at every odd position and wrong on all others."""
    valid = Machine(table=[[1, 2], [0, 0], [2, 2]], outputs=[1, 1, 0])
    other = Machine(
        table=[[1, 4], [0, 2], [3, 4], [2, 0], [4, 4]], outputs=[0, 0, 1, 1, 0]
    )  # parity; 4 is for invalid strings
    assert other.distinguish(PARITY) is not None and other.distinguish(PARITY, valid) is None
    assert certify(compiled(other), PARITY, valid).horizon is None
    assert certify(noisy_model(other, 1e-5), PARITY, valid).horizon != 0
    on_all_strings = certify(compiled(other), PARITY)
    assert on_all_strings.horizon == 0 and on_all_strings.counterexample == (1,)
    model = compiled(PARITY)
    empty = Machine(table=[[0, 0]], outputs=[0])
    with pytest.raises(ExactError, match="no string is valid"):
        certify(model, PARITY, empty)


def test_query_is_one_more_step() -> None:
    settings = ModelSettings(query=True, mixer={"state": 8})  # type: ignore[arg-type]
    model = Classifier(settings, 2, 2, generator=torch.Generator().manual_seed(0)).eval()
    certificate = certify(model, PARITY, search=0)
    assert certificate.horizon is not None
    strings = all_strings(2, 6)
    correct = (
        model(torch.tensor(strings)).argmax(-1).numpy() == PARITY.outputs[[PARITY.trace(s) for s in strings]]
    ).all(0)
    first = int(np.argmin(correct)) + 1 if not correct.all() else 7
    assert certificate.horizon < first


def test_exact_arithmetic_is_proved_for_every_length_but_float32_is_not() -> None:
    """A quarter turn of (3, 1) times 5: the states are integers, but their norm is not."""
    machine = Machine(table=[[1], [2], [3], [0]])
    settings = ModelSettings(
        mixer={"state": 2, "dictionary": 1, "column_norm": None},  # type: ignore[arg-type]
        norm="none",
        readout="linear",
        readout_bias=False,
    )
    model = Classifier(settings, 1, 4, generator=torch.Generator())
    with torch.no_grad():
        model.dictionary.copy_(torch.tensor([[[0.0, -5.0], [5.0, 0.0]]]))
        model.initial_state.copy_(torch.tensor([3.0, 1.0]))
        model.readout.weight.copy_(torch.tensor([[3.0, 1.0], [-1.0, 3.0], [-3.0, -1.0], [1.0, -3.0]]))
    certificate = certify(model, machine, longest=2_000)
    assert certificate.horizon is None and certificate.exact
    assert certificate.float_horizon is not None and certificate.float_horizon >= 1_000


def test_unsupported_models_are_refused() -> None:
    def build_model(**settings: object) -> Classifier:
        return Classifier(ModelSettings(**settings), 2, 2, generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]

    with_input_matrix = build_model(
        mixer={"input_matrix": True, "rescale": False, "initial_state": "zero"}, norm="affine"
    )
    with pytest.raises(ExactError, match="input matrix B"):
        certify(with_input_matrix, PARITY)
    with pytest.raises(ExactError, match="2 layers"):
        certify(build_model(layers=2), PARITY)
    with pytest.raises(ExactError, match="bias"):
        certify(build_model(readout="linear"), PARITY)
    with pytest.raises(ExactError, match="mlp"):
        certify(build_model(readout="mlp"), PARITY)
    with pytest.raises(ExactError, match="lstm"):
        certify(build_model(name="lstm"), PARITY)
    with pytest.raises(ExactError, match="reads 2 symbols but the machine 3"):
        certify(build_model(), sdssm.task("cycle").machine)
    with pytest.raises(ExactError, match="60 outputs"):
        certify(build_model(), sdssm.task("a5").machine)


def test_radius_bounds_the_error_of_a_product() -> None:
    generator = np.random.default_rng(0)
    a, b, c = (generator.standard_normal((3, 3)) * 10.0 ** generator.integers(-3, 4) for _ in range(3))
    product = MatrixBall.exact(a) @ MatrixBall.exact(b) @ MatrixBall.exact(c)
    exact = [[Fraction(float(v)) for v in row] for row in a]
    for factor in (b, c):
        rows = [[Fraction(float(v)) for v in row] for row in factor]
        exact = [[sum((x * rows[k][j] for k, x in enumerate(row)), Fraction()) for j in range(3)] for row in exact]
    squared_error = sum((Fraction(float(product.centre[i, j])) - exact[i][j]) ** 2 for i in range(3) for j in range(3))
    assert 0 < squared_error <= Fraction(float(product.radius)) ** 2
    assert not squared_error <= Fraction(float(product.radius) * 1e-6) ** 2  # the radius is not much too large either


def test_spectral_norm_is_a_tight_upper_bound() -> None:
    generator = np.random.default_rng(0)
    for shape in ((4, 4), (7, 3), (3, 7), (1, 5), (40, 40)):
        x = generator.standard_normal((5, *shape))
        exact = np.linalg.norm(x, 2, axis=(1, 2))
        assert (spectral_norm(x) >= exact).all() and (spectral_norm(x) <= exact * (1 + 1e-9)).all()


def test_exhaustive_length_ends_before_the_first_unproved_label() -> None:
    assert ExhaustiveResult([], [True, True, False, True]).length == 1
    assert Certificate(5, 3, 2, False, "").fails_at == 6


# -- what a certificate says -------------------------------------------------------------------------------------------


def test_the_headline_names_the_arithmetic() -> None:
    """A string of length 500 that float32 misclassifies contradicts no proof in exact arithmetic."""
    wrong = Misclassified((0,) * 500, "0" * 500, predicted=0, correct=1, computed_exactly=False)
    certificate = Certificate(1_000_000, 30, 8, False, "", wrong.string, misclassified=wrong, task="parity")
    title = str(certificate).splitlines()[0]
    assert title == (
        "parity: the model misclassifies a string of length 500; every valid string up to length 1,000,000 is proved "
        "to be classified correctly in exact arithmetic; up to length 30 in float32"
    )
    assert "correctly in exact arithmetic; nothing is proved in float32\n" in str(replace(certificate, float_horizon=0))
    same = replace(certificate, horizon=30)
    assert str(same).splitlines()[0].endswith("every valid string up to length 30 is proved to be classified correctly")
    unlimited = replace(certificate, horizon=None, misclassified=None)
    assert "parity: every valid string is proved to be classified correctly in exact arithmetic; up" in str(unlimited)
    only_exactly = replace(certificate, misclassified=replace(wrong, computed_exactly=True))
    assert "parity: the model, computed exactly, misclassifies a string of length 500" in str(only_exactly)


def test_a_long_string_is_found_in_full_by_the_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = rescaled(compiled(PARITY))
    with torch.no_grad():
        model.dictionary[0, 0, 1] = 0.01
    certificate = certify(model, PARITY, strings=1 << 10)
    assert "(misclassified.text has all of it)" in str(certificate) and "--json" not in str(certificate)
    model.save(tmp_path)
    assert main(["certify", str(tmp_path), "--task", "parity", "--strings", "1024"]) == 0
    assert "... (--json prints all of it) (length" in capsys.readouterr().out


def test_a_counterexample_has_the_label_that_the_model_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as one piece the model is rounded otherwise: a string that was misclassified may come out correct."""
    model = rescaled(compiled(PARITY))
    with torch.no_grad():
        model.dictionary[0, 0, 1] = 0.01
    machine = build_system(model, PARITY, None).machine
    counterexample, length = find_counterexample(model, machine, 400, torch.Generator().manual_seed(0))
    assert counterexample is not None and len(counterexample.string) == length
    assert counterexample.predicted == 1 - PARITY.output(counterexample.string)
    borderline = Counterexample((0, 1, 1), 1 - PARITY.output((0, 1, 1)))  # the model itself classifies it correctly
    monkeypatch.setattr(certifier, "find_counterexample", lambda *arguments: (borderline, 3))
    wrong = certify(model, PARITY, strings=1 << 10).misclassified
    assert wrong is not None and (wrong.string, wrong.predicted, wrong.computed_exactly) == (*borderline, False)


# -- overflow and underflow in float32 ---------------------------------------------------------------------------------

#: The matrices of the two symbols of parity.
SWAP = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]


def model_of(
    A: Any, x0: Any, rows: Any, *, rescale: bool = False, readout: str = "linear", norm: str = "none", gain: float = 1.0
) -> Classifier:
    """Return a model with exactly these matrices, start state and readout rows."""
    matrices = torch.tensor(A, dtype=torch.float64).float()
    V, N, _ = matrices.shape
    settings = ModelSettings(
        mixer={"state": N, "dictionary": V, "column_norm": None, "rescale": rescale},  # type: ignore[arg-type]
        norm=norm,
        readout=readout,
        readout_bias=False,
        projection=False,
    )
    model = Classifier(settings, V, len(rows), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.dictionary.copy_(matrices)
        model.selection.weight.copy_(1000 * torch.eye(V))
        model.selection.bias.zero_()
        model.initial_state.copy_(torch.tensor(x0, dtype=torch.float64).float())
        model.readout.weight.copy_(torch.tensor(rows, dtype=torch.float64).float())
        if norm == "affine":
            assert model.norm is not None
            model.norm.weight.fill_(gain)
            model.norm.bias.zero_()
    return model.eval()


#: Length of the strings that are read symbol by symbol, and a larger limit for claims, so that false claims show.
READ_LENGTH, MOST_CLAIMED = 400, 500


def first_wrong_in_float32(model: Classifier, machine: Machine, length: int = READ_LENGTH) -> int | None:
    """Return the first length at which one of four random strings is misclassified in float32."""
    tokens = torch.randint(machine.n_symbols, (4, length), generator=torch.Generator().manual_seed(0))
    state, wrong = None, []
    states = torch.full((4,), machine.start)
    table, outputs = torch.tensor(machine.table), torch.tensor(machine.outputs)
    with torch.no_grad():
        for position, token in enumerate(tokens.unbind(1)):
            logits, state = model.advance(token[:, None], state)
            states = table[states, token]
            if bool((logits[:, 0].argmax(-1) != outputs[states]).any()):
                wrong.append(position + 1)
    return min(wrong, default=None)


IDENTITY = [[1.0, 0.0], [0.0, 1.0]]


def scaled(factor: float, other: float | None = None) -> Any:
    return [[[v * f for v in row] for row in matrix] for matrix, f in zip(SWAP, (factor, other or factor), strict=True)]


@pytest.mark.parametrize(
    "model",
    [
        model_of(scaled(0.5), [1, 0], IDENTITY),  # underflows
        model_of(scaled(2.0**-10), [1, 0], IDENTITY),
        model_of(scaled(0.9, 0.90009), [1e-30, 0], IDENTITY),  # starts close to the smallest numbers
        model_of(scaled(1.1, 1.1001), [1e12, 0], IDENTITY, readout="cosine"),  # squares overflow
        model_of(scaled(1e-30), [1e-20, 1e-21], IDENTITY, rescale=True),  # the first product is out of range
        model_of(SWAP, [1, 0], [[1e20, 0], [0, 1e20]], readout="cosine"),
        model_of(SWAP, [3, 1], [[3e38, 2.9e38], [2.9e38, 3e38]]),
        model_of(SWAP, [1, 0], IDENTITY, readout="cosine", norm="affine", gain=1e30),
    ],
    ids=["half", "2^-10", "tiny start", "growing", "first product", "cosine rows", "linear rows", "gain"],
)
def test_no_float_horizon_if_float32_overflows_or_underflows(model: Classifier) -> None:
    certificate = certify(model, PARITY, search=0, longest=MOST_CLAIMED)
    wrong = first_wrong_in_float32(model, PARITY)
    assert wrong is not None
    assert certificate.float_horizon is not None
    assert certificate.float_horizon < wrong


def test_start_state_is_checked_if_a_string_returns_to_it() -> None:
    """A cycle of four states, misclassified in the start state: symbol 0 stays there and is wrong at once."""
    cycle = Machine(table=[[0, 1], [1, 2], [2, 3], [3, 0]])
    stay = [[float((i - j) % 4 == s) for j in range(4)] for s in (0,) for i in range(4)]
    step = [[float((i - j) % 4 == 1) for j in range(4)] for i in range(4)]
    rows = torch.eye(4)[[3, 1, 2, 0]].tolist()
    certificate = certify(model_of([stay, step], [1, 0, 0, 0], rows), cycle, search=0)
    assert (certificate.horizon, certificate.float_horizon, certificate.counterexample) == (0, 0, (0,))


@pytest.mark.parametrize("scale", [-10.0, 0.0, float("nan")])
def test_readout_scale_that_is_not_positive_is_refused(scale: float) -> None:
    model = model_of(SWAP, [1, 0], IDENTITY, readout="cosine")
    assert model.readout.scale is not None
    model.readout.scale.fill_(scale)
    with pytest.raises(ExactError):
        certify(model, PARITY)


def test_counterexample_in_exact_arithmetic_does_not_imply_a_float_horizon() -> None:
    rows = [[1.0, 1.0 - 6e-8], [1.0 - 6e-8, 1.0]]
    model = model_of(SWAP, [2.0**20 - 1, 2.0**20 - 2], rows)
    certificate = certify(model, PARITY, search=0, longest=MOST_CLAIMED)
    wrong = first_wrong_in_float32(model, PARITY)
    assert wrong is None or (certificate.float_horizon is not None and certificate.float_horizon < wrong)


def test_the_string_that_takes_a_rare_transition_is_found() -> None:
    """Random strings hardly ever contain the word, and a model that always answers 0 is correct on all others."""
    word = get_machine("regex[a-z]:.*hello.*")
    constant = compiled(Machine(table=[[0] * 26]), n_classes=2)
    machine = TrimMachine.build(word, None)
    counterexample, length = find_counterexample(constant, machine, 400, torch.Generator().manual_seed(0))
    assert counterexample is not None and word.decode(counterexample.string) == "hello"
    assert (counterexample.predicted, length) == (0, 5)
