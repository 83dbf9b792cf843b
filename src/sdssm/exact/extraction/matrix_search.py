"""Find the machine of a linear recurrence: candidates from its states, tested on strings that cover each of them.

States join if their labels agree after every suffix in a list. Suffixes are added as long as two joined states lead to
different labels (Angluin 1987; Rivest and Schapire 1993). The strings that are read grow longer step by step, so a
model that is correct on short strings gives its machine, however much it drifts later: the machine that no longer
changes from one length to the next is found before the strings that the model misclassifies.

A model that misclassifies a few short strings distinguishes ever more states. Then states join unless a suffix
distinguishes them clearly: with a gap between the best and the second class that is not small from both.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.exact.errors import TimeIsUpError
from sdssm.exact.extraction.candidates import (
    COARSER,
    DIFFER,
    CandidateMachines,
    SearchResult,
    explain_stop,
    too_many_states,
)
from sdssm.exact.extraction.distinguishing import DistinguishingSuffixes
from sdssm.exact.extraction.explored_classes import (
    ClassExplorer,
    ClassGraph,
    JoinByCentres,
    JoinBySuffixes,
    JoinNearest,
    JoinRule,
)
from sdssm.exact.extraction.labelled_strings import LabelledStrings
from sdssm.exact.extraction.model_reader import ModelReader, smallest_margin
from sdssm.exact.extraction.token_matrices import SuffixRows, TokenMatrices
from sdssm.exact.watch import UNWATCHED, Watch
from sdssm.models import Classifier

#: Lengths up to which strings are read, one after the other.
HORIZONS = (4, 6, 8, 10, 12, 16, 20, 28)
#: Limit on the rounds of new suffixes for each of them.
MOST_ROUNDS = 60
#: If this many times the states, and some more, are found for longer strings, they must reduce the error to this share.
GROWTH, MORE_STATES, USEFUL = 2, 16, 0.8
#: Distances within which states of norm 1 join.
DISTANCES = (0.5, 0.25, 0.125, 0.0625)
#: A machine from near states must agree with the model up to at least this length.
SHORT = 12
#: Gaps below which a label is not clear, relative to the median gap.
TOLERANCES = (0.0, 0.05, 0.2)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A machine that may be that of the model, and the classes of model states that it comes from."""

    machine: Machine
    graph: ClassGraph
    longest: int  #: it agrees with the model on all strings up to this length that were read


@dataclass(frozen=True, eq=False)
class FoundMachine:
    """The best candidate, None if there is none, and the evidence for it.

    `error` is the share of labels on which machine and model differ; the label after t symbols has the weight 1/t^2.
    """

    candidate: Candidate | None
    error: float
    explored: int  #: number of the model's states that were stepped to
    rounds: int  #: rounds of new suffixes
    too_many: bool  #: whether the labels of the model distinguish more states than allowed
    stopped: bool  #: whether the time limit ended the search


