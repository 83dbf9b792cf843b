"""The result of `certify`: what is proved, up to which length, and why the proof ends."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from sdssm.display import Displayed, ResultTable
from sdssm.printable import make_printable

#: Characters of a misclassified string that are printed.
MOST_CHARACTERS = 80
#: Where the others are, for a user of Python.
WHOLE_TEXT = "misclassified.text has all of it"


@dataclass(frozen=True)
class Misclassified:
    """A string that the model misclassifies.

    >>> print(Misclassified((0, 1), "toggle move", predicted=3, correct=5, computed_exactly=False).describe())
    the string 'toggle move' (length 2) has the label 5, but the model predicts 3
    """

    string: tuple[int, ...]
    text: str  #: the string with the names of its symbols
    predicted: int
    correct: int
    computed_exactly: bool  #: whether only exact arithmetic predicts this label, and the model itself the correct one

    def describe(self, *, where: str = WHOLE_TEXT) -> str:
        """Return one sentence that says what is wrong; `where` says where all of a long string is."""
        is_short = len(self.text) <= MOST_CHARACTERS
        text = repr(self.text) if is_short else f"{self.text[:MOST_CHARACTERS]!r}... ({where})"
        return (
            f"the string {text} (length {len(self.string):,}) has the label {self.correct}, "
            f"but {self.reader} predicts {self.predicted}"
        )

    @property
    def reader(self) -> str:
        """What misclassifies the string, in words."""
        return "the model, computed exactly," if self.computed_exactly else "the model"


@dataclass(frozen=True, repr=False)
class Certificate(Displayed):
    """The certified length of a model for a machine; a horizon of None stands for every length.

    Every valid string up to `horizon` is provably classified correctly in exact arithmetic, and up to `float_horizon`
    with float32 rounding of the recurrence, one symbol after the other (not of the parallel scan, which multiplies
    matrices first). `exhaustive` is the length up to which every string was checked one by one. If `exact`, the states
    of the model are integers that return to finitely many directions. `reason` says why `horizon` is not larger, and
    `float_reason` why `float_horizon` is smaller than that.

    The other fields explain the horizon. In the norm of the subspace of `dimension` entries, `residual` is the distance
    from the image of a representative under one symbol to the next representative, `norms` are the factors by which
    one symbol and a word of `word` symbols multiply an error, and `margin` is the error below which no label can
    change. `states` counts the machine states that valid strings reach.

    >>> print(Certificate(4, 4, 4, False, "a string of length 5 is misclassified", task="parity"))
    parity: every valid string up to length 4 is proved to be classified correctly
    arithmetic                 proved up to length
    exact                                        4
    float32, symbol by symbol                    4
    The proof ends there because a string of length 5 is misclassified.
    """

    horizon: int | None
    float_horizon: int | None
    exhaustive: int
    exact: bool
    reason: str
    counterexample: tuple[int, ...] | None = None
    residual: float | None = None
    norms: tuple[float, float] | None = None
    margin: float | None = None
    dimension: int | None = None
    word: int | None = None
    states: int = 0
    misclassified: Misclassified | None = None  #: the counterexample with its labels
    searched: int | None = None  #: the length of the random strings that were searched for a counterexample
    stopped: bool = False  #: whether the time limit ended the proof, in exact arithmetic or in float32
    task: str | None = None  #: the name of the task
    float_reason: str | None = None  #: why less is proved in float32; None if it is not less
    only_float_stopped: bool = False  #: whether the time limit ended only the proof in float32
    digest: str | None = None  #: fingerprint of the task, independent of its name

    @property
    def fails_at(self) -> int | None:
        """The first length for which nothing is proved, or None."""
        return None if self.horizon is None else self.horizon + 1

    @property
    def proves_nothing(self) -> bool:
        """Whether not even the strings of length 1 are proved to be classified correctly."""
        return self.horizon == 0

    def __repr__(self) -> str:
        lengths = f"horizon={self.horizon}, float_horizon={self.float_horizon}"
        return f"Certificate({self.task or 'machine'!r}, {lengths}, counterexample={self.counterexample is not None})"

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as plain values."""
        values = {**asdict(self), "fails_at": self.fails_at}
        if self.norms is not None and not all(map(math.isfinite, self.norms)):
            values["norms"] = None  # JSON has no infinity
        if self.margin is not None and not math.isfinite(self.margin):
            values["margin"] = None
        return values

    def to_records(self) -> list[dict[str, Any]]:
        """Return one record for each arithmetic; a length of None stands for every length."""
        parts = (("exact", self.horizon, None), ("float32", self.float_horizon, self.float_reason))
        return [
            {"task": self.task, "arithmetic": name, "certified_length": length, "reason": reason or self.reason}
            for name, length, reason in parts
        ]

    def to_table(self, *, where: str = WHOLE_TEXT) -> ResultTable:
        """Return what is proved in each arithmetic, and sentences that say why it ends there.

        `where` says where all of a long misclassified string is.
        """
        rows = [
            ["exact", _format_length(self.horizon)],
            ["float32, symbol by symbol", _format_length(self.float_horizon)],
        ]
        return ResultTable(
            ["arithmetic", "proved up to length"],
            rows,
            title=f"{make_printable(self.task or 'certificate')}: {self._claim()}",
            notes=self._explain(where),
            right=["proved up to length"],
        )

    def _claim(self) -> str:
        """Return what a reader needs to know first: a misclassified string, or what is proved."""
        wrong = None
        if self.misclassified is not None:
            length = len(self.misclassified.string)
            wrong = f"{self.misclassified.reader} misclassifies a string of length {length:,}"
        if self.proves_nothing:
            return wrong or "nothing is proved"
        up_to = "" if self.horizon is None else f" up to length {self.horizon:,}"
        claim = f"every valid string{up_to} is proved to be classified correctly"
        if self.float_horizon != self.horizon:
            rounded = f"up to length {self.float_horizon:,}" if self.float_horizon else "nothing is proved"
            claim = f"{claim} in exact arithmetic; {rounded} in float32"
        return claim if wrong is None else f"{wrong}; {claim}"

    def _explain(self, where: str) -> list[str]:
        """Return why the proof ends, and what is known about longer strings."""
        notes = [self._explain_horizon()]
        if self.float_reason is not None:
            notes.append(f"In float32 less is proved: {self.float_reason}.")
        if self.misclassified is not None:
            notes.append(f"Misclassified: {self.misclassified.describe(where=where)}.")
        elif self.horizon is not None and self.searched:
            notes.append(
                "Longer strings may or may not be classified correctly: none was found misclassified among the "
                f"shortest for each transition of the machine and 256 strings up to length {self.searched:,}."
            )
        return notes

    def _explain_horizon(self) -> str:
        """Return why the proof in exact arithmetic ends where it does."""
        if self.horizon is None:
            return f"Why: {self.reason}."
        if self.stopped and not self.only_float_stopped:
            return f"The proof was {self.reason}."
        is_next = self.misclassified is not None and len(self.misclassified.string) == self.fails_at
        reason = f"a string of length {self.fails_at:,} is misclassified" if is_next else self.reason
        return f"{'Nothing is proved' if self.proves_nothing else 'The proof ends there'} because {reason}."


def _format_length(length: int | None) -> str:
    return "every length" if length is None else f"{length:,}"
