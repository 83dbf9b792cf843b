"""Read values from a report card of cards.json; cards of older versions lack some of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def section_data(card: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    """Return what was measured for a section; empty if it was not."""
    return card["sections"].get(section, {}).get("data") or {}


def values_by_length(card: Mapping[str, Any], name: str, measure: str | None = None) -> dict[int, float]:
    """Return a column of the accuracy by length, such as "best_constant", without the lengths where it is not known.

    `measure` is "balanced" or "covering" for the accuracy on such strings.
    """
    accuracy = section_data(card, "accuracy")
    column = accuracy if measure is None else accuracy.get(measure) or {}
    pairs = zip(column.get("lengths", ()), column.get(name, ()), strict=True)
    return {length: value for length, value in pairs if value is not None}