class MatrixSearch:
    """Searches the machine of a linear recurrence; strings up to the length `longest` are read."""

    def __init__(
        self, matrices: TokenMatrices, *, max_states: int, longest: int, seed: int = 0, watch: Watch = UNWATCHED
    ) -> None:
        self.matrices, self.watch = matrices, watch
        self.horizons = [length for length in HORIZONS if length < longest] + [longest]
        self.explorer = ClassExplorer(matrices, max_states, watch)
        self.strings = LabelledStrings(matrices, longest, np.random.default_rng(seed), watch)
        self.start_label = int(matrices.labels(matrices.start[None])[0])
        self.candidates: list[Candidate] = []
        self.rounds, self.too_many = 0, False

    def run(self) -> FoundMachine:
        """Return the best machine that is found in time."""
        stopped = False
        self.watch.start("explore the states of the model", unit="states")
        try:
            # A model with centres says itself which states it distinguishes. If it drifts, suffixes would distinguish
            # the states that its errors lead to: more than are searched in a minute with 64 symbols, and no use.
            is_found = self._search_centres() or self._search_near()
            if not is_found and not self.matrices.has_centres:
                for tolerance in TOLERANCES:
                    if self._search(tolerance):
                        break
            if not self.candidates:
                self._join_by_labels()
        except TimeIsUpError:
            stopped = True
            if not self.candidates and self.explorer.partial is not None:
                graph = self.explorer.partial
                self.candidates.append(Candidate(graph.build_machine(self.start_label), graph, 0))
        best, error = self._best()
        return FoundMachine(best, error, self.explorer.explored, self.rounds, self.too_many, stopped)

    def _search_centres(self) -> bool:
        """Add the candidate of states that join if the same centre of the readout is nearest; return whether it fits.

        A model that was trained with a centre for each state of an automaton says itself which states it distinguishes.
        """
        if not self.matrices.has_centres:
            return False
        graph = self.explorer.explore(JoinByCentres(self.matrices))
        return graph is not None and self._fits(self._add(graph, 0))

    def _fits(self, candidate: Candidate) -> bool:
        """Whether a candidate agrees with the model on all short strings that were read."""
        checked = min(self.strings.longest, max(SHORT, GROWTH * candidate.graph.depth))
        return self.strings.error(candidate.machine, checked) == 0

    def _search_near(self) -> bool:
        """Add candidates of states that join if they are near; return whether one fits and is the same for half as far.

        A model whose states of one class are nearer to each other than to others gives its machine at once, and with
        it the states that only long strings distinguish.
        """
        suffixes = SuffixRows(self.matrices)
        suffixes.add([()])
        last = None
        for distance in DISTANCES:
            graph = self.explorer.explore(JoinNearest(suffixes, tolerance=0.0, distance=distance))
            if graph is None:
                return False
            candidate = self._add(graph, 0)
            if last is not None and candidate.machine == last.machine:
                return self._fits(candidate)
            last = candidate
        return False

    def _join_by_labels(self) -> None:
        """Add the candidate of states that join if they have the same label, a coarse approximation."""
        suffixes = SuffixRows(self.matrices)
        suffixes.add([()])
        graph = self.explorer.explore(JoinBySuffixes(suffixes))
        if graph is not None:
            self._add(graph, 0)

    def _add(self, graph: ClassGraph, horizon: int) -> Candidate:
        candidate = Candidate(graph.build_machine(self.start_label), graph, horizon)
        self.strings.cover(graph)
        self.candidates.append(candidate)
        return candidate

    def _search(self, tolerance: float) -> bool:
        """Add candidates for longer and longer strings; return whether one stayed the same for a longer length."""
        suffixes = SuffixRows(self.matrices)
        suffixes.add([(), *((symbol,) for symbol in range(self.matrices.n_symbols))])
        limit = tolerance * self._median_gap(suffixes)
        finder = DistinguishingSuffixes(suffixes, self.strings, limit)

        def make_rule() -> JoinRule:
            return JoinNearest(suffixes, tolerance=limit) if tolerance else JoinBySuffixes(suffixes)

        last = self._refine(make_rule, finder, self.horizons[0], None)
        unchanged = False
        for horizon in self.horizons[1:]:
            if last is None:
                return unchanged
            refined = self._refine(make_rule, finder, horizon, last)
            if refined is None:
                return unchanged
            unchanged = refined.machine == last.machine
            last = refined
        return last is not None

    def _refine(
        self, make_rule: Callable[[], JoinRule], finder: DistinguishingSuffixes, horizon: int, last: Candidate | None
    ) -> Candidate | None:
        """Add suffixes until no joined states are known to differ; return None if that does not end."""
        limit = None if last is None else GROWTH * last.machine.n_states + MORE_STATES
        for _ in range(MOST_ROUNDS):
            graph = self.explorer.explore(make_rule())
            if graph is None:
                self.too_many = True
                return None
            fresh = finder.find(graph, horizon)
            if not fresh or (limit is not None and len(graph.labels) > limit):
                candidate = self._add(graph, horizon)
                if not fresh:
                    return candidate
                assert last is not None
                before, after = (self.strings.error(c.machine, horizon) for c in (last, candidate))
                if after > USEFUL * before:
                    return None
                limit = GROWTH * len(graph.labels)
            self.rounds += 1
            finder.suffixes.add(fresh)
        return None

    def _median_gap(self, suffixes: SuffixRows) -> float:
        """Return the median gap of the labels after the suffixes, at states after short strings."""
        states = self.matrices.successors(self.matrices.successors(self.matrices.start[None])[0]).flatten(0, 1)
        return float(np.median(suffixes.predictions(states).gaps))

    def _best(self) -> tuple[Candidate | None, float]:
        """Return the smallest machine with at most twice the error of the best one, and its error."""
        if not self.candidates:
            return None, 1.0
        errors = [self.strings.error(candidate.machine) for candidate in self.candidates]
        good = [k for k, error in enumerate(errors) if error <= 2 * min(errors)]
        best = min(good, key=lambda k: (self.candidates[k].machine.n_states, -self.candidates[k].longest))
        return self.candidates[best], errors[best]


def search_by_matrices(
    candidates: CandidateMachines, matrices: TokenMatrices, max_states: int, seed: int
) -> tuple[Machine, SearchResult, ClassGraph]:
    """Return the machine of a model that is a linear recurrence, how the search ended, and the states it comes from."""
    reader = candidates.reader
    search = MatrixSearch(matrices, max_states=max_states, longest=candidates.longest, seed=seed, watch=reader.watch)
    result = search.run()
    if result.candidate is None:
        if result.stopped:
            raise TimeIsUpError
        raise too_many_states(max_states)
    graph, note = result.candidate.graph, None
    reader.explored += result.explored
    with suppress(TimeIsUpError):  # the machine is known, whatever its margin
        _read_margin(reader, graph)
    if result.stopped:
        note = explain_stop(reader.watch, len(graph.labels) - 1)
    elif result.error:
        note = COARSER.format(max_states) if result.too_many else DIFFER
    machine = result.candidate.machine
    named = Machine(table=machine.table, start=machine.start, outputs=machine.outputs, symbols=candidates.symbols)
    return named, SearchResult(result.rounds, note, stopped=result.stopped), graph


def _read_margin(reader: ModelReader, graph: ClassGraph) -> None:
    """Read the logits at the states after each symbol from the first state of each class."""
    reader.watch.start("read the logits at the explored states")
    states, symbols = len(graph.table), graph.table.shape[1]
    model = reader.model
    is_cosine = isinstance(model, Classifier) and model.readout.scale is not None and model.norm is None
    if isinstance(model, Classifier) and is_cosine and model.query is None:
        with torch.no_grad():  # the states are known, up to a factor that changes no cosine
            logits = model.logits(graph.successors.flatten(0, 1).to(model.device))
        reader.margin = min(reader.margin, smallest_margin(logits, np.ones(len(logits), dtype=bool)))
        return
    before = graph.points.repeat_interleave(symbols, 0).to(reader.model.device)
    logits = reader.read(np.tile(np.arange(symbols), states)[:, None], (before,))[1]
    reader.margin = min(reader.margin, smallest_margin(logits, np.ones(len(logits), dtype=bool)))
