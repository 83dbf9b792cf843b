"""Certificates claim nothing that is not so: every claim here is compared with brute force."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

import sdssm
from sdssm.automata import Machine
from sdssm.exact.bounds import Frame
from sdssm.exact.certify import Certificate, certify
from sdssm.exact.compile import compile as compiled
from sdssm.exact.errors import ExactError
from sdssm.exact.exhaustive import Explored
from sdssm.exact.geometry import Geometry, geometry
from sdssm.exact.intervals import Near, spectral
from sdssm.exact.system import system_of
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
    system = system_of(model, machine, None)
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
    system = system_of(model, D4, None)
    chosen = geometry(system, np.random.default_rng(0))
    assert chosen is not None
    frame = Frame.of(system, chosen)
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


def errors_of(chosen: Geometry, x: np.ndarray, q: np.ndarray) -> np.ndarray:
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
    found = Near.exactly(a) @ Near.exactly(b) @ Near.exactly(c)
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
        assert (spectral(x) >= exact).all() and (spectral(x) <= exact * (1 + 1e-9)).all()


def test_explored_length_stops_before_the_first_label_that_is_not_proved() -> None:
    assert Explored([], [True, True, False, True]).length == 1
    assert Certificate(5, 3, 2, False, "").fails_at == 6
