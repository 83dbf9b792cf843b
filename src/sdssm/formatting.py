"""Numbers as every display shows them: progress, tables, plots and the command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

#: Stands for a number that is not known.
UNKNOWN = "-"


def format_percent(value: float | None) -> str:
    """Format an accuracy in percent with two digits, rounded down so that only 100 % is shown as 100.00.

    Every display and table uses this function, so that one number looks the same everywhere.

    >>> format_percent(99.9999), format_percent(11.796875), format_percent(100.0), format_percent(None)
    ('99.99', '11.79', '100.00', '-')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    return f"{math.floor(value * 100 + 1e-6) / 100:.2f}"


def format_loss(loss: float | None) -> str:
    """Format a loss with four decimals, without the sign of a negative zero; large ones shortly, None as a dash.

    >>> format_loss(0.25), format_loss(-1e-9), format_loss(2638850293760.0), format_loss(None)
    ('0.2500', '0.0000', '2.6e+12', '-')
    """
    if loss is None:
        return UNKNOWN
    return f"{loss:.1e}" if 1e5 <= abs(loss) < math.inf else f"{loss:z.4f}"


#: What the column "best constant" of a table is, in words.
BEST_CONSTANT = "best constant: the accuracy, on the same strings, of always giving the most frequent label"


def format_chance(*levels: float | None) -> str:
    """Format chance levels, in percent, with at most two digits after the point; several as a range.

    Only 100 itself is shown as 100.

    >>> format_chance(50.0), format_chance(100 / 60, 12.5, 50.0), format_chance(None), format_chance(99.9999)
    ('50', '1.67 to 50', '-', '>99.99')
    """
    known = [level for level in levels if level is not None and not math.isnan(level)]
    if not known:
        return UNKNOWN
    shown = [">99.99" if 99.995 <= level < 100 else f"{round(level, 2):g}" for level in (min(known), max(known))]
    return " to ".join(dict.fromkeys(shown))


def format_estimate(value: float) -> str:
    """Format a forecast or a rule of thumb as a whole number with two significant digits.

    >>> format_estimate(1_772_653), format_estimate(112.4), format_estimate(7.2)
    ('1,800,000', '110', '7')
    """
    return f"{round(float(f'{value:.1e}')):,}" if math.isfinite(value) else UNKNOWN


def format_duration(seconds: float) -> str:
    """Format a duration as minutes:seconds, or as hours:minutes:seconds.

    >>> format_duration(75), format_duration(2 * 3600 + 61)
    ('1:15', '2:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


#: Units of a time span, from which number of seconds each is used, and its length in seconds.
_SPAN_UNITS = (("days", 48 * 3600, 24 * 3600), ("h", 2 * 3600, 3600), ("min", 120, 60), ("s", 0, 1))


def format_time_span(low: float, high: float | None = None) -> str:
    """Format an estimated time in seconds, or a range of it, in one readable unit.

    >>> format_time_span(42), format_time_span(4000), format_time_span(13_601 * 3600)
    ('42 s', '67 min', '567 days')
    >>> format_time_span(4000, 9000), format_time_span(50, 51), format_time_span(90, 9000)
    ('1.1 to 2.5 h', '50 to 51 s', '90 s to 2.5 h')
    """
    high = low if high is None else high
    unit, _, seconds = next(entry for entry in _SPAN_UNITS if high >= entry[1])
    if low < seconds <= high:
        return f"{format_time_span(low)} to {format_time_span(high)}"
    ends = dict.fromkeys(_format_amount(value / seconds) for value in (low, high))
    return f"{' to '.join(ends)} {unit}"


def _format_amount(value: float) -> str:
    """Format a number with two digits, or as a whole number from 10."""
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2g}"


def format_setting(value: object) -> str:
    """Format the value of a setting as it is typed on the command line.

    >>> format_setting(None), format_setting(True), format_setting(1e-8), format_setting((0.9, 0.99))
    ('none', 'true', '1e-08', '[0.9, 0.99]')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(list(value) if isinstance(value, tuple) else value)


def format_symbols(symbols: Sequence[str], most: int) -> str:
    """Format a string of symbols; ten or more equal ones are counted, and after `most` parts the rest is left out.

    >>> format_symbols(["1"] * 26 + ["0", "1"], 20), format_symbols(["a", "b", "a"], 2)
    ('1 (26 times) 0 1', 'a b ...')
    """
    parts: list[str] = []
    for symbol, group in groupby(symbols):
        count = len(list(group))
        parts += [symbol] * count if count < 10 else [f"{symbol} ({count:,} times)"]
    return " ".join([*parts[:most], *(["..."] if len(parts) > most else [])])


def count_of(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural if needed.

    >>> count_of(1, "run"), count_of(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
