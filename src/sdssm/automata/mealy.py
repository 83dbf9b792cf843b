"""Mealy machines, whose transitions have the outputs, as Moore machines, whose states have them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sdssm.automata.machine import Machine
from sdssm.automata.partial import PartialTable, build_machine, names_or_none
from sdssm.automata.validation import check_size


def mealy_table(
    table: PartialTable, outputs: list[list[int]], start: int
) -> tuple[PartialTable, list[int], list[tuple[int, int]]]:
    """Return the table of the Moore machine, the output of each of its states, and the pairs that they stand for.

    A state is a pair of a state and the output of the last transition; the start is number 0, and only pairs that it
    reaches are kept. Before the first symbol there is no output: the smallest one is taken. None marks a missing
    transition, whose output is ignored.

    >>> mealy_table([[0, 1], [1, 0]], [[0, 1], [1, 0]], 0)  # the output says where the transition leads
    ([[0, 1], [1, 0]], [0, 1], [(0, 0), (1, 1)])
    """
    given = [
        output
        for row, labels in zip(table, outputs, strict=True)
        for target, output in zip(row, labels, strict=True)
        if target is not None
    ]
    pairs = [(start, min(given, default=0))]
    number = {pairs[0]: 0}
    rows: PartialTable = []
    for state, _ in pairs:
        row: list[int | None] = []
        for target, output in zip(table[state], outputs[state], strict=True):
            if target is None:
                row.append(None)
                continue
            pair = target, output
            if pair not in number:
                number[pair] = len(pairs)
                pairs.append(pair)
                check_size(len(pairs), len(outputs[state]))
            row.append(number[pair])
        rows.append(row)
    return rows, [output for _, output in pairs], pairs


def build_from_mealy(
    table: PartialTable,
    outputs: list[list[int]],
    start: int,
    *,
    numbers: Mapping[Any, int],
    states: Sequence[str],
    symbols: list[str],
    sink: bool,
) -> Machine:
    """Return the Moore machine of a Mealy machine; `mealy_table` describes its states and the first arguments.

    `numbers` are those of `number_outputs`. A state is named after its pair, as in `even/on`.
    """
    rows, moore_outputs, pairs = mealy_table(table, outputs, start)
    texts = {number: str(output) for output, number in numbers.items()}
    names = [f"{states[q]}/{texts.get(output, output)}" for q, output in pairs]
    return build_machine(
        table=rows, outputs=moore_outputs, states=names_or_none(names), symbols=names_or_none(symbols), sink=sink
    )


def parse_output(text: str) -> int | str:
    """Return an output that a file holds: a whole number if it is one.

    >>> parse_output("12"), parse_output("on")
    (12, 'on')
    """
    return int(text) if is_number(text) else text


def is_number(text: str) -> bool:
    """Whether a text is a whole number from 0, of at most nine digits."""
    return re.fullmatch("[0-9]{1,9}", text) is not None


def number_outputs(values: list[Any]) -> dict[Any, int]:
    """Return the number of each output: itself if all are whole numbers from 0, else its rank by text.

    >>> number_outputs([0, 2]), number_outputs(["on", "off"])
    ({0: 0, 2: 2}, {'off': 0, 'on': 1})
    """
    if all(isinstance(value, int) and value >= 0 for value in values):  # True and False are 1 and 0
        return {value: int(value) for value in values}
    return {value: k for k, value in enumerate(sorted(set(values), key=str))}
