"""The settings of someone else's module: the parameters of the class or function that builds it."""

from __future__ import annotations

import inspect
import keyword
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from typing import Any, ClassVar, Self

from sdssm.errors import ModelError, format_value
from sdssm.models.train_settings import check_setting_names
from sdssm.settings import check_settings

#: The types of values that a setting can have.
SIMPLE = (int, float, str, bool)


@dataclass(frozen=True, kw_only=True)
class ModuleOptions:
    """Base class of the options of a module; `options_class` makes a subclass for each signature."""

    def __post_init__(self) -> None:
        check_settings(self)

    if typing.TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Allow code that holds the options of an unknown module to read any of its fields."""


def option_values(options: ModuleOptions) -> dict[str, Any]:
    """Return options by name, as arguments of the class or function.

    It is not a method: a module may have an option of any name.
    """
    return {item.name: getattr(options, item.name) for item in fields(options)}


@dataclass(frozen=True, kw_only=True)
class ModuleSettings:
    """Settings of a model that is someone else's module: its name, its import path and its options."""

    name: str
    import_path: str | None = None
    options: ModuleOptions = field(default_factory=ModuleOptions)

    if typing.TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Allow code that holds the settings of any model to read those of a classifier."""

    #: Such a model starts from a state of its own, has no cosine readout, and no values that change during training.
    state_embedding: ClassVar[None] = None
    needs_given_state: ClassVar[bool] = False
    has_cosine_readout: ClassVar[bool] = False

    def parts(self) -> dict[str, Any]:
        """Return the objects that hold the settings, by the name of the part."""
        return {"options": self.options}

    def with_parts(self, values: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return the settings with some values of each part replaced."""
        changed = {**option_values(self.options), **values.get("options", {})}
        return type(self)(name=self.name, import_path=self.import_path, options=type(self.options)(**changed))

    def without_replica_values(self) -> Self:
        """Return these settings: none of them may differ between replicas trained in one batch."""
        return self

    def ramps(self) -> Mapping[str, tuple[float, float | None]]:
        """Return first and last value of each buffer that changes during training: none."""
        return {}


def call_factory(factory: Callable[..., Any], n_symbols: int, n_classes: int, options: ModuleOptions) -> Any:
    """Call a class or function with the two sizes and its options.

    The sizes are passed by name if its parameters are called n_symbols and n_classes, else as the first two.
    """
    names = inspect.signature(factory).parameters
    if {"n_symbols", "n_classes"} <= set(names):
        return factory(n_symbols=n_symbols, n_classes=n_classes, **option_values(options))
    return factory(n_symbols, n_classes, **option_values(options))


def options_class(factory: Callable[..., Any]) -> type[ModuleOptions]:
    """Return the class of a module's options: the parameters after the two sizes that have a simple default.

    >>> def build(n_symbols, n_classes, width=64, *, dropout: float = 0): ...
    >>> options_class(build)(width=32)
    buildOptions(width=32, dropout=0.0)
    """
    label = getattr(factory, "__qualname__", type(factory).__name__)
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        raise ModelError(f"{label} has no signature that Python can read; wrap it in a function") from None
    own_parameters = _without_sizes(parameters)
    if own_parameters is None:
        names = ", ".join(parameter.name for parameter in parameters) or "none"
        raise ModelError(
            f"{label} takes the parameters ({names}); the first two must be the number of symbols and of classes, "
            f"without defaults, as in def {label.rpartition('.')[2]}(n_symbols, n_classes, width=64)"
        )
    hints = _hints(factory)
    options = []
    for parameter in own_parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty:
            raise ModelError(
                f"the parameter {parameter.name!r} of {label} has no default; give it one, and it becomes a setting"
            )
        annotation = _annotation(parameter.default, hints.get(parameter.name))
        if annotation is not None and parameter.kind is not parameter.POSITIONAL_ONLY:
            options.append((parameter.name, annotation, parameter.default))
    check_setting_names(label, [name for name, _, _ in options])
    return _make_options(f"{label.rpartition('.')[2]}Options", tuple(options))


