"""Options of the command line: declare a command, and parse the texts of its options."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sdssm.devices import check_device_name, check_device_names
from sdssm.errors import DeviceError, SettingsError, format_value
from sdssm.limits import LARGEST_SEED, LONGEST_STRING, MOST_PARALLEL, MOST_SEEDS, MOST_STRINGS

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

#: Exit code for errors that the user can fix.
BAD_INPUT = 2
#: Help of options that several commands have.
DEVICE_HELP = "auto (a GPU if there is one), cpu, cuda or cuda:N (default: %(default)s)"
DEVICES_HELP = (
    "auto (a GPU if there is one), cpu, cuda or cuda:N; several GPUs share the runs as cuda:0,cuda:1 "
    "(default: %(default)s)"
)
JSON_HELP = "print JSON instead of tables"
RUN_HELP = "folder of a run or of a saved model"
#: Options of `sdssm train` that are settings under their own names.
SETTING_OPTIONS = ("steps", "lr", "batch", "state", "train_length")
#: The most lengths that an option lists.
MOST_LENGTHS = 1_000
EXAMPLES = "examples:\n  "


class HelpFormatter(argparse.HelpFormatter):
    """Wraps the description, keeps the lines of examples, and leaves room for long names of commands."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)
        self._action_max_length = len("    completion")  # argparse forgets the indentation of commands

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(EXAMPLES) else super()._fill_text(text, width, indent)


def declare_command(
    commands: Commands, name: str, *, summary: str, description: str, examples: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Add a command; `summary` is its line in `sdssm --help`, the rest is shown by `sdssm NAME --help`."""
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=EXAMPLES + "\n  ".join(examples) if examples else None,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )


# -- numbers -----------------------------------------------------------------------------------------------------------


def whole_number_between(least: int, most: int) -> Callable[[str], int]:
    """Return a function that parses a whole number within bounds, with or without underscores.

    >>> whole_number_between(1, 10_000)("5_000")
    5000
    """

    def parse(text: str) -> int:
        is_number = re.fullmatch(r"\d[\d_]{0,20}", text, re.ASCII) and not text.endswith("_") and "__" not in text
        value = int(text) if is_number else least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{format_value(text)} is not a whole number from {least} to {most:,}")
        return value

    return parse


#: Parsers of numbers that several commands have.
parse_seed = whole_number_between(0, LARGEST_SEED)
parse_length = whole_number_between(1, LONGEST_STRING)
parse_strings = whole_number_between(1, MOST_STRINGS)
parse_parallel = whole_number_between(1, MOST_PARALLEL)


def parse_lengths(text: str) -> list[int]:
    """Parse lengths of strings, separated by commas.

    >>> parse_lengths("500,5000")
    [500, 5000]
    """
    lengths = [parse_length(part.strip()) for part in text.split(",") if part.strip()]
    if not lengths:
        raise argparse.ArgumentTypeError("the list of lengths is empty; give some, such as 500,5000")
    if len(lengths) > MOST_LENGTHS:
        raise argparse.ArgumentTypeError(f"{len(lengths):,} lengths are too many; give at most {MOST_LENGTHS:,}")
    return lengths


def parse_number(text: str) -> float:
    """Parse a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{format_value(text)} is not a number") from None


def parse_numbers(text: str) -> tuple[float, ...]:
    """Parse numbers separated by commas."""
    return tuple(parse_number(part) for part in text.split(","))


def parse_budget(text: str) -> float:
    """Parse a share of the steps: a number above 0.

    >>> parse_budget("0.05")
    0.05
    """
    return _parse_positive(text, 1000, "is not a budget; give a number above 0, such as 0.05")


def parse_minutes(text: str) -> float:
    """Parse a number of minutes: above 0, up to a year.

    >>> parse_minutes("2.5")
    2.5
    """
    return _parse_positive(text, 525_600, "is not a number of minutes; give a number above 0, such as 10")


def _parse_positive(text: str, largest: float, problem: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= largest:
        raise argparse.ArgumentTypeError(f"{format_value(text)} {problem}")
    return value


def parse_seeds(text: str) -> int | list[int]:
    """Parse the number of seeds, or a list of them.

    >>> parse_seeds("3"), parse_seeds("0,1,5"), parse_seeds("7,")
    (3, [0, 1, 5], [7])
    """
    is_list = re.fullmatch(r"\d{1,19}(,\d{1,19})*,?", text, re.ASCII) is not None
    if not is_list or ("," not in text and int(text) == 0):
        raise argparse.ArgumentTypeError(
            f"{format_value(text)} is neither a number of seeds, such as 3, nor a list of seeds, such as 0,1,5"
        )
    if "," not in text:
        if int(text) > MOST_SEEDS:
            raise argparse.ArgumentTypeError(f"{text} seeds are too many; give at most {MOST_SEEDS:,}, or a list")
        return int(text)
    seeds = [int(part) for part in text.split(",") if part]
    if max(seeds) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"the seed {max(seeds)} is too large; the largest is {LARGEST_SEED:,}")
    if len(seeds) > MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{len(seeds):,} seeds are too many; give at most {MOST_SEEDS:,}")
    if len(set(seeds)) != len(seeds):
        raise argparse.ArgumentTypeError(f"{format_value(text)} has a seed twice; keep one of them")
    return seeds


def parse_device(text: str) -> str:
    """Parse the name of a device; whether this machine has it is checked when it is used."""
    try:
        return check_device_name(text)
    except DeviceError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_devices(text: str) -> str:
    """Parse the names of one or several devices, separated by commas; see `parse_device`."""
    try:
        return ",".join(check_device_names(text))
    except DeviceError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# -- settings ----------------------------------------------------------------------------------------------------------


def parse_value(text: str) -> Any:
    """Parse the value of a setting: a number, true, false, none, a JSON list, or a word.

    >>> parse_value("1e-3"), parse_value("true"), parse_value("None"), parse_value("[0.9, 0.99]"), parse_value("cosine")
    (0.001, True, None, [0.9, 0.99], 'cosine')
    """
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for convert in (int, float, json.loads):
        try:
            return convert(text)
        except (ValueError, RecursionError):
            continue
    return text


def split_assignment(text: str) -> tuple[str, str | None]:
    """Return the name and the value of NAME=VALUE; None without an equals sign or without a name.

    >>> split_assignment("train-length = 40"), split_assignment("state")
    (('train_length', '40'), ('state', None))
    """
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    return name, value.strip() if equals and name else None


def collect_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings given by --set and by the options that are settings themselves; each may be given once."""
    settings = {name: getattr(options, name) for name in SETTING_OPTIONS if hasattr(options, name)}
    for item in options.set:
        name, value = split_assignment(item)
        if value is None:
            raise SettingsError(f"--set {format_value(item)} has no value; write NAME=VALUE, such as --set state=32")
        if name in settings:
            raise SettingsError(f"{name} is set twice; keep one of them")
        settings[name] = parse_value(value)
    return settings
