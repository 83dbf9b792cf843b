"""Facts about the machine of a task: its size, its algebra, and which models can emulate it in theory."""

from __future__ import annotations

from typing import Any

from sdssm.tasks.task import Task

#: Names of symbols that are listed.
MOST_SYMBOLS = 16


def collect_machine_facts(task: Task) -> dict[str, Any]:
    """Return the facts by name, as plain values; None if the algebra is too large to compute.

    >>> from sdssm.tasks import get_task
    >>> facts = collect_machine_facts(get_task("a5"))
    >>> facts["states"], facts["solvable"], facts["monoid_size"]
    (60, False, 60)
    """
    machine = task.machine
    return {
        "name": task.name,
        "states": machine.n_states,
        "minimal_states": machine.minimise().n_states,
        "symbols": list(machine.symbol_names),
        "classes": task.n_classes,
        "start": machine.state_names[machine.start],
        "every_string_valid": task.valid is None,
        "commutative": machine.is_commutative,
        "group": machine.is_group,
        "solvable": machine.is_solvable,
        "aperiodic": machine.is_aperiodic,
        "monoid_size": machine.algebra.monoid_size,
        "group_orders": machine.algebra.group_orders,
        "theory": machine.theory,
    }


def format_machine_facts(task: Task) -> dict[str, str]:
    """Return the facts by name, as text.

    >>> from sdssm.tasks import get_task
    >>> format_machine_facts(get_task("parity"))["states"]
    '2; the start state is even'
    """
    facts = collect_machine_facts(task)
    unknown = task.machine.algebra.unknown if None in facts.values() else ""
    states = f"{facts['states']:,}"
    if facts["minimal_states"] != facts["states"]:
        states += f", equivalent to {facts['minimal_states']:,}"
    symbols, orders = facts["symbols"], facts["group_orders"]
    more_symbols = " ..." if len(symbols) > MOST_SYMBOLS else ""
    groups = unknown
    if orders is not None:
        groups = ", ".join(f"order {order:,}" for order in orders) or "trivial ones only"
    return {
        "states": f"{states}; the start state is {facts['start']}",
        "symbols": f"{len(symbols)}: {' '.join(symbols[:MOST_SYMBOLS])}{more_symbols}",
        "classes": f"{facts['classes']:,}",
        "strings": "all strings" if task.valid is None else _valid_lengths(task),
        "commutative": _yes_or_no(facts["commutative"], unknown),
        "group": _yes_or_no(facts["group"], unknown),
        "solvable": _yes_or_no(facts["solvable"], unknown),
        "aperiodic": _yes_or_no(facts["aperiodic"], unknown),
        "monoid": format_monoid_size(task) + ("" if facts["monoid_size"] is None else " elements"),
        "groups inside": groups,
        "theory": facts["theory"],
    }


def describe_algebra(task: Task) -> str:
    """Describe the algebra of a task's automaton in a few words.

    >>> from sdssm.tasks import get_task
    >>> describe_algebra(get_task("a5"))
    'not commutative, group, not solvable'
    """
    machine = task.machine
    words = ["commutative" if machine.is_commutative else "not commutative"]
    if machine.is_group:
        words.append("group")
    if machine.is_aperiodic:
        words.append("aperiodic")
    elif machine.is_solvable is not None:
        words.append("solvable" if machine.is_solvable else "not solvable")
    else:
        words.append(machine.algebra.unknown)
    return ", ".join(words)


def format_monoid_size(task: Task) -> str:
    """Return the number of elements of the transition monoid, or why it is not known."""
    algebra = task.machine.algebra
    return algebra.unknown if algebra.monoid_size is None else f"{algebra.monoid_size:,}"


def _valid_lengths(task: Task) -> str:
    lengths = [str(length) for length in range(1, 10) if task.has_length(length)]
    return f"strings that a second automaton accepts (lengths {', '.join(lengths)}, ...)"


def _yes_or_no(value: bool | None, unknown: str) -> str:
    return unknown if value is None else "yes" if value else "no"
