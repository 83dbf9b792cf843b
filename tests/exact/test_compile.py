"""Compiled models: labels at every prefix, refused requests, and the drift of the states."""

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
from sdssm.exact.compilation.characters import GroupExtension, SymbolGroup, character_phases, roots_of_unity
from sdssm.exact.compilation.compiler import compile as compiled
from sdssm.exact.compilation.compiler import non_commuting_strings
from sdssm.exact.compilation.diagonal import phase_error
from sdssm.exact.compilation.emulation import check_emulation
from sdssm.exact.errors import ExactError
from sdssm.layers.complex_diagonal import ComplexDiagonal
from sdssm.models import Classifier
from sdssm.tasks import PAPER_TASKS, get_task


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_emulates(model: Classifier, machine: Machine, length: int, strings: int = 2, seed: int = 0) -> float:
    """Check random strings at every prefix and return the drift."""
    result = check_emulation(model, machine, length, strings=strings, generator=generator(seed))
    assert (result.wrong, result.first_wrong) == (0, None)
    return result.drift


# -- sd-ssm, one-hot ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "strings"), [("a5", 1), ("even_pairs", 2)])
def test_labels_are_correct_at_every_prefix_to_a_million(name: str, strings: int) -> None:
    assert assert_emulates(compiled(name), get_machine(name), 1_000_000, strings) == 0


def test_labels_are_correct_in_parallel_mode_to_a_million() -> None:
    model, task = compiled("d4"), get_task("d4")
    A, state = model.symbol_matrices(), model.initial_state
    assert A is not None
    tokens = torch.randint(2, (1, 1_000_000), generator=generator())
    labels = task.labels(tokens)
    for first in range(0, 1_000_000, 1 << 17):
        piece, expected = (x[:, first : first + (1 << 17)] for x in (tokens, labels))
        states, state = ops.token_scan(A, None, piece, state, mode="parallel")
        assert ((states == 0) | (states == 1)).all()
        assert torch.equal(model.logits(states).argmax(-1), expected)


@pytest.mark.parametrize("mode", ["recurrent", "parallel"])
@pytest.mark.parametrize("name", [*PAPER_TASKS, "s4", "tomita5", "random:10x3:0"])
def test_both_scan_modes_and_single_steps_agree_with_the_machine(name: str, mode: str) -> None:
    model, machine = compiled(name), get_machine(name)
    A = model.symbol_matrices()
    assert A is not None
    tokens = torch.randint(machine.n_symbols, (2, 2_000), generator=generator())
    states, _ = ops.token_scan(A, None, tokens, model.initial_state, mode=mode)
    expected = machine.outputs[np.stack([machine.trace(row) for row in tokens.tolist()])]
    assert (model.logits(states).argmax(-1).numpy() == expected).all()
    stepped, state = [], None
    for token in tokens[:, :20].T:
        logits, state = model.step(token, state)
        stepped.append(logits)
    assert torch.equal(torch.stack(stepped, 1), model.logits(states)[:, :20])


@pytest.mark.parametrize("p", [1.0, 1.2, 2.0, 16.0, None])
def test_weights_are_the_mapping_of_the_paper(p: float | None) -> None:
    machine = get_machine("arithmetic")
    model = compiled(machine, column_norm=p)
    settings = model.settings.mixer
    assert (settings.state, settings.dictionary, settings.column_norm) == (machine.n_states, machine.n_symbols, p)
    assert not settings.input_matrix and model.is_single_sd_ssm
    for exact in (model, compiled(machine, column_norm=p).double()):
        A = exact.symbol_matrices()
        assert A is not None
        for v, q in product(range(machine.n_symbols), range(machine.n_states)):
            assert A[v, :, q].tolist() == [float(r == machine.table[q, v]) for r in range(machine.n_states)]


