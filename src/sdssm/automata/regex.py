"""Regular expressions as machines: a parser, a Thompson automaton, and the subset construction.

    letters        any character but \\ | * + ? ( ) [ ] { } . ^ $ ; a backslash makes these letters
    .  [ab]  [^a]  [a-z]   any letter of the alphabet; a letter of a set; a letter not in a set
    e*  e+  e?  e{3}  e{2,}  e{2,4}   repetition
    e|f  ef  (e)  ()      alternatives, concatenation, grouping, the empty string

The machine has output 1 after the strings that match as a whole, and 0 after all others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sdssm.automata.machine import Machine
from sdssm.errors import FormatError, format_value
from sdssm.limits import MOST_STATES_BUILT

#: Limits on the size of an expression: its characters, its pieces after repetitions are expanded, the moves between
#: them that read no letter, and the total size of the sets of states. Within them, and `MOST_STATES_BUILT`, it takes
#: a second or two.
MOST_CHARACTERS = 100_000
MOST_PIECES = 10_000
MOST_MOVES = 1_000_000
MOST_WORK = 20_000_000
#: The most letters of a range such as a-z.
MOST_IN_RANGE = 256


@dataclass
class _Nfa:
    """A Thompson automaton.

    `empty[q]` are the states reached from q without reading a letter, `moves[q]` is a set of letters and the state that
    they lead to.
    """

    empty: list[list[int]]
    moves: list[tuple[frozenset[str], int] | None]

    def add_state(self) -> int:
        """Add a state, and return its number."""
        if len(self.empty) >= 2 * MOST_PIECES:
            raise FormatError(
                f"the expression has more than {MOST_PIECES:,} pieces after repetitions are expanded; repeat less"
            )
        self.empty.append([])
        self.moves.append(None)
        return len(self.empty) - 1


#: A parsed piece: a function that adds it to an automaton between two new states, and returns these.
_Build = Callable[[_Nfa], tuple[int, int]]


def regex_machine(pattern: str, alphabet: str | None = None) -> Machine:
    """Return the minimal machine with output 1 on the strings that match `pattern`, else 0.

    The alphabet is by default the letters that occur in the pattern, sorted. `alphabet` lists its letters one by one;
    only the name of a machine, `regex[a-z]:...`, may contain ranges.

    >>> even_ones = regex_machine("0*(10*10*)*")
    >>> even_ones.output("0110"), even_ones.output("010"), even_ones.n_states
    (1, 0, 2)
    """
    if len(pattern) > MOST_CHARACTERS:
        raise FormatError(f"the expression has {len(pattern):,} characters; write at most {MOST_CHARACTERS:,}")
    nfa = _Nfa([], [])
    try:
        letters = _RegexParser(pattern, None).letters() if alphabet is None else alphabet
        if len(set(letters)) != len(letters):
            raise FormatError(f"the alphabet {format_value(letters)} contains a letter twice; list each letter once")
        if not letters:
            raise FormatError(
                f"the expression {format_value(pattern)} has no letters; pass an alphabet, as in regex[01]:..."
            )
        first, last = _RegexParser(pattern, frozenset(letters)).parse()(nfa)
    except RecursionError:
        raise FormatError("the expression is nested too deeply; write it with fewer groups inside groups") from None
    return _subset_construction(nfa, first, last, letters).minimise()


def expand_alphabet(text: str) -> str:
    """Return the letters of an alphabet with ranges; a literal - comes first or last or has a backslash before it.

    >>> expand_alphabet("a-f0-3"), expand_alphabet("+-"), expand_alphabet(r"a\\-z")
    ('abcdef0123', '+-', 'a-z')
    """
    tokens = re.findall(r"\\?.", text, re.DOTALL)  # each a letter, perhaps with a backslash
    letters: list[str] = []
    position = 0
    while position < len(tokens):
        low = tokens[position][-1]
        if tokens[position + 1 : position + 2] == ["-"] and position + 2 < len(tokens):
            high = tokens[position + 2][-1]
            if not ord(low) < ord(high) <= ord(low) + MOST_IN_RANGE - 1:
                raise FormatError(
                    f"the range {low}-{high} in the alphabet {format_value(text)} is empty or longer than "
                    f"{MOST_IN_RANGE} letters; for the letter - write it first or last, or \\-"
                )
            letters += map(chr, range(ord(low), ord(high) + 1))
            position += 3
        else:
            letters.append(low)
            position += 1
    return "".join(letters)


class _RegexParser:
    """A recursive descent parser of one expression.

    `parse` returns a function that builds the automaton, so that a piece can be repeated.
    """

    def __init__(self, pattern: str, alphabet: frozenset[str] | None) -> None:
        self.pattern, self.alphabet, self.position = pattern, alphabet, 0
        self.seen: set[str] = set()

    def letters(self) -> str:
        """Return the letters that occur, sorted. A parser without an alphabet accepts every letter."""
        self.parse()
        return "".join(sorted(self.seen))

    def parse(self) -> _Build:
        """Parse the whole expression."""
        piece = self._either()
        if self.position < len(self.pattern):
            raise self._error(f"unexpected {self.pattern[self.position]!r}")
        return piece

    def _error(self, message: str) -> FormatError:
        pattern = format_value(self.pattern).replace("\\\\", "\\")  # as it was typed
        return FormatError(f"{message} at position {self.position} of the expression {pattern}")

    def _peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def _take(self, expected: str) -> bool:
        if self._peek() == expected:
            self.position += 1
            return True
        return False

    def _either(self) -> _Build:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else _either(branches)

    def _sequence(self) -> _Build:
        parts: list[_Build] = []
        while self._peek() and self._peek() not in "|)":
            parts.append(self._repeated())
        return _sequence(parts)

    def _repeated(self) -> _Build:
        piece = self._atom()
        while self._peek() and self._peek() in "*+?{":
            low, high = self._counts()
            piece = _repeat(piece, low, high)
        return piece

    def _counts(self) -> tuple[int, int | None]:
        sign = self._peek()
        self.position += 1
        if sign != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        end = self.pattern.find("}", self.position)
        low, comma, high = self.pattern[self.position : max(end, self.position)].partition(",")
        if end < 0 or not _is_digits(low) or not (_is_digits(high) or not high) or len(low + high) > 9:
            raise self._error("a repetition is written {3}, {2,} or {2,4}; fix the one")
        least, most = int(low), (int(high) if high else None) if comma else int(low)
        if most is not None and most < least:
            raise self._error(f"a repetition from {least} to {most} is empty; write the smaller number first")
        self.position = end + 1
        return least, most

    def _atom(self) -> _Build:
        c = self._peek()
        if c == "?" and self.pattern[self.position - 1 : self.position] == "(":
            raise self._error(
                "groups that start with (? are not supported (write a plain one, as in (ab)); this one starts"
            )
        if c in "*+?{":
            raise self._error(f"nothing to repeat before {c!r}")
        if c in "]}":
            raise self._error(f"unexpected {c!r} (the letter is written \\{c})")
        if c in "^$":
            raise self._error(
                f"{c!r} is not needed, whole strings are matched (the letter is written \\{c}); it occurs"
            )
        if self._take("("):
            piece = self._either()
            if not self._take(")"):
                raise self._error("a group is not closed, ')' is missing")
            return piece
        if self._take("["):
            return _letter_piece(self._letter_set())
        if self._take("."):
            return _letter_piece(self.alphabet or frozenset())
        return _letter_piece(frozenset(self._letter()))

    def _letter_set(self) -> frozenset[str]:
        inverted = self._take("^")
        chosen: set[str] = set()
        while not self._take("]"):
            if not self._peek():
                raise self._error("a class is not closed, ']' is missing")
            low = self._letter()
            chosen.add(low)
            if self._peek() == "-" and self.pattern[self.position + 1 : self.position + 2] not in ("]", ""):
                self.position += 1
                high = self._letter()
                if not ord(low) <= ord(high) < ord(low) + MOST_IN_RANGE:
                    raise self._error(f"the range {low}-{high} is empty or longer than {MOST_IN_RANGE} letters")
                span = {chr(c) for c in range(ord(low), ord(high) + 1)}
                chosen |= span
                self._record(span)
        return (self.alphabet or frozenset()) - chosen if inverted else frozenset(chosen)

    def _letter(self) -> str:
        escaped = self._take("\\")
        c = self._peek()
        if not c:
            raise self._error("a backslash needs a letter after it" if escaped else "the expression ends too early")
        if escaped and c.isalnum():
            raise self._error(f"\\{c} has no meaning (a backslash goes before a sign such as \\*); it occurs")
        self.position += 1
        self._record({c})
        return c

    def _record(self, letters: set[str]) -> None:
        self.seen |= letters
        foreign = sorted(letters - self.alphabet) if self.alphabet is not None else []
        if foreign:
            known = "".join(sorted(self.alphabet or ()))
            raise self._error(f"the letter {foreign[0]!r} is not in the alphabet {format_value(known)}")


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _letter_piece(letters: frozenset[str]) -> _Build:
    def build(nfa: _Nfa) -> tuple[int, int]:
        first, last = nfa.add_state(), nfa.add_state()
        nfa.moves[first] = letters, last
        return first, last

    return build


def _sequence(parts: list[_Build]) -> _Build:
    def build(nfa: _Nfa) -> tuple[int, int]:
        first = last = nfa.add_state()
        for part in parts:
            entry, end = part(nfa)
            nfa.empty[last].append(entry)
            last = end
        return first, last

    return build


def _either(branches: list[_Build]) -> _Build:
    def build(nfa: _Nfa) -> tuple[int, int]:
        first, last = nfa.add_state(), nfa.add_state()
        for branch in branches:
            entry, end = branch(nfa)
            nfa.empty[first].append(entry)
            nfa.empty[end].append(last)
        return first, last

    return build


def _repeat(part: _Build, low: int, high: int | None) -> _Build:
    """Repeat a piece `low` times, and then any number of times (high is None) or up to `high` times."""

    def build(nfa: _Nfa) -> tuple[int, int]:
        first = last = nfa.add_state()
        done = nfa.add_state()
        for k in range(low if high is None else high):
            if k >= low:
                nfa.empty[last].append(done)
            entry, end = part(nfa)
            nfa.empty[last].append(entry)
            last = end
        if high is None:
            entry, end = part(nfa)
            nfa.empty[last].append(entry)
            nfa.empty[end].append(last)
        nfa.empty[last].append(done)
        return first, done

    return build


def _subset_construction(nfa: _Nfa, first: int, last: int, letters: str) -> Machine:
    """Return the deterministic machine whose states are the reachable sets of states of the NFA."""
    closures = _closures(nfa, {first, *(move[1] for move in nfa.moves if move)})
    number = {closures[first]: 0}
    rows: list[list[int]] = []
    work = 0
    for subset in (order := [closures[first]]):
        targets: dict[str, set[int]] = {letter: set() for letter in letters}
        for accepted, target in filter(None, (nfa.moves[q] for q in subset)):
            for letter in accepted & targets.keys():
                targets[letter] |= closures[target]
                work += len(closures[target])
        if work > MOST_WORK:
            raise FormatError("the expression can be read in too many ways at once; write it with fewer options")
        for next_subset in map(frozenset, targets.values()):
            if next_subset not in number:
                if len(number) >= MOST_STATES_BUILT:
                    raise FormatError(
                        f"the expression needs more than {MOST_STATES_BUILT:,} states; write a smaller one"
                    )
                number[next_subset] = len(number)
                order.append(next_subset)
        rows.append([number[frozenset(states)] for states in targets.values()])
    return Machine(table=np.array(rows), outputs=[int(last in subset) for subset in order], symbols=list(letters))


def _closures(nfa: _Nfa, starts: set[int]) -> dict[int, frozenset[int]]:
    """Return the relevant states that each of `starts` reaches without reading a letter.

    Relevant are the states that read a letter, and the last state.
    """
    closures: dict[int, frozenset[int]] = {}
    moves = 0
    for start in sorted(starts):
        seen = {start}
        for q in (pending := [start]):
            new = [target for target in nfa.empty[q] if target not in seen]
            seen.update(new)
            pending += new
        moves += len(seen)
        if moves > MOST_MOVES:
            raise FormatError("the expression has too many optional parts one after the other; write fewer of them")
        closures[start] = frozenset(q for q in seen if nfa.moves[q] is not None or not nfa.empty[q])
    return closures
