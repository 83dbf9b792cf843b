"""Tasks by name: every machine by name, and the machine of valid strings for the tasks that have one."""

from __future__ import annotations

import os
from typing import Any

from sdssm.automata import Machine, get_machine
from sdssm.automata.languages import arithmetic_strings
from sdssm.tasks.task import Task

#: The nine tasks of the paper, in its order.
PAPER_TASKS = ("parity", "even_pairs", "cycle", "arithmetic", "c2xc4", "d4", "a5", "c2xc30", "d30")
#: Training and test lengths other than 40 and 500: the paper's larger groups.
LENGTHS = {name: {"train_length": 90, "test_length": 600} for name in ("c2xc30", "d30")}
#: Further tasks that `sdssm tasks` lists: an example of each family of names.
EXAMPLE_TASKS = (
    "z7",
    "s5",
    "a4",
    "s5:32:0",
    "z3*d5",
    *(f"tomita{k}" for k in range(1, 8)),
    "random:10x2:0",
    "regex:(ab|c)*",
)


def list_tasks() -> list[str]:
    """Return the names of the paper's nine tasks, and then an example of each further family.

    >>> list_tasks()[:3]
    ['parity', 'even_pairs', 'cycle']
    """
    return [*PAPER_TASKS, *EXAMPLE_TASKS]


def get_task(name: Any) -> Task:
    """Return the task of this name, or the task of emulating a given machine; a `Task` is returned as it is.

    A machine is anything that `get_machine` accepts, a `Machine` or the path of a file for example. Every string is
    valid then, and the task is called after the file, or "machine".

    >>> get_task("a5"), get_task("arithmetic").valid is not None
    (Task('a5', Machine(60 states, 2 symbols, 60 outputs)), True)
    >>> get_task(Machine(table=[[0, 1], [1, 0]]))
    Task('machine', Machine(2 states, 2 symbols, 2 outputs))
    """
    if isinstance(name, Task):
        return name
    if isinstance(name, Machine):
        return Task(name="machine", machine=name)
    if not isinstance(name, str):
        return Task(name=os.fspath(name) if isinstance(name, os.PathLike) else "machine", machine=get_machine(name))
    machine, name = get_machine(name), name.strip()
    name = name.lower() if name.lower() in PAPER_TASKS else name  # one spelling for each of the paper's tasks
    valid = arithmetic_strings() if name.lower() == "arithmetic" else None
    return Task(name=name, machine=machine, valid=valid, **LENGTHS.get(name.lower(), {}))
