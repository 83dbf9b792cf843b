"""Counts of a campaign: what was tried, what held, and how to repeat what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.campaign.attack import Trial

#: Failures of one kind that are listed; the others are counted.
LISTED = 3


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Something that did not hold, with what repeats it."""

    attack: str
    kind: str
    trial: int
    seed: int
    problem: str

    def describe(self) -> str:
        """Return the failure in one line, and the options that repeat it."""
        return f"{self.kind}: {self.problem}  [--only {self.attack} --seed {self.seed} --trial {self.trial}]"


@dataclass
class Tally:
    """Counts by attack and kind, and the failures."""

    seed: int
    tried: Counter[tuple[str, str]] = field(default_factory=Counter)
    held: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    skipped: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def add(self, attack: str, trial: int, results: Iterable[Trial]) -> None:
        """Count the results of an attempt."""
        for result in results:
            if result.skipped is not None:
                self.skipped[attack, result.kind, result.skipped] += 1
                continue
            self.tried[attack, result.kind] += 1
            if result.problem is None:
                self.held[attack, result.kind] += 1
            else:
                self.failures.append(
                    Failure(attack=attack, kind=result.kind, trial=trial, seed=self.seed, problem=result.problem)
                )

    def rows(self) -> list[tuple[str, str, int, int, int]]:
        """Return attack, kind, tried, held and failed for each kind, and a sum below the kinds of each attack."""
        rows = []
        for attack in sorted({attack for attack, _ in self.tried}):
            keys = sorted(key for key in self.tried if key[0] == attack)
            for key in keys if len(keys) > 1 else ():
                rows.append((attack, key[1], self.tried[key], self.held[key], self.tried[key] - self.held[key]))
            tried, held = sum(self.tried[key] for key in keys), sum(self.held[key] for key in keys)
            rows.append((attack, "all" if len(keys) > 1 else keys[0][1], tried, held, tried - held))
        return rows

    def table(self) -> str:
        """Return the counts in columns for a terminal."""
        header = ("attack", "kind", "tried", "held", "failed")
        rows = [tuple(map(str, row)) for row in self.rows()]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if k < 2 else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in (header, *rows)
        )

    def markdown(self, title: str) -> str:
        """Return the counts and the failures as a section of Markdown."""
        lines = [title, "", "| attack | kind | tried | held | failed |", "|---|---|--:|--:|--:|"]
        for attack, kind, *counts in self.rows():
            mark = "**" if kind == "all" else ""
            cells = [attack, kind.replace("|", "\\|"), *(f"{count:,}" for count in counts)]
            lines.append("| " + " | ".join(f"{mark}{cell}{mark}" for cell in cells) + " |")
        notes = [*self.list_skipped(), *self.list_failures()]
        return "\n".join([*lines, *(["", *(f"- {note}" for note in notes)] if notes else []), ""])

    def list_failures(self) -> list[str]:
        """Return a line for the first failures of each kind, and one for the number of the others."""
        lines, counts = list[str](), Counter[tuple[str, str]]()
        for failure in self.failures:
            counts[failure.attack, failure.kind] += 1
            if counts[failure.attack, failure.kind] <= LISTED:
                lines.append(failure.describe())
        more = sum(count - LISTED for count in counts.values() if count > LISTED)
        return [*lines, *([f"{more:,} further failures of these kinds"] if more else [])]

    def list_skipped(self) -> list[str]:
        """Return a line for everything that could not be checked."""
        return [
            f"not checked, {attack}, {kind}: {reason} ({count:,} times)"
            for (attack, kind, reason), count in self.skipped.items()
        ]