def test_compile_accepts_tasks_machines_and_names(tmp_path: Path) -> None:
    task = get_task("arithmetic")
    batch = task.sample(8, 39, generator=generator())
    for source in (task, task.machine, "arithmetic"):
        model = compiled(source, n_classes=7)
        model.save(tmp_path / "model", overwrite=True)
        logits = load(tmp_path / "model")(batch.tokens)
        assert logits.shape[-1] == 7
        assert torch.equal(logits.argmax(-1)[batch.labels >= 0], batch.labels[batch.labels >= 0])
    # The start state is not the first, one state is unreachable, and outputs repeat or never occur.
    irregular = Machine(table=[[1, 2], [2, 1], [0, 0], [3, 1]], start=2, outputs=[4, 1, 1, 0])
    assert assert_emulates(compiled(irregular), irregular, 1_000) == 0
    one_state = Machine(table=[[0, 0]])
    assert assert_emulates(compiled(one_state), one_state, 100) == 0


def test_check_emulation_reports_errors_and_drift() -> None:
    machine = get_machine("d4")
    model = compiled(machine)
    with torch.no_grad():
        model.dictionary[1, :, [2, 5]] = model.dictionary[1, :, [5, 2]]  # two transitions are swapped
    result = check_emulation(model, machine, 200, generator=generator())
    assert result.wrong > 0 and result.first_wrong is not None and result.first_wrong <= 60
    model = compiled(machine, column_norm=None)
    with torch.no_grad():
        model.dictionary[1] *= 1 + 1e-4
    result = check_emulation(model, machine, 200, generator=generator())
    assert result.wrong == 0  # only the norm of the states is wrong
    assert 0.005 < result.drift < 0.02
    tokens = torch.randint(2, (4, 50), generator=generator())
    wrong = (
        model(tokens).argmax(-1)
        != torch.tensor(get_machine("c2xc4").outputs)[
            torch.tensor(np.stack([get_machine("c2xc4").trace(row) for row in tokens.tolist()]))
        ]
    )
    other = check_emulation(model, get_machine("c2xc4"), 50, generator=generator())
    assert (other.wrong, other.first_wrong) == (int(wrong.sum()), int(wrong.any(0).int().argmax()) + 1)
    with pytest.raises(ExactError, match="the model reads 2 symbols and the machine 8"):
        check_emulation(model, get_machine("arithmetic"), 10, generator=generator())


# -- other encodings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["orthogonal", "independent"])
@pytest.mark.parametrize("name", ["a5", "arithmetic"])
def test_other_encodings_without_column_norm(name: str, encoding: str) -> None:
    machine = get_machine(name)
    model = compiled(name, encoding=encoding, column_norm=None, generator=generator())
    few = assert_emulates(model, machine, 100)
    many = assert_emulates(model, machine, 10_000)
    assert 0 < few < many < 0.1
    assert assert_emulates(model, machine, 100) == few  # the result depends only on the seed
    again = compiled(name, encoding=encoding, column_norm=None, generator=generator())
    assert torch.equal(again.dictionary, model.dictionary)


def test_orthogonal_encoding_with_p_2_if_symbols_permute_the_states() -> None:
    model = compiled("a5", encoding="orthogonal", column_norm=2, generator=generator())
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
def test_unsupported_requests_are_refused(name: str, values: dict, message: str) -> None:
    with pytest.raises(SdssmError, match=message) as error:
        compiled(name, **{"generator": generator(), **values})
    assert "\n" not in str(error.value)


def test_column_norm_would_change_the_map_of_other_encodings() -> None:
    """The reason that the error gives is true: with normalised columns the same weights give other labels."""
    model = compiled("even_pairs", encoding="independent", column_norm=None, generator=generator())
    other = compiled("even_pairs", column_norm=1.2)
    other.load_state_dict({**other.state_dict(), **model.state_dict()})
    assert check_emulation(other, get_machine("even_pairs"), 200, generator=generator()).wrong > 0


# -- complex diagonal --------------------------------------------------------------------------------------------------


