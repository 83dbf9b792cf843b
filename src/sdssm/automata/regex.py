"""Regular expressions to machines: a parser, a nondeterministic automaton, and its subsets.

    letters        any character but \\ | * + ? ( ) [ ] { } . ^ $ ; a backslash before a sign makes it a letter
    .  [ab]  [^a]  [a-z]   any letter of the alphabet; one of those listed; any but those
    e*  e+  e?  e{3}  e{2,}  e{2,4}   repetition
    e|f  ef  (e)  ()      either, one after the other, grouping, the empty string

The machine accepts exactly the whole strings that match: output 1, every other state 0, the sink included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sdssm.automata.machine import Machine
from sdssm.errors import FormatError

#: Bounds that keep an expression from blowing up: its pieces once repetitions are written out, the moves that read no
#: letter between them, the sets of states put together, and the states of its machine. A second or two, all in all.
MOST_PIECES = 10_000
MOST_MOVES = 1_000_000
MOST_WORK = 20_000_000
MOST_STATES = 10_000


@dataclass
class _Nfa:
    """A Thompson automaton: `empty[q]` are the moves without a letter, `moves[q]` maps a set of letters to a state."""

    empty: list[list[int]]
    moves: list[tuple[frozenset[str], int] | None]

    def new(self) -> int:
        if len(self.empty) >= 2 * MOST_PIECES:
            raise FormatError(f"the expression has more than {MOST_PIECES:,} pieces once written out; repeat less")
        self.empty.append([])
        self.moves.append(None)
        return len(self.empty) - 1


#: A parsed piece, which adds itself to an automaton between two new states and returns them.
_Build = Callable[[_Nfa], tuple[int, int]]


def regex_machine(pattern: str, alphabet: str | None = None) -> Machine:
    """The minimal machine that accepts the strings matching `pattern` (alphabet: the letters that occur, sorted).

    >>> even_ones = regex_machine("0*(10*10*)*")
    >>> even_ones.output("0110"), even_ones.output("010"), even_ones.n_states
    (1, 0, 2)
    """
    nfa = _Nfa([], [])
    try:
        letters = _Parser(pattern, None).letters() if alphabet is None else alphabet
        if len(set(letters)) != len(letters):
            raise FormatError(f"the alphabet {letters!r} names a letter twice; name each once")
        if not letters:
            raise FormatError(f"the expression {pattern!r} has no letters; give an alphabet, as in regex[01]:{pattern}")
        first, last = _Parser(pattern, frozenset(letters)).parse()(nfa)
    except RecursionError:
        raise FormatError("the expression is nested too deeply; write it with fewer groups inside groups") from None
    return _subsets(nfa, first, last, letters).minimise()


class _Parser:
    """Recursive descent over one expression; `parse` returns a builder so that repetitions can be written out."""

    def __init__(self, pattern: str, alphabet: frozenset[str] | None) -> None:
        self.pattern, self.alphabet, self.at = pattern, alphabet, 0
        self.seen: set[str] = set()

    def letters(self) -> str:
        """The letters that occur, sorted (a parser without an alphabet takes every letter)."""
        self.parse()
        return "".join(sorted(self.seen))

    def parse(self) -> _Build:
        out = self._either()
        if self.at < len(self.pattern):
            raise self._error(f"unexpected {self.pattern[self.at]!r}")
        return out

    def _error(self, what: str) -> FormatError:
        shown = self.pattern if len(self.pattern) <= 60 else self.pattern[:57] + "..."
        return FormatError(f"{what} at place {self.at} of the expression {shown!r}")

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def _take(self, expected: str) -> bool:
        if self._peek() == expected:
            self.at += 1
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
        out = self._atom()
        while self._peek() and self._peek() in "*+?{":
            low, high = self._counts()
            out = _repeat(out, low, high)
        return out

    def _counts(self) -> tuple[int, int | None]:
        sign = self._peek()
        self.at += 1
        if sign != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        end = self.pattern.find("}", self.at)
        low, comma, high = self.pattern[self.at : max(end, self.at)].partition(",")
        if end < 0 or not _digits(low) or not (_digits(high) or not high) or len(low + high) > 9:
            raise self._error("a repetition is written {3}, {2,} or {2,4}, and this one is not,")
        least, most = int(low), (int(high) if high else None) if comma else int(low)
        if most is not None and most < least:
            raise self._error(f"a repetition from {least} to {most} is empty; write the smaller number first")
        self.at = end + 1
        return least, most

    def _atom(self) -> _Build:
        c = self._peek()
        if c in "*+?{":
            raise self._error(f"nothing to repeat before {c!r}")
        if c in "]}":
            raise self._error(f"unexpected {c!r} (the letter is written \\{c})")
        if c in "^$":
            raise self._error(f"{c!r} is not needed, whole strings are matched (the letter is written \\{c}); found")
        if self._take("("):
            out = self._either()
            if not self._take(")"):
                raise self._error("a group is not closed, ')' is missing")
            return out
        if self._take("["):
            return _letter(self._class())
        if self._take("."):
            return _letter(self.alphabet or frozenset())
        return _letter(frozenset(self._letter()))

    def _class(self) -> frozenset[str]:
        inverted = self._take("^")
        chosen: set[str] = set()
        while not self._take("]"):
            if not self._peek():
                raise self._error("a class is not closed, ']' is missing")
            low = self._letter()
            chosen.add(low)
            if self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._letter()
                if not ord(low) <= ord(high) <= ord(low) + 255:
                    raise self._error(f"the range {low}-{high} is empty or longer than 256 letters")
                span = {chr(c) for c in range(ord(low), ord(high) + 1)}
                chosen |= span
                self._note(span)
        return (self.alphabet or frozenset()) - chosen if inverted else frozenset(chosen)

    def _letter(self) -> str:
        escaped = self._take("\\")
        c = self._peek()
        if not c:
            raise self._error("a backslash needs a letter after it" if escaped else "the expression ends too early")
        if escaped and c.isalnum():
            raise self._error(f"\\{c} stands for nothing here (a backslash goes before a sign such as \\*); found")
        self.at += 1
        self._note({c})
        return c

    def _note(self, letters: set[str]) -> None:
        self.seen |= letters
        foreign = sorted(letters - self.alphabet) if self.alphabet is not None else []
        if foreign:
            known = "".join(sorted(self.alphabet or ()))
            raise self._error(f"the letter {foreign[0]!r} is not in the alphabet {known!r}")


def _digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _letter(letters: frozenset[str]) -> _Build:
    def build(nfa: _Nfa) -> tuple[int, int]:
        first, last = nfa.new(), nfa.new()
        nfa.moves[first] = letters, last
        return first, last

    return build


def _sequence(parts: list[_Build]) -> _Build:
    def build(nfa: _Nfa) -> tuple[int, int]:
        first = last = nfa.new()
        for part in parts:
            begin, end = part(nfa)
            nfa.empty[last].append(begin)
            last = end
        return first, last

    return build


def _either(branches: list[_Build]) -> _Build:
    def build(nfa: _Nfa) -> tuple[int, int]:
        first, last = nfa.new(), nfa.new()
        for branch in branches:
            begin, end = branch(nfa)
            nfa.empty[first].append(begin)
            nfa.empty[end].append(last)
        return first, last

    return build


def _repeat(part: _Build, low: int, high: int | None) -> _Build:
    """`low` copies, then a loop, or copies that may each be the last."""

    def build(nfa: _Nfa) -> tuple[int, int]:
        first = last = nfa.new()
        done = nfa.new()
        for k in range(low if high is None else high):
            if k >= low:
                nfa.empty[last].append(done)
            begin, end = part(nfa)
            nfa.empty[last].append(begin)
            last = end
        if high is None:
            begin, end = part(nfa)
            nfa.empty[last].append(begin)
            nfa.empty[end].append(last)
        nfa.empty[last].append(done)
        return first, done

    return build


def _subsets(nfa: _Nfa, first: int, last: int, letters: str) -> Machine:
    """The deterministic machine: a state is the set of states the expression's automaton may be in."""
    closures = _closures(nfa, {first, *(move[1] for move in nfa.moves if move)})
    number = {closures[first]: 0}
    rows: list[list[int]] = []
    work = 0
    for subset in (order := [closures[first]]):
        targets: dict[str, set[int]] = {letter: set() for letter in letters}
        for accepted, there in filter(None, (nfa.moves[q] for q in subset)):
            for letter in accepted & targets.keys():
                targets[letter] |= closures[there]
                work += len(closures[there])
        if work > MOST_WORK:
            raise FormatError("the expression can be read in too many ways at once; write it with fewer options")
        for target in map(frozenset, targets.values()):
            if target not in number:
                if len(number) >= MOST_STATES:
                    raise FormatError(f"the expression needs more than {MOST_STATES:,} states; write a smaller one")
                number[target] = len(number)
                order.append(target)
        rows.append([number[frozenset(target)] for target in targets.values()])
    return Machine(table=np.array(rows), outputs=[int(last in subset) for subset in order], symbols=list(letters))


def _closures(nfa: _Nfa, starts: set[int]) -> dict[int, frozenset[int]]:
    """What each of `starts` reaches without a letter, kept to what matters: states that move, and the last one."""
    out: dict[int, frozenset[int]] = {}
    moves = 0
    for start in sorted(starts):
        seen = {start}
        for q in (waiting := [start]):
            fresh = [there for there in nfa.empty[q] if there not in seen]
            seen.update(fresh)
            waiting += fresh
        moves += len(seen)
        if moves > MOST_MOVES:
            raise FormatError("the expression has too many optional parts one after the other; write fewer of them")
        out[start] = frozenset(q for q in seen if nfa.moves[q] is not None or not nfa.empty[q])
    return out
