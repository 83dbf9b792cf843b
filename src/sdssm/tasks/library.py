"""Tasks by name: every machine by name, and the machine of valid strings for the tasks that have one."""

from __future__ import annotations

import os
import re
from typing import Any

from sdssm.automata import Machine, get_machine
from sdssm.automata.att import check_language
from sdssm.automata.languages import arithmetic_strings
from sdssm.automata.library import get_library_machine, machine_files
from sdssm.errors import FormatError, SdssmError
from sdssm.files import format_path
from sdssm.tasks.task import Task

#: The nine tasks of the paper, in its order.
PAPER_TASKS = ("parity", "even_pairs", "cycle", "arithmetic", "c2xc4", "d4", "a5", "c2xc30", "d30")
#: Training and test lengths other than 40 and 500: the paper's larger groups.
LENGTHS = {name: {"train_length": 90, "test_length": 600} for name in ("c2xc30", "d30")}
#: Training and test lengths of the word problem: a group with every element as a symbol, as other papers pose it.
WORD_PROBLEM_LENGTHS = {"train_length": 128, "test_length": 512}
#: Tasks whose strings must alternate digits and operators.
ARITHMETIC = ("arithmetic", "left_arithmetic")
#: Further tasks that `sdssm tasks` lists: an example of each family of names.
EXAMPLE_TASKS = (
    "z7",
    "s5",
    "a4",
    "s5:32:0",
    "s3:all",
    "z3*d5",
    *(f"tomita{k}" for k in range(1, 8)),
    "dyck4",
    "prefix:4x2",
    "left_arithmetic",
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
    valid then, and the task is called after the file, or "machine". The ending of an .att file is left out.

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
        path = os.fspath(name) if isinstance(name, os.PathLike) else "machine"
        return Task(name=_without_ending(path), machine=_checked(get_machine(name), path))
    return _named_task(_checked(get_machine(name), name), _without_ending(name.strip()))


def get_library_task(name: str) -> Task:
    """Return the task of a name that needs no file, such as one in a run folder of someone else.

    >>> get_library_task("A5").name
    'a5'
    """
    return _named_task(get_library_machine(name), name.strip())


def _named_task(machine: Machine, name: str) -> Task:
    """Return the task of a machine, with what its name says about lengths and valid strings."""
    name = name.lower() if name.lower() in PAPER_TASKS else name  # one spelling for each of the paper's tasks
    plain = name.lower().replace("-", "_")
    valid = arithmetic_strings() if plain in ARITHMETIC else None
    lengths = WORD_PROBLEM_LENGTHS if re.fullmatch(r"[a-z]\w*:all", plain) else LENGTHS.get(plain, {})
    return Task(name=name, machine=machine, valid=valid, **lengths)


def spell_task(name: str) -> str:
    """Return the name of a task as the library spells it, or the path of a file: `get_task` finds either again.

    >>> spell_task("A5"), spell_task(" parity ")
    ('a5', 'parity')
    """
    task = get_task(name)
    return name.strip() if machine_files(name) else task.name


def _checked(machine: Machine, name: str) -> Machine:
    """Return the machine; raise an error if it is that of an .att file whose language is empty or has all strings."""
    files = machine_files(name)
    if len(files) == 1 and files[0].suffix == ".att":
        try:
            check_language(machine)
        except FormatError as error:
            raise FormatError(f"{format_path(files[0])}: {error}") from None
    return machine


def _without_ending(name: str) -> str:
    """Return the stem of an .att file, which is the name of its language; any other name as it is.

    The stem may be the name of another task (a5.att): then the ending stays.

    >>> _without_ending("languages/04.03.TSL.4.1.5.att"), _without_ending("languages/a5.att"), _without_ending("a.json")
    ('04.03.TSL.4.1.5', 'a5.att', 'a.json')
    """
    files = machine_files(name)
    if len(files) != 1 or files[0].suffix != ".att" or not name.endswith(str(files[0])) or name.startswith("sink:"):
        return name
    path = files[0]
    try:
        get_machine(path.stem)
    except SdssmError:
        return path.stem
    return path.name