def abelian(a: int, b: int, seed: int) -> Machine:
    """Return Z_a x Z_b with random generators, random outputs and a random start state."""
    rng = np.random.default_rng(seed)
    x, y = np.divmod(np.arange(a * b), b)
    moves = [(1, 0), (0, 1), *zip(rng.integers(0, a, 3).tolist(), rng.integers(0, b, 3).tolist(), strict=True)]
    table = np.stack([(x + i) % a * b + (y + j) % b for i, j in moves], 1)
    return Machine(table=table, start=int(rng.integers(a * b)), outputs=rng.integers(0, 4, a * b))


@pytest.mark.parametrize(("name", "state"), [("parity", 1), ("cycle", 2), ("z7", 3), ("c2xc4", 5), ("c2xc30", 31)])
def test_commutative_groups_in_one_layer(name: str, state: int) -> None:
    model, machine = compiled(name, model="complex-diagonal"), get_machine(name)
    assert model.settings.mixer.state == state and not model.settings.mixer.input_matrix
    drift = assert_emulates(model, machine, 100_000, strings=1)
    error = phase_error(model, machine)
    assert drift < 5e-3 and error < 1e-7
    assert (drift == 0) == (error == 0) == (name in ("parity", "c2xc4"))  # quarter turns are exact
    steady = torch.full((1, 100_000), machine.n_symbols - 1)  # the errors of a single phase add up
    assert torch.equal(model(steady).argmax(-1), get_task(name).labels(steady))


@pytest.mark.parametrize("seed", range(6))
def test_random_commutative_groups(seed: int) -> None:
    a, b = [(2, 2), (3, 4), (6, 4), (2, 9), (5, 5), (1, 3)][seed]
    machine = abelian(a, b, seed)
    model = compiled(machine, model="complex-diagonal", n_classes=5)
    assert_emulates(model, machine, 2_000)
    assert_emulates(compiled(machine, model="complex-diagonal", layers=2), machine, 2_000)
    phases = character_phases(SymbolGroup.generate(machine).table)
    z = roots_of_unity(phases, len(phases))
    assert np.allclose(z @ z.conj().T, len(phases) * np.eye(len(phases)))  # all characters, and orthogonal


def test_only_characters_that_labels_need_have_an_entry() -> None:
    """The label groups a cycle of four states in halves, which does not need the character of order 2."""
    halves = Machine(table=[[1], [2], [3], [0]], outputs=[0, 0, 1, 1])
    model = compiled(halves, model="complex-diagonal")
    assert model.settings.mixer.state == 1
    assert_emulates(model, halves, 1_000)
    same = Machine(table=[[0, 0, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0, 1]])  # more symbols than hidden units
    model = compiled(same, model="complex-diagonal")
    assert model.settings.mixer.state == 1
    assert_emulates(model, same, 1_000)
    one_state = Machine(table=[[0, 0]])
    assert_emulates(compiled(one_state, model="complex-diagonal"), one_state, 100)


@pytest.mark.parametrize("name", ["d4", "d30", "a5", "s4", "z3*d5", "random:10x2:1", "tomita5*d3"])
def test_non_commuting_strings_have_different_labels(name: str) -> None:
    machine = get_machine(name)
    first, second = non_commuting_strings(machine)
    assert sorted(first) == sorted(second)
    assert machine.output(first) != machine.output(second)
    if machine.is_group:
        with pytest.raises(ExactError, match=r"Proposition 1\), but .* has label \d+ and .* has label \d+") as error:
            compiled(machine, model="complex-diagonal")
        assert ("layers=2" in str(error.value)) == (name not in ("a5", "s4"))
        assert ("--layers 2" in error.value.shell) == (name not in ("a5", "s4")) and "layers=2" not in error.value.shell


