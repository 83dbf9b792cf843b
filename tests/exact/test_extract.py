"""Extraction: the machine of a model, the evidence for it, and refused requests."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from sdssm.automata import Machine, from_json, get_machine
from sdssm.cli import extract as command
from sdssm.errors import SdssmError
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction import extract
from sdssm.exact.extraction.merging import build_machine
from sdssm.exact.extraction.model_reader import ModelReader
from sdssm.exact.extraction.state_graph import distinguishing_suffix, explore_states
from sdssm.exact.extraction.token_matrices import TokenMatrices
from sdssm.layers import SelectiveDenseSettings
from sdssm.layers.recurrent import Rnn
from sdssm.layers.settings import RnnSettings
from sdssm.models import Classifier, ModelSettings
from sdssm.tasks import Task, get_task
from tests.evaluation.machines import exact, tiring_parity
from tests.evaluation.test_evaluate import create_run


def noisy(model: Classifier, noise: float) -> Classifier:
    """Add noise to the matrices of a model, so that its states drift."""
    with torch.no_grad():
        model.dictionary.add_(noise * torch.randn(model.dictionary.shape, generator=torch.Generator().manual_seed(1)))
    return model


def random_machine(seed: int, states: int = 12, outputs: int = 2) -> Machine:
    rng = np.random.default_rng(seed)
    table = rng.integers(states, size=(states, 2))
    table[:-1, 0] = np.arange(1, states)  # makes every state reachable
    return Machine(table=table, outputs=rng.integers(outputs, size=states))


# -- the machine -------------------------------------------------------------------------------------------------------


BY_STATES = [(name, "states") for name in ("parity", "even_pairs", "arithmetic", "a5", "tomita3", "regex:(ab|c)*")]


@pytest.mark.parametrize(("name", "method"), [*BY_STATES, ("even_pairs", "lstar"), ("a5", "lstar")])
def test_exact_model_gives_its_machine(name: str, method: str) -> None:
    task = get_task(name)
    extraction = extract(exact(task.machine), task.valid, method=method, lengths=[1, 10, 40], strings=64)
    assert extraction.machine.distinguish(task.machine, task.valid) is None
    assert extraction.machine.n_states == task.machine.minimise().n_states
    assert extraction.machine.minimise() == extraction.machine
    assert extraction.faithful and extraction.note is None and extraction.margin == 1
    assert [fidelity.agree for fidelity in extraction.fidelity] == [64] * len(extraction.fidelity)


@pytest.mark.parametrize("seed", range(8))
def test_machines_with_few_outputs(seed: int) -> None:
    machine = random_machine(seed)
    extraction = extract(exact(machine), lengths=[20], strings=64)
    assert extraction.machine.distinguish(machine) is None


@pytest.mark.parametrize("seed", range(3))
def test_counterexamples_without_state_distances(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If states are joined by their labels only, rounds of counterexamples find the states."""
    machine = random_machine(seed)
    with monkeypatch.context() as patch:
        patch.setattr("sdssm.exact.extraction.matrix_search.DISTANCES", ())
        extraction = extract(exact(machine), lengths=[20], strings=64)
        assert extraction.rounds > 0
        assert extraction.machine.distinguish(machine) is None
    monkeypatch.setattr("sdssm.exact.extraction.state_search.JOIN_DISTANCES", (float("inf"),))
    monkeypatch.setattr(TokenMatrices, "find", lambda model: None)  # read as any other recurrent model
    extraction = extract(exact(machine), lengths=[20], strings=64)
    assert extraction.rounds > 0
    assert extraction.machine.distinguish(machine) is None


def test_states_that_random_strings_never_reach() -> None:
    """No random string has 25 ones in a row, but the states of the model differ."""
    machine = tiring_parity(25)
    extraction = extract(exact(machine), lengths=[20], strings=64)
    assert extraction.machine.distinguish(machine) is None
    assert extraction.machine.distinguish(get_machine("parity")) == (1,) * 25


def test_query_is_not_a_symbol_of_the_machine() -> None:
    extraction = extract(exact(get_machine("cycle"), query=True), lengths=[10], strings=64)
    assert extraction.machine.n_symbols == 3
    assert extraction.machine.distinguish(get_machine("cycle")) is None


def test_model_with_one_wrong_transition_gives_a_machine_with_it() -> None:
    """One of 120 transitions is changed: the machine is that of the model, not that of the task."""
    a5 = get_machine("a5")
    table = a5.table.copy()
    table[37, 1] = table[38, 1]
    extraction = extract(exact(Machine(table=table, start=a5.start, outputs=a5.outputs)), lengths=[40], strings=64)
    assert extraction.faithful
    word = extraction.machine.distinguish(a5)
    assert word is not None and extraction.machine.output(word) != a5.output(word)


