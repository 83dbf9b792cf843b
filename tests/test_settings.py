"""Settings: validation and conversion of values from files and the command line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Optional

import numpy as np
import pytest
from torch.nn import GRU

from sdssm.errors import ModelError, SettingsError, UnknownNameError
from sdssm.layers import SelectiveDenseSettings
from sdssm.models import ModelSettings
from sdssm.models.train_settings import TrainSettings
from sdssm.runs import default_folder
from sdssm.runs.schema import Settings, resolve_settings, setting_names
from sdssm.settings import (
    build_settings,
    check_at_least,
    check_one_of,
    check_settings,
    convert_value,
    describe_settings,
    setting,
    setting_types,
    settings_to_dict,
)
from sdssm.tasks import get_task
from sdssm.training import train


class Other(NamedTuple):
    """A value other than the default, as text and converted, and other settings that it requires."""

    text: str
    value: Any
    required: dict[str, Any] = {}  # noqa: RUF012  # never changed


#: What centres for the states of an automaton require of a model and its training.
STATES: dict[str, Any] = {"norm": "none", "projection": False, "attraction": 0.0}

#: For every setting; a new setting must be added here, or the tests fail.
OTHERS: dict[str, Other] = {
    "state": Other("5", 5),
    "dictionary": Other("3", 3),
    "column_norm": Other("none", None),
    "initial_state": Other("zero", "zero", {"input_matrix": True, "rescale": False}),
    "input_matrix": Other("true", True, {"rescale": False}),
    "rescale": Other("false", False),
    "temperature": Other("0.5", 0.5),
    "temperature_end": Other("2", 2.0),
    "initial_dictionary": Other("identity", "identity"),
    "skip": Other("True", True),
    "transition": Other("stochastic", "stochastic"),
    "constraint": Other("0.5", 0.5, {"transition": "sum-one"}),
    "constraint_end": Other("0", 0.0, {"transition": "sum-one"}),
    "column_temperature": Other("0.1", 0.1, {"transition": "stochastic"}),
    "column_temperature_end": Other("1e-3", 0.001, {"transition": "nonnegative"}),
    "layers": Other("2", 2),
    "block": Other("pre-norm", "pre-norm"),
    "feed_forward": Other("5", 5, {"block": "pre-norm"}),
    "activation": Other("relu", "relu"),
    "block_dropout": Other("0.25", 0.25, {"block": "post-norm"}),
    "embedding": Other("3", 3),
    "embedding_init": Other("small", "small"),
    "embedding_scale": Other("8", 8.0),
    "width": Other("4", 4),
    "query": Other("true", True),
    "norm": Other("none", "none"),
    "readout": Other("linear", "linear"),
    "readout_bias": Other("false", False),
    "hidden": Other("7", 7),
    "dropout": Other("0.25", 0.25, {"readout": "mlp"}),
    "projection": Other("false", False),
    "centres": Other("64", 64, STATES | {"targets": "state"}),
    "scale": Other("5", 5.0),
    "scale_end": Other("null", None),
    "state_embedding": Other("8", 8, {"initial_state": "given", "readout": "linear"}),
    "steps": Other("2e0", 2),
    "batch": Other("3", 3),
    "train_length": Other("7", 7),
    "shortest": Other("2", 2),
    "curriculum": Other("fixed", "fixed"),
    "sampling": Other("balanced", "balanced"),
    "allow_unidentified": Other("true", True),
    "lr": Other("2e-3", 0.002),
    "schedule": Other("constant", "constant"),
    "warmup": Other("0", 0.0),
    "betas": Other("[0.8, 0.9]", (0.8, 0.9)),
    "eps": Other("1e-6", 1e-6),
    "weight_decay": Other(".01", 0.01),
    "clip": Other("None", None),
    "targets": Other("state", "state", STATES | {"centres": 64}),
    "next_state": Other("1", 1.0),
    "attraction": Other("0", 0.0),
    "attraction_gate": Other("4", 4.0),
    "projection_decay": Other("0.5", 0.5),
    "prefixes": Other("3", 3),
    "gain_penalty": Other("10", 10.0),
    "exact_gradient": Other("true", True),
    "validate_length": Other("5", 5),
    "validate_every": Other("1", 1),
    "evaluate_every": Other("1", 1),
    "checkpoint_every": Other("1", 1),
    "log_every": Other("1", 1),
}


@dataclass(frozen=True)
class Inner:
    depth: int = 1
    share: float | None = None

    def __post_init__(self) -> None:
        check_at_least("depth", self.depth, 1)


@dataclass(frozen=True)
class Pump:
    strokes: int = 3
    speed: float = 1.0
    on: bool = False
    kind: str = "hand"
    pair: tuple[float, float] = (0.5, 0.5)
    limit: int | None = None
    old: Optional[float] = None  # noqa: UP045  # both ways to write a union
    mixed: int | str = 1
    state: Literal["idle", "busy"] | None = "idle"
    inner: Inner = field(default_factory=Inner)


# -- a single value ----------------------------------------------------------------------------------------------------

VALID: list[tuple[Any, Any, Any]] = [
    (3, int, 3),
    (1e6, int, 1_000_000),
    (-2.0, int, -2),
    (np.int64(3), int, 3),
    (np.float64(0.5), float, 0.5),
    (np.int32(2), float, 2.0),
    (3, float, 3.0),
    (1e-3, float, 1e-3),
    (True, bool, True),
    ("cosine", str, "cosine"),
    (None, int | None, None),
    (4, int | None, 4),
    (None, Optional[float], None),  # noqa: UP045  # both ways to write a union
    (2, Optional[float], 2.0),  # noqa: UP045  # the same
    (None, str | None, None),
    ("3", int | str, "3"),
    (3, int | str, 3),
    ([0.9, 1], tuple[float, float], (0.9, 1.0)),
    ((1, 2), tuple[int, int], (1, 2)),
    ([1, "a"], tuple[int, str], (1, "a")),
    ("busy", Literal["idle", "busy"], "busy"),
    (2, Literal[1, 2], 2),
    (None, Literal["idle"] | None, None),
    ({"depth": 2}, Inner, Inner(2)),
    (Inner(3), Inner, Inner(3)),
]

INVALID: list[tuple[Any, Any, str]] = [
    ("3", int, "x is '3'; it must be a whole number"),
    ("0.5", float, "x is '0.5'; it must be a finite number"),
    (True, int, "x is True; it must be a whole number"),
    (False, float, "x is False; it must be a finite number"),
    (2.5, int, "x is 2.5; it must be a whole number"),
    (float("inf"), int, "x is inf; it must be a whole number"),
    (float("nan"), int, "x is nan; it must be a whole number"),
    (float("inf"), float, "x is inf; it must be a finite number"),
    (float("nan"), float, "x is nan; it must be a finite number"),
    (10**400, float, "it must be a finite number"),
    (np.bool_(True), int, "it must be a whole number"),
    (1j, float, "x is 1j; it must be a finite number"),
    (None, int, "x is None; it must be a whole number"),
    (None, bool, "x is None; it must be true or false"),
    (1, bool, "x is 1; it must be true or false"),
    ("true", bool, "x is 'true'; it must be true or false"),
    (5, str, "x is 5; it must be a word"),
    (["a"], str, "x is ['a']; it must be a word"),
    ("4", int | None, "x is '4'; it must be a whole number or none"),
    (True, float | None, "x is True; it must be a finite number or none"),
    ("none", int | None, "x is 'none'; it must be a whole number or none"),
    (0.5, tuple[float, float], "x is 0.5; it must be a list of numbers"),
    ([0.5], tuple[float, float], "x is [0.5]; it must be a list of numbers"),
    ([1, 2, 3], tuple[float, float], "x is [1, 2, 3]; it must be a list of numbers"),
    ([0.5, "0.5"], tuple[float, float], "it must be a list of numbers"),
    ([0.5, True], tuple[float, float], "it must be a list of numbers"),
    ("ab", tuple[str, str], "x is 'ab'"),
    ("gone", Literal["idle", "busy"], "x is 'gone'; it must be idle or busy"),
    ("gone", Literal["idle"] | None, "x is 'gone'; it must be idle or none"),
    (3, Literal[1, 2], "x is 3; it must be 1 or 2"),
    ("9" * 200, int, "...'; it must be a whole number"),
]


@pytest.mark.parametrize(("value", "kind", "result"), VALID, ids=str)
def test_valid_values_are_converted(value: Any, kind: Any, result: Any) -> None:
    converted = convert_value("x", value, kind)
    assert (converted, type(converted)) == (result, type(result))
    if isinstance(converted, tuple):
        assert [type(part) for part in converted] == [type(part) for part in result]


@pytest.mark.parametrize("value", [2**53 + 1, 10**17 + 1, 2**62 + 1])
def test_large_integers_are_kept_exactly(value: int) -> None:
    """Seeds go up to 2^63, and a resumed run reads its seed from config.json."""
    assert convert_value("seed", value, int) == value


@pytest.mark.parametrize(("value", "kind", "message"), INVALID, ids=lambda value: str(value)[:40])
def test_invalid_values_are_refused(value: Any, kind: Any, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        convert_value("x", value, kind)
    assert message in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 160


def test_checks_of_a_single_value() -> None:
    check_at_least("x", 1, 1)
    check_one_of("x", "plain", ("plain", "none"))
    for value in (0, float("nan")):
        with pytest.raises(SettingsError, match=f"x is {value}; it must be at least 1"):
            check_at_least("x", value, 1)
    with pytest.raises(SettingsError, match="x is 'plane'; did you mean 'plain'?"):
        check_one_of("x", "plane", ("plain", "none"))


# -- a class of settings -----------------------------------------------------------------------------------------------


def test_setting_types_are_the_fields_in_order() -> None:
    types = setting_types(Pump)
    assert list(types) == ["strokes", "speed", "on", "kind", "pair", "limit", "old", "mixed", "state", "inner"]
    assert (types["strokes"], types["pair"], types["inner"]) == (int, tuple[float, float], Inner)
    assert types["limit"] == int | None and types["old"] == float | None


def test_build_settings_keeps_defaults_and_converts_values() -> None:
    assert build_settings(Pump, {}) == Pump()
    values = {"strokes": 2e0, "speed": 2, "pair": [1, 0], "limit": None, "kind": "none", "inner": {"share": 1}}
    built = build_settings(Pump, values)
    assert built == Pump(strokes=2, speed=2.0, pair=(1.0, 0.0), kind="none", inner=Inner(share=1.0))
    assert isinstance(built.strokes, int) and isinstance(built.speed, float) and isinstance(built.inner.share, float)
    assert values["pair"] == [1, 0]  # the argument is not modified


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stroke": 3}, "there is no setting 'stroke'; did you mean 'strokes'?"),
        ({"qqqq": 3}, "there is no setting 'qqqq'; known: strokes, speed"),
        ({3: 3}, "there is no setting 3; known: "),
        ({"strokes": "3"}, "strokes is '3'; it must be a whole number"),
        ({"inner": {"dept": 1}}, "there is no setting 'dept'; did you mean 'depth'?"),
        ({"inner": {"depth": 1.5}}, "depth is 1.5; it must be a whole number"),
        ({"inner": {"depth": 0}}, "depth is 0; it must be at least 1"),
        ({"inner": 5}, "inner is 5; it must be "),
        ({"inner": None}, "inner is None; it must be "),
    ],
    ids=str,
)
def test_build_settings_refuses_invalid_values(values: dict[Any, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        build_settings(Pump, values)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "settings", [Pump(), Pump(pair=(1.0, 2.0), limit=4, state=None, inner=Inner(2, 0.1)), Settings(), ModelSettings()]
)
def test_settings_survive_a_round_trip_through_json(settings: Any) -> None:
    text = json.dumps(settings_to_dict(settings))
    assert build_settings(type(settings), json.loads(text)) == settings


# -- all settings ------------------------------------------------------------------------------------------------------


def get_part(settings: Settings, part: str) -> Any:
    """Return a part of the settings, independently of the code that sets it."""
    return {"mixer": settings.model.mixer, "model": settings.model, "train": settings.train}[part]


def test_every_setting_is_listed_in_this_file() -> None:
    assert set(OTHERS) == set(setting_names(Settings()))


def test_no_two_parts_share_a_name() -> None:
    parts = [setting_types(kind) for kind in (type(ModelSettings().mixer), ModelSettings, TrainSettings)]
    assert len(set().union(*parts)) == sum(map(len, parts))
    assert set().union(*parts) == {"name", "import_path", "mixer", *setting_names(Settings())}


@pytest.mark.parametrize("name", setting_names(Settings()))
def test_every_setting_can_be_changed_by_name(name: str) -> None:
    _, value, required = OTHERS[name]
    known, defaults = setting_names(Settings()), Settings()
    part, _ = known[name]
    changed = resolve_settings("sd-ssm", "scale-free", "parity", {name: value, **required})
    assert getattr(get_part(changed, part), name) == value != getattr(get_part(defaults, part), name)
    assert type(getattr(get_part(changed, part), name)) is type(value)
    # All other settings have their defaults.
    for other, (other_part, _) in known.items():
        expected = {name: value, **required}.get(other, getattr(get_part(defaults, other_part), other))
        assert getattr(get_part(changed, other_part), other) == expected, other
    assert changed.model.name == "sd-ssm"
    assert build_settings(ModelSettings, settings_to_dict(changed.model)) == changed.model
    assert build_settings(TrainSettings, settings_to_dict(changed.train)) == changed.train


@pytest.mark.parametrize("name", setting_names(Settings()))
def test_a_setting_refuses_values_of_another_type(name: str) -> None:
    for wrong in ({}, [], object(), "3"):
        with pytest.raises(SettingsError, match=f"^{name} is "):
            Settings().replace_values({name: wrong})


def test_changes_override_a_preset() -> None:
    changed = resolve_settings("sd-ssm", "paper", "a5", {"column_norm": 1.5, "lr": 1})
    paper = resolve_settings("sd-ssm", "paper", "a5")
    assert isinstance(paper.model, ModelSettings)
    assert changed.model == replace(
        paper.model,
        mixer=build_settings(SelectiveDenseSettings, {**settings_to_dict(paper.model.mixer), "column_norm": 1.5}),
    )
    assert changed.train == replace(paper.train, lr=1.0)
    assert resolve_settings("sd-ssm", "paper", "A5") == paper


def test_rules_between_settings_are_checked_after_all_changes() -> None:
    values = {"initial_state": "zero", "rescale": False, "input_matrix": True}
    for order in (list(values), list(reversed(values))):
        assert Settings().replace_values({name: values[name] for name in order}).model.mixer.input_matrix
    with pytest.raises(SettingsError, match="set input_matrix=false"):
        Settings().replace_values({"input_matrix": True})


@pytest.mark.parametrize("name", ["stat", "name", "mixer", "model", "train", "", 3])
def test_unknown_settings_are_refused(name: Any) -> None:
    with pytest.raises(SettingsError, match="there is no setting"):
        resolve_settings("sd-ssm", "scale-free", "parity", {name: 3})


def test_unknown_models_and_presets_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'sd-ssm'?"):
        resolve_settings("sdssm", "scale-free", "parity")
    with pytest.raises(UnknownNameError, match="did you mean 'scale-free'?"):
        resolve_settings("sd-ssm", "scalefree", "parity")
    with pytest.raises(SettingsError, match="preset 'readme' has no settings for sd-ssm on d30"):
        resolve_settings("sd-ssm", "readme", "d30")


# -- names of folders, and the arguments of train ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks", "model", "preset", "settings", "name"),
    [
        (["a5"], "sd-ssm", None, {}, "a5"),
        (["a5"], "sd-ssm", "scale-free", {"state": 64, "log_every": 5, "checkpoint_every": 9}, "a5"),
        (["a5"], "sd-ssm", "paper", {}, "a5-paper"),
        (["a5", "d4"], "lstm", None, {"steps": 5e3}, "a5+d4-lstm-steps=5000"),
        (["a5"], "lstm", "default", {}, "a5-lstm"),
        (["a5"], "sd-ssm", "paper", {"lr": 2e-5, "state": 32, "query": True}, "a5-paper-query=true-state=32"),
        (["a5", "d4"], "sd-ssm", "paper", {"lr": 2e-5}, "a5+d4-paper-lr=2e-05"),  # the paper has it for a5 only
        (["my.json"], "sd-ssm", None, {"column_norm": None, "betas": [0.5, 0.9]}, "my.json-32fb37c9"),
        (["a5"], "sd-ssm", None, {"column_norm": None}, "a5-column_norm=none"),
        (["a5"], "sd-ssm", None, {"input_matrix": True}, "a5-input_matrix=true"),  # a variant may make it valid
    ],
)
def test_default_folders(tasks: list[str], model: str, preset: str | None, settings: dict[str, Any], name: str) -> None:
    assert default_folder(tasks, model, preset, settings) == Path("runs") / name


def test_a_preset_that_is_not_chosen_for_the_task_has_a_folder_of_its_own() -> None:
    task, lr = get_task("tomita4"), {"lr": 1e-3}  # trained on states with 1e-2, unless a preset is named
    folders = [default_folder([task], "sd-ssm", preset).name for preset in (None, "states", "scale-free")]
    assert folders == ["tomita4", "tomita4", "tomita4-scale-free"]
    assert default_folder([task], "sd-ssm", None, lr).name == "tomita4-lr=0.001"
    assert default_folder([task], "sd-ssm", "scale-free", lr).name == "tomita4-scale-free"
    assert default_folder([get_task("a5"), task], "sd-ssm", "scale-free").name == "a5+tomita4-scale-free"


def test_default_folders_of_many_settings_are_short_and_differ() -> None:
    many = {"layers": 2, "embedding": 16, "feed_forward": 32, "activation": "relu", "block_dropout": 0.1, "steps": 7}
    first = default_folder(["a5"], "sd-ssm", None, many)
    assert len(first.name) < 20
    assert first == default_folder(["a5"], "sd-ssm", None, dict(reversed(many.items())))
    assert first != default_folder(["a5"], "sd-ssm", None, {**many, "steps": 8})


def test_train_says_what_it_takes_as_a_model() -> None:
    with pytest.raises(ModelError, match="a GRU, .*; pass a function, as in def build.n_symbols, n_classes.: retu"):
        train("parity", model=GRU(2, 3))


def test_rules_of_a_setting() -> None:
    @dataclass(frozen=True)
    class Tank:
        level: float = setting(0.5, "how full it is", least=0, below=1)
        taps: tuple[int, int] = setting((1, 2), "numbers of the taps", least=1, most=9)
        kind: str | None = setting(None, "what it holds", choices=("water", "oil"))

        def __post_init__(self) -> None:
            check_settings(self)

    assert Tank(kind="oil", level=0).level == 0.0
    for values, message in (
        ({"level": 1}, "level is 1.0; it must be at least 0 and below 1"),
        ({"taps": [0, 1]}, "taps are (0, 1); each must be from 1 to 9"),
        ({"kind": "oul"}, "kind is 'oul'; did you mean 'oil'?"),
    ):
        with pytest.raises(SettingsError, match=re.escape(message)):
            build_settings(Tank, values)
    assert [(item.values, item.meaning) for item in describe_settings(Tank)] == [
        ("at least 0 and below 1", "how full it is"),
        ("2 numbers, each from 1 to 9", "numbers of the taps"),
        ("water, oil, or none", "what it holds"),
    ]
