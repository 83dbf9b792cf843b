"""`sdssm tasks`: list the tasks, and describe one of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdssm.cli.options import JSON_HELP, declare_command, parse_seed, whole_number_between
from sdssm.cli.output import check_suffix, print_facts, print_json, print_table
from sdssm.cli.own_inputs import check_own_inputs
from sdssm.cli.parser import CommandParser
from sdssm.formatting import format_symbols
from sdssm.limits import LONGEST_TRAINED
from sdssm.printable import make_printable

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.tasks import Task
    from sdssm.tasks.state_coverage import StateCoverage


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "tasks",
        summary="list tasks, or describe one",
        description="List the tasks: the automata to emulate. sdssm tasks TASK (or tasks show TASK) describes one of "
        "them.",
        examples=["sdssm tasks", "sdssm tasks a5 --svg a5.svg", "sdssm tasks show 'regex:(ab)*'"],
    )
    if isinstance(parser, CommandParser):
        parser.implied_command = "show"
        parser.usage = (
            "sdssm tasks [--json]\n       "
            "sdssm tasks [show] TASK [--svg FILE] [--out FILE] [--length N] [--train-length N] [--states] [--seed N] "
            "[--json]"
        )
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_list_tasks)
    show = declare_command(
        parser.add_subparsers(metavar="show", prog="sdssm tasks"),
        "show",
        summary="describe one task",
        description="Describe a task: its automaton, the algebra of the automaton, which models can emulate it in "
        "theory, what its training strings cover and identify, and sample strings with their labels.",
        examples=["sdssm tasks show a5 --svg a5.svg"],
    )
    show.add_argument("name", metavar="TASK", help="task, such as a5, s5:32:0, z3*d5, 'regex:(ab)*', my.json or my.att")
    # Without a default, --json may also stand before the word "show".
    show.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=JSON_HELP)
    show.add_argument("--svg", metavar="FILE", type=Path, help="draw the state diagram into this file, .svg or .dot")
    show.add_argument("--out", metavar="FILE", type=Path, help="write the automaton into this .json, .dot or .att file")
    show.add_argument(
        "--length",
        metavar="N",
        type=whole_number_between(1, 10_000),
        default=12,
        help="length of the sample strings (default: %(default)s)",
    )
    show.add_argument(
        "--train-length",
        metavar="N",
        type=whole_number_between(1, LONGEST_TRAINED),
        help="length of the longest training strings that are described (default: that of the task)",
    )
    show.add_argument(
        "--states",
        action="store_true",
        help="also list the states of the minimal automaton with how often training strings end in them, rarest first",
    )
    show.add_argument(
        "--seed",
        metavar="N",
        type=parse_seed,
        default=0,
        help="seed of the sample strings (default: %(default)s)",
    )
    show.set_defaults(run=_show_task)


def _list_tasks(options: argparse.Namespace) -> None:
    from sdssm.automata.library import PATTERNS
    from sdssm.tasks.library import get_task, list_tasks
    from sdssm.tasks.machine_facts import collect_machine_facts, describe_algebra, format_monoid_size

    tasks = [get_task(name) for name in list_tasks()]
    if options.json:
        print_json([collect_machine_facts(task) for task in tasks])
        return
    rows = [
        [
            task.name,
            str(task.machine.n_states),
            str(task.n_symbols),
            str(task.n_classes),
            describe_algebra(task),
            format_monoid_size(task),
        ]
        for task in tasks
    ]
    numbers = ("states", "symbols", "classes", "monoid")
    print_table(["task", "states", "symbols", "classes", "algebra", "monoid"], rows, right=numbers)
    print("\nForms of names")
    print_table(["name", "task"], [[pattern, meaning] for pattern, meaning in PATTERNS.items()])
    print("\nsdssm tasks NAME describes one of them.")


def _show_task(options: argparse.Namespace) -> None:
    from sdssm.automata.formats import FORMATS, check_diagram_path, write_diagram, write_machine
    from sdssm.tasks.facts import describe_task
    from sdssm.tasks.library import get_task
    from sdssm.tasks.machine_facts import collect_machine_facts, format_machine_facts
    from sdssm.tasks.state_coverage import cover_states

    if options.svg is not None:
        check_diagram_path(options.svg)  # before anything is computed
    check_suffix("--out", options.out, tuple(FORMATS), "an automaton")
    check_own_inputs({"--out": options.out, "--svg": options.svg}, task=options.name)
    task = get_task(options.name)
    training = describe_task(task, options.train_length)
    samples = _samples(task, task.longest_valid_length(options.length), options.seed)
    facts = collect_machine_facts(task)
    if options.svg is not None:
        write_diagram(task.machine, options.svg, title=task.name)
    if options.out is not None:
        write_machine(task.machine, options.out)
    states = cover_states(task, options.train_length, training.sampling) if options.states else None
    if options.json:
        rows = {} if states is None else {"reached_states": [row.to_dict() for row in states]}
        print_json({**facts, "training": training.to_dict(), **rows, "samples": samples})
        return
    print_facts(task.name, {**format_machine_facts(task), **training.to_lines()})
    if states is not None:
        _print_states(task, states)
    print(f"\nSample strings and the label after each symbol (seed {options.seed})")
    spaced = any(len(name) > 1 for name in task.machine.symbol_names) or task.n_classes > 10
    for sample in samples:
        labels = ["-" if label < 0 else str(label) for label in sample["labels"]]
        symbols = [make_printable(task.machine.symbol_names[token]) for token in sample["tokens"]]
        widths = [max(len(symbol), len(label)) for symbol, label in zip(symbols, labels, strict=True)]
        for cells in (symbols, labels):
            padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
            print("  " + (" " if spaced else "").join(padded))
        print()
    if options.svg is not None:
        print(f"State diagram: {make_printable(str(options.svg))}")
    if options.out is not None:
        print(f"Machine: {make_printable(str(options.out))}")


def _print_states(task: Task, states: Sequence[StateCoverage]) -> None:
    """Print how often training strings end in each state."""
    from sdssm.tasks.facts import one_in
    from sdssm.tasks.machine_facts import MOST_SYMBOLS

    names = task.machine.symbol_names
    rows = [
        [
            str(row.state),
            format_symbols([names[token] for token in row.string], MOST_SYMBOLS) or "(start)",
            "-" if row.label is None else str(row.label),
            f"{row.taken} of {row.transitions}",
            f"1 in {one_in(row.uniform)}" if row.uniform else "-",
            f"1 in {one_in(row.training)}" if row.training else "-",
        ]
        for row in states
    ]
    headers = ["state", "shortest string", "label", "transitions", "uniform strings", "training strings"]
    print("\nStates of the minimal automaton: transitions that training strings take, and how many strings end there")
    print_table(headers, rows, right=[header for header in headers if header != "shortest string"])


def _samples(task: Task, length: int, seed: int) -> list[dict[str, Any]]:
    from sdssm.tasks.examples import draw_examples

    return [
        {"tokens": tokens, "text": task.machine.decode(tokens), "labels": labels}
        for tokens, labels in draw_examples(task, 3, length, seed=seed)
    ]
