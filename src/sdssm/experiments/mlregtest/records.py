"""What is known about a language after its training: one line of JSON, and the files that hold these lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from sdssm.errors import OutputError
from sdssm.experiments.mlregtest.languages import parse_name
from sdssm.files import describe_file_error, format_path

#: All files of this pattern are read; each command appends to one.
PATTERN, FILE = "records*.jsonl", "records.jsonl"
#: What a proof can say: the automata are equal; they differ; there was no result within the time limit of a proof; the
#: time of the command was up before.
EQUAL, DIFFERENT, NO_RESULT, UNPROVED = "equal", "different", "no result", "not yet proved"
#: A score of at least this, in percent, counts as learned.
LEARNED = 99.9


@dataclass(frozen=True, kw_only=True)
class LanguageRecord:
    """The results of one language. Scores are lists with a number for each of `lengths`, in percent.

    `pairs` are pairs of strings at edit distance 1 with different labels of which both are classified correctly; None
    if there are none of that length.
    """

    name: str
    fingerprint: str  #: of the configuration and the file of the language
    symbols: int
    states: int  #: of the minimal automaton
    state: int | None  #: N, the size of the state of the model
    sampling: str
    train_length: int
    identifying_length: int  #: the shortest training length whose labels determine the automaton
    steps: int
    seed: int
    is_alive: bool  #: False if the loss was no longer finite
    train_accuracy: float  #: in percent, over the last steps
    lengths: tuple[int, ...]
    uniform: tuple[float, ...]
    uniform_constant: tuple[float, ...]  #: the best constant answer
    balanced: tuple[float, ...]
    balanced_constant: tuple[float, ...]  #: it is the chance level too
    covering: tuple[float, ...]
    covering_constant: tuple[float, ...]
    pairs: tuple[float | None, ...]
    n_pairs: tuple[int, ...]
    verdict: str
    is_followed: bool  #: the automata are equal, and the model classifies all test strings as they do
    extracted_states: int | None
    string: tuple[str, ...] | None  #: the shortest misclassified string that was found
    is_shortest: bool  #: whether no shorter one exists
    proof_seconds: float
    proof_note: str | None
    device_seconds: float  #: training and measuring of the whole batch, over the number of languages in it
    device: str
    commit: str | None
    #: The automata are equal, and the model is proved exact at every length with its state moved to prototypes.
    is_snapped: bool = False

    @property
    def is_final(self) -> bool:
        """Whether the language need not be trained again: its proof has ended."""
        return self.verdict != UNPROVED

    @property
    def kind(self) -> str:
        """The class of the language."""
        return parse_name(self.name).kind

    def score(self, measure: str, length: int) -> float | None:
        """Return a score at a length; None if it was not measured there."""
        if length not in self.lengths:
            return None
        value: float | None = getattr(self, measure)[self.lengths.index(length)]
        return value

    @property
    def reason(self) -> str | None:
        """Why the language failed, in words; None if its automaton is proved equal and it is learned at all lengths."""
        if not self.is_alive:
            return "diverged: the loss was no longer finite"
        if self.verdict != EQUAL and self.identifying_length > self.train_length:
            return (
                f"not identified by strings of up to {self.train_length}: its automaton needs {self.identifying_length}"
            )
        scores = [self.covering[k] for k, length in enumerate(self.lengths) if length <= self.train_length]
        automaton = "; its automaton is equal" if self.verdict == EQUAL else ""
        if scores and min(scores) < LEARNED:
            return f"not learned at training lengths{automaton}"
        if min(self.balanced) < LEARNED:
            return f"learned at training lengths, wrong on longer strings{automaton}"
        if self.verdict == DIFFERENT:
            return "accurate on random strings, but its automaton differs"
        if self.verdict != EQUAL:
            return f"accurate on random strings, but not proved: {self.proof_note or 'no result'}"
        return None if self.is_followed else "its automaton is equal, but the model misclassifies some test strings"

    def to_line(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps({name: _rounded(value) for name, value in asdict(self).items()})

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Return the record of a line that `to_line` has written."""
        values: dict[str, Any] = json.loads(line)
        converted: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**converted)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    return [_rounded(item) for item in value] if isinstance(value, tuple) else value


class RecordStore:
    """The records in a results folder."""

    def __init__(self, folder: Path, file: str = FILE) -> None:
        self.folder, self.path = folder, folder / file

    def load(self, fingerprints: dict[str, str]) -> dict[str, LanguageRecord]:
        """Return the record of each language whose fingerprint is the one given; others are ignored."""
        return _choose(record for record in self._read() if fingerprints.get(record.name) == record.fingerprint)

    def load_all(self, configuration: str) -> dict[str, LanguageRecord]:
        """Return the record of every language that was trained with the configuration of this fingerprint."""
        return _choose(record for record in self._read() if record.fingerprint.startswith(f"{configuration}-"))

    def _read(self) -> Iterable[LanguageRecord]:
        """Yield the records of all files, the newest of a file last."""
        for path in sorted(self.folder.glob(PATTERN)):
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
            except (OSError, ValueError) as error:
                raise OutputError(f"cannot read {format_path(path)}: {describe_file_error(error)}") from None
            yield from _parse(lines)

    def append(self, records: Sequence[LanguageRecord]) -> None:
        """Append records to the file of this command, and wait until they are on the disk."""
        if not records:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            needs_newline = self.path.exists() and self.path.read_bytes()[-1:] not in (b"", b"\n")
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" if needs_newline else "")  # a killed command may have left half a line
                file.writelines(f"{record.to_line()}\n" for record in records)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputError(f"cannot write {format_path(self.path)}: {describe_file_error(error)}") from None


def _choose(records: Iterable[LanguageRecord]) -> dict[str, LanguageRecord]:
    """Return one record of each language: the last one whose proof has ended, else the last one.

    Files are read in the order of their names. A language whose proof had not ended is trained again, perhaps by a
    command with another file.
    """
    chosen: dict[str, LanguageRecord] = {}
    for record in records:
        known = chosen.get(record.name)
        if known is None or record.is_final or not known.is_final:
            chosen[record.name] = record
    return chosen


def _parse(lines: Iterable[str]) -> Iterable[LanguageRecord]:
    """Yield the records of these lines; a line of a killed command or of another format is left out."""
    for line in lines:
        try:
            yield LanguageRecord.from_line(line)
        except (ValueError, TypeError, AttributeError):
            continue
