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
from sdssm.exact.extraction.extractor import extract, same_on
from sdssm.exact.extraction.merging import build_machine, distinguishing_suffix
from sdssm.exact.extraction.model_reader import ModelReader
from sdssm.exact.extraction.state_graph import explore_states
from sdssm.layers import SelectiveDenseSettings
from sdssm.layers.recurrent import Rnn, RnnSettings
from sdssm.models import Classifier, ModelSettings
from sdssm.tasks import Task, get_task
from tests.evaluation.machines import exact, tiring_parity
from tests.evaluation.test_evaluate import run_of


def noisy(model: Classifier, noise: float) -> Classifier:
    """A model with noise on its matrices: its states drift."""
    with torch.no_grad():
        model.dictionary.add_(noise * torch.randn(model.dictionary.shape, generator=torch.Generator().manual_seed(1)))
    return model


def random_machine(seed: int, states: int = 12, outputs: int = 2) -> Machine:
    rng = np.random.default_rng(seed)
    table = rng.integers(states, size=(states, 2))
    table[:-1, 0] = np.arange(1, states)  # all are reachable
    return Machine(table=table, outputs=rng.integers(outputs, size=states))


# -- what it finds -----------------------------------------------------------------------------------------------------


BY_STATES = [(name, "states") for name in ("parity", "even_pairs", "arithmetic", "a5", "tomita3", "regex:(ab|c)*")]


@pytest.mark.parametrize(("name", "method"), [*BY_STATES, ("even_pairs", "lstar"), ("a5", "lstar")])
def test_an_exact_model_gives_its_machine(name: str, method: str) -> None:
    of = get_task(name)
    found = extract(exact(of.machine), of.valid, method=method, lengths=[1, 10, 40], strings=64)
    assert same_on(found.machine, of.machine, of.valid) is None
    assert found.machine.n_states == of.machine.minimise().n_states
    assert found.machine.minimise() == found.machine
    assert found.faithful and found.note is None and found.margin == 1
    assert [one.agree for one in found.fidelity] == [64] * len(found.fidelity)


@pytest.mark.parametrize("seed", range(8))
def test_machines_whose_labels_tell_little(seed: int) -> None:
    machine = random_machine(seed)
    found = extract(exact(machine), lengths=[20], strings=64)
    assert same_on(found.machine, machine) is None


