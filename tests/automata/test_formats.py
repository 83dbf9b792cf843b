"""Machines as JSON and DOT, and conversion to other libraries."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from aalpy.automata import MealyMachine, MealyState
from hypothesis import given
from hypothesis import strategies as st

from sdssm.automata import (
    Machine,
    from_aalpy,
    from_automata_lib,
    from_dot,
    from_json,
    from_networkx,
    get_machine,
    read_machine,
    to_aalpy,
    to_automata_lib,
    to_dot,
    to_json,
    to_networkx,
    write_machine,
)
from sdssm.automata.mappings import ALIASES, TRANSITION_KEYS
from sdssm.errors import AutomatonError, FormatError, OutputError, SdssmError
from sdssm.tasks import EXAMPLE_TASKS, PAPER_TASKS
from tests.strategies import machines, words


@given(machines(named=True))
def test_json_round_trip(machine: Machine) -> None:
    assert from_json(to_json(machine)) == machine


@given(machines(named=True))
def test_dot_round_trip(machine: Machine) -> None:
    assert from_dot(to_dot(machine)) == machine


@pytest.mark.parametrize("name", [*PAPER_TASKS, *EXAMPLE_TASKS])
def test_file_round_trip_of_the_library(name: str, tmp_path: Path) -> None:
    machine = get_machine(name)
    for ending in ("json", "dot"):
        path = tmp_path / f"machine.{ending}"
        write_machine(machine, path)
        assert read_machine(path) == get_machine(str(path)) == machine


@given(st.text(alphabet='{}[]":,0123456789 tablesoutpr.-enul', max_size=60))
def test_json_reader_raises_only_its_own_errors(text: str) -> None:
    read_or_refuse(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["p", "q", "a", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["p", "q", "a"]), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["table", "p", *TRANSITION_KEYS, *ALIASES]), values, max_size=4))
def test_json_reader_raises_only_its_own_errors_for_any_value(data: dict[str, object]) -> None:
    read_or_refuse(json.dumps(data))


def read_or_refuse(text: str) -> None:
    for sink in (False, True):
        try:
            from_json(text, sink=sink)
        except SdssmError as error:
            assert "\n" not in str(error)


@given(machines(named=True))
def test_named_transitions_describe_the_same_machine(machine: Machine) -> None:
    states, symbols = machine.state_names, machine.symbol_names
    rows = {
        states[q]: {symbols[a]: states[target] for a, target in enumerate(row)}
        for q, row in enumerate(machine.table.tolist())
    }
    triples = [[state, symbol, target] for state, row in rows.items() for symbol, target in row.items()]
    outputs = dict(zip(states, machine.outputs.tolist(), strict=True))
    names = {"states": states, "symbols": symbols, "start": states[machine.start]}
    for transitions in (rows, triples):
        read = from_json(json.dumps({"transitions": transitions, "outputs": outputs, **names}))
        assert (read.table.tolist(), read.start) == (machine.table.tolist(), machine.start)
        assert (read.outputs.tolist(), read.state_names, read.symbol_names) == (
            machine.outputs.tolist(),
            states,
            symbols,
        )


def test_dictionary_of_dictionaries() -> None:
    text = '{"q0": {"a": "q1", "b": "q0"}, "q1": {"a": "q0", "b": "q1"}, "start": "q1", "accepting": ["q0"]}'
    machine = from_json(text)
    assert (machine.states, machine.symbols, machine.start) == (("q0", "q1"), ("a", "b"), 1)
    assert machine.outputs.tolist() == [1, 0]
    assert from_json('{"start": {"a": "end"}, "end": {"a": "end"}}').outputs.tolist() == [0, 1]  # state numbers
    renamed = '{"transitions": {"0": {"a": 0}}, "initial_state": 0, "final_states": ["0"], "input_symbols": ["a"]}'
    assert from_json(renamed).outputs.tolist() == [1]


def test_outputs_next_to_the_states() -> None:
    text = '{"p": {"a": "q"}, "q": {"a": "p"}, "outputs": {"p": 1, "q": 0}}'
    for sink in (False, True):
        machine = from_json(text, sink=sink)
        assert (machine.states, machine.symbols, machine.outputs.tolist()) == (("p", "q"), ("a",), [1, 0])


@pytest.mark.parametrize("sink", [False, True])
def test_an_undefined_next_state_is_an_error_even_with_a_sink(sink: bool) -> None:
    for text in ('{"p": {"a": "z"}}', '{"transitions": {"p": {"a": "z"}}}'):
        with pytest.raises(FormatError, match="'z' is not a state"):
            from_json(text, sink=sink)


def test_a_final_state_needs_no_transitions() -> None:
    for end in ('"accepting": ["q"]', '"outputs": {"p": 0, "q": 1}', '"states": ["p", "q"], "accepting": ["q"]'):
        assert from_json(f'{{"p": {{"a": "q"}}, {end}}}', sink=True).outputs.tolist() == [0, 1, 0]
    assert from_json('{"transitions": [["p", "a", "q"]], "accepting": ["q"]}', sink=True).n_states == 3


def test_accepting_states_of_a_table() -> None:
    table = '"table": [[0, 1], [1, 0]]'
    assert from_json(f'{{{table}, "accepting": [1]}}').outputs.tolist() == [0, 1]
    assert from_json(f'{{{table}, "states": ["even", "odd"], "final_states": ["even"]}}').outputs.tolist() == [1, 0]
    for faulty, message in (
        ('"accepting": [2]', '2 in "accepting" is not a state; states are 0..1'),
        ('"states": ["even", "odd"], "accepting": [7]', "7 in \"accepting\" is not a state; states are 'even', 'odd'"),
        ('"states": ["even", "odd"], "accepting": ["odds"]', "is not a state; did you mean 'odd'?"),
        ('"accepting": [1], "outputs": [0, 1]', "not both"),
        ('"accepting": 1', "list the names"),
    ):
        with pytest.raises(FormatError, match=message):
            from_json(f"{{{table}, {faulty}}}")


MEALY = """digraph g {
    s0 [label="s0"]; s1 [label="s1"];
    s0 -> s1 [label="i/on"]; s0 -> s0 [label="j/off"]; s1 -> s1 [label="i,j/on"];
    __start0 [label="", shape=none]; __start0 -> s0 [label=""]; }"""


def test_mealy_machine_in_dot() -> None:
    machine = from_dot(MEALY)
    assert (machine.states, machine.symbols) == (("s0/off", "s1/on"), ("i", "j"))
    assert (machine.table.tolist(), machine.outputs.tolist()) == ([[1, 0], [1, 1]], [0, 1])
    partial = MEALY.replace("i,j/on", "i/2")
    with pytest.raises(AutomatonError, match="state 's1/on' has no transition for symbol 'j'"):
        from_dot(partial)
    assert from_dot(partial, sink=True).states == ("s0/2", "s1/on", "s0/off", "s1/2", "sink")  # ordered as texts
    accepting = MEALY.replace(
        's1 [label="s1"]', "s1 [shape=doublecircle]"
    )  # its states have outputs: not a Mealy machine
    assert from_dot(accepting, sink=True).symbols == ("i/on", "j/off", "i", "j/on")


def test_mealy_machine_written_by_aalpy(tmp_path: Path) -> None:
    states = [MealyState("s0"), MealyState("s1")]
    for k, state in enumerate(states):
        state.transitions = {"i": states[1 - k], "j": state}
        state.output_fun = {"i": "on", "j": "off"}
    automaton = MealyMachine(states[0], states)
    automaton.save(str(tmp_path / "mealy"))
    assert read_machine(tmp_path / "mealy.dot").is_equivalent(from_aalpy(automaton))


def test_start_state_of_a_graph() -> None:
    edges = "b -> a [label=x]; a -> b [label=x];"
    for text, start in ((edges, "b"), (f"{edges} a [start=true];", "a"), (f"{edges} __start0 -> a;", "a")):
        machine = from_dot(f"digraph {{ {text} }}")
        assert machine.state_names[machine.start] == start


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"transitions": {"p": {"a": "q"}, "q": {}}}', "state 'q' has no transition for symbol 'a'"),
        ('{"transitions": 3}', '"transitions" is 3'),
        ('{"transitions": {"p": ["q"]}}', "the transitions of state 'p' are ['q']"),
        ('{"transitions": [["p", "a"]]}', "a transition is [state, symbol, next state], not ['p', 'a']"),
        ('{"transitions": [["p", "a", "p"], ["p", "a", "p"]]}', "state 'p' has two transitions for symbol 'a'"),
        ('{"transitions": {}}', "needs at least one state"),
        ('{"p": {"a": "p"}, "start": "r"}', "'r' is not one of the states"),
        ('{"p": {"a": "p"}, "accepting": "p"}', "\"accepting\" is 'p'; list the names"),
        ('{"p": {"a": "p"}, "accepting": ["p"], "outputs": [1]}', "not both"),
        ('{"p": {"a": "p"}, "symbols": ["b"]}', "'a' is not one of the symbols"),
        ('{"transitions": {"p": {"a": "p"}}, "outputs": {}}', "state 'p' has no output"),
        ('{"transitions": {"p": {"a": "p"}}, "start": "p", "initial_state": "p"}', "under two names"),
        ('{"p": {"a": "p"}, "acepting": ["p"]}', "a machine has no 'acepting'; did you mean 'accepting'"),
        ('{"p": {"a": true}}', "a next state is True; names are texts"),
    ],
)
def test_invalid_named_transitions(text: str, message: str) -> None:
    with pytest.raises(SdssmError) as caught:
        from_json(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("json", '{"table": [[1, null], [null, 0]], "outputs": [1, 0], "symbols": ["a", "b"]}'),
        ("json", '{"p": {"a": "q"}, "q": {"b": "p"}, "accepting": ["p"]}'),
        ("json", '{"transitions": {"p": {"a": "q", "b": null}, "q": {"b": "p"}}, "accepting": ["p"]}'),
        ("dot", "digraph { p [shape=doublecircle]; p -> q [label=a]; q -> p [label=b] }"),
    ],
)
def test_partial_machine_with_a_sink(ending: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / f"partial.{ending}"
    path.write_text(text)
    with pytest.raises(FormatError, match=f"has no transition for symbol 'b'; add it, or write sink:{path} to send"):
        get_machine(path)
    for machine in (get_machine(path, sink=True), get_machine(str(path), sink=True), get_machine(f"sink:{path}")):
        assert machine.distinguish(get_machine("regex:(ab)*")) is None
        assert machine.n_states == 3
    assert get_machine(f"sink:{path}").n_outputs == 2


def test_output_and_name_of_a_sink() -> None:
    numbered = from_json('{"table": [[null], [0]], "states": ["sink", "b"]}', sink=True)
    assert numbered.outputs.tolist() == [0, 1, 2]  # the outputs are the state numbers
    assert numbered.states == ("sink", "b", "sink'")
    assert from_json('{"table": [[null], [0]], "outputs": [5, 0]}', sink=True).outputs.tolist() == [5, 0, 6]
    assert from_json('{"table": [[0]]}', sink=True).n_states == 1  # nothing is missing


@given(st.text(alphabet='{}[]";,=->a b1digraphlex\\/*#<:+\n', max_size=60))
def test_dot_reader_raises_only_its_own_errors(text: str) -> None:
    for graph in (text, "digraph {" + text + "}"):
        try:
            from_dot(graph)
        except SdssmError as error:
            assert "\n" not in str(error)


def test_json_example_of_the_documentation() -> None:
    machine = from_json('{"table": [[0, 1], [1, 0]], "start": 1, "states": ["even", "odd"], "symbols": ["0", "1"]}')
    assert machine.outputs.tolist() == [0, 1]
    assert machine.start == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: Expecting property name"),
        ("[1, 2]", 'a machine is a JSON object with a "table"'),
        ("{}", 'a machine is a JSON object with a "table"'),
        ('{"table": [[0]], "sates": ["a"]}', "a machine has no 'sates'; did you mean 'states'"),
        ('{"table": [[0]], "table": [[0]]}', "occurs twice"),
        ('{"table": [[0, 1]]}', "symbol 1 sends state 0 to 1; states are 0..0"),
        ('{"table": [[0, null]]}', "state '0' has no transition for symbol '1'; add it, or write sink:"),
        ('{"table": [[0]], "outputs": [NaN]}', "whole numbers, not nan"),
        ('{"table": [[0]], "start": null}', "must be the number of a state, not None"),
        ('{"table": [[0]], "symbols": {"a": 1}}', "a list of texts"),
        ('{"table": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_invalid_json(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        get_machine(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("digraph {", "line 1: the graph ends too early, '}' is missing"),
        ("", "the text is empty"),
        ("graph { a -- b }", "a machine is a 'digraph { ... }'"),
        ("digraph { a -- b }", "machines have directed edges"),
        ("digraph {}", "the graph has no states"),
        ("digraph {\n a -> b [label=x];\n b -> a; a -> a [label=y] }", "line 3: the edge 'b' -> 'a' has no label"),
        ("digraph { a -> a [label=x]; a -> a [label=x] }", "state 'a' has two edges for symbol 'x'"),
        ("digraph { a -> b [label=x] }", "state 'b' has no transition for symbol 'x'; add it, or pass sink=True"),
        ("digraph { a -> a [label=x] } more", "text after the closing '}'"),
        ("digraph { a [label }", "line 1: expected '=', near '}'"),
        ("digraph { @ }", "line 1: '@' is not part of the DOT language"),
        ("digraph { a [output=x]; a -> a [label=x] }", "the output of state 'a' is 'x'"),
        ("digraph { s -> a; t -> a; a -> a [label=x] }", "2 arrows mark a start state"),
        ("digraph { s -> a; s -> b; a -> b [label=x]; b -> a [label=x] }", "2 arrows mark a start state"),
        ('digraph { a [output="1\\n2"]; a -> a [label=x] }', "give every state a whole number"),
        ("digraph { a [output=" + "9" * 5000 + "]; a -> a [label=x] }", "give every state a whole number"),
        ("digraph { {a; b} -> c }", "an edge must start at a state"),
    ],
)
def test_invalid_dot(text: str, message: str) -> None:
    with pytest.raises(SdssmError) as caught:
        from_dot(text)
    assert message in str(caught.value)


def test_dot_written_by_hand() -> None:
    machine = from_dot(
        """
        // even numbers of ones
        digraph "parity" { rankdir=LR; node [shape=circle];
          s [shape=none, label=""]; s -> even;
          odd; even [shape=doublecircle];
          even -> even [label="0"]; even -> odd [label="1"] /* back
          and forth */
          odd -> odd [label="0"]; odd -> even [label="1"]
        }
        """
    )
    assert machine.states == ("even", "odd")
    assert machine.output("1001") == 1
    assert machine.output("10") == 0
    assert from_dot('digraph { a -> b -> a [label="x, y"]; }').symbols == ("x", "y")
    assert from_dot("strict digraph { b [start=true]; a -> a [label=x]; b -> a [label=x] }").run("x") == 1


@pytest.mark.parametrize(
    "graph",
    [
        '__start0 -> a [label=""]; a -> b [label=x]; b -> a [label=x]; __start0 [shape=none]',
        '"" -> a [label=""]; a -> b [label=x]; b -> a [label=x]',
        "init [shape=point]; b -> a [label=x]; init -> a [label=start]; a -> b [label=x]",
        "subgraph cluster_0 { rank=same; b; a } ; s -> a; a:n -> b:s:w [label=x]; { b -> a [LABEL=x, label=x] }",
        'b; a; s -> a; a -> b [label=<<b>x</b>>, label="" + "x"]; b -> a [label=x]',
    ],
)
def test_dot_written_by_other_programs(graph: str) -> None:
    machine = from_dot("\ufeffDiGraph {" + graph + "}")
    assert machine.symbols == ("x",)
    assert sorted(machine.states or ()) == ["a", "b"]
    assert machine.state_names[machine.start] == "a"


def test_dot_written_by_aalpy(tmp_path: Path) -> None:
    machine = get_machine("regex:(ab)*")
    to_aalpy(machine).save(str(tmp_path / "aalpy"))
    read = read_machine(tmp_path / "aalpy.dot")
    assert read.isomorphism(machine, outputs=False) is not None


def test_dot_shows_accepting_states_to_other_programs() -> None:
    text = to_dot(get_machine("tomita4"))
    assert [line.split()[0] for line in text.splitlines() if "doublecircle" in line] == ["0", "1", "2"]
    without_outputs = re.sub(r", output=\d", "", text)  # what a program keeps that knows shapes and labels only
    assert from_dot(without_outputs).distinguish(get_machine("tomita4")) is None
    assert "doublecircle" not in to_dot(get_machine("cycle"))


def test_file_round_trip_of_a_carriage_return_in_a_name(tmp_path: Path) -> None:
    machine = Machine(table=[[0]], states=["a\rb\r\nc"])
    for ending in ("json", "dot"):
        write_machine(machine, tmp_path / f"machine.{ending}")
        assert read_machine(tmp_path / f"machine.{ending}") == machine


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot read"):
        read_machine(tmp_path / "nothing.json")
    binary = tmp_path / "binary.dot"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="not UTF-8"):
        read_machine(binary)
    with pytest.raises(FormatError, match="machines are read from .json, .dot and .att files"):
        read_machine(tmp_path / "machine.yaml")
    with pytest.raises(FormatError, match="machines are written to .json, .dot and .att files"):
        write_machine(get_machine("parity"), tmp_path / "machine.yaml")
    with pytest.raises(FormatError, match="cannot read"):
        get_machine("parity\0.json")
    with pytest.raises(OutputError, match="cannot write .*; choose a path that can be written"):
        write_machine(get_machine("parity"), tmp_path / "missing" / "machine.json")


@given(st.data())
def test_bridges_preserve_the_behaviour(data: st.DataObject) -> None:
    machine = data.draw(machines(outputs=2)).reachable()
    word = data.draw(words(machine.n_symbols))
    names = [machine.symbol_names[a] for a in word]
    assert to_automata_lib(machine).accepts_input(names) == bool(machine.output(word))
    moore_machine = to_aalpy(machine)
    moore_machine.reset_to_initial()
    assert [moore_machine.step(a) for a in names] == machine.outputs[machine.trace(word)].tolist()
    for converted in (
        from_networkx(to_networkx(machine)),
        from_automata_lib(to_automata_lib(machine)),
        from_aalpy(to_aalpy(machine)),
    ):
        assert machine.distinguish(converted) is None
    assert from_networkx(to_networkx(machine)) == machine


def test_bridges_with_other_outputs_and_invalid_automata() -> None:
    from aalpy.automata import Dfa, DfaState

    with pytest.raises(AutomatonError, match="has 60 outputs; say which of them accept"):
        to_automata_lib(get_machine("a5"))
    assert to_automata_lib(get_machine("cycle"), accepting={0}).accepts_input(["left", "right"])
    state = DfaState("only", is_accepting=True)
    state.transitions = {"a": state}
    assert from_aalpy(Dfa(state, [state])).outputs.tolist() == [1]
    graph = to_networkx(get_machine("parity"))
    graph.add_edge(0, 1, label="1")
    with pytest.raises(AutomatonError, match="two edges for symbol '1'"):
        from_networkx(graph)
