"""Machines as JSON and DOT, and conversion to other libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
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
    try:
        from_json(text)
    except SdssmError as error:
        assert "\n" not in str(error)


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
        ('{"table": [[0, null]]}', "leads nowhere"),
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
        ("digraph { a -> b [label=x] }", "state 'b' has no edge for symbol 'x'"),
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
    with pytest.raises(FormatError, match="machines are read from .json and .dot"):
        read_machine(tmp_path / "machine.yaml")
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


def test_bridges_with_partial_and_invalid_automata() -> None:
    from aalpy.automata import Dfa, DfaState
    from automata.fa.dfa import DFA

    partial = DFA(
        states={"p", "q"},
        input_symbols={"a", "b"},
        transitions={"p": {"a": "q"}, "q": {"b": "p"}},
        initial_state="p",
        final_states={"p"},
        allow_partial=True,
    )
    assert from_automata_lib(partial).distinguish(get_machine("regex:(ab)*")) is None
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