@pytest.mark.parametrize("seed", range(3))
def test_counterexamples_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With labels as the only guess, rounds of counterexamples find the states."""
    monkeypatch.setattr("sdssm.exact.extraction.candidates.JOIN_DISTANCES", (float("inf"),))
    machine = random_machine(seed)
    found = extract(exact(machine), lengths=[20], strings=64)
    assert found.rounds > 0
    assert same_on(found.machine, machine) is None


def test_what_random_strings_never_meet() -> None:
    """25 ones in a row: no string that was drawn holds them, but the states differ."""
    machine = tiring_parity(25)
    found = extract(exact(machine), lengths=[20], strings=64)
    assert same_on(found.machine, machine) is None
    assert same_on(found.machine, get_machine("parity")) == (1,) * 25


def test_a_query_is_no_symbol() -> None:
    found = extract(exact(get_machine("cycle"), query=True), lengths=[10], strings=64)
    assert found.machine.n_symbols == 3
    assert same_on(found.machine, get_machine("cycle")) is None


def test_a_wrong_model_gives_a_wrong_machine() -> None:
    """One transition of 120 is another: the machine is the model's, not the task's."""
    a5 = get_machine("a5")
    table = a5.table.copy()
    table[37, 1] = table[38, 1]
    found = extract(exact(Machine(table=table, start=a5.start, outputs=a5.outputs)), lengths=[40], strings=64)
    assert found.faithful
    word = same_on(found.machine, a5)
    assert word is not None and found.machine.output(word) != a5.output(word)


def test_minsky_rnn() -> None:
    """Entry (q, a) is 1 where symbol a was read in state q."""
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
        mixer.recurrent_weight.copy_(torch.tensor([[q == int(there) for there in after] for q, _ in pairs]))
        mixer.input_bias.fill_(-1)
        mixer.recurrent_bias.zero_()
        mixer.initial_state.copy_(torch.eye(len(pairs))[int(torch.nonzero(after == machine.start)[0])])
        model.readout.weight.copy_(after[None] == torch.arange(5)[:, None])
        model.readout.bias.zero_()
    found = extract(model, lengths=[40], strings=64)
    assert found.faithful and same_on(found.machine, machine) is None


def test_many_states_and_symbols_with_noise() -> None:
    of = get_task("s5:32:0")
    began = time.perf_counter()
    found = extract(noisy(exact(of.machine), 0.003), lengths=[40], strings=64)
    assert time.perf_counter() - began < 60
    assert same_on(found.machine, of.machine) is None and found.faithful
    assert found.machine.n_states == 120 and found.margin < 1


# -- evidence ----------------------------------------------------------------------------------------------------------


def test_a_model_that_drifts() -> None:
    """The machine is the right one, and the evidence says that the model is not."""
    found = extract(noisy(exact(get_machine("a5")), 0.02), lengths=[5, 100], strings=256, max_states=200)
    assert same_on(found.machine, get_machine("a5")) is None
    short, long = found.fidelity
    assert short.share == 1 and long.share < 0.5 and long.throughout <= long.agree
    assert not found.faithful and found.note is not None


@pytest.mark.parametrize("name", ["sd-ssm", "lstm", "rnn"])
def test_untrained_models_give_some_machine(name: str) -> None:
    model = Classifier(ModelSettings(name=name), 2, 60, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():  # so that it says more than one thing
        for parameter in model.mixers[0].parameters():
            parameter.mul_(3)
    found = extract(model, lengths=[40], strings=64, max_states=100)
    assert 1 <= found.machine.n_states <= 100
    wrong = found.fidelity[0]
    tokens = torch.randint(2, (64, 40), generator=torch.Generator().manual_seed(5))
    told = model(tokens).argmax(-1)[:, -1].tolist()
    share = np.mean([found.machine.output(row) == label for row, label in zip(tokens.tolist(), told, strict=True)])
    assert abs(share - wrong.share) < 0.35  # on other strings: fidelity is what it says


def test_numbers_that_are_not_finite_agree_with_nothing() -> None:
    model = exact(get_machine("parity"))
    with torch.no_grad():
        model.readout.weight.fill_(torch.nan)
    found = extract(model, lengths=[5], strings=64)
    assert found.fidelity[0].agree == 0


def test_it_depends_on_the_seed_alone() -> None:
    one, other = (
        extract(noisy(exact(get_machine("d4")), 0.1), lengths=[40], strings=64, max_states=100) for _ in range(2)
    )
    assert not one.faithful and one.to_json() == other.to_json()


# -- of a run ----------------------------------------------------------------------------------------------------------


def test_a_run_knows_its_task(tmp_path: Path) -> None:
    of = get_task("arithmetic")
    run = run_of(tmp_path / "seed-0", of.machine, of=of)
    for what in (run, str(run.path), tmp_path):
        found = extract(what, lengths=[10], strings=64)
        assert found.valid == of.valid and found.difference is None
        assert found.machine.symbols == of.machine.symbols
        assert [one.length for one in found.fidelity] == [9]  # 10 has no valid string
    written = found.to_json()
    assert written["equals_task"] is True
    assert from_json(json.dumps(written["machine"])) == found.machine
    with pytest.raises(ExactError, match="knows its valid strings"):
        extract(run, Machine(table=[[0] * 8], outputs=[1]))


def test_a_saved_model_has_no_task(tmp_path: Path) -> None:
    exact(get_machine("d4")).save(tmp_path)
    found = extract(tmp_path, lengths=[10], strings=64)
    assert same_on(found.machine, get_machine("d4")) is None and found.to_json()["equals_task"] is None
    with pytest.raises(ExactError, match="of no run"):
        _ = found.difference


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path / "seed-0", tiring_parity(9), of="parity")
    parser = argparse.ArgumentParser()
    command.add_to(parser.add_subparsers())
    line = ["extract", str(tmp_path), "--lengths", "5,20", "--strings", "64"]
    options = parser.parse_args([*line, "--svg", str(tmp_path / "m.svg"), "--out", str(tmp_path / "m.json")])
    options.run(options)
    out = capsys.readouterr().out
    assert "differs from the task's machine on '111111111'" in out
    assert out.count("100.00") == 4
    assert (tmp_path / "m.svg").read_text().startswith("<svg")
    assert same_on(from_json((tmp_path / "m.json").read_text()), tiring_parity(9)) is None
    options = parser.parse_args([*line, "--json", "--method", "lstar"])
    options.run(options)
    assert json.loads(capsys.readouterr().out)["difference"] == [1] * 9


# -- parts -------------------------------------------------------------------------------------------------------------


def test_the_start_state_is_like_another_only_where_it_fits() -> None:
    comes_back = build_machine(np.array([[1, 2], [1, 2], [2, 1]]), np.array([-1, 0, 1]), np.zeros(3, dtype=int))
    assert comes_back.n_states == 2
    never = build_machine(
        np.array([[1, 2], [2, 2], [2, 1]]), np.array([-1, 0, 1]), np.zeros(3, dtype=int), start_label=1
    )
    assert never.n_states == 3 and never.outputs[never.start] == 1


def test_what_is_not_asked_is_chosen_to_fit() -> None:
    """States 1 and 2 differ in nothing that is asked, so one is enough; 3 differs from both."""
    table = np.array([[1, 2], [3, -1], [-1, 3], [3, 1]])
    labels = np.array([-1, -1, 0, 1])
    machine = build_machine(table, labels, np.zeros(4, dtype=int))
    assert machine.n_states == 3
    assert machine.run([0]) == machine.run([1])
    assert [machine.output(word) for word in ([1], [0, 0], [1, 1])] == [0, 1, 1]


def test_an_experiment_tells_apart_what_the_graph_takes_for_one() -> None:
    machine = tiring_parity(4)
    reader = ModelReader(exact(machine), None)
    graph = explore_states(reader, near=float("inf"), experiments=[], most=50)
    assert graph is not None and len(graph.labels) == 3
    word = distinguishing_suffix(reader, graph, (1, 1, 1, 1))
    assert word is not None
    finer = explore_states(reader, near=float("inf"), experiments=[word], most=50)
    assert finer is not None and len(finer.labels) > 3
    assert finer.word(2) != graph.word(0) == ()


# -- what it refuses ---------------------------------------------------------------------------------------------------


def test_refused() -> None:
    chance = torch.Generator().manual_seed(0)
    parity = exact(get_machine("parity"))
    two = Classifier(ModelSettings(layers=2), 2, 2, generator=chance)
    whole = Classifier(ModelSettings(name="transformer", embedding=16), 2, 2, generator=chance)
    given = ModelSettings(mixer=SelectiveDenseSettings(initial_state="given"))
    refused: list[tuple[str, object, Machine | None]] = [
        ("2 layers", two, None),
        ("no state that it carries on", whole, None),
        ("starts in one state", Classifier(given, 2, 2, generator=chance), None),
        ("no token model", torch.nn.Linear(2, 2), None),
        ("both need the same alphabet", parity, get_machine("cycle")),
        ("no string is valid", parity, Machine(table=[[0, 0]], outputs=[0])),
    ]
    for message, model, valid in refused:
        with pytest.raises(SdssmError, match=message) as caught:
            extract(model, valid)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
    with pytest.raises(ExactError, match="more than 3 states"):
        extract(exact(get_machine("a5")), max_states=3)
    with pytest.raises(ExactError, match="longest is 0"):
        extract(parity, longest=0)
    with pytest.raises(ExactError, match="name at least one"):
        extract(parity, lengths=[])
    with pytest.raises(SdssmError, match="method"):
        extract(parity, method="guess")


def test_lstar_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aalpy.base", None)
    with pytest.raises(SdssmError, match=r"sdssm\[aalpy\]"):
        extract(exact(get_machine("parity")), method="lstar")


def test_several_runs_are_not_one(tmp_path: Path) -> None:
    for seed in range(2):
        run_of(tmp_path / f"seed-{seed}", get_machine("parity"), seed)
    with pytest.raises(ExactError, match="holds 2 runs"):
        extract(tmp_path)


def test_strings_of_one_length_alone() -> None:
    """Valid are strings of exactly three symbols: what is said before and after does not count."""
    three = Machine(table=[[1, 1], [2, 2], [3, 3], [4, 4], [4, 4]], outputs=[0, 0, 0, 1, 0])
    found = extract(exact(get_machine("parity")), three, lengths=[2, 40], strings=64)
    assert [one.length for one in found.fidelity] == [3]
    assert same_on(found.machine, get_machine("parity"), three) is None
    assert Task(name="three", machine=found.machine, valid=three).has(3)
