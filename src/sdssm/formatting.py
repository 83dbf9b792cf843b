"""Numbers as every display shows them: progress, tables, plots and the command line."""

from __future__ import annotations

import math

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
    """Format a loss with four decimals, without the sign of a negative zero; None as a dash.

    >>> format_loss(0.25), format_loss(-1e-9), format_loss(None)
    ('0.2500', '0.0000', '-')
    """
    return UNKNOWN if loss is None else f"{loss:z.4f}"


def format_chance(*levels: float | None) -> str:
    """Format chance levels, in percent, with at most two digits after the point; several as a range.

    >>> format_chance(50.0), format_chance(100 / 60, 12.5, 50.0), format_chance(None)
    ('50', '1.67 to 50', '-')
    """
    known = [level for level in levels if level is not None]
    if not known:
        return UNKNOWN
    return " to ".join(dict.fromkeys(f"{round(level, 2):g}" for level in (min(known), max(known))))


def format_duration(seconds: float) -> str:
    """Format a duration as minutes:seconds, or as hours:minutes:seconds.

    >>> format_duration(75), format_duration(2 * 3600 + 61)
    ('1:15', '2:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
