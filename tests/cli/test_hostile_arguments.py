"""Hostile arguments end in one short line, soon, and print no control character; every number has a bound."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from sdssm.automata import get_machine
from sdssm.cli.options import collect_settings
from sdssm.cli.parser import COMMANDS, make_parser
from sdssm.errors import SettingsError, did_you_mean
from sdssm.limits import LARGEST_SEED
from sdssm.models.settings import ModelSettings
from sdssm.models.train_settings import TrainSettings
from sdssm.printable import LONGEST_MESSAGE, make_lines_printable, shorten_line
from sdssm.runs.schema import resolve_settings
from sdssm.settings import SettingRule, _rules, setting_types
from tests.campaign.hostile_arguments import FINDINGS, HOSTILE, VALID, fill, make_places, mutate, substitutions
from tests.evaluation.test_evaluate import create_run
from tests.programs import run_command

Capture = pytest.CaptureFixture[str]
#: Options whose values are settings, which have bounds of their own.
SETTINGS = ("steps", "lr", "batch", "state", "train_length")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    return make_places(tmp_path, create_run(tmp_path / "run", get_machine("parity")).path)


def assert_safe(code: int, out: str, err: str) -> None:
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and len(err) <= LONGEST_MESSAGE + 1
    assert make_lines_printable(err) == err


@pytest.mark.parametrize("number", range(len(FINDINGS)))
def test_past_findings_are_one_short_line(number: int, capsys: Capture, places: dict[str, str]) -> None:
    assert_safe(*run_command(capsys, *fill(FINDINGS[number], places)))


def test_every_name_is_escaped_in_errors(capsys: Capture, places: dict[str, str]) -> None:
    for value in ("\x1b]0;pwned\x07", "\x9b31m", "\u202e", "two\nlines", "\ud800", "\x7f", "x" * 10_000):
        for arguments in (
            ["tasks", "show", value],
            ["models", value],
            ["settings", value],
            ["train", value],
            ["train", "parity", "--model", value],
            ["train", "parity", "--preset", value],
            ["train", "parity", "--set", f"{value}=1"],
            ["train", "parity", "--set", f"lr={value}"],
            ["evaluate", value],
            ["evaluate", places["run"], "--device", value],
            ["runs", value],
            ["certify", value],
            ["compile", value, "--out", "out"],
            ["export", places["run"], "--format", value],
            ["report", value],
            ["figure", value, places["run"], "--out", "a.svg"],
            ["reproduce", value],
            ["sweep", value, "--grid", "lr=1"],
            [value],
            [f"--{value}"],
        ):
            assert_safe(*run_command(capsys, *arguments))


def _actions() -> Iterator[tuple[str, argparse.Action]]:
    for command in COMMANDS:
        parsers = [make_parser(command)]
        for parser in parsers:
            for action in parser._actions:
                if isinstance(action, argparse._SubParsersAction):
                    parsers += action.choices.values()
                else:
                    yield command, action


def test_every_number_of_an_option_has_bounds() -> None:
    """Each option that takes a number refuses one of 31 digits, and no option is a plain int or float."""
    numbers = 0
    for command, action in _actions():
        if action.type in (None, str, Path) or action.dest in SETTINGS:
            continue
        name = f"{command} {action.option_strings}"
        assert action.type not in (int, float), name
        assert callable(action.type)
        for text in ("1" + "0" * 30, "-1", "0", "9" * 5_000, ""):
            try:
                value = action.type(text)
            except argparse.ArgumentTypeError:
                continue
            assert not isinstance(value, int) or 0 <= value <= LARGEST_SEED, name
        numbers += 1
    assert numbers > 40


def test_every_number_of_the_settings_has_bounds() -> None:
    """Sizes and counts have an upper bound; other numbers are finite by their type."""
    kinds = {
        type(part)
        for name in ("sd-ssm", "transformer", "mamba", "hyena", "delta-net", "pd-ssm", "slice")
        for part in resolve_settings(name, _preset(name), "").parts().values()
    }
    assert {TrainSettings, ModelSettings} < kinds
    for kind in kinds:
        rules: dict[str, SettingRule] = _rules(kind)  # type: ignore[arg-type]  # classes are hashable
        for name, annotation in setting_types(kind).items():
            if "int" in str(annotation) and "tuple" not in str(annotation) and name in rules:
                assert rules[name].most is not None, f"{kind.__name__}.{name}"


def _preset(model: str) -> str:
    from sdssm.models.catalogue import default_preset

    return default_preset(model)


@pytest.mark.parametrize("name", SETTINGS)
def test_options_that_are_settings_are_bounded(name: str) -> None:
    for text in ("1" + "0" * 30, "-1", "1e400", "nan", "9" * 5_000, "[1]"):
        option = f"--{name.replace('_', '-')}"
        options = make_parser("train").parse_args(["train", "parity", f"{option}={text}"])
        with pytest.raises(SettingsError) as caught:
            resolve_settings("sd-ssm", "scale-free", "", collect_settings(options))
        assert name in str(caught.value) and len(str(caught.value)) <= LONGEST_MESSAGE


def test_a_long_message_keeps_its_start_and_its_end() -> None:
    message = f"the name {'x' * 1_000} is too long; {did_you_mean('y', ['parity'], 'use a shorter one')}"
    line = shorten_line(f"sdssm: {message}")
    assert len(line) == LONGEST_MESSAGE
    assert line.startswith("sdssm: the name xxx") and line.endswith("is too long; use a shorter one")
    assert shorten_line("one\n  two") == "one two" and shorten_line("\u03b1\x1b[2J") == "\u03b1\\x1b[2J"


def test_the_list_of_hostile_arguments_names_every_command(places: dict[str, str]) -> None:
    from random import Random

    assert {arguments[0] for arguments in VALID} == set(COMMANDS) - {"studio"}
    assert next(iter(substitutions(VALID[1]))) != list(VALID[1])
    assert mutate(VALID[1], Random(0)) == mutate(VALID[1], Random(0)) != list(VALID[1])
    assert not any("{" + name + "}" in argument for name in places for argument in fill(HOSTILE, places))
