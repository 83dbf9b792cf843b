"""Models whose weights are written down from a machine: labels at every prefix, what is refused, and the drift."""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from sdssm import load, ops
from sdssm.automata import Machine, get_machine
from sdssm.cli import compile as command
from sdssm.errors import SdssmError
from sdssm.exact.characters import Cayley, Split, characters, circle
from sdssm.exact.compile import compile as compiled
from sdssm.exact.compile import order_matters
from sdssm.exact.compile_diagonal import phase_error
from sdssm.exact.drift import check, drift
from sdssm.exact.errors import ExactError
from sdssm.layers.complex_diagonal import ComplexDiagonal
from sdssm.models import Classifier
from sdssm.tasks import PAPER, get_task


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_emulates(model: Classifier, machine: Machine, length: int, strings: int = 2, seed: int = 0) -> float:
    found = check(model, machine, length, strings=strings, generator=chance(seed))
    assert (found.wrong, found.first_wrong) == (0, None)
    return found.drift


# -- sd-ssm, one-hot ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "strings"), [("a5", 1), ("even_pairs", 2)])
def test_labels_are_the_machines_at_every_prefix_to_a_million(name: str, strings: int) -> None:
    assert assert_emulates(compiled(name), get_machine(name), 1_000_000, strings) == 0


def test_and_in_parallel_mode() -> None:
    model, of = compiled("d4"), get_task("d4")
    A, state = model.symbol_matrices(), model.initial_state
    assert A is not None
    tokens = torch.randint(2, (1, 1_000_000), generator=chance())
    labels = of.labels(tokens)
    for first in range(0, 1_000_000, 1 << 17):
        piece, wanted = (x[:, first : first + (1 << 17)] for x in (tokens, labels))
        states, state = ops.token_scan(A, None, piece, state, mode="parallel")
        assert ((states == 0) | (states == 1)).all()
        assert torch.equal(model.logits(states).argmax(-1), wanted)


@pytest.mark.parametrize("mode", ["recurrent", "parallel"])
@pytest.mark.parametrize("name", [*PAPER, "s4", "tomita5", "random:10x3:0"])
def test_both_modes_of_the_scan(name: str, mode: str) -> None:
    model, machine = compiled(name), get_machine(name)
    A = model.symbol_matrices()
    assert A is not None
    tokens = torch.randint(machine.n_symbols, (2, 2_000), generator=chance())
    states, _ = ops.token_scan(A, None, tokens, model.initial_state, mode=mode)
    wanted = machine.outputs[np.stack([machine.trace(row) for row in tokens.tolist()])]
    assert (model.logits(states).argmax(-1).numpy() == wanted).all()
    stepped, state = [], None
    for token in tokens[:, :20].T:
        logits, state = model.step(token, state)
        stepped.append(logits)
    assert torch.equal(torch.stack(stepped, 1), model.logits(states)[:, :20])


@pytest.mark.parametrize("p", [1.0, 1.2, 2.0, 16.0, None])
def test_the_weights_are_the_papers_mapping(p: float | None) -> None:
    machine = get_machine("arithmetic")
    model = compiled(machine, column_norm=p)
    settings = model.settings.mixer
    assert (settings.state, settings.dictionary, settings.column_norm) == (machine.n_states, machine.n_symbols, p)
    assert not settings.input_matrix and model.bare
    for exact in (model, compiled(machine, column_norm=p).double()):
        A = exact.symbol_matrices()
        assert A is not None
        for v, q in product(range(machine.n_symbols), range(machine.n_states)):
            assert A[v, :, q].tolist() == [float(r == machine.table[q, v]) for r in range(machine.n_states)]


def test_what_it_takes(tmp_path: Path) -> None:
    of = get_task("arithmetic")
    batch = of.sample(8, 39, generator=chance())
    for given in (of, of.machine, "arithmetic"):
        model = compiled(given, n_classes=7)
        model.save(tmp_path / "model")
        found = load(tmp_path / "model")(batch.tokens)
        assert found.shape[-1] == 7
        assert torch.equal(found.argmax(-1)[batch.labels >= 0], batch.labels[batch.labels >= 0])
    # A start state that is not the first, states that no string reaches, outputs that repeat or never occur.
    odd = Machine(table=[[1, 2], [2, 1], [0, 0], [3, 1]], start=2, outputs=[4, 1, 1, 0])
    assert assert_emulates(compiled(odd), odd, 1_000) == 0
    alone = Machine(table=[[0, 0]])
    assert assert_emulates(compiled(alone), alone, 100) == 0


