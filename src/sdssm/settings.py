"""Settings: frozen dataclasses whose values are checked by their annotations, and which a file or a flag can name.

Each class of settings writes its defaults once, and in `__post_init__` the rules that one annotation cannot say.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from sdssm.errors import SettingsError, nearest, shown

S = TypeVar("S")


def names(kind: type[Any]) -> dict[str, Any]:
    """The settings of a class by name, each with its annotation.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Pump:
    ...     strokes: int = 3
    >>> names(Pump)
    {'strokes': <class 'int'>}
    """
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def build(kind: type[S], values: Mapping[str, Any]) -> S:
    """Settings of this class from plain values, as JSON or a command line gives them; names left out keep defaults."""
    known = names(kind)
    for name in values:
        if name not in known:
            raise SettingsError(f"there is no setting {name!r}; {nearest(str(name), known)}")
    return kind(**{name: converted(name, value, known[name]) for name, value in values.items()})


def plain(settings: Any) -> dict[str, Any]:
    """The reverse of `build`: what JSON can hold."""
    return {
        field.name: plain(value) if dataclasses.is_dataclass(value) else list(value) if type(value) is tuple else value
        for field in dataclasses.fields(settings)
        for value in [getattr(settings, field.name)]
    }


def converted(name: str, value: Any, wanted: Any) -> Any:
    """The value as its annotation wants it, or an error that says what it may be."""
    options = typing.get_args(wanted) if typing.get_origin(wanted) in (types.UnionType, typing.Union) else (wanted,)
    for option in options:
        found = _as(value, option)
        if found is not _NOTHING:
            return found
    expected = " or ".join(_WORDS.get(option, "a list of numbers") for option in options)
    raise SettingsError(f"{name} is {shown(value)}; it must be {expected}")


_NOTHING = object()
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", type(None): "none"}


def _as(value: Any, wanted: Any) -> Any:
    if dataclasses.is_dataclass(wanted):
        if isinstance(value, wanted):  # type: ignore[arg-type]  # a class, not an instance
            return value
        return build(wanted, value) if isinstance(value, Mapping) else _NOTHING  # type: ignore[arg-type]  # the same
    if typing.get_origin(wanted) is tuple:
        inner = typing.get_args(wanted)
        if not isinstance(value, list | tuple) or len(value) != len(inner):
            return _NOTHING
        parts = tuple(_as(part, kind) for part, kind in zip(value, inner, strict=True))
        return _NOTHING if any(part is _NOTHING for part in parts) else parts
    if wanted is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if wanted is int and isinstance(value, float) and value.is_integer():  # 1e6 steps
        return int(value)
    return value if type(value) is wanted else _NOTHING


def at_least(name: str, value: float, least: float) -> None:
    """Refuse a number that is too small (or not a number)."""
    if not value >= least:
        raise SettingsError(f"{name} is {value}; it must be at least {least}")


def one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a word that stands for nothing."""
    if value not in known:
        raise SettingsError(f"{name} is {value!r}; {nearest(value, known)}")