def test_non_commuting_strings_may_need_a_prefix_and_a_suffix() -> None:
    """Symbols swap states 0 and 1 or 1 and 2, after an initial state; only state 0 has its own label."""
    shuffled = Machine(table=[[1, 0, 2], [0, 2, 3], [2, 1, 0], [3, 3, 1]], start=3, outputs=[1, 0, 0, 0])
    first, second = non_commuting_strings(shuffled)
    assert sorted(first) == sorted(second) and shuffled.output(first) != shuffled.output(second)
    assert first[0] == second[0] and first[-1] == second[-1] and len(first) > 3
    with pytest.raises(ExactError, match="the machine is commutative"):
        non_commuting_strings(get_machine("c2xc4"))


# -- two layers --------------------------------------------------------------------------------------------------------


def test_d30_in_two_layers() -> None:
    model, machine = compiled("d30", model="complex-diagonal", layers=2), get_machine("d30")
    assert (model.settings.layers, model.settings.mixer.input_matrix, model.settings.mixer.state) == (2, False, 31)
    few, many = assert_emulates(model, machine, 1_000), assert_emulates(model, machine, 20_000)
    assert few < many < 1e-3
    assert phase_error(model, machine) < 1e-7
    # The first layer is the toggle. It is exact: it turns by exactly a half, in spite of the rounding of LayerNorm.
    tokens = torch.randint(2, (2, 5_000), generator=generator())
    states, _ = model.mixers[0].mix_symbols(model.symbol_parts(), tokens)
    assert torch.equal(states[..., 0], 1.0 - 2.0 * ((tokens == 0).cumsum(1) % 2))


def test_rounding_of_layer_norm_does_not_matter() -> None:
    """Rounding errors in LayerNorm change no phase of the first layer and barely those of the second."""
    model, machine = compiled("d30", model="complex-diagonal", layers=2), get_machine("d30")
    with torch.no_grad():
        for block, factor in zip(model.blocks, (1 - 3e-7, 1 + 4e-7), strict=True):
            assert block.norm is not None
            block.norm.weight.mul_(factor)
    first = model.mixers[0]
    assert isinstance(first, ComplexDiagonal)
    assert torch.equal(model.symbol_parts()[0][:, 0, 0], torch.tensor([-1.0, 1.0]))
    assert_emulates(model, machine, 5_000)
    assert phase_error(model, machine) < 2e-7


@pytest.mark.parametrize("name", ["d3", "d4", "d30:5:0", "a4", "z3*d5", "d4*d3"])
def test_other_groups_in_two_layers(name: str) -> None:
    machine = get_machine(name)
    assert assert_emulates(compiled(machine, model="complex-diagonal", layers=2), machine, 5_000) < 1e-3


def test_group_may_have_more_elements_than_the_machine_has_states() -> None:
    """Three states under all six permutations; states 1 and 2 have the same label."""
    permuted = Machine(table=[[1, 1], [0, 2], [2, 0]], start=1, outputs=[1, 0, 0])
    assert SymbolGroup.generate(permuted).size == 6
    assert_emulates(compiled(permuted, model="complex-diagonal", layers=2), permuted, 5_000)


@pytest.mark.parametrize("name", ["d30", "a4", "z3*d5", "d4*d3"])
def test_pairs_of_an_extension_move_like_a_commutative_group(name: str) -> None:
    extension = GroupExtension.split(SymbolGroup.generate(get_machine(name)))
    table, size = extension.group.table, extension.group.size
    for symbol in range(table.shape[1]):
        added = extension.phases[:, table[:, symbol]] - extension.phases
        assert ((added - extension.steps[:, extension.coset, symbol]) % size == 0).all()


# -- the command -------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_command(parser.add_subparsers())
    options = parser.parse_args(["compile", *arguments])
    options.run(options)


def test_compile_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("a5", "--out", str(tmp_path / "a5"), "--length", "500")
    out = capsys.readouterr().out
    assert "60 states, 2 symbols, 60 classes" in out and "all 2,000 correct" in out and "10,866" in out
    tokens = torch.randint(2, (2, 50), generator=generator())
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