def test_the_check_finds_what_is_wrong() -> None:
    machine = get_machine("d4")
    model = compiled(machine)
    with torch.no_grad():
        model.dictionary[1, :, [2, 5]] = model.dictionary[1, :, [5, 2]]  # one arrow too many, twice
    found = check(model, machine, 200, generator=chance())
    assert found.wrong > 0 and found.first_wrong is not None and found.first_wrong <= 60
    model = compiled(machine, column_norm=None)
    with torch.no_grad():
        model.dictionary[1] *= 1 + 1e-4
    found = check(model, machine, 200, generator=chance())
    assert found.wrong == 0  # only the size is wrong
    assert 0.005 < found.drift < 0.02
    tokens = torch.randint(2, (4, 50), generator=chance())
    wrong = (
        model(tokens).argmax(-1)
        != torch.tensor(get_machine("c2xc4").outputs)[
            torch.tensor(np.stack([get_machine("c2xc4").trace(row) for row in tokens.tolist()]))
        ]
    )
    other = check(model, get_machine("c2xc4"), 50, generator=chance())
    assert (other.wrong, other.first_wrong) == (int(wrong.sum()), int(wrong.any(0).int().argmax()) + 1)
    with pytest.raises(ExactError, match="the model reads 2 symbols and the machine 8"):
        check(model, get_machine("arithmetic"), 10, generator=chance())


# -- other encodings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["orthogonal", "independent"])
@pytest.mark.parametrize("name", ["a5", "arithmetic"])
def test_other_encodings_without_normalisation(name: str, encoding: str) -> None:
    machine = get_machine(name)
    model = compiled(name, encoding=encoding, column_norm=None, generator=chance())
    few = assert_emulates(model, machine, 100)
    many = assert_emulates(model, machine, 10_000)
    assert 0 < few < many < 0.1
    assert drift(model, machine, 100, strings=2, generator=chance()) == few
    again = compiled(name, encoding=encoding, column_norm=None, generator=chance())
    assert torch.equal(again.dictionary, model.dictionary)


def test_orthogonal_with_p_2_where_symbols_permute() -> None:
    model = compiled("a5", encoding="orthogonal", column_norm=2, generator=chance())
    assert assert_emulates(model, get_machine("a5"), 10_000) < 1e-3


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("a5", {"encoding": "orthogonal"}, "column_norm is 1.2.*only p = 2 keeps"),
        ("a5", {"encoding": "independent", "column_norm": 2.0}, "dividing the columns changes the map"),
        ("even_pairs", {"encoding": "orthogonal", "column_norm": 2.0}, "not every symbol permutes"),
        ("a5", {"encoding": "orthogonal", "column_norm": None, "generator": None}, "pass generator="),
        ("a5", {"encoding": "onehot"}, "did you mean 'one-hot'"),
        ("a5", {"model": "mamba"}, "model is 'mamba'"),
        ("a5", {"layers": 2}, "one layer of sd-ssm emulates every machine"),
        ("a5", {"layers": 3}, "layers is 3"),
        ("a5", {"n_classes": 59}, "the machine has 60 outputs"),
        ("z5000", {}, "5,000 states, and a state has at most 4,096 entries"),
        ("z5000", {"model": "complex-diagonal"}, "more than 4,096 elements"),
        ("parity", {"model": "complex-diagonal", "encoding": "orthogonal"}, "encodes states as characters"),
        ("even_pairs", {"model": "complex-diagonal"}, "not a group: symbol '0'"),
        ("s4", {"model": "complex-diagonal", "layers": 2}, "a subgroup of 12 elements that is not commutative"),
    ],
)
def test_refusals(name: str, values: dict, message: str) -> None:
    with pytest.raises(SdssmError, match=message) as error:
        compiled(name, **{"generator": chance(), **values})
    assert "\n" not in str(error.value)


def test_the_normalisation_would_change_the_map() -> None:
    """The reason of the refusal is true: normalised, the same weights tell other labels."""
    model = compiled("even_pairs", encoding="independent", column_norm=None, generator=chance())
    other = compiled("even_pairs", column_norm=1.2)
    other.load_state_dict({**other.state_dict(), **model.state_dict()})
    assert check(other, get_machine("even_pairs"), 200, generator=chance()).wrong > 0


