"""Parallel transitions as one arrow, and the text of the symbols on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sdssm.automata.drawing.wording import COLOURS, printable, shorten, text_width

if TYPE_CHECKING:  # used in annotations only: an import at run time would be circular
    from sdssm.automata.machine import Machine

#: The most arrows of a diagram in which every arrow is labelled: of acceptors, and of machines with more symbols than
#: colours that can be distinguished; and of other machines, in which colours are easier to follow.
MOST_LABELLED, MOST_LABELLED_OTHERS = 160, 48
#: The widest line of a label, in letters, and the most lines.
LABEL_LETTERS, LABEL_LINES = 14, 3


class Arrow(NamedTuple):
    """All symbols that lead from one state to another; with `both`, the same symbols lead back."""

    source: int
    target: int
    symbols: tuple[int, ...]
    both: bool = False


class ArrowLabel(NamedTuple):
    """The text of an arrow: its full form, for the tooltip, and the lines that are shown."""

    full: str
    lines: tuple[str, ...]


def merge_transitions(machine: Machine) -> tuple[list[Arrow], bool]:
    """Return the arrows of a diagram, and whether all of them are labelled (otherwise colours tell the symbols).

    Acceptors are drawn with labels, as in textbooks, and so are machines in which many symbols act alike.
    """
    symbols: dict[tuple[int, int], list[int]] = defaultdict(list)
    for p, row in enumerate(machine.table.tolist()):
        for a, q in enumerate(row):
            symbols[p, q].append(a)
    needs_labels = machine.is_acceptor or machine.n_symbols > len(COLOURS)
    acts_alike = 2 * len(symbols) <= machine.table.size
    is_labelled = len(symbols) <= (MOST_LABELLED if needs_labels else MOST_LABELLED_OTHERS if acts_alike else 0)
    involutions = {a for a in range(machine.n_symbols) if is_involution(machine, a)}
    arrows = []
    for (p, q), chosen in symbols.items():
        is_mutual = p != q and symbols.get((q, p)) == chosen and (is_labelled or involutions.issuperset(chosen))
        if not (is_mutual and p > q):  # drawn once, from the smaller number
            arrows.append(Arrow(p, q, tuple(chosen), is_mutual))
    return arrows, is_labelled


def is_involution(machine: Machine, symbol: int) -> bool:
    """Whether reading the symbol twice leads from every state back to it, but reading it once does not."""
    image, states = machine.table[:, symbol], np.arange(machine.n_states)
    return bool((image[image] == states).all() and (image != states).any())


def label_arrow(machine: Machine, arrow: Arrow) -> ArrowLabel:
    """Return the label of an arrow."""
    items = merge_names([machine.symbol_names[a] for a in arrow.symbols])
    return ArrowLabel(", ".join(items), tuple(_wrap(items)))


def merge_names(names: Sequence[str]) -> list[str]:
    """Return the names of symbols in short: letters and numbers that follow each other become ranges.

    >>> merge_names([*"abcdefgijkxz"]), merge_names(["0", "1", "2", "3", "7", "12"])
    (['a-g', 'i-k', 'x', 'z'], ['0-3', '7', '12'])
    >>> merge_names(["left", "right"]), merge_names([*"01234+,* "])
    (['left', 'right'], ['0-4', '+', '","', '*', '␣'])
    """
    if all(name.isascii() and name.isdecimal() and (name == "0" or name[0] != "0") for name in names):
        keys = [(0, int(name)) for name in names]
    elif all(len(name) == 1 for name in names):
        keys = [(_letter_kind(name), ord(name)) for name in names]
    else:
        return [_display(name) for name in names]
    runs: list[list[int]] = []  # of indices of names
    for k in sorted(range(len(names)), key=lambda k: keys[k]):
        kind, code = keys[k]
        if runs and kind >= 0 and keys[runs[-1][-1]] == (kind, code - 1):
            runs[-1].append(k)
        else:
            runs.append([k])
    items: list[str] = []
    for run in sorted(runs, key=min):  # in the order of the symbols
        shown = [_display(names[k]) for k in run]
        items += [f"{shown[0]}-{shown[-1]}"] if len(run) > 2 else shown
    return items


def _letter_kind(letter: str) -> int:
    """Return the number of the alphabet that a letter belongs to, or -1 if it is in no range."""
    alphabets = (("0", "9"), ("A", "Z"), ("a", "z"))
    return next((k for k, (first, last) in enumerate(alphabets) if first <= letter <= last), -1)


def _display(name: str) -> str:
    return '","' if name == "," else printable(name)


def _wrap(items: list[str]) -> list[str]:
    """Return the items on a few lines of similar length; of too many only the first are shown, with an ellipsis."""
    texts = [f"{shorten(item, LABEL_LETTERS - 1)}," for item in items[:-1]] + [shorten(items[-1], LABEL_LETTERS)]
    lines = _fill(texts, LABEL_LETTERS)
    if len(lines) > LABEL_LINES:
        last = lines[LABEL_LINES - 1]
        while text_width(last) > LABEL_LETTERS - 2 and " " in last:
            last = last[: last.rindex(" ")]
        return [*lines[: LABEL_LINES - 1], f"{last} \u2026"]
    widths = range(1, LABEL_LETTERS + 1)
    return next(filled for filled in (_fill(texts, width) for width in widths) if len(filled) == len(lines))


def _fill(texts: list[str], width: float) -> list[str]:
    """Return the texts on lines of at most this width, if each text fits."""
    lines = [texts[0]]
    for text in texts[1:]:
        if text_width(f"{lines[-1]} {text}") <= width:
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return lines
