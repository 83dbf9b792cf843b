"""The texts and colours of a diagram: labels that fit into their states, and line styles of symbols."""

from __future__ import annotations

import re
from colorsys import hls_to_rgb
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import east_asian_width

import numpy as np

from sdssm import palette

if TYPE_CHECKING:  # used in annotations only: an import at run time would be circular
    from sdssm.automata.machine import Machine

#: The most states that are drawn with names; more are drawn smaller, with numbers.
MOST_NAMED = 60
#: The colours of all pictures, with a dark wine and olive for the seventh and eighth symbol.
COLOURS = (*palette.COLOURS, "#882255", "#777722")
#: From the fifth symbol on, lines are also dashed.
DASHES = ("", "7 3", "2 3")
#: The font sizes of states and legend, and of labels.
FONT, LABEL_FONT = 12.0, 11.0
#: The font size of the title.
HEADING_FONT = 15.0
#: The background, the inside of states, and the width of their circles.
PAPER, STATE_FILL, STATE_LINE = "#ffffff", "#f6f8fa", 1.4
#: The width of a letter relative to the font size: slightly more than in common sans-serif fonts.
LETTER = 0.62
#: The distance between the two circles of an accepting state.
RIM = 3.5
WIDE = "mwMW@%&<>=+~\u2026"
NARROW = " ,.:;'|!ijlfrt-()[]"


class Style(NamedTuple):
    """The line style of a symbol."""

    colour: str
    dash: str  #: the lengths of dashes and gaps, separated by spaces; empty: a solid line
    width: float = 1.6


def symbol_styles(n: int) -> list[Style]:
    """Return the line styles of n symbols: Okabe and Ito's colours, then hues a golden angle apart."""
    styles = []
    for a in range(n):
        if a < len(COLOURS):
            colour, dash = COLOURS[a], DASHES[a // 4]
        else:
            rgb = hls_to_rgb(a * 0.381966 % 1, (0.32, 0.5)[a % 2], 0.75)
            colour, dash = "#" + "".join(f"{round(255 * x):02x}" for x in rgb), DASHES[a // 4 % 3]
        styles.append(Style(colour, dash))
    return styles


def state_labels(machine: Machine) -> tuple[list[list[str]], float, float]:
    """Return the lines of text in each state, a radius large enough for all, and the font size."""
    numbers = [str(q) for q in range(machine.n_states)]
    if machine.n_states > MOST_NAMED:
        return [[number] for number in numbers], 12.5 if machine.is_acceptor else 10.5, 9.0
    letters = 9 if machine.n_states <= 24 else 7
    names = [_wrap(printable(name), letters) for name in machine.state_names]
    if len({tuple(name) for name in names}) < len(names):  # two names were shortened to the same text
        names = [[number] for number in numbers]
    if not machine.is_acceptor and (machine.outputs != np.arange(machine.n_states)).any():
        tails = [f"/ {output}" for output in machine.outputs]
        inline = all(
            len(name) == 1 and text_width(name[0] + tail) <= 6 for name, tail in zip(names, tails, strict=True)
        )
        names = [[f"{name[0]} {tail}"] if inline else [*name, tail] for name, tail in zip(names, tails, strict=True)]
    needed = max(
        np.hypot(text_width(line) * LETTER * FONT / 2, abs(k - (len(lines) - 1) / 2) * 13 + 5)
        for lines in names
        for k, line in enumerate(lines)
    )
    rim = RIM if machine.is_acceptor else 0.0
    return names, max(16.0, round(float(needed)) + 3.0) + rim, FONT


def _wrap(name: str, letters: int) -> list[str]:
    """Break a name into at most two lines at a space or comma, or shorten it.

    >>> _wrap("first=0 last=1", 9), _wrap("acknowledged", 9)
    (['first=0', 'last=1'], ['ackno\u2026ged'])
    """
    if text_width(name) <= letters:
        return [name]
    breaks = [m.end() for m in re.finditer(r"[ ,;]", name)]
    halves = [[name[:b].strip(), name[b:].strip()] for b in breaks]
    fitting = [pair for pair in halves if all(pair) and max(map(text_width, pair)) <= letters]
    return min(fitting, key=lambda pair: abs(len(pair[0]) - len(pair[1]))) if fitting else [shorten(name, letters)]


def shorten(name: str, letters: int) -> str:
    """Return the start and the end of a long name; the end often distinguishes it from others."""
    if text_width(name) <= letters:
        return name
    tail = letters // 3
    while text_width(name[-tail:]) > letters // 2:  # wide letters take more space
        tail -= 1
    head = letters - 1 - tail
    while text_width(name[:head] + name[-tail:]) >= letters and head > 1:
        head -= 1
    return f"{name[:head]}\u2026{name[-tail:]}"


def text_width(text: str) -> float:
    """Return the width of a text in letters; Chinese, Japanese and Korean ones count twice."""
    return sum(
        2 if east_asian_width(letter) in "WF" else 1.4 if letter in WIDE else 0.65 if letter in NARROW else 1
        for letter in text
    )


def printable(text: str) -> str:
    """Return a text on one line, with the characters that XML forbids replaced."""
    return re.sub(r"[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", " ".join(text.split()) or "\u2423")