def why_no_setting(factory: Callable[..., Any], name: str) -> str | None:
    """Return why a parameter of a class or function is no setting; None if it has no such parameter.

    >>> def build(n_symbols, n_classes, norm=None): ...
    >>> why_no_setting(build, "norm")  # doctest: +ELLIPSIS
    'norm is a parameter of build, but its default None is not a number, a text, true, false or a tuple of these; ...'
    """
    parameter = inspect.signature(factory).parameters.get(name)
    if parameter is None or parameter.default is parameter.empty:
        return None
    return (
        f"{name} is a parameter of {getattr(factory, '__qualname__', 'the model')}, but its default "
        f"{format_value(parameter.default)} is not a number, a text, true, false or a tuple of these; give it such a "
        "default, or annotate it, as in width: int | None = None"
    )


def check_recorded_options(values: Any) -> dict[str, Any]:
    """Return options as a file holds them, or raise an error if a class or function cannot have them."""
    if not isinstance(values, Mapping):
        raise ModelError(f"the options of the model are {format_value(values)}; they must be values by name")
    for name, value in values.items():
        parts = value if isinstance(value, list) else [value]
        if not all(part is None or type(part) in SIMPLE for part in parts):
            raise ModelError(
                f"the option {name!r} of the model is {format_value(value)}; it must be a number, a text, true, false, "
                "null, or a list of these"
            )
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ModelError(f"the option {name!r} of the model cannot be the name of a parameter")
    return dict(values)


def recorded_options(values: Mapping[str, Any]) -> ModuleOptions:
    """Return options as a file holds them, of a module that has not been imported.

    >>> recorded_options({"width": 32}).width
    32
    """
    converted = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    options = tuple((name, _annotation(value, None) or Any, value) for name, value in converted.items())
    return _make_options("RecordedOptions", options)(**converted)


@cache
def _make_options(name: str, options: tuple[tuple[str, Any, Any], ...]) -> type[ModuleOptions]:
    kind = make_dataclass(
        name,
        [(option, annotation, field(default=default)) for option, annotation, default in options],
        bases=(ModuleOptions,),
        frozen=True,
        kw_only=True,
    )
    kind.__doc__ = "The options of a module."
    return kind


def _without_sizes(parameters: list[inspect.Parameter]) -> list[inspect.Parameter] | None:
    """Return the parameters without those of the two sizes; None if there are no two sizes."""
    names = [parameter.name for parameter in parameters]
    if "n_symbols" in names and "n_classes" in names:
        return [parameter for parameter in parameters if parameter.name not in ("n_symbols", "n_classes")]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    sizes = parameters[:2]
    # A parameter with a default, such as hidden_size=32, is an option: a size would be put into it silently.
    if len(sizes) == 2 and all(size.kind in positional and size.default is size.empty for size in sizes):
        return parameters[2:]
    return None


def _hints(factory: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a class or function that can be evaluated."""
    function = factory.__init__ if inspect.isclass(factory) else factory
    try:
        return typing.get_type_hints(function)
    except Exception:  # names that exist for type checkers only
        return {}


def _annotation(default: Any, hint: Any) -> Any:
    """Return the annotation of a setting, from its hint or else its default; None if it cannot be a setting."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    if hint is not None and all(option in (*SIMPLE, type(None)) for option in options):
        return hint
    if isinstance(default, tuple) and default and all(type(part) in SIMPLE for part in default):
        kinds: Any = tuple(type(part) for part in default)
        if len(set(kinds)) == 1 or set(kinds) == {int, float}:  # a list of any length
            kinds = (int if set(kinds) == {int} else float if float in kinds else kinds[0], ...)
        return tuple[kinds]
    return type(default) if type(default) in SIMPLE else None
