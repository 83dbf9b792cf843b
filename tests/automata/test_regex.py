"""Regular expressions as machines, compared with Python's `re` and with automata-lib."""

from __future__ import annotations

import re
import string
import time
from itertools import product

import pytest
from automata.fa.nfa import NFA
from hypothesis import given, settings
from hypothesis import strategies as st

from sdssm.automata import from_automata_lib, get_machine, regex_machine
from sdssm.errors import FormatError


def expressions(depth: int = 3) -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "()"])
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}"])).map(lambda p: f"({p[0]}){p[1]}"),
        ),
        max_leaves=8,
    )


@settings(max_examples=150)
@given(expressions())
def test_agrees_with_the_re_module(pattern: str) -> None:
    machine = regex_machine(pattern, "ab")
    compiled = re.compile(pattern)
    for length in range(6):
        for word in map("".join, product("ab", repeat=length)):
            assert machine.output(word) == int(compiled.fullmatch(word) is not None), (pattern, word)


@pytest.mark.parametrize("pattern", ["(ab|c)*", "a*(ba*ba*)*", "a?b+c{2,3}", "(a|b)*a(a|b)(a|b)"])
def test_agrees_with_automata_lib(pattern: str) -> None:
    from automata.fa.dfa import DFA

    letters = "abc"
    expected = from_automata_lib(DFA.from_nfa(NFA.from_regex(pattern, input_symbols={*letters})))
    assert regex_machine(pattern, letters).distinguish(expected) is None


def test_alphabets_and_escapes() -> None:
    assert get_machine("regex:(ab)*c").symbols == ("a", "b", "c")
    assert get_machine("regex[01]:1*").symbols == ("0", "1")
    assert get_machine("regex[01]:1*").output("110") == 0
    assert regex_machine(r"\*\.\\").symbols == ("*", ".", "\\")
    assert regex_machine(r"\*\.\\").output("*.\\") == 1
    assert regex_machine("[a-d]").symbols == ("a", "b", "c", "d")
    assert regex_machine("[a-]").symbols == ("-", "a")


def test_ranges_in_the_alphabet() -> None:
    machine = get_machine("regex[a-z]:a.*z")
    assert "".join(machine.symbol_names) == string.ascii_lowercase
    assert (machine.output("abcz"), machine.output("abc")) == (1, 0)
    for alphabet, letters in (
        ("0-3+*-", "0123+*-"),
        ("-a", "-a"),
        (r"a\-z", "a-z"),
        (r"a\]\\", "a]\\"),
        ("a-cx-z", "abcxyz"),
    ):
        assert "".join(get_machine(f"regex[{alphabet}]:.*").symbol_names) == letters
    for alphabet, message in (
        ("+-*", "empty or longer than 256 letters; for the letter -"),
        ("a-cb", "a letter twice"),
    ):
        with pytest.raises(FormatError, match=message):
            get_machine(f"regex[{alphabet}]:.*")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "a group is not closed, ')' is missing at position 1 of the expression '('"),
        ("a)", "unexpected ')' at position 1"),
        ("*a", "nothing to repeat before '*' at position 0"),
        ("a{3", "a repetition is written {3}, {2,} or {2,4}"),
        ("a{,2}", "a repetition is written {3}, {2,} or {2,4}"),
        ("a{x}", "a repetition is written {3}, {2,} or {2,4}"),
        ("a{4,2}", "write the smaller number first"),
        ("[a", "a class is not closed"),
        ("[b-a]", "the range b-a is empty"),
        ("a\\", "a backslash needs a letter after it"),
        ("]", r"the letter is written \]"),
        ("", "has no letters; pass an alphabet"),
        ("(.)*", "has no letters; pass an alphabet"),
        ("(a|b)*a(a|b){30}", "needs more than 10,000 states"),
        ("(a{999}){999}", "more than 10,000 pieces"),
        ("a{99999}", "more than 10,000 pieces"),
        ("(a?){3000}", "too many optional parts"),
        ("(a{0,99}){0,99}", "too many optional parts"),
        ("(a?){1500}", "too many optional parts"),
        ("^a", "'^' is not needed, whole strings are matched"),
        (r"\d+", r"\d has no meaning"),
        (r"\d+", r"of the expression '\d+'"),
        ("(?:ab)*", "groups that start with (? are not supported"),
        ("a{٣}", "a repetition is written"),
        ("(" * 5000 + "a" + ")" * 5000, "nested too deeply"),
        ("a" + "*" * 5000, "nested too deeply"),
    ],
)
def test_invalid_expressions_are_refused_quickly(pattern: str, message: str) -> None:
    started = time.process_time()
    with pytest.raises(FormatError) as caught:
        get_machine(f"regex:{pattern}")
    assert message in str(caught.value)
    assert time.process_time() - started < 5


def test_letters_outside_the_alphabet() -> None:
    with pytest.raises(FormatError, match="the letter 'c' is not in the alphabet 'ab'"):
        regex_machine("abc", "ab")
    with pytest.raises(FormatError, match="contains a letter twice"):
        regex_machine("a", "aba")
