"""Results folders of experiments: their runs and tables, from results.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from sdssm.errors import RunError, SdssmError
from sdssm.formatting import format_setting
from sdssm.means import mean_of_known
from sdssm.report.differences import training_key
from sdssm.report.page.identifiers import make_identifier
from sdssm.report.page.json_fields import LONGEST_NAME, JsonFields, clip_text, round_number, round_percent
from sdssm.report.page.page_types import CellData, RunData, TableData
from sdssm.report.page.run_data import STATUSES, PageRun, summarise_evaluation
from sdssm.report.page.stored_evaluation import MeasuredValues, StoredEvaluation
from sdssm.report.page.task_data import load_library_task, task_identifier
from sdssm.report.tables import PASSES, RESULTS_FILE, make_table
from sdssm.runs.disk import read_json
from sdssm.runs.schema import UNRECORDED
from sdssm.tasks import Task

#: Rows, columns and cells of the largest table that is shown.
MOST_CELLS = 20_000

#: Returns the identifier of the run of the page with this training and seed.
FindRun = Callable[[Mapping[str, Any]], str | None]


class ResultsFile:
    """The results of an experiment as results.json holds them, checked."""

    def __init__(self, folder: Path) -> None:
        """Read the file; raise a `RunError` if it is damaged."""
        self.path = folder / RESULTS_FILE
        self.fields = JsonFields(read_json(self.path), RESULTS_FILE)
        self.fields.require("name", "kind", "title", "cells")
        self.name = self.fields.name("name") or ""
        self.kind = self.fields.name("kind")
        self.command = f"sdssm reproduce {quote(self.name)}"

    @property
    def note(self) -> str | None:
        """Why the page does not show these results; None if it does."""
        if self.kind == "accuracy":
            return None
        return f"{self.path}: a page shows tables of accuracies; table.md beside it has these results"

    # -- runs --------------------------------------------------------------------------------------------------------

    def read_runs(self, load_task: Callable[[str, str | None], Task] = load_library_task) -> list[PageRun]:
        """Return the runs of the table; raise a `RunError` if one of them is damaged or its task is not known."""
        return [self._read_run(fields, load_task) for fields in self.fields.objects("runs")]

    def _read_run(self, fields: JsonFields, load_task: Callable[[str, str | None], Task]) -> PageRun:
        fields.require("task", "model", "train_length", "max_length", "status", "steps")
        record = make_training_record(fields)
        task = load_task(record["task"], record["digest"])
        evaluation = _read_evaluation(fields)
        status, settings = fields.name("status") or "", fields.fields("settings")
        if status not in STATUSES:
            raise RunError(f"{fields.where}: status must be one of {', '.join(STATUSES)}, got {status!r}")
        seed, steps = fields.whole("seed"), fields.whole("steps") or 0
        model, versions = fields.name("model") or "", fields.fields("versions")
        data: RunData = {
            "id": make_identifier(f"{self.name}-{task.name}-{model}-{seed}", str(self.path), _run_key(fields)),
            "folder": None,
            "source": str(self.path),
            "task": task_identifier(task.name, task.digest),
            "training": "",  # `make_trainings` fills it in
            "model": model,
            "preset": fields.name("preset"),
            "seed": seed,
            "status": status,
            "step": steps,
            "steps": steps,
            "seconds": round_number(fields.number("seconds"), 1),
            "device": fields.name("trained_on"),
            "accuracy": None,
            "loss": None,
            **summarise_evaluation(evaluation, task.train_length),  # type: ignore[typeddict-item]  # the fields of an evaluation
            "certified": None,
            "horizon": None,
            "extraction": None,
            "settings": _format_values({} if settings is None else settings.data),
            "versions": _format_values({} if versions is None else versions.data),
            "command": self.command,
            "problems": [],
            "has_detail": False,
            "is_playable": False,
            "not_playable": "its run folder is not part of this page",
        }
        return PageRun(data=data, record=record, task=task, evaluation=evaluation)

    # -- tables ------------------------------------------------------------------------------------------------------

    def read_tables(self, find_run: FindRun) -> list[TableData]:
        """Return a table for each score: published numbers are in the first, which has the score of the paper.

        `find_run` returns the identifier of the run of the page that a record of the file describes.
        """
        try:
            rendered = make_table(self.fields.data)
        except (SdssmError, AttributeError, IndexError, OverflowError, ValueError) as error:
            raise RunError(f"{RESULTS_FILE} is damaged: {error}") from None
        cells = self.fields.objects("cells")
        if len(cells) > MOST_CELLS:
            raise RunError(f"{RESULTS_FILE} has {len(cells):,} cells; a page shows tables of up to {MOST_CELLS:,}")
        runs = self._runs_by_cell(find_run)
        main = [cell for cell in cells if cell.flag("first")]
        tables = [self._make_table("", main, runs, rendered.grids[0].caption, rendered.notes)]
        shown = {cell.name("score") for cell in main}
        captions = iter([grid.caption for grid in rendered.grids[1:]])  # of the other scores that were measured
        for score in self.fields.names("scores"):
            others = [cell for cell in cells if cell.name("score") == score]
            if score not in shown and any(cell.number("max") is not None for cell in others):
                caption = next(captions, score)
                if not score.startswith(PASSES):  # a length and no accuracy
                    tables.append(self._make_table(score, others, runs, caption, []))
        return tables

    def _make_table(
        self,
        score: str,
        cells: Sequence[JsonFields],
        runs: Mapping[tuple[str, str], list[str]],
        caption: str,
        notes: Sequence[str],
    ) -> TableData:
        title = self.fields.text("title") or self.name
        data = [self._make_cell(cell, runs, with_published=not score) for cell in cells]
        measured = [cell for cell in data if cell["best"] is not None] or data
        rows, columns = ({cell[key] for cell in measured} for key in ("row", "column"))
        return {
            "id": make_identifier(f"{self.name}-{score}", str(self.path), score),
            "name": self.name,
            "title": f"{title}. {caption}" if score else title,
            "corner": self.fields.name("corner") or "",
            "rows": [row for row in self.fields.names("rows") if row in rows],
            "columns": [column for column in self.fields.names("columns") if column in columns],
            "cells": [cell for cell in data if cell["row"] in rows and cell["column"] in columns],
            "notes": [caption, *notes] if not score else [],
            "command": self.command,
        }

    @staticmethod
    def _make_cell(cell: JsonFields, runs: Mapping[tuple[str, str], list[str]], *, with_published: bool) -> CellData:
        row, column = cell.name("row") or "", cell.name("column") or ""
        return {
            "row": row,
            "column": column,
            "best": round_percent(cell.number("max")),
            "average": round_percent(cell.number("average")),
            "seeds": cell.whole("seeds") or 0,
            "steps": cell.whole("steps"),
            "published_best": cell.number("published_max") if with_published else None,
            "published_average": cell.number("published_average") if with_published else None,
            "chance": round_number(cell.number("chance"), 2),
            "runs": runs.get((row, column), []),
        }

    def _runs_by_cell(self, find_run: FindRun) -> dict[tuple[str, str], list[str]]:
        """Return the identifiers of the runs of each row and column, of those that the table shows."""
        listed = self.fields.data.get("shown")
        shown = {repr(key) for key in listed} if isinstance(listed, list) else None
        runs: dict[tuple[str, str], list[str]] = {}
        for fields in self.fields.objects("runs"):
            if shown is not None and _run_key(fields) not in shown:
                continue
            identifier = find_run({**make_training_record(fields), "seed": fields.whole("seed")})
            if identifier is not None:
                runs.setdefault((fields.name("row") or "", fields.name("column") or ""), []).append(identifier)
        return runs


def make_training_record(fields: JsonFields) -> dict[str, Any]:
    """Return what distinguishes the training of a record of results.json, as in the JSON of an evaluation."""
    settings = fields.fields("settings")
    return {
        "task": fields.text("task", 100_000),
        "model": fields.name("model"),
        "digest": fields.name("digest"),
        "preset": fields.name("preset"),
        "train_length": fields.whole("train_length"),
        # Strings were drawn uniformly before there was a choice, which `changed_settings` always names.
        "settings": {**UNRECORDED, **({} if settings is None else settings.data)},
    }


def run_key(record: Mapping[str, Any], seed: int | None) -> tuple[str, int | None]:
    """Return what identifies a run among those of all folders and results: its training and its seed."""
    return training_key(record), seed


def _run_key(fields: JsonFields) -> str:
    """Return the key of a record as `shown` of results.json has it: row, column, training, seed and steps."""
    return repr([fields.data.get(name) for name in ("row", "column", "training", "seed", "steps")])


def _read_evaluation(fields: JsonFields) -> StoredEvaluation | None:
    """Return the accuracies of a record; they have no intervals."""
    values = fields.numbers("accuracy")
    if not values:
        return None
    train_length = fields.whole("train_length") or 0
    nothing, known = MeasuredValues((), ()), dict(enumerate(values, start=1))
    return StoredEvaluation(
        strings=fields.whole("strings") or 0,
        max_length=fields.whole("max_length") or 0,
        accuracy=MeasuredValues(tuple(known), tuple(values)),
        low=nothing,
        high=nothing,
        best_constant=nothing,
        balanced=None,
        covering=None,
        mean=mean_of_known(values),
        mean_within=mean_of_known([value for length, value in known.items() if length <= train_length]),
        mean_beyond=mean_of_known([value for length, value in known.items() if length > train_length]),
        first_below_99=fields.whole("first_below_99"),
        chance=fields.number("chance"),
        balanced_mean=None,
        balanced_constant=None,
        status=fields.name("status"),
        digest=fields.name("digest"),
    )


def _format_values(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        clip_text(str(name), LONGEST_NAME): clip_text(format_setting(value), LONGEST_NAME)
        for name, value in values.items()
    }
