"""Regular expressions from machines: read back, they give the same machine; and they are short."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdssm.automata import Machine, get_machine, regex_machine
from sdssm.automata.expressions import MOST_CHARACTERS
from sdssm.errors import AutomatonError
from sdssm.tasks import EXAMPLE_TASKS, PAPER_TASKS
from tests.strategies import machines, words

ACCEPTORS = [name for name in (*PAPER_TASKS, *EXAMPLE_TASKS) if get_machine(name).is_acceptor]
#: Letters that are signs in an expression or in a class.
letters = st.lists(st.sampled_from([*"abcdef01 \\|*+?()[]{}.^$-é\n"]), min_size=1, max_size=4, unique=True)


def check(machine: Machine, expression: str) -> None:
    read = regex_machine(expression, "".join(machine.symbol_names))
    assert machine.distinguish(read) is None
    assert machine.output([]) == read.output([])  # distinguish() compares non-empty strings


@pytest.mark.parametrize("name", ACCEPTORS)
def test_expression_of_every_acceptor_of_the_library(name: str) -> None:
    check(get_machine(name), get_machine(name).to_regex())


@settings(max_examples=60)
@given(st.data())
def test_expression_of_any_acceptor(data: st.DataObject) -> None:
    symbols = data.draw(letters)
    machine = data.draw(machines(most_states=6, symbols=len(symbols), outputs=2))
    machine = Machine(table=machine.table, start=machine.start, outputs=machine.outputs, symbols=symbols)
    expression = machine.to_regex()
    check(machine, expression)
    if expression != "[]":  # Python has no expression for no string
        word = machine.decode(data.draw(words(len(symbols))))
        assert bool(re.fullmatch(expression, word, re.DOTALL)) == bool(machine.output(list(word)))


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("parity", 12),
        ("even_pairs", 19),
        ("tomita1", 2),
        ("tomita2", 5),
        ("tomita3", 32),
        ("tomita4", 16),
        ("tomita5", 31),
        ("tomita6", 23),
        ("tomita7", 11),
        ("regex:(ab|c)*", 7),
        ("regex:a{3,7}", 6),
        ("regex:(ab){4,}", 8),
        ("regex:hello|help|world", 15),
        ("regex[abcdefghijklmnopqrstuvwxyz]:.*hello.*", 58),
        ("regex[ab]:()", 2),
        ("regex[ab]:[]", 2),
        ("regex[ab]:.*", 2),
    ],
)
def test_expressions_are_short(name: str, length: int) -> None:
    assert len(get_machine(name).to_regex()) <= length


def test_accepting_outputs_are_chosen() -> None:
    counter = Machine(table=get_machine("z7").table)
    assert counter.to_regex(accepting={0}) == "(0|(10*){6}1)*"
    with pytest.raises(AutomatonError, match="has 7 outputs; say which of them accept"):
        counter.to_regex()
    assert counter.to_regex(accepting=()) == "[]"


def test_machines_without_an_expression() -> None:
    with pytest.raises(AutomatonError, match="symbol 'left' has more than one letter; .* left, stay, right"):
        get_machine("cycle").to_regex(accepting={0})
    large = Machine(table=get_machine("random:60x2:0").table)
    message = f"60 states has more than {MOST_CHARACTERS:,} characters; write the machine as"
    with pytest.raises(AutomatonError, match=message):
        large.to_regex(accepting={1})
