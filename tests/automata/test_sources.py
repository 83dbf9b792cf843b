"""What `get_machine` takes: names, paths, tables, dictionaries, and automata of other libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from aalpy.automata import (
    Dfa,
    DfaState,
    MarkovChain,
    McState,
    MealyMachine,
    MealyState,
    MooreMachine,
    MooreState,
    Onfsm,
    OnfsmState,
)
from automata.fa.dfa import DFA
from automata.fa.nfa import NFA
from hypothesis import given
from hypothesis import strategies as st

import sdssm
from sdssm.automata import Machine, from_aalpy, get_machine, to_aalpy, to_automata_lib, to_networkx, write_machine
from sdssm.automata.library import machine_files
from sdssm.errors import AutomatonError, FormatError, UnknownNameError
from tests.strategies import machines, words

PAIRS = get_machine("regex:(ab)*")


def test_names_and_paths(tmp_path: Path) -> None:
    write_machine(PAIRS, tmp_path / "pairs.json")
    for source in (tmp_path / "pairs.json", str(tmp_path / "pairs.json"), PAIRS):
        assert sdssm.machine(source) == PAIRS
    assert machine_files("words.dot") == machine_files("sink:words.dot*z3") == [Path("words.dot")]
    assert machine_files("z3*regex:a.json") == []
    (tmp_path / "pairs.txt").write_text("")
    for source in (tmp_path / "pairs.txt", str(tmp_path / "pairs.txt")):
        with pytest.raises(FormatError, match="ends in '.txt'; machines are read from .json, .dot and .att"):
            get_machine(source)
    with pytest.raises(UnknownNameError, match="no task or automaton is called 'paritty'; did you mean 'parity'"):
        get_machine("paritty")


@pytest.mark.parametrize("table", [[[0, 1], [1, 0]], ((0, 1), (1, 0)), np.array([[0, 1], [1, 0]])], ids=type)
def test_tables(table: Any) -> None:
    assert get_machine(table) == Machine(table=[[0, 1], [1, 0]])


def test_dictionaries_tensors_and_objects_with_a_machine() -> None:
    assert get_machine({"table": [[0, 1], [1, 0]]}) == Machine(table=[[0, 1], [1, 0]])
    assert get_machine({"p": {"a": "q"}, "q": {"b": "p"}, "accepting": ["p"]}, sink=True).distinguish(PAIRS) is None
    assert get_machine(torch.tensor([[0, 1], [1, 0]])) == Machine(table=[[0, 1], [1, 0]])
    assert get_machine(sdssm.task("parity")) == get_machine("parity")
    with pytest.raises(AutomatonError, match="sink=True"):
        get_machine([[None, 0]])
    assert get_machine([[None, 0]], sink=True).table.tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize("source", [3, None, object(), {1, 2}, b"parity"])
def test_anything_else_is_refused(source: object) -> None:
    with pytest.raises(AutomatonError, match="a machine is a name, a path, a table"):
        get_machine(source)


@given(machines(outputs=2))
def test_automata_of_other_libraries(machine: Machine) -> None:
    machine = machine.reachable()
    for automaton in (to_automata_lib(machine), to_aalpy(machine), to_networkx(machine)):
        assert get_machine(automaton).distinguish(machine) is None


def test_partial_and_nondeterministic_automata_of_automata_lib() -> None:
    partial = DFA(
        states={"p", "q"},
        input_symbols={"a", "b"},
        transitions={"p": {"a": "q"}, "q": {"b": "p"}},
        initial_state="p",
        final_states={"p"},
        allow_partial=True,
    )
    assert get_machine(partial).distinguish(PAIRS) is None
    nfa = NFA(
        states={0, 1, 2},
        input_symbols={"a", "b"},
        transitions={0: {"": {1}}, 1: {"a": {2}, "b": {1}}, 2: {"b": {1}}},
        initial_state=0,
        final_states={1},
    )
    assert get_machine(nfa).distinguish(get_machine("regex:(ab|b)*")) is None


def test_graphs_drawn_by_hand() -> None:
    graph = nx.DiGraph()
    graph.add_node("q")
    graph.add_node("p", start=True, accepting=True)
    graph.add_edge("p", "q", label="a")
    graph.add_edge("q", "p", label="b")
    graph.add_edge("q", "q", label=["c", "d"])
    with pytest.raises(AutomatonError, match="state 'q' has no transition for symbol 'a'; add it, or pass sink=True"):
        get_machine(graph)
    machine = get_machine(graph, sink=True)
    assert machine.distinguish(get_machine("regex[bcda]:(a[cd]*b)*")) is None
    assert machine.state_names[machine.start] == "p"


# -- AALpy -----------------------------------------------------------------------------------------------------------


def test_dfa_and_moore_machine_of_aalpy() -> None:
    p, q = DfaState("p", is_accepting=True), DfaState("q")
    p.transitions, q.transitions = {"a": q}, {"b": p}
    assert get_machine(Dfa(p, [p, q]), sink=True).distinguish(PAIRS) is None
    with pytest.raises(AutomatonError, match="no transition for symbol 'b'"):
        from_aalpy(Dfa(p, [p, q]))
    red, green = MooreState("r", output="red"), MooreState("g", output="green")
    red.transitions, green.transitions = {"go": green}, {"go": red}
    assert get_machine(MooreMachine(red, [red, green])).outputs.tolist() == [1, 0]  # in the order of the texts
    state = OnfsmState("s")
    state.transitions["a"].append((0, state))
    chain_state = McState("s", output=0)
    chain_state.transitions = [(chain_state, 1.0)]
    for automaton in (Onfsm(state, [state]), MarkovChain(chain_state, [chain_state])):
        with pytest.raises(AutomatonError, match="not a deterministic finite automaton; pass a Dfa, MooreMachine or"):
            get_machine(automaton)


def coffee_machine() -> MealyMachine:
    """A coin gives "thanks"; a button gives "coffee" after a coin, "pay first" otherwise."""
    idle, paid = MealyState("idle"), MealyState("paid")
    idle.transitions, idle.output_fun = {"coin": paid, "button": idle}, {"coin": "thanks", "button": "pay first"}
    paid.transitions, paid.output_fun = {"coin": paid, "button": idle}, {"coin": "thanks", "button": "coffee"}
    return MealyMachine(idle, [idle, paid])


def test_mealy_machine_of_aalpy() -> None:
    machine = sdssm.machine(coffee_machine())
    texts = ["coffee", "pay first", "thanks"]  # numbered in this order
    assert [texts[machine.output(word)] for word in (["coin"], ["button"], ["coin", "button"])] == [
        "thanks",
        "pay first",
        "coffee",
    ]
    assert machine.states == ("idle/coffee", "idle/pay first", "paid/thanks")
    assert machine.outputs[machine.start] == 0  # before the first symbol: the smallest output


@given(st.data())
def test_mealy_machines_keep_their_outputs(data: st.DataObject) -> None:
    machine = data.draw(machines())
    outputs = data.draw(st.lists(st.integers(0, 3), min_size=machine.table.size, max_size=machine.table.size))
    states = [MealyState(f"s{q}") for q in range(machine.n_states)]
    labels = np.array(outputs).reshape(machine.table.shape)
    for q, state in enumerate(states):
        for a in range(machine.n_symbols):
            state.transitions[a] = states[machine.table[q, a]]
            state.output_fun[a] = int(labels[q, a])
    mealy_machine = MealyMachine(states[machine.start], states)
    converted = get_machine(mealy_machine)
    word = data.draw(words(machine.n_symbols))
    assert [mealy_machine.step(a) for a in word] == converted.outputs[converted.trace(word)].tolist()


# -- pythomata -------------------------------------------------------------------------------------------------------


def test_an_object_like_a_dfa_of_pythomata() -> None:
    dfa = SimpleNamespace(
        alphabet={"a", "b"},
        states={"p", "q"},
        initial_state="p",
        accepting_states={"p"},
        transition_function={"p": {"a": "q"}, "q": {"b": "p"}},
    )
    assert get_machine(dfa).distinguish(PAIRS) is None
    assert get_machine(SimpleNamespace(**vars(dfa) | {"determinize": lambda: dfa})).distinguish(PAIRS) is None
    with pytest.raises(AutomatonError, match="pass a SimpleDFA"):
        get_machine(SimpleNamespace(**vars(dfa) | {"transition_function": None}))


def test_automata_of_pythomata() -> None:
    simple = pytest.importorskip("pythomata.impl.simple")
    dfa = simple.SimpleDFA({"p", "q"}, {"a", "b"}, "p", {"p"}, {"p": {"a": "q"}, "q": {"b": "p"}})
    assert get_machine(dfa).distinguish(PAIRS) is None
    nfa = simple.SimpleNFA({"p", "q"}, {"a", "b"}, "p", {"p"}, {"p": {"a": {"q"}}, "q": {"b": {"p", "q"}}})
    assert get_machine(nfa).distinguish(get_machine("regex:(ab+)*")) is None


# -- imports ---------------------------------------------------------------------------------------------------------


def test_automata_need_no_torch() -> None:
    """`sdssm tasks show` starts in a fraction of a second, because describing an automaton imports no torch."""
    program = (
        "import sys, types\n"
        "package = types.ModuleType('sdssm')\n"  # without running the __init__.py of the package
        f"package.__path__ = [{str(Path(sdssm.__file__).parent)!r}]\n"
        "sys.modules['sdssm'] = package\n"
        "from sdssm.automata import draw, get_machine\n"
        "draw(get_machine('regex:(ab)*')), get_machine('a5').theory\n"
        "print([name for name in ('torch', 'pandas', 'matplotlib', 'networkx') if name in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
