"""Machines as JSON, and files: machines in JSON, DOT or AT&T text, diagrams in SVG or DOT."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Protocol

from sdssm.automata.att import from_att, to_att
from sdssm.automata.dot import from_dot, to_dot
from sdssm.automata.drawing import draw
from sdssm.automata.machine import Machine
from sdssm.automata.mappings import machine_from_mapping
from sdssm.automata.partial import MissingTransitionError
from sdssm.automata.sources import as_machine
from sdssm.errors import AutomatonError, FormatError, OutputError
from sdssm.files import describe_file_error, format_path, write_atomic


def to_json(machine: Any) -> str:
    """Return the machine as JSON, with one line for each row of the table.

    `from_json` returns an equal machine.
    """
    machine = as_machine(machine)
    rows = ",\n  ".join(json.dumps(row) for row in machine.table.tolist())
    outputs = json.dumps(machine.outputs.tolist())
    parts = [f'"table": [\n  {rows}\n ]', f'"start": {machine.start}', f'"outputs": {outputs}']
    for key, names in (("states", machine.states), ("symbols", machine.symbols)):
        if names is not None:
            parts.append(f'"{key}": {json.dumps(names, ensure_ascii=False)}')
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def from_json(text: str, *, sink: bool = False) -> Machine:
    """Return the machine that a JSON text describes, by a table or by named transitions (see `mappings.py`).

    Missing transitions (null in a table) are an error, or with `sink` lead to a sink state.

    >>> from_json('{"table": [[0, 1], [1, 0]]}')
    Machine(2 states, 2 symbols, 2 outputs)
    >>> from_json('{"p": {"a": "q"}, "q": {"b": "p"}, "accepting": ["p"]}', sink=True)
    Machine(3 states, 2 symbols, 2 outputs)
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
    return machine_from_mapping(data, sink=sink)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise FormatError("a key of the JSON object occurs twice; keep one of them")
    return unique


class MachineReader(Protocol):
    """A function that reads a machine from the text of a file."""

    def __call__(self, text: str, *, sink: bool = False) -> Machine:
        """Return the machine of a text; with `sink`, missing transitions lead to a sink state."""


#: The most bytes of a file with a machine: a million transitions as DOT have 50 MB.
MOST_BYTES = 1 << 26
#: File ending -> reader, writer.
FORMATS: dict[str, tuple[MachineReader, Callable[[Machine], str]]] = {
    ".json": (from_json, to_json),
    ".dot": (from_dot, to_dot),
    ".att": (from_att, to_att),
}


def read_machine(path: str | PathLike[str], *, sink: bool = False, symbols: Sequence[str] | None = None) -> Machine:
    """Return the machine in a `.json`, `.dot` or `.att` file.

    A missing transition is an error, or with `sink` leads to a state that is never left; in an `.att` file it always
    does. `symbols` is the alphabet of an `.att` file, if it has more symbols than the file shows. A state of
    such a file that looks mistyped is a `FormatWarning`.
    """
    path = Path(path)
    reader, _ = _get_format(path, "read from")
    if path.suffix == ".att":
        reader = partial(from_att, symbols=symbols, file=format_path(path))
    elif symbols is not None:
        raise FormatError(f"{format_path(path)}: an alphabet is given for .att files only; add it to the file")
    text = _read_text(path)
    try:
        return reader(text, sink=sink)
    except MissingTransitionError as error:
        name = format_path(path)
        advice = f"add it, or write sink:{name} to send what is missing to a sink state"
        raise FormatError(f"{name}: {error.fact}; {advice}") from None
    except (AutomatonError, FormatError) as error:
        raise FormatError(f"{format_path(path)}: {error}") from None


def _read_text(path: Path) -> str:
    """Return the text of a file; raise an error if it cannot be read, is too large, or a pipe that may never end."""
    try:
        status = path.stat()
        if not S_ISDIR(status.st_mode) and not S_ISREG(status.st_mode):
            raise FormatError(f"cannot read {format_path(path)}: it is not a regular file; name one")
        if status.st_size > MOST_BYTES:
            raise FormatError(
                f"cannot read {format_path(path)}: it has {status.st_size:,} bytes; the most is {MOST_BYTES:,}"
            )
        with path.open(encoding="utf-8", newline="") as file:  # names may contain carriage returns: no translation
            return file.read()
    except FormatError:
        raise
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a null byte in the path
        raise FormatError(f"cannot read {format_path(path)}: {describe_file_error(error)}") from None


def find_att_files(folder: str | PathLike[str]) -> list[Path]:
    """Return the `.att` files of a folder in the order of their names; raise an error if there are none."""
    folder = Path(folder)
    if not folder.is_dir():
        fault = "is a file" if folder.exists() else "does not exist"
        raise FormatError(f"{format_path(folder)} {fault}; name a folder with .att files")
    paths = sorted(path for path in folder.iterdir() if path.suffix == ".att" and path.is_file())
    if not paths:
        raise FormatError(f"the folder {format_path(folder)} has no .att file; name a folder with at least one")
    return paths


def write_machine(machine: Any, path: str | PathLike[str]) -> None:
    """Write the machine as a `.json`, `.dot` or `.att` file."""
    machine = as_machine(machine)
    path = Path(path)
    _, writer = _get_format(path, "written to")
    write_text(path, writer(machine))


def write_diagram(machine: Any, path: str | PathLike[str], *, title: str | None = None) -> None:
    """Write the state diagram as a file whose ending says how: `.svg`, or `.dot` for Graphviz."""
    path = check_diagram_path(path)
    write_text(path, draw(machine, title=title) if path.suffix.lower() == ".svg" else to_dot(machine))


def check_diagram_path(path: str | PathLike[str]) -> Path:
    """Return the path of a diagram; raise an error if it has another ending than .svg or .dot."""
    path = Path(path)
    if path.suffix.lower() not in (".svg", ".dot"):
        ending = f"ends in {path.suffix!r}" if path.suffix else "is not the name of a picture"
        raise OutputError(f"{format_path(path)} {ending}; state diagrams are written as .svg, or as .dot for Graphviz")
    return path


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically: an existing file is replaced only by the complete text."""
    try:
        write_atomic(path, text.encode("utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write {format_path(path)}: {describe_file_error(error)}; choose a path that can be written"
        ) from None


def _get_format(path: Path, verb: str) -> tuple[MachineReader, Callable[[Machine], str]]:
    if path.suffix not in FORMATS:
        *most, last = FORMATS
        ending, known = path.suffix or "nothing", f"{', '.join(most)} and {last}"
        raise FormatError(f"{format_path(path)} ends in {ending!r}; machines are {verb} {known} files")
    return FORMATS[path.suffix]
