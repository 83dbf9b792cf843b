"""The files of a run folder, each read for itself: a damaged one is a problem of the run, and the rest is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sdssm.errors import RunError, SdssmError, first_line
from sdssm.report.page.json_fields import LONGEST_TEXT, JsonFields, clip_text
from sdssm.runs.disk import read_json

Value = TypeVar("Value")


class RunFiles:
    """Reads files of one run folder and collects what is wrong with them.

    Attributes:
        path: the folder.
        problems: a sentence for each file that could not be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []

    def read(self, name: str, convert: Callable[[JsonFields], Value]) -> Value | None:
        """Return what a JSON file holds; None if there is no such file, or if it is damaged, which is a problem."""
        try:
            if not (self.path / name).exists():
                return None
            return convert(JsonFields(read_json(self.path / name), name))
        except (SdssmError, OSError) as error:
            self.add_problem(error)
            return None

    def read_result(
        self, name: str, status: str, digest: str, convert: Callable[[JsonFields], Value], command: str
    ) -> Value | None:
        """Run `read` on a result of this status of the run and this task; an outdated result is a problem.

        `command` is the command that writes the file again.
        """

        def convert_current(fields: JsonFields) -> Value:
            if (fields.name("status"), fields.name("digest")) not in ((status, digest), (None, None)):
                raise RunError(f"{name} is of another state of this run; {command} writes it again")
            return convert(fields)

        return self.read(name, convert_current)

    def add_problem(self, error: Exception) -> None:
        """Add the message of an error to the problems, once."""
        text = clip_text(first_line(error), LONGEST_TEXT)
        if text not in self.problems:
            self.problems.append(text)
