"""The colour of each model, the same in every picture, and the line styles of its variants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

from sdssm.palette import COLOURS

BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = COLOURS
#: Tones of a colour: how much of it is left, and what it is mixed with (0 is black, 255 white).
PURE, DARK, LIGHT = (1.0, 0), (0.55, 0), (0.55, 255)
TONES = (PURE, DARK, LIGHT)
#: Model -> colour and tone. Models that are often compared with each other have different colours.
MODEL_COLOURS = {
    "sd-ssm": (BLUE, PURE),
    "lstm": (VERMILION, PURE),
    "transformer": (GREEN, PURE),
    "mamba": (PINK, PURE),
    "complex-diagonal": (ORANGE, PURE),
    "rnn": (SKY, PURE),
    "s4": (VERMILION, DARK),
    "s4d": (SKY, DARK),
    "h3": (GREEN, DARK),
    "hyena": (ORANGE, LIGHT),
    "regular-lrnn": (PINK, DARK),
    "delta-net": (BLUE, DARK),
    "delta-product": (VERMILION, LIGHT),
    "pd-ssm": (ORANGE, DARK),
    "slice": (GREEN, LIGHT),
}
#: Line styles of the variants of one model (its tasks, presets, settings), in matplotlib's notation.
LINE_STYLES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (7, 1.5, 1.5, 1.5)), (0, (1.5, 1.2)))
#: The length of a stripe, in line widths, of curves that lie on each other.
STRIPE = 5


@dataclass(frozen=True)
class LineStyle:
    """The colour of a line, and its dashes in matplotlib's notation."""

    colour: str
    dashes: Any


def model_colour(model: str) -> str:
    """Return the colour of a model; a model that is not in the catalogue always gets the same one too.

    >>> model_colour("sd-ssm"), model_colour("my-model") == model_colour("my-model")
    ('#0072b2', True)
    """
    if model in MODEL_COLOURS:
        return mix_colour(*MODEL_COLOURS[model])
    number = crc32(model.encode())  # the same in every process, unlike hash()
    return mix_colour(COLOURS[number % len(COLOURS)], TONES[number // len(COLOURS) % len(TONES)])


def line_style(model: str, variant: int) -> LineStyle:
    """Return the style of a variant of a model, counted from 0: the model's colour, with dashes of its own.

    After four variants there are no more dashes that can be distinguished, and a darker tone follows, then a lighter.
    """
    tone = TONES[variant // len(LINE_STYLES) % len(TONES)]
    return LineStyle(mix_colour(model_colour(model), tone), LINE_STYLES[variant % len(LINE_STYLES)])


def stripes(number: int, count: int) -> Any:
    """Return the dashes of curve `number` of `count` that lie on each other, so that all of them are visible."""
    return (number * STRIPE, (STRIPE, STRIPE * (count - 1)))


def mix_colour(colour: str, tone: tuple[float, int]) -> str:
    """Return a tone of a colour.

    >>> mix_colour("#0072B2", (0.5, 255))
    '#80b8d8'
    """
    share, other = tone
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round(share * part + (1 - share) * other):02x}" for part in parts)
