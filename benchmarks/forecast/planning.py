"""The runs of the forecast campaign: which model is trained on which task, with which seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sdssm.tasks import get_task

COUNTING = ("regex:((b*ab*ab*a)*b*)*", "regex:(b*ab*ab*ab*a)*b*")
THIRD_LAST = "regex:(a|b)*a(a|b)(a|b)"
#: Model, steps, tasks for calibration, tasks for scoring: pairs that learn the training lengths in so few steps.
PAIRS: tuple[tuple[str, int, tuple[str, ...], tuple[str, ...]], ...] = (
    ("complex-diagonal", 2_000, (*COUNTING, "z8"), ("parity", "tomita5", "tomita6", THIRD_LAST, "c2xc4", "z6")),
    ("delta-net", 2_500, ("even_pairs",), ("parity", "tomita5", THIRD_LAST)),
    ("delta-product", 3_500, ("even_pairs", *COUNTING, "d4"), ("parity", "tomita5", "tomita6", "c2xc4", "s3")),
    ("hyena", 1_500, ("even_pairs",), (THIRD_LAST,)),
    ("pd-ssm", 3_500, ("even_pairs", *COUNTING, "d4"), ("parity", "tomita5", "tomita6", "s3", "z6")),
    (
        "regular-lrnn",
        1_000,
        ("even_pairs", *COUNTING, "d4", "z8"),
        ("parity", "tomita5", "tomita6", "c2xc4", "s3", "z6"),
    ),
    ("slice", 3_500, ("even_pairs", *COUNTING, "z8"), ("parity", THIRD_LAST, "z6")),
    ("sd-ssm", 1_200, (*COUNTING, "d4", "z8"), ("tomita6", "c2xc4", "s3", "z6", "a5")),
    ("rnn", 1_500, ("even_pairs",), ("parity", THIRD_LAST, "s3")),
    ("lstm", 1_500, ("even_pairs", "random:8x2:3"), ("random:8x2:0", THIRD_LAST)),
    ("mamba", 2_500, ("even_pairs",), (THIRD_LAST,)),
    ("transformer", 2_500, ("even_pairs",), ()),
    ("s4", 4_000, (), (THIRD_LAST,)),
    ("s4d", 4_000, (), (THIRD_LAST,)),
    ("h3", 4_000, (), (THIRD_LAST,)),
)
SEEDS = {"calibration": (30, 31), "scored": (40, 41, 42)}
#: The weights of a regular-lrnn take 1.2 MB, and there is room for 60: two seeds.
TWO_SEEDS = ("regular-lrnn",)


@dataclass(frozen=True)
class PlannedRun:
    """One training of the campaign."""

    model: str
    task: str
    seed: int
    steps: int
    role: str  # "calibration" or "scored"
    folder: Path


def plan(root: Path, models: Sequence[str], tasks: Sequence[str] | None, steps: int | None) -> list[PlannedRun]:
    """Return the runs of these models and tasks, those that take longest first."""
    runs: list[PlannedRun] = []
    for model, count, *by_role in PAIRS:
        if model in models:
            for role, names in zip(SEEDS, by_role, strict=True):
                for name in names:
                    if tasks is None or name in tasks:
                        for seed in SEEDS[role][: 2 if model in TWO_SEEDS else None]:
                            folder = root / f"{len(runs):05d}"
                            runs.append(PlannedRun(model, name, seed, steps or count, role, folder))
    return sorted(runs, key=lambda run: -run.steps)


def one_task_of_each_shape(runs: Sequence[PlannedRun], model: str) -> list[str]:
    """Return one of the tasks of a model for each number of symbols and labels: these need kernels of their own."""
    by_shape: dict[tuple[int, int], str] = {}
    for name in sorted({run.task for run in runs if run.model == model}):
        task = get_task(name)
        by_shape.setdefault((task.n_symbols, task.n_classes), name)
    return list(by_shape.values())
