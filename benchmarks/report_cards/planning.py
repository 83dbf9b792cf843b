"""The plan of the report cards: models, tasks, and as many training steps as fit the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: A group that is not solvable, the smallest group, and a language without any group: the label is set by `a`, reset by
#: `b` and kept by `c`. Groups and such resets are what every automaton is built from. The language has two labels, each
#: of about half of the strings at every length, so that a constant answer scores 50 %; in a language with a sink, such
#: as tomita4, almost every long string has the same label.
TASKS = {"a5": "a5", "parity": "parity", "set-reset": "regex:(a|b|c)*ac*"}
#: Microseconds of a training step of one model on an H200 (benchmarks/RESULTS.md), and how many steps to train if there
#: is time for them.
STEPS = {
    "sd-ssm": (165, 10_000),
    "rnn": (145, 12_000),
    "lstm": (384, 10_000),
    "transformer": (2_848, 3_000),
    "s4": (446, 6_000),
    "s4d": (322, 6_000),
    "h3": (416, 6_000),
    "hyena": (442, 6_000),
    "mamba": (700, 4_000),
    "regular-lrnn": (395, 8_000),
    "complex-diagonal": (320, 8_000),
    "delta-net": (313, 8_000),
    "delta-product": (518, 8_000),
    "pd-ssm": (454, 8_000),
    "slice": (228, 8_000),
}
#: How many models of different shapes an H200 trains in the time of one, about.
AT_ONCE = 2.0


@dataclass(frozen=True)
class PlannedCard:
    """One model on one task."""

    model: str
    task: str  #: the name in TASKS
    steps: int
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.task}/{self.model}"


def plan(
    root: Path, models: Sequence[str], tasks: Sequence[str], steps: int | None, seconds: float
) -> list[PlannedCard]:
    """Return all runs, with as many steps as fit the time, and print them."""
    planned = [(model, task) for model in models for task in tasks]
    expected = sum(STEPS[model][0] * STEPS[model][1] / 1e6 for model, _ in planned) / AT_ONCE
    share = min(1.0, seconds / expected)
    cards = []
    for model, task in planned:
        count = steps or max(100, round(share * STEPS[model][1] / 100) * 100)
        cards.append(PlannedCard(model, task, count, root / task / model))
    print(
        f"{len(cards)} runs; at full length they train for about {expected:.0f} s, there are {seconds:.0f} s",
        flush=True,
    )
    for model in models:
        print(f"  {model:17} {next(card.steps for card in cards if card.model == model):6,} steps", flush=True)
    return cards
