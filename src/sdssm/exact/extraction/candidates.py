"""Machines tried on a model: how often each disagrees with it, and on which strings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction.merging import COARSER, DIFFER, build_machine, distinguishing_suffix, too_many
from sdssm.exact.extraction.model_reader import NOT_ASKED, SAMPLE, ModelReader, Word, trace_states
from sdssm.exact.extraction.state_graph import StateGraph, explore_states
from sdssm.tasks import Task

#: How near states are taken for one as a first guess, of the mean distance from their mean; the rest of the guesses
#: are for models whose labels tell little of their states.
JOIN_DISTANCES = (math.inf, 1.0, 0.5, 0.25, 0.125)
#: A guess at least as fine as this is always made: it may know states that random strings do not meet.
FINE = 0.5
#: Strings that machines are tried on, and words that a round learns from.
TRIED, WORDS = 1024, 8
#: Rounds of counterexamples, and those in a row that bring nothing.
MOST_ROUNDS, MOST_STALE = 40, 4


@dataclass(frozen=True)
class Fidelity:
    """On how many of `strings` random valid strings of a length machine and model agree: at the end, and throughout."""

    length: int
    strings: int
    agree: int
    throughout: int

    @property
    def share(self) -> float:
        """The part of 1 that agrees at the end."""
        return self.agree / self.strings


def same_on(machine: Machine, other: Machine, valid: Machine | None = None) -> Word | None:
    """None where two machines agree on every (valid) string but the empty one, or else a shortest on which they differ.

    It is found among pairs of states (the product construction), so None is a proof.

    >>> flip = Machine(table=[[0, 1], [1, 0]])
    >>> same_on(flip, Machine(table=[[0, 1], [1, 1]])), same_on(flip, flip)
    ((1, 1), None)
    """
    return machine.distinguish(other, valid)


class CandidateMachines:
    """Machines that were tried, and how often each disagrees with the model."""

    def __init__(self, reader: ModelReader, symbols: tuple[str, ...] | None, longest: int, seed: int) -> None:
        self.reader, self.symbols = reader, symbols
        self.chance = torch.Generator().manual_seed(seed)
        # A task knows how to draw valid strings; what it labels them does not matter here.
        any_machine = Machine(table=[[0] * reader.n_symbols])
        self.task = Task(name="the machine of valid strings", machine=any_machine, valid=reader.valid)
        self.longest = reader.trusted = self.task.floor(longest)
        self.tokens = self.draw(TRIED, self.longest)
        self.labels = reader.labels(self.tokens)
        self.witnesses: dict[Word, int] = {}  # strings on which machines differed, and the model's label
        self.machines: list[Machine] = []
        reader.measure(self.draw(SAMPLE[0], self.task.floor(max(SAMPLE[1], self.longest))))
        self.start_label = reader.empty()

    def draw(self, strings: int, length: int) -> Ints:
        return self.task.sample(strings, length, generator=self.chance).tokens.numpy()

    def add(self, table: Ints, labels: Ints, places: Ints) -> Machine:
        """The machine of a graph, tried from now on; where it differs from others the model is asked."""
        machine = build_machine(table, labels, places, self.symbols, self.start_label)
        for other in self.machines[-len(JOIN_DISTANCES) :]:
            word = same_on(machine, other, self.reader.valid)
            if word is not None and len(word) <= max(self.longest, self.reader.valid.n_states):
                self.witnesses[word] = int(self.reader.labels(np.array([word]))[0, -1])
        if all(machine != other for other in self.machines):
            self.machines.append(machine)
        return machine

    def error(self, machine: Machine) -> float:
        """The share of labels on which it differs from the model; a witness against it counts a little.

        The label of a prefix of t symbols weighs 1/t: what a model says of long strings comes of drift as well.
        """
        weights = 1 / np.arange(1, self.longest + 1)
        wrong, asked = self.wrong(machine, self.tokens, self.labels), self.labels != NOT_ASKED
        share = float((wrong @ weights).sum() / (asked @ weights).sum())
        return max(share, 1e-9 * any(machine.output(word) != label for word, label in self.witnesses.items()))

    def wrong(self, machine: Machine, tokens: Ints, labels: Ints) -> np.ndarray:
        """At which prefixes of strings (B, L) it gives another label than the model: (B, L)."""
        told = machine.outputs[trace_states(machine.table, np.full(len(tokens), machine.start), tokens)]
        return np.asarray((told != labels) & (labels != NOT_ASKED))

    def best(self) -> Machine:
        """The smallest of those that disagree at most twice as often as the one that does least, or a tenth more."""
        errors = [self.error(machine) for machine in self.machines]
        most = min(errors) + min(*errors, 0.1)
        good = [m for m, error in zip(self.machines, errors, strict=True) if error <= most]
        return min(good, key=lambda machine: machine.n_states)

    def counterexamples(self, machine: Machine, words: Sequence[Word] = ()) -> list[Word]:
        """Shortest prefixes on which machine and model differ, the shortest of them first."""
        found = {word for word, label in self.witnesses.items() if machine.output(word) != label}
        for tokens in (self.draw(TRIED, self.longest), self.onwards(words)):
            if tokens is not None:
                wrong = self.wrong(machine, tokens, self.reader.labels(tokens))
                for row in np.flatnonzero(wrong.any(1)):
                    found.add(tuple(tokens[row, : int(wrong[row].argmax()) + 1].tolist()))
        return sorted(found, key=lambda word: (len(word), word))

    def onwards(self, words: Sequence[Word]) -> Ints | None:
        """Each word (some, where they are many) and from there a random way on along valid strings."""
        if not words:
            return None
        some = torch.randperm(len(words), generator=self.chance)[:TRIED].tolist()
        chosen = [words[k] for k in some]
        length = max(map(len, chosen)) + 8
        reader, tokens = self.reader, np.zeros((len(chosen), length), dtype=np.int64)
        draws = torch.rand(length, len(chosen), reader.n_symbols, generator=self.chance).numpy()
        state = np.full(len(chosen), reader.valid.start)
        for place in range(length):
            tokens[:, place] = np.where(reader.live[reader.table[state]], draws[place], -1).argmax(1)
            for row, word in enumerate(chosen):
                if place < len(word):
                    tokens[row, place] = word[place]
            state = reader.table[state, tokens[:, place]]
        return tokens

    def lengths(self, lengths: Iterable[int]) -> list[int]:
        """For each the greatest up to it that has a valid string, or the least of all; each once."""
        least = next(k for k in range(1, self.longest + 1) if self.task.has(k))
        return list(dict.fromkeys(self.task.floor(max(length, least)) for length in lengths))

    def fidelity(self, machine: Machine, length: int, strings: int) -> Fidelity:
        """On random strings of a length."""
        tokens = self.draw(strings, length)
        wrong = self.wrong(machine, tokens, self.reader.labels(tokens))
        return Fidelity(length, strings, strings - int(wrong[:, -1].sum()), strings - int(wrong.any(1).sum()))


def search_by_states(trial: CandidateMachines, max_states: int) -> tuple[int, str | None]:
    """Guesses from coarse to fine, then rounds of counterexamples: how many rounds, and what to know of the result."""
    reader, experiments = trial.reader, list[Word]()
    graphs: dict[Machine, tuple[float, StateGraph]] = {}
    for near in JOIN_DISTANCES:
        graph = explore_states(reader, near=near, experiments=experiments, most=max_states)
        if graph is None:
            break
        machine = trial.add(graph.table, graph.labels, graph.places)
        graphs.setdefault(machine, (near, graph))
        if near <= FINE and trial.error(machine) == 0:
            break
    if not graphs:
        raise ExactError(too_many(max_states))
    machine = trial.best()
    near, graph = graphs[machine]
    least, stale = trial.error(machine), 0
    for done in range(MOST_ROUNDS):
        wrong = trial.counterexamples(machine, [*map(graph.word, range(1, len(graph.labels)))])
        new = [word for found in wrong[:WORDS] if (word := distinguishing_suffix(reader, graph, found)) is not None]
        fresh = [word for word in dict.fromkeys(new) if word not in experiments]
        if not fresh:
            return done, DIFFER if wrong else None
        finer = _finer(reader, near, experiments, fresh, max_states)
        if finer is None:
            return done, COARSER.format(max_states)
        near, experiments, graph = finer
        machine = trial.add(graph.table, graph.labels, graph.places)
        error = trial.error(machine)
        least, stale = (error, 0) if error < least else (least, stale + 1)
        if stale == MOST_STALE:
            break
    return done + 1, DIFFER


def _finer(
    reader: ModelReader, near: float, experiments: list[Word], fresh: list[Word], most: int
) -> tuple[float, list[Word], StateGraph] | None:
    """Explore again with new experiments: all of them, or where that tells too many states apart the first alone."""
    for added in (fresh, fresh[:1]):
        for within in dict.fromkeys((near, math.inf)):
            graph = explore_states(reader, near=within, experiments=[*experiments, *added], most=most)
            if graph is not None:
                return within, [*experiments, *added], graph
    return None
