"""Kills of whole processes of the command line, of workers and of Ray, as attacks of a campaign.

The functions are in `kills` and `ray_faults`; each takes random numbers and a folder, and returns how many things were
tried, how many held, and a line for each that did not. Each line may stand for several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random

from tests.campaign.attack import Attack, Attempt, Trial

Counted = Callable[[Random, Path], tuple[int, int, list[str]]]
#: Name of the attack, module, function, what is attacked, share, and the function that prepares it, if any. Attempts
#: on Ray take about a minute: their shares let each run once in half an hour.
KNOWN = (
    ("kills-of-processes", "kills", "kill_training", "killed trainings of the command line, resumed", 11.0,
     "prepare_training"),
    ("kills-of-experiments", "kills", "kill_experiment", "killed processes of reproduce and sweep, repeated", 2.0,
     "prepare_experiments"),
    ("signal-floods", "kills", "flood_with_signals", "hundreds of pairs of signals to one process", 0.3, None),
    ("late-renames", "ray_faults", "delay_renames", "a network file system that shows renames late", 0.2, None),
    ("ray-workers", "ray_faults", "kill_workers", "Ray workers that are killed while they train", 0.4, None),
    ("ray-head", "ray_faults", "restart_head", "a Ray head node that restarts", 0.4, None),
)  # fmt: skip


def count_trials(name: str, function: Counted) -> Attempt:
    """Return an attempt that turns counts into trials; nothing counts as held that the function did not count."""

    def attempt(random: Random, folder: Path) -> Iterator[Trial]:
        tried, held, lines = function(random, folder)
        failed = tried - held
        if bool(failed) != bool(lines):
            lines = [*lines, f"{tried} tried and {held} held, with {len(lines)} failures"]
        for _ in range(held):
            yield Trial(kind=name)
        for k in range(max(failed, len(lines))):
            yield Trial(kind=name, problem=lines[min(k, len(lines) - 1)])

    return attempt


def make_attacks() -> tuple[Attack, ...]:
    """Return the attacks whose modules are there."""
    attacks = []
    for name, module, function, subject, share, preparation in KNOWN:
        path = f"tests.campaign.{module}"
        found = getattr(import_module(path), function, None) if find_spec(path) is not None else None
        if found is not None:
            attempt = count_trials(name, found)
            prepare = getattr(import_module(path), preparation) if preparation is not None else tuple
            attacks.append(
                Attack(
                    name=name,
                    subject=subject,
                    attempt=attempt,
                    share=share,
                    patience=600.0,
                    in_slice=False,
                    prepare=prepare,
                )
            )
    return tuple(attacks)


ATTACKS = make_attacks()