# -- complex diagonal --------------------------------------------------------------------------------------------------


def abelian(a: int, b: int, seed: int) -> Machine:
    """Z_a x Z_b with random generators and random outputs, from a random start."""
    rng = np.random.default_rng(seed)
    x, y = np.divmod(np.arange(a * b), b)
    moves = [(1, 0), (0, 1), *zip(rng.integers(0, a, 3).tolist(), rng.integers(0, b, 3).tolist(), strict=True)]
    table = np.stack([(x + i) % a * b + (y + j) % b for i, j in moves], 1)
    return Machine(table=table, start=int(rng.integers(a * b)), outputs=rng.integers(0, 4, a * b))


@pytest.mark.parametrize(("name", "state"), [("parity", 1), ("cycle", 2), ("z7", 3), ("c2xc4", 5), ("c2xc30", 31)])
def test_commutative_groups_in_one_layer(name: str, state: int) -> None:
    model, machine = compiled(name, model="complex-diagonal"), get_machine(name)
    assert model.settings.mixer.state == state and not model.settings.mixer.input_matrix
    moved = assert_emulates(model, machine, 100_000, strings=1)
    error = phase_error(model, machine)
    assert moved < 5e-3 and error < 1e-7
    assert (moved == 0) == (error == 0) == (name in ("parity", "c2xc4"))  # quarter turns are exact
    steady = torch.full((1, 100_000), machine.n_symbols - 1)  # errors of one phase alone, which all add up
    assert torch.equal(model(steady).argmax(-1), get_task(name).labels(steady))


@pytest.mark.parametrize("seed", range(6))
def test_random_commutative_groups(seed: int) -> None:
    a, b = [(2, 2), (3, 4), (6, 4), (2, 9), (5, 5), (1, 3)][seed]
    machine = abelian(a, b, seed)
    model = compiled(machine, model="complex-diagonal", n_classes=5)
    assert_emulates(model, machine, 2_000)
    assert_emulates(compiled(machine, model="complex-diagonal", layers=2), machine, 2_000)
    phases = characters(Cayley.of(machine).table)
    z = circle(phases, len(phases))
    assert np.allclose(z @ z.conj().T, len(phases) * np.eye(len(phases)))  # all of them, and orthogonal


def test_only_the_characters_that_labels_need() -> None:
    """Whether two of four places in a row: the character of order 2 says nothing of it."""
    halves = Machine(table=[[1], [2], [3], [0]], outputs=[0, 0, 1, 1])
    model = compiled(halves, model="complex-diagonal")
    assert model.settings.mixer.state == 1
    assert_emulates(model, halves, 1_000)
    same = Machine(table=[[0, 0, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0, 1]])  # more symbols than hidden units
    model = compiled(same, model="complex-diagonal")
    assert model.settings.mixer.state == 1
    assert_emulates(model, same, 1_000)
    alone = Machine(table=[[0, 0]])
    assert_emulates(compiled(alone, model="complex-diagonal"), alone, 100)


@pytest.mark.parametrize("name", ["d4", "d30", "a5", "s4", "z3*d5", "random:10x2:1", "tomita5*d3"])
def test_where_the_order_matters_two_strings_show_it(name: str) -> None:
    machine = get_machine(name)
    one, other = order_matters(machine)
    assert sorted(one) == sorted(other)
    assert machine.output(one) != machine.output(other)
    if machine.is_group:
        with pytest.raises(ExactError, match=r"Proposition 1\), but .* has label \d+ and .* label \d+") as error:
            compiled(machine, model="complex-diagonal")
        assert ("layers=2" in str(error.value)) == (name not in ("a5", "s4"))


def test_the_pair_may_need_a_string_before_and_one_after() -> None:
    """Symbols swap 0 with 1 or 1 with 2, after a way to the ring; only place 0 has a label of its own."""
    shuffled = Machine(table=[[1, 0, 2], [0, 2, 3], [2, 1, 0], [3, 3, 1]], start=3, outputs=[1, 0, 0, 0])
    one, other = order_matters(shuffled)
    assert sorted(one) == sorted(other) and shuffled.output(one) != shuffled.output(other)
    assert one[0] == other[0] and one[-1] == other[-1] and len(one) > 3
    with pytest.raises(ExactError, match="the machine is commutative"):
        order_matters(get_machine("c2xc4"))


