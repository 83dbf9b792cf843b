"""Machines as JSON, and files in JSON or DOT."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sdssm.automata.dot import from_dot, to_dot
from sdssm.automata.machine import Machine
from sdssm.errors import AutomatonError, FormatError, OutputError, did_you_mean, format_value
from sdssm.files import describe_file_error, format_path, write_atomic

KEYS = ("table", "start", "outputs", "states", "symbols")


def to_json(machine: Machine) -> str:
    """Return the machine as JSON, with one line for each row of the table.

    `from_json` returns an equal machine.
    """
    rows = ",\n  ".join(json.dumps(row) for row in machine.table.tolist())
    outputs = json.dumps(machine.outputs.tolist())
    parts = [f'"table": [\n  {rows}\n ]', f'"start": {machine.start}', f'"outputs": {outputs}']
    for key, names in (("states", machine.states), ("symbols", machine.symbols)):
        if names is not None:
            parts.append(f'"{key}": {json.dumps(names, ensure_ascii=False)}')
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def from_json(text: str) -> Machine:
    """Return the machine that a JSON text describes; only the table is required.

    >>> from_json('{"table": [[0, 1], [1, 0]]}')
    Machine(2 states, 2 symbols, 2 outputs)
    """
    try:
        data: Any = json.loads(text, object_pairs_hook=_refuse_duplicates)
    except json.JSONDecodeError as error:
        raise FormatError(f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except FormatError:
        raise
    except ValueError:  # a number with thousands of digits
        raise FormatError("not a machine: the JSON holds a number that is too long; states are below 2^63") from None
    except RecursionError:
        raise FormatError("not a machine: the JSON is nested too deeply; a machine is one JSON object") from None
    if not isinstance(data, dict) or "table" not in data:
        raise FormatError('a machine is a JSON object with a "table": [[next state for each symbol] for each state]')
    for key in data:
        if key not in KEYS:
            raise FormatError(f"a machine has no {format_value(key)}; {did_you_mean(key, KEYS)}")
    return Machine(
        table=data["table"],
        start=data.get("start", 0),
        outputs=data.get("outputs"),
        states=data.get("states"),
        symbols=data.get("symbols"),
    )


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise FormatError("a key of the JSON object occurs twice; keep one of them")
    return unique


#: File ending -> reader, writer.
FORMATS = {".json": (from_json, to_json), ".dot": (from_dot, to_dot)}


def read_machine(path: Path) -> Machine:
    """Return the machine in a `.json` or `.dot` file."""
    reader, _ = _get_format(path)
    try:
        with path.open(
            encoding="utf-8", newline=""
        ) as file:  # no newline translation: names may contain carriage returns
            text = file.read()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a null byte in the path
        raise FormatError(f"cannot read {format_path(path)}: {describe_file_error(error)}") from None
    try:
        return reader(text)
    except (AutomatonError, FormatError) as error:
        raise FormatError(f"{format_path(path)}: {error}") from None


def write_machine(machine: Machine, path: Path) -> None:
    """Write the machine as a `.json` or `.dot` file."""
    _, writer = _get_format(path)
    write_text(path, writer(machine))


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically: an existing file is replaced only by the complete text."""
    try:
        write_atomic(path, text.encode("utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write {format_path(path)}: {describe_file_error(error)}; choose a path that can be written"
        ) from None


def _get_format(path: Path) -> tuple[Callable[[str], Machine], Callable[[Machine], str]]:
    if path.suffix not in FORMATS:
        ending = path.suffix or "nothing"
        raise FormatError(f"{format_path(path)} ends in {ending!r}; machines are read from {' and '.join(FORMATS)}")
    return FORMATS[path.suffix]
