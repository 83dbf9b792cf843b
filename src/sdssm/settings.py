"""Settings: frozen dataclasses whose values are checked by their annotations, and which a file or a flag can name.

Each class of settings writes its defaults once, and in `__post_init__` the rules that one annotation cannot say.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from numbers import Integral, Real
from typing import Any, TypeVar

from sdssm.errors import SettingsError, did_you_mean, format_value

S = TypeVar("S")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def setting_types(kind: type[Any]) -> dict[str, Any]:
    """The settings of a class by name, each with its annotation.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Pump:
    ...     strokes: int = 3
    >>> setting_types(Pump)
    {'strokes': <class 'int'>}
    """
    return dict(_hints(kind))  # type: ignore[arg-type]  # classes are hashable


def build_settings(kind: type[S], values: Mapping[str, Any]) -> S:
    """Settings of this class from plain values, as JSON or a command line gives them; names left out keep defaults."""
    known = setting_types(kind)
    for name in values:
        if name not in known:
            raise SettingsError(f"there is no setting {name!r}; {did_you_mean(str(name), known)}")
    return kind(**{name: convert_value(name, value, known[name]) for name, value in values.items()})


def check_settings(settings: Any) -> None:
    """Every value as its annotation wants it, however the settings were made. Called first in `__post_init__`."""
    for name, wanted in setting_types(type(settings)).items():
        object.__setattr__(settings, name, convert_value(name, getattr(settings, name), wanted))


def settings_to_dict(settings: Any) -> dict[str, Any]:
    """The reverse of `build_settings`: what JSON can hold."""
    return {
        field.name: settings_to_dict(value)
        if dataclasses.is_dataclass(value)
        else list(value)
        if type(value) is tuple
        else value
        for field in dataclasses.fields(settings)
        for value in [getattr(settings, field.name)]
    }


def convert_value(name: str, value: Any, wanted: Any) -> Any:
    """The value as its annotation wants it, or an error that says what it may be."""
    options = typing.get_args(wanted) if typing.get_origin(wanted) in (types.UnionType, typing.Union) else (wanted,)
    for option in options:
        found = _as(value, option)
        if found is not _NOTHING:
            return found
    expected = " or ".join(_words(option) for option in options)
    raise SettingsError(f"{name} is {format_value(value)}; it must be {expected}")


_NOTHING = object()
#: Numbers of this size and above, and infinity, are no settings: float32 would not hold their squares.
HUGE = 1e18
_WORDS = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a word", type(None): "none"}


def _words(option: Any) -> str:
    if typing.get_origin(option) is typing.Literal:
        return " or ".join(map(str, typing.get_args(option)))
    return "settings of its own" if dataclasses.is_dataclass(option) else _WORDS.get(option, "a list of numbers")


def _as(value: Any, wanted: Any) -> Any:
    if dataclasses.is_dataclass(wanted):
        if isinstance(value, wanted):  # type: ignore[arg-type]  # a class, not an instance
            return value
        if isinstance(value, Mapping):  # a class without settings stands for its kin: whoever owns it knows which
            return build_settings(wanted, value) if setting_types(wanted) else value  # type: ignore[arg-type]  # the same
        return _NOTHING
    if typing.get_origin(wanted) is typing.Literal:
        return value if any(type(value) is type(one) and value == one for one in typing.get_args(wanted)) else _NOTHING
    if typing.get_origin(wanted) is tuple:
        inner = typing.get_args(wanted)
        if not isinstance(value, list | tuple) or len(value) != len(inner):
            return _NOTHING
        parts = tuple(_as(part, kind) for part, kind in zip(value, inner, strict=True))
        return _NOTHING if any(part is _NOTHING for part in parts) else parts
    if wanted is int and isinstance(value, Integral) and not isinstance(value, bool):
        return int(value) if abs(int(value)) < 1 << 63 else _NOTHING
    if wanted in (int, float) and isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return _NOTHING
        if not abs(number) < HUGE:
            return _NOTHING
        if wanted is float:
            return number
        return int(number) if number.is_integer() else _NOTHING  # 1e6 is a number of steps
    return value if type(value) is wanted else _NOTHING


def check_at_least(name: str, value: float, least: float) -> None:
    """Refuse a number that is too small (or not a number)."""
    if not value >= least:
        raise SettingsError(f"{name} is {value}; it must be at least {least}")


def check_between(name: str, value: int, least: int, most: int) -> None:
    """Refuse a number outside of a range."""
    if not least <= value <= most:
        raise SettingsError(f"{name} is {value}; it must be from {least} to {most:,}")


def check_one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a word that stands for nothing."""
    if value not in known:
        raise SettingsError(f"{name} is {value!r}; {did_you_mean(value, known)}")
