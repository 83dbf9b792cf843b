"""Kill trainings that run in forks of this process: cheap, so that many moments are hit.

A fork starts training at once, where a new process needs seconds to import torch. What only a new process has, such as
the installation of signal handlers while modules are imported, is attacked by `process_kills`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.campaign.attack import Attack, Trial
from tests.campaign.sandbox import Outcome, call_main, collect_outcome, find_fault, run_sdssm, start_isolated
from tests.campaign.templates import TRAIN, make_templates

RUN = "runs/new/seed-0"
RESUME = ("train", "--resume", "runs/new", "--quiet")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Most kills of one training, and the most seconds from its start to a kill.
MOST_KILLS, LONGEST_DELAY = 3, 0.4


def strike(random: Random, arguments: tuple[str, ...], folder: Path) -> tuple[str, Outcome]:
    """Start a training, send it a signal after a random time, sometimes twice, and wait for its end."""
    number, delay = random.choice(SIGNALS), random.uniform(0.0, LONGEST_DELAY)
    pause = random.choice((None, 0.0, 0.0002, 0.05))
    process, reader = start_isolated(lambda: call_main(arguments), folder=folder, memory=None)
    time.sleep(delay)
    with suppress(ProcessLookupError):
        os.kill(process, number)
        if pause is not None and number != signal.SIGKILL:
            time.sleep(pause)
            os.kill(process, number)
    return number.name, collect_outcome(process, reader, 60.0)


def find_loss(outcome: Outcome, name: str) -> str | None:
    """Return what is wrong with how a training took a signal, or None."""
    if outcome.crash is not None:
        # The kernel ended it: by SIGKILL always, by others before or after the time in which they are handled.
        return None if outcome.crash == f"the process ended with {name}" else outcome.crash
    return None if outcome.code in (130, 143, 129) else find_fault(outcome, allowance=60.0)


def attack_training(random: Random, folder: Path) -> Iterator[Trial]:
    """Kill a training and its resumptions, let it end, and compare its weights with those of a run left alone."""
    names, problem, kills = list[str](), None, random.randint(1, MOST_KILLS)
    for _ in range(kills):
        has_run = (folder / RUN / "config.json").exists()
        name, outcome = strike(random, RESUME if has_run else TRAIN, folder)
        names.append(name)
        problem = problem or find_loss(outcome, name)
    problem = problem or find_difference(folder)
    if problem is not None:  # which of the kills is to blame is not known, so none counts as held
        yield Trial(kind=names[-1], problem=f"{', '.join(names)}: {problem}")
        return
    yield from (Trial(kind=name) for name in names)


def find_difference(folder: Path) -> str | None:
    """Let the training end; return how its weights or its folder differ from those of a run left alone, or None."""
    has_run = (folder / RUN / "config.json").exists()
    outcome = run_sdssm(RESUME if has_run else TRAIN, folder, memory=None, cpu_limit=30, wall_limit=60.0)
    fault = find_fault(outcome, allowance=60.0)
    if fault is not None or outcome.code != 0:
        return f"at the end: {fault or outcome.err.strip()[-200:]}"
    model = folder / RUN / "model.safetensors"
    if not model.is_file() or model.read_bytes() != make_templates().trained:
        return "the weights differ from those of a run that was not killed"
    left = [path.name for path in [*folder.glob("runs/**/*.part"), *folder.glob("runs/**/plan-*")]]
    if left:
        return f"{left[0]} was left behind"
    verified = run_sdssm(("runs", "runs", "--verify"), folder, memory=None)
    return None if verified.code == 0 else f"--verify: {verified.crash or verified.text.strip()[-200:]}"


ATTACKS = (
    Attack(
        name="kills-of-forks",
        subject="SIGKILL, SIGTERM, SIGINT and SIGHUP at random moments of a training: resumed to the same weights",
        attempt=attack_training,
        share=2.0,
        patience=300.0,
    ),
)
