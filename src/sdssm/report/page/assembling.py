"""Put a report page together within a size: heavy parts of runs are added in order of use until it is full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, cast

from sdssm.formatting import count_of
from sdssm.report.page.collecting import MOST_LENGTHS, PageContents
from sdssm.report.page.html_page import encode_json, render_page
from sdssm.report.page.page_types import RunDetail
from sdssm.report.page.run_detail import HEAVY_PARTS, LIGHT_PARTS, DetailReader
from sdssm.report.page.training_data import make_trainings

MEGABYTE = 1_000_000
#: The part of the size that everything but the details may fill before curves get fewer lengths, and these numbers.
SHARE_OF_BASE, FEWER_LENGTHS = 0.6, (250, 100, 40)
#: Bytes that are kept free for the notes of the page, and those of the element around the detail of a run.
SPARE, ELEMENT = 4_000, 120
#: A page with less space than this is full.
FULL = 500
#: Pieces of parts that are added after other parts, as they are large.
LARGE_PIECES = {"extracted": "diagram", "matrices": "dictionary"}
#: What parts are called in notes.
WORDS = {
    "evaluation": "the accuracy of single runs",
    "events": "training curves",
    "extracted": "extracted automata",
    "player": "the weights for the playground",
    "matrices": "matrices",
    "states": "states",
    "dictionary": "dictionaries",
    "diagram": "diagrams of extracted automata",
}


def assemble_page(contents: PageContents, max_mb: float) -> str:
    """Return the text of a report page of at most `max_mb` megabytes.

    First come the curves of all runs. Then, the first seed of each training before the others, the weights for the
    playground, the matrices of symbols, the states and the diagrams of extracted automata; the dictionaries come last.
    What does not fit is left out; the notes of the page and the details of the run say so.
    """
    assembler = PageAssembler(contents, max_mb)
    assembler.shrink_base()
    assembler.add_parts()
    return assembler.render()


class PageAssembler:
    """Adds parts to a page and keeps count of its size."""

    def __init__(self, contents: PageContents, max_mb: float) -> None:
        self._contents, self._data = contents, contents.data
        self._limit = f"{max_mb:g} MB"
        self._free = int(max_mb * MEGABYTE)
        self._readers = {name: DetailReader(run) for name, run in contents.runs.items()}
        self._details: dict[str, dict[str, Any]] = {}
        self._left_out: dict[str, dict[str, None]] = {}  # part -> runs, in order

    def shrink_base(self) -> None:
        """Make everything but the details small enough, with fewer lengths in the curves and without diagrams."""
        size, enough = self._base_size(), SHARE_OF_BASE * self._free
        for most in FEWER_LENGTHS:
            if size > enough:
                self._data["trainings"] = make_trainings(self._contents.groups, most)
                size = self._base_size()
        if size > enough:
            self._remove_diagrams()
            size = self._base_size()
        shown = max((len(t["accuracy"]["lengths"]) for t in self._data["trainings"] if t["accuracy"]), default=0)
        if shown < MOST_LENGTHS and self._has_more_lengths(shown):
            self._data["notes"].append(f"Curves show {shown} lengths, to keep the page below {self._limit}.")
        # Each run may say why it cannot be played with.
        self._free -= size + SPARE + sum(len(encode_json(self._left_out_note(name))) for name in self._contents.runs)

    def _remove_diagrams(self) -> None:
        for task in self._data["tasks"]:
            if task["machine"]["diagram"] is not None:
                task["machine"]["diagram"] = None
                task["machine"]["diagram_note"] = f"left out to keep the page below {self._limit}"
        self._data["notes"].append(f"State diagrams are left out to keep the page below {self._limit}.")

    def add_parts(self) -> None:
        """Add the parts of all runs, as far as there is space."""
        runs = self._ordered_runs()
        with_folder = dict.fromkeys(name for name in runs if self._contents.runs[name].path is not None)
        for name in with_folder:
            for part in LIGHT_PARTS:
                self._add(name, part)
        for rank in self._ranks():
            for part in HEAVY_PARTS:
                for name in rank:
                    if name in with_folder:
                        self._add(name, part)
            for name in rank:
                self._add_piece(name, "extracted")
        for name in runs:
            self._add_piece(name, "matrices")
        for name in runs:
            if name not in with_folder:  # its training shows its curve too
                self._add(name, "evaluation")

    def render(self) -> str:
        """Return the text of the page."""
        for part, names in self._left_out.items():
            self._data["notes"].append(
                f"To keep the page below {self._limit}, {WORDS[part]} of {count_of(len(names), 'run')} are left out; "
                "--max-mb sets the limit."
            )
        for name, run in self._contents.runs.items():
            detail = self._details.get(name)
            run.data["has_detail"] = detail is not None
            run.data["is_playable"] = detail is not None and detail.get("player") is not None
            if not run.data["is_playable"]:
                run.data["not_playable"] = run.data["not_playable"] or self._missing(name).get("player")
        details = {name: encode_json(self._complete(name, parts)) for name, parts in self._details.items()}
        return render_page("report", self._data["title"], cast(Mapping[str, Any], self._data), details)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _add(self, name: str, part: str) -> None:
        reader = self._readers[name]
        if self._free < FULL and reader.may_have(part):
            self._leave_out(name, part)
            return
        value = reader.read(part)
        if value is None:
            self._free -= len(encode_json(reader.missing[part]))
            return
        if part in LARGE_PIECES:
            value = {**value, LARGE_PIECES[part]: None}
        if self._pay(name, value):
            self._details.setdefault(name, {})[part] = value
        else:
            self._leave_out(name, part)

    def _add_piece(self, name: str, part: str) -> None:
        """Add the large piece of a part that is there already."""
        piece, value = LARGE_PIECES[part], self._details.get(name, {}).get(part)
        if value is None:
            return
        whole = self._readers[name].read(part)[piece] if self._free >= FULL else None
        if whole is not None and self._pay(name, whole):
            value[piece] = whole
        elif whole is not None or self._free < FULL:
            self._leave_out(name, piece)

    def _pay(self, name: str, value: Any) -> bool:
        """Take the space of a value; return whether there was enough."""
        size = len(encode_json(value)) + (0 if name in self._details else self._frame_size(name))
        if size > self._free:
            return False
        self._free -= size
        return True

    def _leave_out(self, name: str, part: str) -> None:
        """Note that a part that the run may have does not fit."""
        self._left_out.setdefault(part, {})[name] = None

    def _complete(self, name: str, parts: Mapping[str, Any]) -> RunDetail:
        names = (*LIGHT_PARTS, *HEAVY_PARTS)
        extracted = parts.get("extracted")
        if extracted is not None and extracted["diagram"] is None:
            extracted["diagram_note"] = extracted["diagram_note"] or self._missing(name).get("diagram")
        detail = {"id": name, **{part: parts.get(part) for part in names}, "missing": self._missing(name)}
        return cast(RunDetail, detail)

    def _missing(self, name: str) -> dict[str, str]:
        """Return why parts of a run are not there."""
        note = self._left_out_note(name)
        left_out = {part: note for part, names in self._left_out.items() if name in names}
        return {**self._readers[name].missing, **left_out}

    def _left_out_note(self, name: str) -> str:
        path = self._contents.runs[name].path
        command = "" if path is None else f"; sdssm report {quote(str(path))} -o run.html shows it"
        return f"left out to keep the page below {self._limit}{command}"

    # -- order -------------------------------------------------------------------------------------------------------

    def _ranks(self) -> Iterator[Sequence[str]]:
        """Return the first seeds of all trainings, then the second ones, and so on."""
        groups = [[run.data["id"] for run in group] for group in self._contents.groups]
        for rank in range(max(map(len, groups), default=0)):
            yield [group[rank] for group in groups if rank < len(group)]

    def _ordered_runs(self) -> list[str]:
        return [name for rank in self._ranks() for name in rank]

    # -- sizes -------------------------------------------------------------------------------------------------------

    def _frame_size(self, name: str) -> int:
        """Return the size of the detail of a run if all its parts are left out."""
        parts = (*LIGHT_PARTS, *HEAVY_PARTS)
        notes = dict.fromkeys((*parts, *LARGE_PIECES.values(), "diagram_note"), self._left_out_note(name))
        return ELEMENT + len(encode_json({"id": name, **dict.fromkeys(parts), "missing": notes})) + len(name)

    def _base_size(self) -> int:
        return len(render_page("report", self._data["title"], cast(Mapping[str, Any], self._data)).encode())

    def _has_more_lengths(self, shown: int) -> bool:
        """Return whether a run was measured at more lengths than a curve shows."""
        measured = (run.measured("accuracy") for run in self._contents.runs.values())
        return any(values is not None and len(values.lengths) > shown for values in measured)
