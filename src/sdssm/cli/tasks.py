"""`sdssm tasks`: what there is to emulate."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sdssm.automata import draw
from sdssm.automata.formats import write_text
from sdssm.automata.library import PATTERNS
from sdssm.cli.output import print_facts, print_json, print_table, printable
from sdssm.errors import format_value
from sdssm.tasks import BEYOND, PAPER, Task, get_task

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    """Declare the command."""
    every = commands.add_parser("tasks", help="what there is to emulate", allow_abbrev=False)
    every.add_argument("--json", action="store_true", help="print JSON")
    every.set_defaults(run=_list)
    inner = every.add_subparsers(metavar="show")
    one = inner.add_parser("show", help="one task: facts, theory, sample strings", allow_abbrev=False)
    one.add_argument("name", help="a task, such as a5, s5:32:0, z3*d5, 'regex:(ab)*' or my.json")
    # Left out here, what was said before the word "show" holds.
    one.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    one.add_argument("--svg", metavar="FILE", type=Path, help="write the state diagram there")
    one.add_argument("--length", type=_between(1, 10_000), default=12, help="length of the sample strings (default 12)")
    one.add_argument("--seed", type=_between(0, 2**63 - 1), default=0, help="seed of the sample strings (default 0)")
    one.set_defaults(run=_show)


def _between(least: int, most: int) -> Callable[[str], int]:
    """Reads a whole number within bounds."""

    def whole_number(text: str) -> int:
        if not text.lstrip("-").isdecimal() or len(text) > 20 or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{format_value(text)} is not a whole number from {least} to {most}")
        return int(text)

    return whole_number


def _list(options: argparse.Namespace) -> None:
    tasks = [get_task(name) for name in (*PAPER, *BEYOND)]
    if options.json:
        print_json([_facts(one) for one in tasks])
        return
    rows = [
        [one.name, str(one.machine.n_states), str(one.n_symbols), str(one.n_classes), kind(one), _monoid(one)]
        for one in tasks
    ]
    numbers = ("states", "symbols", "classes", "monoid")
    print_table(["task", "states", "symbols", "classes", "algebra", "monoid"], rows, right=numbers)
    print("\nNames are written")
    print_table(["name", "what it is"], [[pattern, what] for pattern, what in PATTERNS.items()])
    print("\nsdssm tasks show NAME tells more of one of them.")


def _show(options: argparse.Namespace) -> None:
    one = get_task(options.name)
    samples = _samples(one, one.floor(options.length), options.seed)
    facts = _facts(one)
    if options.svg is not None:
        write_text(options.svg, draw(one.machine, title=one.name))
    if options.json:
        print_json({**facts, "samples": samples})
        return
    print_facts(one.name, _spoken(one, facts))
    print(f"\nSample strings and the label after each symbol (seed {options.seed})")
    spaced = any(len(name) > 1 for name in one.machine.symbol_names) or one.n_classes > 10
    for sample in samples:
        labels = ["-" if label < 0 else str(label) for label in sample["labels"]]
        names = [printable(one.machine.symbol_names[token]) for token in sample["tokens"]]
        widths = [max(len(a), len(b)) for a, b in zip(names, labels, strict=True)]
        for cells in (names, labels):
            print("  " + (" " if spaced else "").join(c.rjust(w) for c, w in zip(cells, widths, strict=True)))
        print()
    if options.svg is not None:
        print(f"State diagram: {printable(str(options.svg))}")


def kind(one: Task) -> str:
    """The algebra in a few words."""
    machine = one.machine
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


def _monoid(one: Task) -> str:
    algebra = one.machine.algebra
    return algebra.unknown if algebra.monoid_size is None else f"{algebra.monoid_size:,}"


def _samples(one: Task, length: int, seed: int) -> list[dict[str, Any]]:
    batch = one.sample(3, length, generator=torch.Generator().manual_seed(seed))
    return [
        {"tokens": tokens, "text": one.machine.decode(tokens), "labels": labels}
        for tokens, labels in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True)
    ]


def _facts(one: Task) -> dict[str, Any]:
    machine = one.machine
    return {
        "name": one.name,
        "states": machine.n_states,
        "minimal_states": machine.minimise().n_states,
        "symbols": list(machine.symbol_names),
        "classes": one.n_classes,
        "start": machine.state_names[machine.start],
        "every_string_valid": one.valid is None,
        "commutative": machine.is_commutative,
        "group": machine.is_group,
        "solvable": machine.is_solvable,
        "aperiodic": machine.is_aperiodic,
        "monoid_size": machine.algebra.monoid_size,
        "group_orders": machine.algebra.group_orders,
        "theory": machine.theory,
    }


def _spoken(one: Task, facts: dict[str, Any]) -> dict[str, str]:
    """The facts as a reader wants them."""
    unknown = one.machine.algebra.unknown if None in facts.values() else ""
    states = f"{facts['states']:,}"
    if facts["minimal_states"] != facts["states"]:
        states += f", of which {facts['minimal_states']:,} differ"
    symbols, shown = facts["symbols"], 16
    orders = facts["group_orders"]
    return {
        "states": f"{states}; starts in {facts['start']}",
        "symbols": f"{len(symbols)}: {' '.join(symbols[:shown])}{' ...' if len(symbols) > shown else ''}",
        "classes": f"{facts['classes']:,}",
        "strings": "every string" if one.valid is None else _lengths(one),
        "commutative": _yes(facts["commutative"], unknown),
        "group": _yes(facts["group"], unknown),
        "solvable": _yes(facts["solvable"], unknown),
        "aperiodic": _yes(facts["aperiodic"], unknown),
        "monoid": _monoid(one) + ("" if facts["monoid_size"] is None else " elements"),
        "groups inside": unknown
        if orders is None
        else ", ".join(f"order {n:,}" for n in orders) or "trivial ones only",
        "theory": facts["theory"],
    }


def _lengths(one: Task) -> str:
    lengths = [str(k) for k in range(1, 10) if one.has(k)]
    return f"those that its second machine calls valid (lengths {', '.join(lengths)}, ...)"


def _yes(value: bool | None, unknown: str) -> str:
    return unknown if value is None else "yes" if value else "no"
