"""Certificates claim nothing that is not so: every claim here is compared with brute force."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import sdssm
from sdssm.automata import Machine
from sdssm.exact.certification.ball_arithmetic import MatrixBall, spectral_norm
from sdssm.exact.certification.certifier import Certificate, certify
from sdssm.exact.certification.coordinates import Coordinates, choose_coordinates
from sdssm.exact.certification.exhaustive import ExhaustiveResult
from sdssm.exact.certification.linear_system import build_system
from sdssm.exact.certification.transformed_system import TransformedSystem
from sdssm.exact.compilation.compiler import compile as compiled
from sdssm.exact.errors import ExactError
from sdssm.models import Classifier, ModelSettings

EVEN = sdssm.task("parity").machine
D4 = sdssm.task("d4").machine


def rescaled(model: Classifier) -> Classifier:
    """The same weights in a model that divides each state by its length."""
    mixer = replace(model.settings.mixer, rescale=True)  # type: ignore[call-arg]
    found = Classifier(
        replace(model.settings, mixer=mixer), model.n_symbols, model.n_classes, generator=torch.Generator()
    )
    found.load_state_dict(model.state_dict())
    return found.eval()


def rough(machine: Machine, noise: float, seed: int = 0) -> Classifier:
    """A compiled model with noise on all of its matrices."""
    model, generator = compiled(machine), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.dictionary.add_(noise * torch.randn(model.dictionary.shape, generator=generator))
    return rescaled(model)


def told(model: Classifier, machine: Machine, strings: np.ndarray) -> np.ndarray:
    """Whether each prefix of strings (B, L) is told right, in float64 on the float32 matrices: (B, L)."""
    system = build_system(model, machine, None)
    x, q = np.tile(system.x0, (len(strings), 1)), np.full(len(strings), machine.start)
    right = []
    for symbols in strings.T:
        x = np.einsum("bij,bj->bi", system.A[symbols], x)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        q = machine.table[q, symbols]
        right.append((x @ system.rows.T).argmax(1) == machine.outputs[q])
    return np.stack(right, 1)


def every(n_symbols: int, length: int) -> np.ndarray:
    return np.array(list(itertools.product(range(n_symbols), repeat=length)))


def first_wrong(model: Classifier, machine: Machine, length: int, periodic: int = 0) -> int | None:
    """The least length of a wrong string: among all up to a length, and words repeated up to another."""
    right = [told(model, machine, every(machine.n_symbols, length)).all(0)]
    for m in range(1, 5 if periodic else 1):
        words = every(machine.n_symbols, m)
        right.append(told(model, machine, np.tile(words, (1, periodic // m + 1))[:, :periodic]).all(0))
    wrong = [int(np.argmin(row)) + 1 for row in right if not row.all()]
    return min(wrong, default=None)


@pytest.mark.parametrize("name", ["parity", "cycle", "a5", "even_pairs", "arithmetic", "d4"])
def test_compiled_models_are_right_at_every_length(name: str) -> None:
    task = sdssm.task(name)
    for model in (compiled(task), rescaled(compiled(task))):
        found = certify(model, task.machine, task.valid)
        assert (found.horizon, found.float_horizon, found.exact, found.residual) == (None, None, True, 0.0)
        assert found.to_json()["fails_at"] is None


def test_one_transition_changed_is_refused_with_a_string_that_shows_it() -> None:
    table = D4.table.copy()
    table[5] = table[5][::-1]
    other = Machine(table=table, outputs=D4.outputs)
    shortest = other.distinguish(D4)
    assert shortest is not None
    found = certify(compiled(other), D4)
    assert found.horizon == found.float_horizon == len(shortest) - 1
    assert found.counterexample is not None and len(found.counterexample) == len(shortest)
    assert other.output(found.counterexample) != D4.output(found.counterexample)
    # The same with noise, which leaves the exact search and is bounded instead.
    found = certify(rough(other, 1e-4), D4)
    assert found.horizon == len(shortest) - 1 and not found.exact
    assert found.counterexample is not None and D4.output(found.counterexample) != other.output(found.counterexample)


@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_one_readout_row_changed_is_refused(noise: float) -> None:
    model = rough(D4, noise) if noise else compiled(D4)
    with torch.no_grad():
        model.readout.weight[3] = model.readout.weight[6]
    found = certify(model, D4)
    wrong = first_wrong(model, D4, 8)
    assert wrong is not None and found.horizon is not None and found.horizon < wrong


def test_a_weight_perturbed_so_that_only_long_strings_fail() -> None:
    model = rescaled(compiled(EVEN))
    with torch.no_grad():
        model.dictionary[0, 0, 1] = 0.01  # symbol 0 leaks from odd to even
    wrong = first_wrong(model, EVEN, 10, periodic=400)
    assert wrong is not None and 50 < wrong < 400
    found = certify(model, EVEN, strings=1 << 10)
    assert found.horizon is not None and 10 <= found.horizon < wrong
    assert found.float_horizon is not None and found.float_horizon <= found.horizon
    assert found.counterexample is not None and len(found.counterexample) <= 400
    tokens = torch.tensor([found.counterexample])
    assert int(model(tokens)[0, -1].argmax()) != EVEN.output(found.counterexample)


@pytest.mark.parametrize("seed", range(12))
def test_no_claim_beyond_the_first_wrong_length(seed: int) -> None:
    """Few strings are looked at, so that the bound itself must be right, at noise from harmless to fatal."""
    machine = (EVEN, D4)[seed % 2]
    model = rough(machine, (0.3, 0.1, 0.05, 0.02)[seed % 4], seed)
    found = certify(model, machine, strings=1 << 4, search=0)
    wrong = first_wrong(model, machine, 12, periodic=300)
    assert wrong is None or (found.horizon is not None and found.horizon < wrong)


def test_a_bound_that_is_worth_something() -> None:
    model = rough(D4, 1e-4)
    found = certify(model, D4, strings=1 << 10)
    assert found.horizon is not None and found.horizon >= 100 and found.exhaustive == 9
    assert found.float_horizon is not None and found.float_horizon >= 100
    assert found.margin is not None and found.residual is not None and found.residual < found.margin / 100
    strings = np.random.default_rng(0).integers(2, size=(200, found.horizon))
    assert told(model, D4, strings).all()


def test_errors_stay_below_their_bound() -> None:
    """The inequality itself, along random strings, for single symbols and for words, plain and rounded."""
    model = rough(D4, 3e-3)
    system = build_system(model, D4, None)
    chosen = choose_coordinates(system, np.random.default_rng(0))
    assert chosen is not None
    frame = TransformedSystem.of(system, chosen)
    assert frame is not None
    strings = np.random.default_rng(1).integers(2, size=(100, 24))
    for rounded in (False, True):
        kind = np.float32 if rounded else np.float64
        A = system.A.astype(kind)
        for m in (1, 3):
            x, q = np.tile(system.x0.astype(kind), (100, 1)), np.full(100, D4.start)
            steps, bounds = frame.steps(m, rounded=rounded), np.empty(0)
            for t, symbols in enumerate(strings.T):
                if t % m == 0:
                    e = errors_of(chosen, x, q)
                    bounds = np.full((8, 2), -1.0) if t == 0 else steps(bounds)
                    if t == 0:
                        np.maximum.at(bounds, q, e)  # from where the strings begin
                    assert (e <= bounds[q] * (1 + 1e-9)).all(), (rounded, m, t)
                x = np.stack([A[s] @ row for s, row in zip(symbols, x, strict=True)])
                x /= np.linalg.norm(x, axis=1, keepdims=True)
                q = D4.table[q, symbols]


def errors_of(chosen: Coordinates, x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """e1 and e2 of states (B, N), by their definition: (B, 2)."""
    y, d = x.astype(np.float64) @ chosen.into.T, chosen.dimension
    along = (chosen.scales[q] * y[:, :d]).sum(1) / (chosen.scales[q] * chosen.centres[q, :d]).sum(1)
    e = y / along[:, None] - chosen.centres[q]
    main = np.einsum("bij,bj->bi", chosen.metrics[q], e[:, :d])
    return np.stack([np.linalg.norm(main, axis=1), np.linalg.norm(e[:, d:], axis=1)], 1)


def test_float32_is_right_up_to_its_own_horizon() -> None:
    model = rough(D4, 1e-3)
    found = certify(model, D4, strings=1 << 10)
    assert found.float_horizon is not None and found.float_horizon >= 40
    tokens = torch.randint(2, (100, found.float_horizon), generator=torch.Generator().manual_seed(0))
    labels = torch.from_numpy(D4.outputs[np.stack([D4.trace(row.numpy()) for row in tokens])])
    assert (model(tokens).argmax(-1) == labels).all()


def test_what_forgets_is_right_for_ever() -> None:
    """The last symbol: whatever a state was, the next symbol makes it almost the same."""
    last = Machine(table=[[0, 1, 2]] * 3)
    model = rough(last, 1e-2)
    found = certify(model, last, strings=1 << 6)
    assert (found.horizon, found.float_horizon, found.exact) == (None, None, False)
    assert told(model, last, np.random.default_rng(0).integers(3, size=(50, 2_000))).all()


def test_valid_strings_alone_are_asked() -> None:
    """A model that is right on strings with a 0 at every odd place, and wrong on all others."""
    valid = Machine(table=[[1, 2], [0, 0], [2, 2]], outputs=[1, 1, 0])
    other = Machine(table=[[1, 4], [0, 2], [3, 4], [2, 0], [4, 4]], outputs=[0, 0, 1, 1, 0])  # parity, 4: elsewhere
    assert other.distinguish(EVEN) is not None and other.distinguish(EVEN, valid) is None
    assert certify(compiled(other), EVEN, valid).horizon is None
    assert certify(rough(other, 1e-5), EVEN, valid).horizon != 0
    refused = certify(compiled(other), EVEN)
    assert refused.horizon == 0 and refused.counterexample == (1,)
    model = compiled(EVEN)
    empty = Machine(table=[[0, 0]], outputs=[0])
    with pytest.raises(ExactError, match="no string is valid"):
        certify(model, EVEN, empty)


def test_a_query_is_one_more_step() -> None:
    settings = ModelSettings(query=True, mixer={"state": 8})  # type: ignore[arg-type]
    model = Classifier(settings, 2, 2, generator=torch.Generator().manual_seed(0)).eval()
    found = certify(model, EVEN, search=0)
    assert found.horizon is not None
    strings = every(2, 6)
    right = (model(torch.tensor(strings)).argmax(-1).numpy() == EVEN.outputs[[EVEN.trace(s) for s in strings]]).all(0)
    first = int(np.argmin(right)) + 1 if not right.all() else 7
    assert found.horizon < first


def test_exact_in_the_reals_though_float32_must_round() -> None:
    """A turn by a quarter, times 5, of (3, 1): whole numbers, but their length is none."""
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
    found = certify(model, machine, longest=2_000)
    assert found.horizon is None and found.exact
    assert found.float_horizon is not None and found.float_horizon >= 1_000


def test_refusals() -> None:
    def model(**settings: object) -> Classifier:
        return Classifier(ModelSettings(**settings), 2, 2, generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]

    paper = model(mixer={"input_matrix": True, "rescale": False, "initial_state": "zero"}, norm="affine")
    with pytest.raises(ExactError, match="input matrix B"):
        certify(paper, EVEN)
    with pytest.raises(ExactError, match="2 layers"):
        certify(model(layers=2), EVEN)
    with pytest.raises(ExactError, match="bias"):
        certify(model(readout="linear"), EVEN)
    with pytest.raises(ExactError, match="mlp"):
        certify(model(readout="mlp"), EVEN)
    with pytest.raises(ExactError, match="lstm"):
        certify(model(name="lstm"), EVEN)
    with pytest.raises(ExactError, match="reads 2 symbols but the machine 3"):
        certify(model(), sdssm.task("cycle").machine)
    with pytest.raises(ExactError, match="60 outputs"):
        certify(model(), sdssm.task("a5").machine)


def test_radii_hold_the_exact_product() -> None:
    generator = np.random.default_rng(0)
    a, b, c = (generator.standard_normal((3, 3)) * 10.0 ** generator.integers(-3, 4) for _ in range(3))
    found = MatrixBall.exactly(a) @ MatrixBall.exactly(b) @ MatrixBall.exactly(c)
    exact = [[Fraction(float(v)) for v in row] for row in a]
    for factor in (b, c):
        rows = [[Fraction(float(v)) for v in row] for row in factor]
        exact = [[sum((x * rows[k][j] for k, x in enumerate(row)), Fraction()) for j in range(3)] for row in exact]
    off = sum((Fraction(float(found.mid[i, j])) - exact[i][j]) ** 2 for i in range(3) for j in range(3))
    assert 0 < off <= Fraction(float(found.rad)) ** 2
    assert not off <= Fraction(float(found.rad) * 1e-6) ** 2  # and they are no looser than that


def test_spectral_norms_are_bounded_from_above_and_closely() -> None:
    generator = np.random.default_rng(0)
    for shape in ((4, 4), (7, 3), (3, 7), (1, 5), (40, 40)):
        x = generator.standard_normal((5, *shape))
        exact = np.linalg.norm(x, 2, axis=(1, 2))
        assert (spectral_norm(x) >= exact).all() and (spectral_norm(x) <= exact * (1 + 1e-9)).all()


def test_explored_length_stops_before_the_first_label_that_is_not_proved() -> None:
    assert ExhaustiveResult([], [True, True, False, True]).length == 1
    assert Certificate(5, 3, 2, False, "").fails_at == 6


# -- numbers that float32 has no room for ------------------------------------------------------------------------------

EVEN, SWAP = Machine(table=[[0, 1], [1, 0]]), [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]


def of_numbers(
    A: Any, x0: Any, rows: Any, *, rescale: bool = False, readout: str = "linear", norm: str = "none", gain: float = 1.0
) -> Classifier:
    """A model of these very matrices, start and rows."""
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


#: Longer than the strings that are looked at by hand: what is claimed too much is seen.
BY_HAND, CLAIMED = 400, 500


def first_wrong_by_hand(model: Classifier, machine: Machine, length: int = BY_HAND) -> int | None:
    """The first length at which one of a few random strings is told wrong in float32, symbol by symbol."""
    tokens = torch.randint(machine.n_symbols, (4, length), generator=torch.Generator().manual_seed(0))
    state, wrong = None, []
    places = torch.full((4,), machine.start)
    table, outputs = torch.tensor(machine.table), torch.tensor(machine.outputs)
    with torch.no_grad():
        for at, token in enumerate(tokens.unbind(1)):
            logits, state = model.advance(token[:, None], state)
            places = table[places, token]
            if bool((logits[:, 0].argmax(-1) != outputs[places]).any()):
                wrong.append(at + 1)
    return min(wrong, default=None)


PAIR = [[1.0, 0.0], [0.0, 1.0]]


def scaled(factor: float, other: float | None = None) -> Any:
    return [[[v * f for v in row] for row in matrix] for matrix, f in zip(SWAP, (factor, other or factor), strict=True)]


@pytest.mark.parametrize(
    "model",
    [
        of_numbers(scaled(0.5), [1, 0], PAIR),  # shrinks away
        of_numbers(scaled(2.0**-10), [1, 0], PAIR),
        of_numbers(scaled(0.9, 0.90009), [1e-30, 0], PAIR),  # begins next to nothing
        of_numbers(scaled(1.1, 1.1001), [1e12, 0], PAIR, readout="cosine"),  # squares overflow
        of_numbers(scaled(1e-30), [1e-20, 1e-21], PAIR, rescale=True),  # the first product is out of range
        of_numbers(SWAP, [1, 0], [[1e20, 0], [0, 1e20]], readout="cosine"),
        of_numbers(SWAP, [3, 1], [[3e38, 2.9e38], [2.9e38, 3e38]]),
        of_numbers(SWAP, [1, 0], PAIR, readout="cosine", norm="affine", gain=1e30),
    ],
    ids=["half", "2^-10", "tiny start", "growing", "first product", "cosine rows", "linear rows", "gain"],
)
def test_nothing_is_claimed_where_float32_has_no_room(model: Classifier) -> None:
    found = certify(model, EVEN, search=0, longest=CLAIMED)
    wrong = first_wrong_by_hand(model, EVEN)
    assert wrong is not None
    assert found.float_horizon is not None
    assert found.float_horizon < wrong


def test_the_start_is_asked_when_a_string_comes_back_to_it() -> None:
    """Of a ring of four, told wrong at the start and at another place: "0" leads nowhere and is wrong at once."""
    ring = Machine(table=[[0, 1], [1, 2], [2, 3], [3, 0]])
    turn = [[float((i - j) % 4 == s) for j in range(4)] for s in (0,) for i in range(4)]
    step = [[float((i - j) % 4 == 1) for j in range(4)] for i in range(4)]
    rows = torch.eye(4)[[3, 1, 2, 0]].tolist()
    found = certify(of_numbers([turn, step], [1, 0, 0, 0], rows), ring, search=0)
    assert (found.horizon, found.float_horizon, found.counterexample) == (0, 0, (0,))


@pytest.mark.parametrize("scale", [-10.0, 0.0, float("nan")])
def test_a_scale_that_turns_classes_around_is_refused(scale: float) -> None:
    model = of_numbers(SWAP, [1, 0], PAIR, readout="cosine")
    assert model.readout.scale is not None
    model.readout.scale.fill_(scale)
    with pytest.raises(ExactError):
        certify(model, EVEN)


def test_a_wrong_string_in_exact_arithmetic_says_nothing_of_float32_before_it() -> None:
    rows = [[1.0, 1.0 - 6e-8], [1.0 - 6e-8, 1.0]]
    model = of_numbers(SWAP, [2.0**20 - 1, 2.0**20 - 2], rows)
    found = certify(model, EVEN, search=0, longest=CLAIMED)
    wrong = first_wrong_by_hand(model, EVEN)
    assert wrong is None or (found.float_horizon is not None and found.float_horizon < wrong)
