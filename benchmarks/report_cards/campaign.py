"""Train all models side by side on one device, and measure their report cards within a given time."""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

from benchmarks.campaign import Training, finished, make_scratch_folder, start_worker, stop_workers, train_until
from benchmarks.report_cards.files import pack_runs, write_cards
from benchmarks.report_cards.planning import TASKS, PlannedCard, plan
from sdssm.checking import ReportCard
from sdssm.runs.provenance import versions

#: The parts of the time at whose end each phase stops.
PHASES = {"compile": 0.2, "train": 0.53, "cards": 0.88, "costs": 0.96}
#: The sections that are measured side by side, the most important first, and the share of the time for each group.
#: Speed is measured alone afterwards.
MEASURED = {("accuracy", "forecast"): 0.4, ("laws", "misclassified", "automaton"): 0.5}
#: The seconds that each speed is measured for, in the first step.
SPEED_SECONDS = 0.15


# -- in worker processes -----------------------------------------------------------------------------------------------


def warm_up(model: str, task: str, device: str) -> float:
    """Compile the kernels of a model, which all processes share through the cache of Triton; return the seconds."""
    import sdssm

    started = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        sdssm.check(
            model,
            TASKS[task],
            train=True,
            steps=2,
            settings={"checkpoint_every": 10},
            out=folder,
            device=device,
            max_length=600,
            sections=next(iter(MEASURED)),
            max_seconds=5.0,
        )
    return monotonic() - started


def measure_card(card: PlannedCard, device: str, seconds: float, sections: Sequence[str]) -> dict[str, Any]:
    """Return sections of a card as JSON."""
    from sdssm.checking.checked_model import ModelRequest, find_checked_model
    from sdssm.checking.checker import check_subject

    subject = find_checked_model(card.folder, None, ModelRequest(device=device))
    subject = replace(subject, folder=None)  # the folder is temporary
    return check_subject(subject, sections=sections, max_seconds=seconds).to_json()


# -- the first step ----------------------------------------------------------------------------------------------------


def run_campaign(arguments: argparse.Namespace) -> None:
    """Train all models, measure their cards, and write them with the run folders."""
    started = monotonic()
    ends = {name: started + part * arguments.max_seconds for name, part in PHASES.items()}
    root = make_scratch_folder("cards")
    budget = (PHASES["train"] - PHASES["compile"]) * arguments.max_seconds
    cards = plan(root, arguments.models, arguments.tasks, arguments.steps, budget)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(arguments.workers, mp_context=context, initializer=start_worker)
    results: dict[str, ReportCard] = {}
    device = arguments.device
    try:
        if device.startswith("cuda"):
            warm = {pool.submit(warm_up, card.model, card.task, device): card for card in cards}
            for done in finished(warm, ends["compile"]):
                if done.exception() is not None:
                    print(f"  {warm[done].name}: {done.exception()}", flush=True)
            print(f"  {monotonic() - started:4.0f} s: compiled", flush=True)
        trainings = [Training(card.model, TASKS[card.task], 0, card.steps, card.folder) for card in cards]
        train_until(root, trainings, device, ends["train"])
        print(f"  {monotonic() - started:4.0f} s: trained", flush=True)
        left = max(ends["cards"] - monotonic(), 5.0) * min(arguments.workers / len(cards), 1.0)
        jobs = {
            pool.submit(measure_card, card, device, share * left, names): card
            for names, share in MEASURED.items()
            for card in cards
        }
        for future in finished(jobs, ends["cards"]):
            if future.exception() is not None:
                print(f"  {jobs[future].name}: {future.exception()}", flush=True)
                continue
            name, card = jobs[future].name, ReportCard.from_json(future.result())
            for section in card.sections:
                results[name] = results.get(name, card).with_section(section)
        print(f"  {monotonic() - started:4.0f} s: {len(results)} of {len(cards)} cards", flush=True)
        stop_workers(pool)  # its processes would disturb the timing
        add_costs(cards, results, device, ends["costs"])
        print(f"  {monotonic() - started:4.0f} s: speed measured", flush=True)
    finally:
        description = {
            "command": "python -m benchmarks.report_cards --train",
            "device": arguments.device_name,
            "versions": versions(),
            "seconds": round(monotonic() - started),
        }
        write_cards(arguments.out, description, results)
        pack_runs(arguments.out, cards)
        stop_workers(pool)
        shutil.rmtree(root, ignore_errors=True)
    print(f"  {monotonic() - started:4.0f} s: {arguments.out} written", flush=True)


def add_costs(cards: Sequence[PlannedCard], results: dict[str, ReportCard], device: str, end: float) -> None:
    """Measure size and speed one model after the other, while nothing else runs."""
    from sdssm.checking.card_section import measure_section
    from sdssm.checking.checked_model import ModelRequest, find_checked_model
    from sdssm.checking.cost_measurement import measure_costs

    for card in cards:
        if card.name not in results or monotonic() > end:
            continue
        subject = find_checked_model(card.folder, None, ModelRequest(device=device))
        measure = partial(measure_costs, subject.model, subject.task, train_length=subject.train_length)
        section = measure_section("costs", lambda seconds, run=measure: run(seconds=seconds), SPEED_SECONDS)  # type: ignore[misc]  # run is bound
        results[card.name] = results[card.name].with_section(section)
