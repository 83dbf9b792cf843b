"""Checked access to JSON values that another program may have written, or that are damaged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sdssm.errors import RunError, format_value

#: Characters of a name and of a sentence that a page shows.
LONGEST_NAME, LONGEST_TEXT = 120, 1_000
#: Larger whole numbers are no counts; JavaScript cannot hold them either.
LARGEST_WHOLE = 2**53
#: Items that are read from one list.
MOST_ITEMS = 1_000_000


class JsonFields:
    """The fields of a JSON object; a field of the wrong type raises a `RunError` that names file, field and value.

    A field that is missing or null is None, or empty if it is a list.

    >>> fields = JsonFields({"step": 3, "loss": "high"}, "status.json")
    >>> fields.whole("step"), fields.number("accuracy")
    (3, None)
    >>> fields.number("loss")
    Traceback (most recent call last):
    sdssm.errors.RunError: status.json: loss must be a number, got 'high'
    """

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, Mapping):
            raise RunError(f"{where} must hold a JSON object, got {format_value(data)}")
        self.data, self.where = data, where

    def number(self, name: str) -> float | None:
        """Return a finite number; None for NaN and infinities."""
        return self._number(name, self.data.get(name))

    def numbers(self, name: str) -> list[float | None]:
        """Return a list of finite numbers, with None for null, NaN and infinities."""
        return [self._number(name, item) for item in self._list(name)]

    def whole(self, name: str) -> int | None:
        """Return a whole number from 0."""
        return self._whole(name, self.data.get(name))

    def wholes(self, name: str) -> list[int]:
        """Return a list of whole numbers from 0."""
        numbers = [self._whole(name, item) for item in self._list(name)]
        known = [number for number in numbers if number is not None]
        if len(known) < len(numbers):
            raise self._error(name, "a list of whole numbers", None)
        return known

    def flag(self, name: str) -> bool | None:
        """Return true or false."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._error(name, "true or false", value)
        return value

    def text(self, name: str, longest: int = LONGEST_TEXT) -> str | None:
        """Return a text, cut after `longest` characters."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, str):
            raise self._error(name, "a text", value)
        return None if value is None else clip_text(value, longest)

    def name(self, name: str) -> str | None:
        """Return a short text."""
        return self.text(name, LONGEST_NAME)

    def names(self, name: str) -> list[str]:
        """Return a list of short texts."""
        items = self._list(name)
        for item in items:
            if not isinstance(item, str):
                raise self._error(name, "a list of texts", item)
        return [clip_text(item, LONGEST_NAME) for item in items]

    def fields(self, name: str) -> JsonFields | None:
        """Return the fields of an object in this object."""
        value = self.data.get(name)
        return None if value is None else JsonFields(value, f"{self.where}: {name}")

    def objects(self, name: str) -> list[JsonFields]:
        """Return the fields of each object of a list."""
        return [JsonFields(item, f"{self.where}: item {k} of {name}") for k, item in enumerate(self._list(name))]

    def require(self, *names: str) -> None:
        """Raise an error unless all of these fields are present and not null."""
        for name in names:
            if self.data.get(name) is None:
                raise RunError(f"{self.where}: {name} is missing")

    def _list(self, name: str) -> list[Any]:
        value = self.data.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > MOST_ITEMS:
            raise self._error(name, f"a list of at most {MOST_ITEMS:,} items", value)
        return value

    def _number(self, name: str, value: Any) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, float | int):
            raise self._error(name, "a number", value)
        try:
            number = float(value)
        except OverflowError:  # an integer of hundreds of digits
            return None
        return number if math.isfinite(number) else None

    def _whole(self, name: str, value: Any) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_WHOLE:
            raise self._error(name, "a whole number", value)
        return value

    def _error(self, name: str, rule: str, value: Any) -> RunError:
        return RunError(f"{self.where}: {name} must be {rule}, got {format_value(value)}")


def clip_text(text: str, longest: int) -> str:
    """Cut a text that is too long, and replace what no encoding has (lone surrogates).

    >>> clip_text("a" * 9, 5)
    'aaaa…'
    """
    text = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return text.encode("utf-8", "replace").decode("utf-8")


def round_number(value: float | None, digits: int) -> float | None:
    """Round a number to so many decimals; whole numbers become integers, which are shorter in JSON.

    >>> round_number(0.12345, 3), round_number(2.0, 3), round_number(float("nan"), 3)
    (0.123, 2, None)
    """
    if value is None or not math.isfinite(value):
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded


def round_percent(value: float | None) -> float | None:
    """Round an accuracy down to two decimals, so that only 100 % becomes 100, as `format_percent` does.

    >>> round_percent(99.99609), round_percent(100.0), round_percent(None), round_percent(1e308)
    (99.99, 100, None, None)
    """
    if value is None or not math.isfinite(value * 100):  # a huge number of a damaged file becomes infinite
        return None
    return round_number(math.floor(value * 100 + 1e-6) / 100, 2)
