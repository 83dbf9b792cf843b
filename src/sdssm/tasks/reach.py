"""Which states and transitions of a task's minimal machine the strings up to a length reach."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.refinement import Ints
from sdssm.errors import TaskError
from sdssm.tasks.identification import identifying_length
from sdssm.tasks.ragged import validate_length
from sdssm.tasks.string_ends import access_lengths, access_string, completion_lengths
from sdssm.tasks.task import Task

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Reach:
    """Which states the valid strings of up to `length` symbols visit, and which transitions they take.

    >>> from sdssm.tasks import get_task
    >>> reach = Reach(get_task("z97"), 40)
    >>> int(reach.states.sum()), int(reach.possible_states.sum())
    (41, 97)
    """

    task: Task
    length: int

    def __post_init__(self) -> None:
        validate_length(self.length)

    @cached_property
    def possible_states(self) -> Flags:
        """The states that a valid string of any length visits, (Q,)."""
        return np.asarray(self._completion >= 0)

    @cached_property
    def possible_transitions(self) -> Flags:
        """The transitions that a valid string of any length takes, (Q, V)."""
        return self.possible_states[self.task.minimal.table]

    @cached_property
    def states(self) -> Flags:
        """The states that the strings visit, (Q,)."""
        return np.asarray(self.possible_states & (self._access + self._completion <= self.length))

    @cached_property
    def transitions(self) -> Flags:
        """The transitions that the strings take, (Q, V)."""
        lengths = self._access[:, None] + 1 + self._completion[self.task.minimal.table]
        return np.asarray(self.possible_transitions & (lengths <= self.length))

    @cached_property
    def is_complete(self) -> bool:
        """Whether the strings take every transition that longer ones take."""
        return bool((self.transitions == self.possible_transitions).all())

    @cached_property
    def unreached_string(self) -> tuple[int, ...] | None:
        """A shortest string that ends with a transition that the strings do not take; None if they take all."""
        missing = np.argwhere(self.possible_transitions & ~self.transitions)
        if not len(missing):
            return None
        state, symbol = missing[self._access[missing[:, 0]].argmin()].tolist()
        return (*access_string(self.task.minimal, state), symbol)

    @cached_property
    def _access(self) -> Ints:
        return access_lengths(self.task.minimal)

    @cached_property
    def _completion(self) -> Ints:
        return completion_lengths(self.task.minimal)


def check_labels(task: Task) -> None:
    """Raise an error if the valid strings of a task do not have at least two labels: then nothing can be learned.

    >>> from sdssm.tasks import get_task
    >>> check_labels(get_task("regex:(a|b)*"))
    Traceback (most recent call last):
    sdssm.errors.TaskError: every valid string of regex:(a|b)* has the label 1, so there is nothing to learn; ...
    """
    labels = task.labelled.labels_of_strings()
    if not labels:
        raise TaskError(f"no string of {task.name} is valid; choose a task with valid strings")
    if len(labels) == 1:
        raise TaskError(
            f"every valid string of {task.name} has the label {min(labels)}, so there is nothing to learn; "
            "choose a task with two labels"
        )


def check_reach(task: Task, train_length: int) -> None:
    """Raise an error if longer strings take transitions that no string of up to `train_length` symbols takes.

    Training strings show nothing of what happens there, so no model can learn it from them.

    >>> from sdssm.tasks import get_task
    >>> check_reach(get_task("z97"), 40)
    Traceback (most recent call last):
    sdssm.errors.TaskError: no string of up to 40 symbols takes 114 of the 194 transitions of z97 (they reach 41 of ...
    """
    reach = Reach(task, train_length)
    if not reach.is_complete:
        possible, states = int(reach.possible_transitions.sum()), int(reach.possible_states.sum())
        problem = (
            f"no string of up to {train_length:,} symbols takes {possible - int(reach.transitions.sum()):,} of the "
            f"{possible:,} transitions of {task.name} (they reach {int(reach.states.sum()):,} of {states:,} states): "
            "nothing shows the labels of longer strings"
        )
        length, enough = identifying_length(task), "the shortest length that identifies the machine"
        anyway = "allow_unidentified=true to train anyway"
        raise TaskError(
            f"{problem}; set train_length={length}, {enough}, or {anyway}",
            shell=f"{problem}; use --train-length {length}, {enough}, or --set {anyway}",
        )
