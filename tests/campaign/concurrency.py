"""Commands side by side in one folder: each succeeds or refuses in one line, and the weights stay right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.campaign.attack import Attack, Trial
from tests.campaign.sandbox import Outcome, call_main, collect_outcome, find_fault, start_isolated
from tests.campaign.templates import EVALUATE, FINISHED, TRAIN, make_templates

NEW = "runs/new/seed-0"
#: Two commands, and whether the second starts as soon as the run folder exists rather than at any moment.
PAIRS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "two trainers": (TRAIN, TRAIN),
    "two trainers that overwrite": ((*TRAIN, "--overwrite"), (*TRAIN, "--overwrite")),
    "training, resuming": (TRAIN, ("train", "--resume", "runs/new", "--quiet")),
    "training, evaluate": (TRAIN, (*EVALUATE, NEW)),
    "training, runs": (TRAIN, ("runs", "runs", "--json")),
    "training, verify": (TRAIN, ("runs", "runs", "--verify")),
    "training, report": (TRAIN, ("report", "runs", "-o", "page.html")),
    "training, certify": (TRAIN, ("certify", NEW, "--quiet", "--strings", "16", "--search", "4")),
    "overwriting, runs": ((*TRAIN, "--overwrite"), ("runs", "runs", "--json")),
    "overwriting, evaluate": ((*TRAIN, "--overwrite"), (*EVALUATE, NEW)),
    "overwriting, report": ((*TRAIN, "--overwrite"), ("report", "runs", "-o", "page.html")),
    "two evaluations": ((*EVALUATE, FINISHED), (*EVALUATE, FINISHED)),
    "evaluate, certify": ((*EVALUATE, FINISHED), ("certify", FINISHED, "--quiet", "--strings", "16", "--search", "4")),
    "evaluate, runs": ((*EVALUATE, FINISHED), ("runs", "runs", "--json")),
}
#: Advice that would destroy the training that runs in the folder.
BAD_ADVICE = ("--overwrite",)


def attack_folder(random: Random, folder: Path) -> Iterator[Trial]:
    """Start two commands, the second a random moment later, and check both and the folder afterwards."""
    make_templates().copy(folder, FINISHED)
    kind = random.choice(list(PAIRS))
    first, second = PAIRS[kind]
    if kind.startswith("overwriting"):
        outcome = _finish([_start(TRAIN, folder)])[0]
        if outcome.code != 0:
            yield Trial(kind=kind, problem=f"the first training failed: {outcome.crash or outcome.err}")
            return
    started = [_start(first, folder)]
    time.sleep(random.choice((0.0, random.uniform(0, 0.05), random.uniform(0, 0.4))))
    started.append(_start(second, folder))
    outcomes = _finish(started)
    problem = _judge(kind, (first, second), outcomes, folder)
    yield Trial(kind=kind, problem=problem)


def _start(arguments: tuple[str, ...], folder: Path) -> tuple[int, int]:
    return start_isolated(lambda: call_main(arguments), folder=folder, memory=None)


def _finish(started: list[tuple[int, int]]) -> list[Outcome]:
    return [collect_outcome(process, reader, 90.0) for process, reader in started]


def _judge(
    kind: str, commands: tuple[tuple[str, ...], tuple[str, ...]], outcomes: list[Outcome], folder: Path
) -> str | None:
    for arguments, outcome in zip(commands, outcomes, strict=True):
        fault = find_fault(outcome, allowance=60.0)
        if fault is not None:
            return f"{' '.join(arguments[:2])}: {fault}"
    texts = "".join(outcome.err for outcome in outcomes)
    if kind == "training, evaluate" and any(advice in texts for advice in BAD_ADVICE):
        return f"advice that would destroy the training: {texts.strip()[:200]!r}"
    trainings = [outcome for words, outcome in zip(commands, outcomes, strict=True) if words[0] == "train"]
    if trainings:
        if all(outcome.code != 0 for outcome in trainings):
            return f"no training succeeded: {texts.strip()[:300]!r}"
        model = folder / NEW / "model.safetensors"
        if not model.is_file() or model.read_bytes() != make_templates().trained:
            return "the weights are not those of one training alone"
    leftovers = [path.name for path in [*folder.glob("runs/**/*.part"), *folder.glob("runs/**/plan-*")]]
    if leftovers:
        return f"{leftovers[0]} was left behind"
    check = _finish([_start(("runs", "runs", "--json"), folder)])[0]
    return None if check.code == 0 and check.crash is None else f"runs afterwards: {check.crash or check.err}"


ATTACKS = (
    Attack(
        name="concurrency",
        subject="two commands at once in one folder: two trainers, or a reader beside a training or an evaluation",
        attempt=attack_folder,
        share=2.0,
        patience=240.0,
    ),
)
