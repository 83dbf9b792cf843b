"""Settings as frozen dataclasses whose values are checked against their annotations.

Values can be passed in Python, read from JSON, or parsed from the options of a command.

A settings class states its defaults once. Its `__post_init__` calls `check_settings` and then checks the rules that an
annotation cannot express.
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
def _field_types(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def setting_types(kind: type[Any]) -> dict[str, Any]:
    """Return the names of a class's settings, each with its annotation.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Pump:
    ...     strokes: int = 3
    >>> setting_types(Pump)
    {'strokes': <class 'int'>}
    """
    return dict(_field_types(kind))  # type: ignore[arg-type]  # classes are hashable


def build_settings(kind: type[S], values: Mapping[str, Any]) -> S:
    """Build settings of this class from plain values, as in JSON; the other values are defaults."""
    known = setting_types(kind)
    for name in values:
        if name not in known:
            raise SettingsError(f"there is no setting {name!r}; {did_you_mean(str(name), known)}")
    return kind(**{name: convert_value(name, value, known[name]) for name, value in values.items()})


def check_settings(settings: Any) -> None:
    """Convert every value to its annotated type, or raise an error. Call it first in `__post_init__`."""
    for name, annotation in setting_types(type(settings)).items():
        object.__setattr__(settings, name, convert_value(name, getattr(settings, name), annotation))


def settings_to_dict(settings: Any) -> dict[str, Any]:
    """Return the plain values of settings, as `build_settings` takes them and JSON can hold them."""
    return {
        field.name: settings_to_dict(value)
        if dataclasses.is_dataclass(value)
        else list(value)
        if type(value) is tuple
        else value
        for field in dataclasses.fields(settings)
        for value in [getattr(settings, field.name)]
    }


def convert_value(name: str, value: Any, annotation: Any) -> Any:
    """Convert the value of a setting to its annotated type, or raise an error that says what it must be."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    options = typing.get_args(annotation) if is_union else (annotation,)
    for option in options:
        converted = _convert(value, option)
        if converted is not _INVALID:
            return converted
    expected = " or ".join(_describe(option) for option in options)
    raise SettingsError(f"{name} is {format_value(value)}; it must be {expected}")


_INVALID = object()
#: Numbers from this size on, and infinity, are refused: float32 cannot represent their squares.
TOO_LARGE = 1e18
_DESCRIPTIONS = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "a word",
    type(None): "none",
}


def _describe(option: Any) -> str:
    """Return what a value of this type must be, in words."""
    if typing.get_origin(option) is typing.Literal:
        return " or ".join(map(str, typing.get_args(option)))
    return "settings of its own" if dataclasses.is_dataclass(option) else _DESCRIPTIONS.get(option, "a list of numbers")


def _convert(value: Any, kind: Any) -> Any:
    """Convert a value to a type that is not a union; return _INVALID if that is not possible."""
    if dataclasses.is_dataclass(kind):
        if isinstance(value, kind):  # type: ignore[arg-type]  # a class, not an instance
            return value
        if isinstance(value, Mapping):  # a base class without settings: the owner knows which subclass it is
            return build_settings(kind, value) if setting_types(kind) else value  # type: ignore[arg-type]  # the same
        return _INVALID
    if typing.get_origin(kind) is typing.Literal:
        choices = typing.get_args(kind)
        return value if any(type(value) is type(choice) and value == choice for choice in choices) else _INVALID
    if typing.get_origin(kind) is tuple:
        kinds = typing.get_args(kind)
        if not isinstance(value, list | tuple) or len(value) != len(kinds):
            return _INVALID
        parts = tuple(_convert(part, part_kind) for part, part_kind in zip(value, kinds, strict=True))
        return _INVALID if any(part is _INVALID for part in parts) else parts
    if kind is int and isinstance(value, Integral) and not isinstance(value, bool):
        return int(value) if abs(int(value)) < 1 << 63 else _INVALID
    if kind in (int, float) and isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return _INVALID
        if not abs(number) < TOO_LARGE:
            return _INVALID
        if kind is float:
            return number
        return int(number) if number.is_integer() else _INVALID  # so that steps=1e6 is accepted
    return value if type(value) is kind else _INVALID


def check_at_least(name: str, value: float, least: float) -> None:
    """Raise an error if a number is too small or NaN."""
    if not value >= least:
        raise SettingsError(f"{name} is {value}; it must be at least {least}")


def check_between(name: str, value: int, least: int, most: int) -> None:
    """Raise an error if a number is outside of a range."""
    if not least <= value <= most:
        raise SettingsError(f"{name} is {value}; it must be from {least} to {most:,}")


def check_one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raise an error if a word is not one of the known ones."""
    if value not in known:
        raise SettingsError(f"{name} is {value!r}; {did_you_mean(value, known)}")
