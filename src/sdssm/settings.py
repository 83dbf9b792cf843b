"""Settings as frozen dataclasses whose values are checked against their annotations.

Values can be passed in Python, read from JSON, or parsed from the options of a command.

A settings class states its defaults once, and with `setting` also what each of them means and which values it takes.
Its `__post_init__` calls `check_settings` and then checks the rules between several settings.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar

from sdssm.errors import SettingsError, did_you_mean, format_value

S = TypeVar("S")
T = TypeVar("T")
#: Key of a field's metadata for its rule.
RULE = "sdssm.setting"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingRule:
    """What a setting means, and which values it takes besides those of its annotation.

    Numbers are at least `least`, at most `most`, more than `above` and less than `below`; a word is one of `choices`.
    """

    meaning: str = ""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()

    def is_met(self, number: float) -> bool:
        """Whether a number is in the range; NaN never is."""
        return (
            (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def describe_range(self) -> str:
        """Return the range in words; an empty text if there is none.

        >>> SettingRule(least=1, most=4096).describe_range(), SettingRule(above=0).describe_range()
        ('from 1 to 4,096', 'above 0')
        """
        if self.least is not None and self.most is not None:
            return f"from {self.least:,} to {self.most:,}"
        parts = (("above", self.above), ("at least", self.least), ("below", self.below), ("at most", self.most))
        return " and ".join(f"{words} {bound:,}" for words, bound in parts if bound is not None)


def setting(
    default: T,
    meaning: str,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
) -> T:
    """Return the field of a settings class: its default, what it means, and which values it takes.

    `check_settings` refuses all other values. The meaning is what `sdssm settings` prints.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Valve:
    ...     share: float = setting(0.5, "how far it is open", least=0, most=1)
    ...     def __post_init__(self):
    ...         check_settings(self)
    >>> Valve(share=2)
    Traceback (most recent call last):
    sdssm.errors.SettingsError: share is 2.0; it must be from 0 to 1
    """
    rule = SettingRule(meaning=meaning, least=least, most=most, above=above, below=below, choices=choices)
    field: T = dataclasses.field(default=default, metadata={RULE: rule})
    return field


class SettingDescription(NamedTuple):
    """A setting, as it is listed: name, default, which values it takes in words, and what it means."""

    name: str
    default: Any
    values: str
    meaning: str


def describe_settings(kind: type[Any]) -> list[SettingDescription]:
    """Describe all settings of a class.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Gauge:
    ...     limit: float | None = setting(None, "pressure that stops the pump", above=0)
    >>> describe_settings(Gauge)
    [SettingDescription(name='limit', default=None, values='above 0, or none', meaning='pressure that stops the pump')]
    """
    annotations, rules = setting_types(kind), _rules(kind)  # type: ignore[arg-type]  # classes are hashable
    return [
        SettingDescription(field.name, field.default, _describe_values(annotations[field.name], rule), rule.meaning)
        for field in dataclasses.fields(kind)
        for rule in [rules[field.name]]
    ]


@cache
def _rules(kind: Any) -> dict[str, SettingRule]:
    return {field.name: field.metadata.get(RULE, SettingRule()) for field in dataclasses.fields(kind)}


def _describe_values(annotation: Any, rule: SettingRule) -> str:
    """Return in words which values a setting takes."""
    options = _options(annotation)
    words = []
    for option in options:
        if option is not type(None):
            words.append(", ".join(rule.choices) or rule.describe_range() or _describe(option))
            if typing.get_origin(option) is tuple and rule.describe_range():
                words[-1] = f"{len(typing.get_args(option))} numbers, each {words[-1]}"
    text = " or ".join(dict.fromkeys(words)).removeprefix("from ")
    return f"{text}, or none" if type(None) in options else text


@cache  # a list of 10,000 runs asks a million times
def _options(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the type alone."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    return typing.get_args(annotation) if is_union else (annotation,)


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
    """Convert every value to its annotated type and check its rule, or raise an error. Call it in `__post_init__`."""
    rules = _rules(type(settings))  # type: ignore[arg-type]  # the same
    for name, annotation in setting_types(type(settings)).items():
        value = convert_value(name, getattr(settings, name), annotation)
        object.__setattr__(settings, name, value)
        if value is not None:
            _check_rule(name, value, rules[name], ", or none" if type(None) in _options(annotation) else "")


def _check_rule(name: str, value: Any, rule: SettingRule, otherwise: str) -> None:
    """Raise an error if a value is not None and not one that the rule allows."""
    if rule.choices and value not in rule.choices:
        raise SettingsError(f"{name} is {value!r}; {did_you_mean(value, rule.choices)}")
    if isinstance(value, tuple):
        if not all(map(rule.is_met, value)):
            raise SettingsError(f"{name} are {value}; each must be {rule.describe_range()}")
    elif not rule.is_met(value):
        raise SettingsError(f"{name} is {value}; it must be {rule.describe_range()}{otherwise}")


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
    options = _options(annotation)
    for option in options:
        converted = _convert(value, option)
        if converted is not _INVALID:
            return converted
    expected = " or ".join(_describe(option) for option in options)
    raise SettingsError(f"{name} is {format_value(value)}; it must be {expected}")


_INVALID = object()
#: Numbers from this size on, and infinity, are refused: float32 cannot represent their squares.
TOO_LARGE = 1e18
#: Types whose values need no conversion, with the bound of numbers.
_LARGEST = {str: None, bool: None, type(None): None, int: 1 << 63, float: TOO_LARGE}
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
    if typing.get_origin(option) is tuple:
        return _describe_list(typing.get_args(option))
    return "settings of its own" if dataclasses.is_dataclass(option) else _DESCRIPTIONS[option]


def _describe_list(kinds: tuple[Any, ...]) -> str:
    """Return what a list must be, and how it is written.

    >>> _describe_list((int, ...)), _describe_list((float, float))
    ('a list of numbers, such as [1, 2, 3]', 'a list of numbers, such as [1, 2]')
    """
    examples = {bool: ("true", "false", "true"), str: ("a", "b", "c")}.get(kinds[0], ("1", "2", "3"))
    shown = examples if kinds[-1] is Ellipsis else (examples * len(kinds))[: len(kinds)]
    words = {bool: "of true or false", str: "of words"}.get(kinds[0], "of numbers")
    return f"a list {words}, such as [{', '.join(shown)}]"


def _convert(value: Any, kind: Any) -> Any:
    """Convert a value to a type that is not a union; return _INVALID if that is not possible."""
    if kind is Any:
        return value
    if type(value) is kind and kind in _LARGEST:  # most values: a list of 10,000 runs converts two million
        largest = _LARGEST[kind]
        return value if largest is None or abs(value) < largest else _INVALID
    if value is None and isinstance(kind, type):
        return _INVALID
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
        if not isinstance(value, list | tuple):
            return _INVALID
        if kinds[-1] is Ellipsis:  # of any length
            kinds = (kinds[0],) * len(value)
        if len(value) != len(kinds):
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
