"""Candidate machines for a model: how often each disagrees with it, and on which strings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction.merging import build_machine
from sdssm.exact.extraction.model_reader import NOT_VALID, ModelReader, Word, trace_states
from sdssm.exact.watch import Watch
from sdssm.models import Classifier, TokenModel
from sdssm.tasks import Task

#: Number of random strings on which every candidate is compared with the model, and the smallest number, for models
#: whose state is so large that more of them would take more multiplications than this.
TEST_STRINGS, LEAST_STRINGS, MOST_WORK = 1024, 32, 1 << 34
#: The same number for a module that someone else wrote, whose work is not known.
MODULE_STRINGS = 256
#: Number and minimal length of the strings that show how far apart the states of the model are.
SCALE_STRINGS, SCALE_LENGTH = 32, 64
#: A new candidate is compared with this many earlier ones.
COMPARED = 5
#: Notes of an extraction that did not find all that the model does.
COARSER = "more than {:,} states can be distinguished; the machine is a coarser approximation"
DIFFER = "distinguishing more states did not bring machine and model closer"
TOO_MANY = "the labels of the model alone distinguish more than {:,} states"


@dataclass(frozen=True)
class Fidelity:
    """On how many random valid strings of one length machine and model agree.

    Half of the strings are uniform; the last transition of the others is uniform over those of the machine.
    """

    length: int
    strings: int
    agree: int  #: strings with the same label at the end
    throughout: int  #: strings with the same label after every symbol

    @classmethod
    def count(cls, length: int, wrong: NDArray[np.bool_]) -> Fidelity:
        """Count the strings that agree, from whether each of their labels differs (B, L)."""
        strings = len(wrong)
        return cls(length, strings, strings - int(wrong[:, -1].sum()), strings - int(wrong.any(1).sum()))

    @property
    def share(self) -> float:
        """The fraction of strings with the same label at the end."""
        return self.agree / self.strings


class SearchResult(NamedTuple):
    """How a search for candidate machines ended."""

    rounds: int  #: rounds of counterexamples
    note: str | None = None  #: why the search could not find all that the model does
    stopped: bool = False  #: whether the time limit is the reason


class CandidateMachines:
    """Machines that were derived from a model, and how often each disagrees with it."""

    def __init__(
        self, reader: ModelReader, symbols: tuple[str, ...] | None, longest: int, seed: int, *, compare: bool = True
    ) -> None:
        """Draw the strings of length `longest` on which candidates are compared with the model, if `compare`."""
        self.reader, self.symbols = reader, symbols
        self.generator = torch.Generator().manual_seed(seed)
        # The task draws valid strings; its machine, and so its labels, are not used.
        placeholder = Machine(table=[[0] * reader.n_symbols])
        self.task = Task(name="the machine of valid strings", machine=placeholder, valid=reader.valid)
        self.longest = reader.margin_length = self.task.longest_valid_length(longest)
        self.test_strings = _affordable_strings(reader.model, self.longest) if compare else 0
        reader.watch.start("read test strings")
        self.tokens = self.draw(max(1, self.test_strings), self.longest)
        self.labels = reader.labels(self.tokens)
        self.witnesses: dict[Word, int] = {}  # strings on which two candidates differ, and the model's label
        self.machines: list[Machine] = []
        self.start_label = reader.empty_label()
        self.hints: list[Word] = []  # further strings on which every candidate is compared with the model
        self.expected: Machine | None = None  # a machine that the model may implement

    def fit_scale(self) -> None:
        """Measure how far apart the states of the model are."""
        length = self.task.longest_valid_length(max(SCALE_LENGTH, self.longest))
        if self.reader.model.longest is not None:
            length = self.task.longest_valid_length(min(length, self.reader.model.longest))
        self.reader.fit_scale(self.draw(SCALE_STRINGS, length))

    def draw(self, strings: int, length: int) -> Ints:
        """Return random valid strings (B, L)."""
        return self.task.sample(strings, length, generator=self.generator).tokens.numpy()

    def add(self, table: Ints, labels: Ints, valid_states: Ints) -> Machine:
        """Add the machine of a graph, and read strings that distinguish it from earlier candidates."""
        watch = self.reader.watch
        machine = build_machine(table, labels, valid_states, self.symbols, self.start_label, watch)
        for other in self.machines[-COMPARED:]:
            word = machine.distinguish(other, self.reader.valid)
            if word is not None and len(word) <= self.reader.longest_word(self.longest):
                self.witnesses[word] = int(self.reader.labels(np.array([word]))[0, -1])
        if all(machine != other for other in self.machines):
            self.machines.append(machine)
        return machine

    def error(self, machine: Machine) -> float:
        """Return the weighted fraction of labels on which a machine differs from the model.

        The label of a prefix of t symbols has the weight 1/t, because errors on long strings are partly due to drift.
        If only a witness contradicts the machine, the error is 1e-9.
        """
        weights = 1 / np.arange(1, self.longest + 1)
        wrong, is_valid = find_disagreements(machine, self.tokens, self.labels), self.labels != NOT_VALID
        share = float((wrong @ weights).sum() / (is_valid @ weights).sum())
        return max(share, 1e-9 * any(machine.output(word) != label for word, label in self.witnesses.items()))

    def best(self) -> Machine:
        """Return the smallest machine with at most twice the error of the best one, and at most 0.1 above it."""
        errors = [self.error(machine) for machine in self.machines]
        most = min(errors) + min(*errors, 0.1)
        good = [machine for machine, error in zip(self.machines, errors, strict=True) if error <= most]
        return min(good, key=lambda machine: machine.n_states)

    def counterexamples(self, machine: Machine, words: Sequence[Word] = ()) -> list[Word]:
        """Return strings on which machine and model differ, shortest first.

        They come from the witnesses, from random strings, from random continuations of `words`, from the hints, and
        from the shortest string on which the machine differs from the expected one.
        """
        self.reader.watch.start("search strings on which machine and model differ")
        self._ask_hints(machine)
        strings = {word for word, label in self.witnesses.items() if machine.output(word) != label}
        for tokens in (self.draw(self.test_strings, self.longest), self.continuations(words)):
            if tokens is not None:
                wrong = find_disagreements(machine, tokens, self.reader.labels(tokens))
                for row in np.flatnonzero(wrong.any(1)):
                    strings.add(tuple(tokens[row, : int(wrong[row].argmax()) + 1].tolist()))
        return sorted(strings, key=lambda word: (len(word), word))

    def _ask_hints(self, machine: Machine) -> None:
        """Read the hints once, and the shortest string on which the machine differs from the expected one."""
        words = [word for word in self.hints if word not in self.witnesses]
        self.hints = []
        if self.expected is not None:
            word = machine.distinguish(self.expected, self.reader.valid)
            if word is not None and word not in self.witnesses and len(word) <= self.reader.longest_word(self.longest):
                words.append(word)
        for word, label in zip(words, self.reader.labels_of_words(words), strict=True):
            if label != NOT_VALID:
                self.witnesses[word] = label

    def continuations(self, words: Sequence[Word]) -> Ints | None:
        """Return random valid continuations (B, L) of words, or of a random subset of many words."""
        if not words:
            return None
        subset = torch.randperm(len(words), generator=self.generator)[: self.test_strings].tolist()
        chosen = [words[k] for k in subset]
        length = max(map(len, chosen)) + 8
        if self.reader.model.longest is not None:
            length = min(length, self.reader.model.longest)
        reader, tokens = self.reader, np.zeros((len(chosen), length), dtype=np.int64)
        draws = torch.rand(length, len(chosen), reader.n_symbols, generator=self.generator).numpy()
        state = np.full(len(chosen), reader.valid.start)
        for position in range(length):
            tokens[:, position] = np.where(reader.live[reader.valid_table[state]], draws[position], -1).argmax(1)
            for row, word in enumerate(chosen):
                if position < len(word):
                    tokens[row, position] = word[position]
            state = reader.valid_table[state, tokens[:, position]]
        return tokens

    def existing_lengths(self, lengths: Iterable[int]) -> list[int]:
        """Replace each length by the largest up to it that has a valid string, or by the smallest of all."""
        least = next(k for k in range(1, self.longest + 1) if self.task.has_length(k))
        most = self.reader.model.longest
        lengths = lengths if most is None else [min(length, most) for length in lengths]
        return list(dict.fromkeys(self.task.longest_valid_length(max(length, least)) for length in lengths))

    def fidelity(self, machine: Machine, length: int, strings: int) -> Fidelity:
        """Compare a machine with the model on random valid strings of one length.

        Uniform strings miss most transitions of most machines, so only half of the strings are uniform; the others
        cover the machine: their last transition is drawn first.
        """
        plain = Machine(table=machine.table, start=machine.start, outputs=machine.outputs)  # `valid` has other names
        task = Task(name="the candidate", machine=plain, valid=self.reader.valid)
        parts = [self.draw(-(-strings // 2), length)]
        if strings > 1:
            batch = task.sample(strings // 2, length, generator=self.generator, sampling="covering")
            parts.append(batch.tokens.numpy())
        tokens = np.concatenate(parts)
        return Fidelity.count(length, find_disagreements(machine, tokens, self.reader.labels(tokens)))


def find_disagreements(machine: Machine, tokens: Ints, labels: Ints) -> NDArray[np.bool_]:
    """Return whether the machine's label of each prefix of strings (B, L) differs from the model's: (B, L)."""
    states = trace_states(machine.table, np.full(len(tokens), machine.start), tokens)
    return np.asarray((machine.outputs[states] != labels) & (labels != NOT_VALID))


def _affordable_strings(model: TokenModel, length: int) -> int:
    """Return the number of strings of this length that a model reads in seconds, at most `TEST_STRINGS`."""
    if not model.can_read_prefixes_at_once:  # it reads every prefix by itself
        return MODULE_STRINGS // 4
    if not isinstance(model, Classifier):
        return MODULE_STRINGS
    size = getattr(model.settings.mixer, "state", 1)
    return max(LEAST_STRINGS, min(TEST_STRINGS, MOST_WORK // (length * size**2)))


def explain_stop(watch: Watch, explored: int) -> str:
    """Return the note of a search that the time limit ended after exploring so many states of the model."""
    states = f"{explored:,} states of the model were explored"
    return f"{watch.stop_reason}: {states} by then, so the machine is not a final result"


def too_many_states(max_states: int) -> ExactError:
    """Return the error of a model that no machine of at most `max_states` states describes."""
    text, larger = TOO_MANY.format(max_states), 4 * max_states
    return ExactError(f"{text}; pass max_states={larger}", shell=f"{text}; allow more with --max-states {larger}")