# -- two layers --------------------------------------------------------------------------------------------------------


def test_d30_in_two_layers() -> None:
    model, machine = compiled("d30", model="complex-diagonal", layers=2), get_machine("d30")
    assert (model.settings.layers, model.settings.mixer.input_matrix, model.settings.mixer.state) == (2, False, 31)
    few, many = assert_emulates(model, machine, 1_000), assert_emulates(model, machine, 20_000)
    assert few < many < 1e-3
    assert phase_error(model, machine) < 1e-7
    # The first layer is the toggle, and exact: whatever LayerNorm rounds, it turns by exactly a half.
    tokens = torch.randint(2, (2, 5_000), generator=chance())
    states, _ = model.mixers[0].mix_symbols(model._symbols(), tokens)
    assert torch.equal(states[..., 0], 1.0 - 2.0 * ((tokens == 0).cumsum(1) % 2))


def test_layer_norm_may_round_otherwise() -> None:
    """Sizes a few roundings off change no phase of the first layer, and those of the second by a rounding."""
    model, machine = compiled("d30", model="complex-diagonal", layers=2), get_machine("d30")
    with torch.no_grad():
        for block, factor in zip(model.blocks, (1 - 3e-7, 1 + 4e-7), strict=True):
            assert block.norm is not None
            block.norm.weight.mul_(factor)
    first = model.mixers[0]
    assert isinstance(first, ComplexDiagonal)
    assert torch.equal(model._symbols()[0][:, 0, 0], torch.tensor([-1.0, 1.0]))
    assert_emulates(model, machine, 5_000)
    assert phase_error(model, machine) < 2e-7


@pytest.mark.parametrize("name", ["d3", "d4", "d30:5:0", "a4", "z3*d5", "d4*d3"])
def test_other_groups_in_two_layers(name: str) -> None:
    machine = get_machine(name)
    assert assert_emulates(compiled(machine, model="complex-diagonal", layers=2), machine, 5_000) < 1e-3


def test_a_group_with_more_elements_than_the_machine_has_states() -> None:
    """Three places under all six arrangements; places 1 and 2 share a label."""
    places = Machine(table=[[1, 1], [0, 2], [2, 0]], start=1, outputs=[1, 0, 0])
    assert Cayley.of(places).size == 6
    assert_emulates(compiled(places, model="complex-diagonal", layers=2), places, 5_000)


@pytest.mark.parametrize("name", ["d30", "a4", "z3*d5", "d4*d3"])
def test_pairs_move_as_a_commutative_group_would(name: str) -> None:
    split = Split.of(Cayley.of(get_machine(name)))
    table, size = split.cayley.table, split.cayley.size
    for symbol in range(table.shape[1]):
        moved = split.phases[:, table[:, symbol]] - split.phases
        assert ((moved - split.steps[:, split.coset, symbol]) % size == 0).all()


# -- the command -------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_to(parser.add_subparsers())
    options = parser.parse_args(["compile", *arguments])
    options.run(options)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("a5", "--out", str(tmp_path / "a5"), "--length", "500")
    out = capsys.readouterr().out
    assert "60 states, 2 symbols, 60 classes" in out and "all 2,000 correct" in out and "10,866" in out
    tokens = torch.randint(2, (2, 50), generator=chance())
    assert torch.equal(load(tmp_path / "a5")(tokens).argmax(-1), get_task("a5").labels(tokens))
    run("d30", "--out", str(tmp_path / "d30"), "--model", "complex-diagonal", "--layers", "2", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert (facts["wrong"], facts["layers"], facts["length"]) == (0, 2, 10_000)
    assert 0 < facts["drift"] < 1e-3 and 0 < facts["phase_error"] < 1e-7
    assert torch.equal(load(tmp_path / "d30")(tokens).argmax(-1), get_task("d30").labels(tokens))
    run("cycle", "--out", str(tmp_path / "c"), "--encoding", "independent", "--column-norm", "none")
    assert "of a state's size after 10,000 steps" in capsys.readouterr().out
    with pytest.raises(ExactError, match="Proposition 1"):
        run("d30", "--out", str(tmp_path / "none"), "--model", "complex-diagonal")
    assert not (tmp_path / "none").exists()
