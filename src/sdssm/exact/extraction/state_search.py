"""Find candidate machines by exploring the states of a model, and refine them with counterexamples."""

from __future__ import annotations

import math

from sdssm.automata import Machine
from sdssm.exact.extraction.candidates import (
    COARSER,
    DIFFER,
    CandidateMachines,
    SearchResult,
    explain_stop,
    too_many_states,
)
from sdssm.exact.extraction.model_reader import ModelReader, Word
from sdssm.exact.extraction.state_graph import StateGraph, distinguishing_suffix, explore_states

#: Distances within which states are joined, from coarse to fine, relative to the mean distance of states from their
#: mean. The finer ones are for models whose labels say little about their states.
JOIN_DISTANCES = (math.inf, 1.0, 0.5, 0.25, 0.125)
#: Distances down to this one are always tried: the graph may contain states that random strings do not reach.
ALWAYS_TRIED = 0.5
#: Number of counterexamples that one round learns from.
COUNTEREXAMPLES = 8
#: Limits on the rounds of counterexamples, and on those in a row that bring no improvement.
MOST_ROUNDS, MOST_STALE = 40, 4


def search_by_states(candidates: CandidateMachines, max_states: int) -> SearchResult:
    """Add candidates by exploring states, first from coarse to fine, then in rounds of counterexamples.

    If the time is up, at least one candidate exists, from the states found so far.
    """
    reader, suffixes = candidates.reader, list[Word]()
    graphs: dict[Machine, tuple[float, StateGraph]] = {}
    for distance in JOIN_DISTANCES:
        graph = explore_states(reader, distance=distance, suffixes=suffixes, max_states=max_states)
        if graph is None:
            break
        machine = candidates.add(graph.table, graph.labels, graph.valid_states)
        graphs.setdefault(machine, (distance, graph))
        if reader.watch.is_over:
            return _stopped(reader, 0, graph)
        if distance <= ALWAYS_TRIED and candidates.error(machine) == 0:
            break
    if not graphs:
        raise too_many_states(max_states)
    machine = candidates.best()
    distance, graph = graphs[machine]
    least, stale = candidates.error(machine), 0
    for done in range(MOST_ROUNDS):
        if reader.watch.is_over:
            return _stopped(reader, done, graph)
        wrong = candidates.counterexamples(machine, [*map(graph.word_to, range(1, len(graph.labels)))])
        derived = (distinguishing_suffix(reader, graph, word) for word in wrong[:COUNTEREXAMPLES])
        fresh = [suffix for suffix in dict.fromkeys(derived) if suffix is not None and suffix not in suffixes]
        if not fresh:
            return SearchResult(done, DIFFER if wrong else None)
        finer = _explore_finer(reader, distance, suffixes, fresh, max_states)
        if finer is None:
            return SearchResult(done, COARSER.format(max_states))
        distance, suffixes, graph = finer
        if not graph.is_complete:  # the machines found before know all states that they reach
            return _stopped(reader, done, graph)
        machine = candidates.add(graph.table, graph.labels, graph.valid_states)
        error = candidates.error(machine)
        least, stale = (error, 0) if error < least else (least, stale + 1)
        if stale == MOST_STALE:
            break
    return SearchResult(done + 1, DIFFER)


def _explore_finer(
    reader: ModelReader, distance: float, suffixes: list[Word], fresh: list[Word], max_states: int
) -> tuple[float, list[Word], StateGraph] | None:
    """Explore with all new suffixes, or with the first only if all of them distinguish too many states."""
    for added in (fresh, fresh[:1]):
        for within in dict.fromkeys((distance, math.inf)):
            extended = [*suffixes, *added]
            graph = explore_states(reader, distance=within, suffixes=extended, max_states=max_states)
            if graph is not None:
                return within, extended, graph
    return None


def _stopped(reader: ModelReader, rounds: int, graph: StateGraph) -> SearchResult:
    """Return what is known when the time is up."""
    return SearchResult(rounds, explain_stop(reader.watch, len(graph.labels) - 1), stopped=True)
