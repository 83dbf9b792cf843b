"""Tasks by name: every machine by name, and for the tasks that need one, the machine of valid strings."""

from __future__ import annotations

from sdssm.automata import Machine, get_machine
from sdssm.automata.languages import arithmetic_strings
from sdssm.tasks.task import Task

#: The paper's nine tasks, in its order.
PAPER = ("parity", "even_pairs", "cycle", "arithmetic", "c2xc4", "d4", "a5", "c2xc30", "d30")
#: Training and test lengths that are not 40 and 500: those of the paper's larger groups.
LENGTHS = {name: {"train_length": 90, "test_length": 600} for name in ("c2xc30", "d30")}
#: What `sdssm tasks` lists beyond them: an example of each family.
BEYOND = ("z7", "s5", "a4", "s5:32:0", "z3*d5", *(f"tomita{k}" for k in range(1, 8)), "random:10x2:0", "regex:(ab|c)*")


def get_task(name: str | Machine) -> Task:
    """The task of this name, or of a machine of your own.

    >>> get_task("a5"), get_task("arithmetic").valid is not None
    (Task('a5', Machine(60 states, 2 symbols, 60 outputs)), True)
    """
    if isinstance(name, Machine):
        return Task(name="machine", machine=name)
    machine, name = get_machine(name), name.strip()
    name = name.lower() if name.lower() in PAPER else name  # one name for one task
    valid = arithmetic_strings() if name.lower() == "arithmetic" else None
    return Task(name=name, machine=machine, valid=valid, **LENGTHS.get(name.lower(), {}))