def test_rnn_by_the_construction_of_minsky() -> None:
    """Entry (q, a) of the state is 1 if symbol a was just read in state q."""
    machine, states, symbols = get_machine("cycle"), 5, 3
    pairs = [(q, a) for q in range(states) for a in range(symbols)]
    settings = ModelSettings(
        name="rnn",
        mixer=RnnSettings(state=len(pairs), initial_state="learned"),
        norm="none",
        readout="linear",
    )
    model = Classifier(settings, symbols, 5, generator=torch.Generator().manual_seed(0))
    mixer, after = model.mixers[0], torch.tensor([machine.step(*pair) for pair in pairs])
    assert isinstance(mixer, Rnn) and mixer.initial_state is not None and model.readout.bias is not None
    with torch.no_grad():
        mixer.input_weight.copy_(torch.tensor([[a == b for b in range(symbols)] for _, a in pairs]))
        mixer.recurrent_weight.copy_(torch.tensor([[q == int(target) for target in after] for q, _ in pairs]))
        mixer.input_bias.fill_(-1)
        mixer.recurrent_bias.zero_()
        mixer.initial_state.copy_(torch.eye(len(pairs))[int(torch.nonzero(after == machine.start)[0])])
        model.readout.weight.copy_(after[None] == torch.arange(5)[:, None])
        model.readout.bias.zero_()
    extraction = extract(model, lengths=[40], strings=64)
    assert extraction.faithful and extraction.machine.distinguish(machine) is None


def test_many_states_and_symbols_with_noise() -> None:
    task = get_task("s5:32:0")
    started = time.perf_counter()
    extraction = extract(noisy(exact(task.machine), 0.003), lengths=[40], strings=64)
    assert time.perf_counter() - started < 60
    assert extraction.machine.distinguish(task.machine) is None and extraction.faithful
    assert extraction.machine.n_states == 120 and extraction.margin < 1


# -- evidence ----------------------------------------------------------------------------------------------------------


def test_drifting_model_is_reported_as_unfaithful() -> None:
    """The machine is the correct one, and the evidence shows that the model deviates from it."""
    extraction = extract(noisy(exact(get_machine("a5")), 0.02), lengths=[5, 100], strings=256, max_states=200)
    assert extraction.machine.distinguish(get_machine("a5")) is None
    short, long = extraction.fidelity
    assert short.share == 1 and long.share < 0.5 and long.throughout <= long.agree
    assert not extraction.faithful and extraction.note is not None


