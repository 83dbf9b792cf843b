"""Whether the training strings of a task determine its machine, and the shortest length from which they do.

Two machines that agree on every string up to a length may differ on longer ones. The training strings of length L
*identify* the machine of a task if every machine with at most as many states as the minimal one, and with the same
labels of all non-empty strings up to length L, has the same labels of all non-empty strings of any length. The label of
a string that is not valid counts as known: it is the string that is missing.

The condition is exact, and cheap to compute. Let e(q) be the length of the shortest string that leads to state q, and
s(r) the least length of strings that distinguish state r from every other state. Then the shortest length is

    L = max of e(q) + 1 + s(r) over all transitions from q to r.

It is enough: of a machine with at most as many states, the shortest strings to the states of the minimal machine lead
to different states, as strings of length e(q) + s(q) show; these are all its states; and strings of length
e(q) + 1 + s(r) show to which of them each transition leads. It is necessary: if some p is distinguished from r by
strings longer than L - e(q) - 1 only, lead the transition to p instead of r. No string up to length L shows the
difference, since at most L - e(q) - 1 symbols are left after the transition.

The empty string has no label. A start state to which no string returns could have any, so it distinguishes itself by
its next states alone; and if another state has the next states of the start state, strings could start there as well:
the start state then counts as reached by the shortest string that returns to it.
"""

from __future__ import annotations

import numpy as np

from sdssm.automata.refinement import Ints, separation_depths
from sdssm.tasks.string_ends import access_lengths
from sdssm.tasks.task import Task
from sdssm.tasks.validity import LabelledTable


def identifying_length(task: Task) -> int:
    """Return the shortest L such that the labels of all strings of length 1..L identify the machine of the task.

    >>> from sdssm.tasks import get_task
    >>> identifying_length(get_task("parity")), identifying_length(get_task("a5")), identifying_length(get_task("z97"))
    (2, 11, 97)
    """
    machine = task.minimal
    access = access_lengths(machine)
    if (machine.table == machine.table[machine.start]).all(1).sum() > 1:  # strings could start in another state too
        access[machine.start] = 1 + access[(machine.table == machine.start).any(1)].min()
    return int((access[:, None] + 1 + _separation_depths(machine)[machine.table]).max())


def _separation_depths(machine: LabelledTable) -> Ints:
    """Return the least length of strings that distinguish each state from every other; any value for a first start.

    If no string returns to the start state, its label is unknown, so it is compared with all labels that it could have.
    """
    table, start, labels = machine
    if (table == start).any():
        return separation_depths(table, labels)
    possible = np.unique(labels)
    starts = np.repeat(table[[start]], len(possible), axis=0)
    # The own row of the start state becomes a further copy, with a label of its own, to which nothing leads.
    colours = np.concatenate([labels, possible])
    colours[start] = labels.max() + 1
    return separation_depths(np.concatenate([table, starts]), colours)[: len(table)]
