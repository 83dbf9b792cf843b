"""States of an AT&T text file whose names look mistyped: without transitions, or never reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sdssm.errors import format_value

#: How many states of each kind are named; a generated file may have thousands.
SHOWN = 3


@dataclass(frozen=True)
class AttTransition:
    """A line with a transition."""

    line: int
    source: str
    target: str
    symbol: str
    output: str


def find_suspicious_states(
    transitions: Sequence[AttTransition], final: Mapping[str, int], start: str, *, is_acceptor: bool
) -> list[str]:
    """Return a sentence for each state that looks mistyped, with its first line.

    Args:
        transitions: the transitions in the order of the file.
        final: the line of each final state.
        start: the start state.
        is_acceptor: False for a Mealy machine, in which the last transition of a string has an output too, so that a
            state without transitions is of use.
    """
    lines: dict[str, int] = {}
    for state, line in sorted(
        [*final.items(), *((state, edge.line) for edge in transitions for state in (edge.source, edge.target))],
        key=lambda pair: pair[1],
    ):
        lines.setdefault(state, line)
    sources = {edge.source for edge in transitions}
    dead = [state for state in lines if state not in sources and state not in final and is_acceptor]
    reached = _reachable(transitions, start)
    unreached = [state for state in lines if state not in reached]
    entered = {edge.target for edge in transitions if edge.source != edge.target}
    # A mistyped name hides the states behind it too: name only the first of such a chain, or any state of a cycle.
    first = [state for state in unreached if state not in entered] or unreached[:1]
    return [
        *_sentences(dead, lines, "has no transitions and is not final, so all strings that reach it are rejected"),
        *_sentences(first, lines, "is not reached from the start state, so its lines are ignored"),
    ]


def _reachable(transitions: Sequence[AttTransition], start: str) -> set[str]:
    targets: dict[str, list[str]] = {}
    for edge in transitions:
        targets.setdefault(edge.source, []).append(edge.target)
    reached, waiting = {start}, [start]
    while waiting:
        fresh = set(targets.get(waiting.pop(), ())) - reached
        reached |= fresh
        waiting += fresh
    return reached


def _sentences(states: Sequence[str], lines: Mapping[str, int], fact: str) -> list[str]:
    shown = states if len(states) <= SHOWN + 1 else states[:SHOWN]
    sentences = [f"line {lines[state]}: state {format_value(state)} {fact}; is its name mistyped?" for state in shown]
    if len(states) > len(shown):
        sentences.append(f"{len(states) - len(shown)} more states: each {fact}")
    return sentences