@pytest.mark.parametrize("name", ["sd-ssm", "lstm", "rnn"])
def test_untrained_models_give_a_machine_with_honest_fidelity(name: str) -> None:
    model = Classifier(ModelSettings(name=name), 2, 60, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():  # makes the model predict more than one class
        for parameter in model.mixers[0].parameters():
            parameter.mul_(3)
    extraction = extract(model, lengths=[40], strings=64, max_states=100)
    assert 1 <= extraction.machine.n_states <= 100
    fidelity = extraction.fidelity[0]
    tokens = torch.randint(2, (64, 40), generator=torch.Generator().manual_seed(5))
    labels = model(tokens).argmax(-1)[:, -1].tolist()
    share = np.mean(
        [extraction.machine.output(row) == label for row, label in zip(tokens.tolist(), labels, strict=True)]
    )
    assert abs(share - fidelity.share) < 0.35  # measured on other strings


def test_non_finite_logits_agree_with_no_label() -> None:
    model = exact(get_machine("parity"))
    with torch.no_grad():
        model.readout.weight.fill_(torch.nan)
    extraction = extract(model, lengths=[5], strings=64)
    assert extraction.fidelity[0].agree == 0


def test_result_depends_only_on_the_seed() -> None:
    first, second = (
        extract(noisy(exact(get_machine("d4")), 0.1), lengths=[40], strings=64, max_states=100) for _ in range(2)
    )
    assert not first.faithful and first.to_json() == second.to_json()


# -- runs and saved models ---------------------------------------------------------------------------------------------


def test_run_is_compared_with_its_task(tmp_path: Path) -> None:
    task = get_task("arithmetic")
    run = create_run(tmp_path / "seed-0", task.machine, task=task)
    for source in (run, str(run.path), tmp_path):
        extraction = extract(source, lengths=[10], strings=64)
        assert extraction.valid == task.valid and extraction.difference is None
        assert extraction.machine.symbols == task.machine.symbols
        assert [fidelity.length for fidelity in extraction.fidelity] == [9]  # no valid string has length 10
    written = extraction.to_json()
    assert written["equals_task"] is True
    assert from_json(json.dumps(written["machine"])) == extraction.machine
    assert extract(run, Machine(table=[[0] * 8], outputs=[1]), lengths=[10], strings=16).valid != task.valid


def test_saved_model_has_no_task(tmp_path: Path) -> None:
    exact(get_machine("d4")).save(tmp_path)
    extraction = extract(tmp_path, lengths=[10], strings=64)
    assert extraction.machine.distinguish(get_machine("d4")) is None and extraction.to_json()["equals_task"] is None
    with pytest.raises(ExactError, match="task of the model is not known"):
        _ = extraction.difference
    compared = extract(tmp_path, task="d4", lengths=[10], strings=64)
    assert compared.difference is None and compared.machine.symbols == ("toggle", "move")


def test_extract_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create_run(tmp_path / "seed-0", tiring_parity(9), task="parity")
    parser = argparse.ArgumentParser()
    command.add_command(parser.add_subparsers())
    line = ["extract", str(tmp_path), "--lengths", "5,20", "--strings", "64"]
    options = parser.parse_args([*line, "--svg", str(tmp_path / "m.svg"), "--out", str(tmp_path / "m.json")])
    options.run(options)
    out = capsys.readouterr().out
    assert "not the machine of parity: they first differ on the string '111111111' (length 9)" in out
    assert "the extracted machine has the output 0 and the task 1" in out
    assert out.count("100.00") == 4
    assert (tmp_path / "m.svg").read_text().startswith("<svg")
    assert from_json((tmp_path / "m.json").read_text()).distinguish(tiring_parity(9)) is None
    options = parser.parse_args([*line, "--json", "--method", "lstar"])
    options.run(options)
    assert json.loads(capsys.readouterr().out)["difference"] == [1] * 9


# -- parts -------------------------------------------------------------------------------------------------------------


def test_start_state_is_merged_only_if_its_transitions_match() -> None:
    returning = build_machine(np.array([[1, 2], [1, 2], [2, 1]]), np.array([-1, 0, 1]), np.zeros(3, dtype=int))
    assert returning.n_states == 2
    initial = build_machine(
        np.array([[1, 2], [2, 2], [2, 1]]), np.array([-1, 0, 1]), np.zeros(3, dtype=int), start_label=1
    )
    assert initial.n_states == 3 and initial.outputs[initial.start] == 1


def test_free_values_are_chosen_so_that_states_merge() -> None:
    """No valid string distinguishes states 1 and 2, so they are merged; state 3 differs from both."""
    table = np.array([[1, 2], [3, -1], [-1, 3], [3, 1]])
    labels = np.array([-1, -1, 0, 1])
    machine = build_machine(table, labels, np.zeros(4, dtype=int))
    assert machine.n_states == 3
    assert machine.run([0]) == machine.run([1])
    assert [machine.output(word) for word in ([1], [0, 0], [1, 1])] == [0, 1, 1]


def test_distinguishing_suffix_separates_joined_states() -> None:
    machine = tiring_parity(4)
    reader = ModelReader(exact(machine), None)
    graph = explore_states(reader, distance=float("inf"), suffixes=[], max_states=50)
    assert graph is not None and len(graph.labels) == 3
    suffix = distinguishing_suffix(reader, graph, (1, 1, 1, 1))
    assert suffix is not None
    finer = explore_states(reader, distance=float("inf"), suffixes=[suffix], max_states=50)
    assert finer is not None and len(finer.labels) > 3
    assert finer.word_to(2) != graph.word_to(0) == ()


# -- refused requests --------------------------------------------------------------------------------------------------


def test_unsupported_requests_are_refused() -> None:
    generator = torch.Generator().manual_seed(0)
    parity = exact(get_machine("parity"))
    transformer = Classifier(ModelSettings(name="transformer", embedding=16), 2, 2, generator=generator)
    given_start = ModelSettings(mixer=SelectiveDenseSettings(initial_state="given"))
    cases: list[tuple[str, object, Machine | None]] = [
        ("transformer carries no state; use method='lstar'", transformer, None),
        ("a machine has one start state", Classifier(given_start, 2, 2, generator=generator), None),
        ("is not a token model", torch.nn.Linear(2, 2), None),
        ("both need the same alphabet", parity, get_machine("cycle")),
        ("no string is valid", parity, Machine(table=[[0, 0]], outputs=[0])),
    ]
    for message, model, valid in cases:
        with pytest.raises(SdssmError, match=message) as caught:
            extract(model, valid=valid)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
    with pytest.raises(ExactError, match="more than 3 states"):
        extract(exact(get_machine("a5")), max_states=3)
    with pytest.raises(ExactError, match="longest must be at least 1, got 0"):
        extract(parity, longest=0)
    with pytest.raises(ExactError, match="pass at least one length"):
        extract(parity, lengths=[])
    with pytest.raises(SdssmError, match="method"):
        extract(parity, method="guess")


def test_lstar_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aalpy.base", None)
    with pytest.raises(SdssmError, match=r"sdssm\[aalpy\]"):
        extract(exact(get_machine("parity")), method="lstar")


def test_folder_with_several_runs_is_refused(tmp_path: Path) -> None:
    for seed in range(2):
        create_run(tmp_path / f"seed-{seed}", get_machine("parity"), seed)
    with pytest.raises(SdssmError, match="holds 2 runs; choose one of them"):
        extract(tmp_path)


def test_valid_strings_of_a_single_length() -> None:
    """Only strings of exactly three symbols are valid: labels of shorter and longer ones do not count."""
    three = Machine(table=[[1, 1], [2, 2], [3, 3], [4, 4], [4, 4]], outputs=[0, 0, 0, 1, 0])
    extraction = extract(exact(get_machine("parity")), valid=three, lengths=[2, 40], strings=64)
    assert [fidelity.length for fidelity in extraction.fidelity] == [3]
    assert extraction.machine.distinguish(get_machine("parity"), three) is None
    assert Task(name="three", machine=extraction.machine, valid=three).has_length(3)
