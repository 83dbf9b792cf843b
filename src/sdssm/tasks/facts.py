"""What is known of a task before any model is trained: chance, constant answers, coverage, identification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sdssm.formatting import count_of, format_chance, format_symbols
from sdssm.tasks.coverage import Choice, Coverage, choose_sampling, drawn_sampling
from sdssm.tasks.identification import identifying_length
from sdssm.tasks.label_shares import best_constants
from sdssm.tasks.ragged import validate_length
from sdssm.tasks.reach import Reach
from sdssm.tasks.sampling import validate_sampling
from sdssm.tasks.task import Task

#: The sampling that is chosen by what uniform strings cover.
AUTO = "auto"
#: Parts of a string that are shown: symbols, or groups of equal ones.
MOST_PARTS = 12


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """Facts about a task and the strings that it is trained on, computed from its machine.

    Args:
        task: the name of the task.
        train_length: the length of the longest training strings.
        test_length: the length of the longest test strings.
        chance: the accuracy of guessing a label at random, in percent.
        best_constant: the accuracy of the best constant answer on uniform strings of the training length, in percent.
        best_constant_at_test_length: the same at the test length.
        sampling: how training strings are drawn unless a setting says otherwise.
        reason: why, in one line.
        states: the number of states of the minimal machine that occur in valid strings.
        reached_states: how many of them the training strings visit.
        transitions: the number of transitions of the minimal machine that occur in valid strings.
        reached_transitions: how many of them the training strings take.
        rarest_uniform: the share of uniform training strings that end with the rarest transition to a valid string.
        rarest: the same for the training strings as `sampling` draws them.
        rarest_string: a shortest string that ends with the transition of `rarest_uniform`.
        unreached_string: a shortest string that ends with a transition that no training string takes; None if they take
            all that occur in valid strings.
        identifying_length: the shortest training length that identifies the machine.
        every_string_valid: whether every string is valid; if not, the minimal machine is that of the product of the
            task's machine and the automaton of valid strings.
    """

    task: str
    train_length: int
    test_length: int
    chance: float
    best_constant: float | None
    best_constant_at_test_length: float | None
    sampling: str
    reason: str
    states: int
    reached_states: int
    transitions: int
    reached_transitions: int
    rarest_uniform: float
    rarest: float
    identifying_length: int
    rarest_string: str = ""
    unreached_string: str | None = None
    every_string_valid: bool = True

    @property
    def is_identified(self) -> bool:
        """Whether the training strings identify the machine."""
        return self.identifying_length <= self.train_length

    def to_dict(self) -> dict[str, Any]:
        """Return all facts by name, as plain values."""
        return {**asdict(self), "identified": self.is_identified}

    def to_lines(self) -> dict[str, str]:
        """Return the fact sheet: a text for each kind of fact."""
        length, identifying = self.train_length, self.identifying_length
        uniform = f"1 in {one_in(self.rarest_uniform)} uniform strings"
        missing = "" if self.unreached_string is None else f", not the last of {self.unreached_string}"
        rarest = f", the last of {self.rarest_string}," if self.rarest_string else ""
        chosen = "" if self.sampling == "uniform" else f", 1 in {one_in(self.rarest)} training strings"
        product = "" if self.every_string_valid else " of the product with the automaton of valid strings"
        return {
            "chance": f"{format_chance(self.chance)} %; the best constant answer has {self._constants()}",
            "training strings": f"{self.sampling}, up to {length} symbols: {self.reason}",
            "reached": f"{self.reached_states:,} of {self.states:,} states{product} and "
            f"{self.reached_transitions:,} of {self.transitions:,} transitions{missing}; "
            f"the rarest of these{rarest} ends {uniform}{chosen}",
            "identified": f"yes; strings of up to {count_of(identifying, 'symbol')} are enough"
            if self.is_identified
            else f"no; strings of up to {count_of(identifying, 'symbol')} identify it",
        }

    def __str__(self) -> str:
        """Return the facts in one line."""
        reached = f"{self.reached_states:,} of {self.states:,} states, {self.reached_transitions:,} of "
        identified = "identified" if self.is_identified else f"not identified below length {self.identifying_length:,}"
        return (
            f"{self.task}: chance {format_chance(self.chance)} %, best constant answer {self._constants()}; "
            f"{self.sampling} training strings ({self.reason}); up to {self.train_length:,} symbols they reach "
            f"{reached}{self.transitions:,} transitions; {identified}"
        )

    def _constants(self) -> str:
        values = (self.train_length, self.best_constant), (self.test_length, self.best_constant_at_test_length)
        return " and ".join(f"{format_chance(value)} % at length {length:,}" for length, value in values)


def describe_task(task: Task, train_length: int | None = None, sampling: str = AUTO) -> TaskFacts:
    """Return the facts about a task that is trained on strings up to a length; None: the default of the task.

    `sampling` is how training strings are drawn: "uniform", "balanced", "covering", or "auto" for the choice of
    `choose_sampling`.

    >>> from sdssm.tasks import get_task
    >>> facts = describe_task(get_task("z97"))
    >>> facts.reached_states, facts.states, facts.is_identified, facts.identifying_length
    (41, 97, False, 97)
    """
    length = task.train_length if train_length is None else validate_length(train_length)
    choice = choose_sampling(task, length)
    if sampling != AUTO:
        choice = Choice(validate_sampling(sampling), f"as set; the default is {choice.sampling}, since {choice.reason}")
    uniform = Coverage.measure(task, length)
    drawn = drawn_sampling(choice.sampling)
    chosen = uniform if drawn == "uniform" else Coverage.measure(task, length, drawn)
    reach = Reach(task, length)
    constants = best_constants(task, [length, task.test_length])
    unreached = reach.unreached_string
    return TaskFacts(
        task=task.name,
        train_length=length,
        test_length=task.test_length,
        chance=task.chance_accuracy,
        best_constant=constants[0],
        best_constant_at_test_length=constants[1],
        sampling=choice.sampling,
        reason=choice.reason,
        states=int(reach.possible_states.sum()),
        reached_states=int(reach.states.sum()),
        transitions=int(reach.possible_transitions.sum()),
        reached_transitions=int(reach.transitions.sum()),
        rarest_uniform=uniform.rarest,
        rarest=chosen.rarest,
        identifying_length=identifying_length(task),
        rarest_string=_format_string(task, uniform.rarest_string),
        unreached_string=None if unreached is None else _format_string(task, unreached),
        every_string_valid=task.valid is None,
    )


def _format_string(task: Task, tokens: Sequence[int]) -> str:
    """Format a string by the names of its symbols, in quotes; empty if it is."""
    text = format_symbols([task.machine.symbol_names[token] for token in tokens], MOST_PARTS)
    return f"'{text}'" if text else ""


def one_in(share: float) -> str:
    """Format the inverse of a share.

    >>> one_in(1 / 640), one_in(0.77), one_in(3e-12), one_in(0.0)
    ('640', '1.3', '3.3e+11', 'more than 1e300')
    """
    if share <= 0:
        return "more than 1e300"
    return f"{1 / share:,.0f}" if 1e-9 < share < 0.1 else f"{1 / share:.2g}"
