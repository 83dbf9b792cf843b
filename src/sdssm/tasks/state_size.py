"""The state size of an SD-SSM for a task: the rule behind the setting `state=auto`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from sdssm.automata.algebra import Algebra
from sdssm.automata.hankel import label_rank

if TYPE_CHECKING:
    from sdssm.tasks.task import Task

#: The value of the setting `state` that stands for this rule.
AUTO = "auto"
#: The sizes to choose from: powers of two, to which GPU kernels pad other sizes, and one between the largest of them.
STATE_SIZES = (64, 128, 256, 384, 512)
#: The greatest size with which training on labels is known to work: random machines of 100 states are at 100.00 to
#: length 500 with it. One of 300 states is at 8 with 384 after 8,000 steps on labels (mean of four seeds, chance 0.33),
#: and at 100.00 after 5,000 steps on states (two seeds). Where between the two labels stop working is a guess.
LARGEST_FOR_LABELS = 128
#: The size that is chosen is at least this many times the label rank, or the number of states.
MARGIN = 1.2


@dataclass(frozen=True)
class StateSize:
    """A state size N, and the reason for it in words."""

    size: int
    reason: str

    def __str__(self) -> str:
        return f"state={self.size} ({AUTO}): {self.reason}"


@lru_cache(maxsize=256)  # a hyperparameter search asks for each of a thousand candidates
def choose_state_size(task: Task, targets: str = "label") -> StateSize:
    """Return the state size for a task: 64 for small machines and for groups, otherwise 1.2 times the label rank.

    The rule, for the minimal machine of the task:

    1. A group whose elements are the states and the labels gets 64, whatever its order.
    2. Any other machine gets the smallest of `STATE_SIZES` that is at least `MARGIN` times its label rank
       (`automata/hankel.py`), or the largest of them.
    3. If states are the targets of the training (`targets="state"`), it is `MARGIN` times the number of states instead:
       each has a centre of its own, and only independent ones can be moved exactly by matrices.

    What is theory: a linear recurrence with a linear readout that equals the labels' indicators exists in the dimension
    of the label rank, and in no smaller one. A classifier needs only the largest logit to be the right one, so that the
    label rank is sufficient, but not necessary: the elements of a group are distinguished by any faithful
    representation, and an irreducible one has at most sqrt(order) dimensions.

    What is measured, as accuracy on uniform strings: with 64, groups up to A7 with 2,520 elements are at 100.00 to
    length 500, as are the machines of up to 20 states in `results/beyond`. A random machine of 100 states is at 60 with
    64, and at 100.00 with 128 in four seeds; one of 300 states, trained on labels, is at 99.4 to length 40 with 256,
    and at 13 at 500. Trained on its states with 384, it is at 100.00: `needs_states` chooses that for it.

    With states as targets, all languages of `results/mlregtest` with more states than entries fail.

    What is a guess: the margin, which no experiment has narrowed down between 0.85 (fails) and 1.28 (works), and rule 2
    for machines whose label rank is far above what a classifier needs, such as products of a large group and a small
    machine that is none; it may be larger than necessary there.

    >>> from sdssm.tasks import get_task
    >>> print(choose_state_size(get_task("random:100x4:0")))
    state=128 (auto): at least 1.2 times the label rank, which is 100, for 100 states
    >>> choose_state_size(get_task("s5")).size, choose_state_size(get_task("arithmetic")).size
    (64, 64)
    """
    least, largest = STATE_SIZES[0], STATE_SIZES[-1]
    table, _, labels = task.minimal
    states = f"{len(table):,} states"
    if MARGIN * len(table) <= least:
        return StateSize(least, f"the smallest that auto chooses; enough for {states}")
    if targets == "state":
        enough_for_states = [size for size in STATE_SIZES if size >= MARGIN * len(table)]
        if not enough_for_states:
            return StateSize(largest, f"the largest size; it may be too small for a direction for each of {states}")
        return StateSize(enough_for_states[0], f"at least {MARGIN:g} times the number of targets, {states}")
    if _is_group_of_labels(task):
        return StateSize(least, f"the smallest that auto chooses, as groups have small representations; {states}")
    enough = int(largest / MARGIN) + 1  # from this rank on the size is the largest one
    rank = label_rank(table, labels, most=enough)
    if rank == enough:
        return StateSize(
            largest, f"the largest size; it may be too small for a label rank of {enough} or more, {states}"
        )
    size = next(size for size in STATE_SIZES if size >= MARGIN * rank)
    return StateSize(size, f"at least {MARGIN:g} times the label rank, which is {rank}, for {states}")


def needs_states(task: Task) -> bool:
    """Whether a machine is too large to be trained on its labels, and small enough to be trained on its states.

    >>> from sdssm.tasks import get_task
    >>> [needs_states(get_task(name)) for name in ("random:100x4:0", "random:300x4:0", "s6")]
    [False, True, False]
    """
    if MARGIN * task.minimal.n_states <= LARGEST_FOR_LABELS or MARGIN * task.minimal.n_states > STATE_SIZES[-1]:
        return False
    return choose_state_size(task).size > LARGEST_FOR_LABELS


def _is_group_of_labels(task: Task) -> bool:
    """Whether the states of the minimal machine are the elements of a group, each with a label of its own."""
    table, _, labels = task.minimal
    algebra = Algebra(table)
    is_labelled = labels.min() >= 0 and len(set(labels.tolist())) == len(labels)
    # The group acts regularly if it has as many elements as states: a symbol is the multiplication by an element.
    return is_labelled and algebra.is_group and algebra.monoid_size == len(table)
