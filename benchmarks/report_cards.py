"""Report cards of all models of the catalogue on three tasks: train, measure, and write the table.

    python -m benchmarks.report_cards --train --out FOLDER        # trains all models side by side; on a GPU, 280 s
    python -m benchmarks.report_cards --complete FOLDER           # measures the sections that are missing, on a CPU
    python -m benchmarks.report_cards --table FOLDER              # writes the table alone

The first step needs torch, triton, numpy and safetensors only. It writes FOLDER/cards.json, FOLDER/README.md and the
run folders, with weights, as one archive for each task. The second step reads these and writes results/report-cards.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as FuturesTimeout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.report_cards_table import LENGTHS, write_table
from sdssm.checking import ReportCard
from sdssm.checking.card_section import TITLES
from sdssm.checking.forecast_measurement import geometric_lengths
from sdssm.models.catalogue import MODELS, default_preset
from sdssm.runs.schema import create_config, resolve_settings, start_stamp, versions
from sdssm.tasks import get_task

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
#: The parts of the time at whose end each phase stops.
PHASES = {"compile": 0.2, "train": 0.53, "cards": 0.88, "costs": 0.96}
#: The sections that are measured side by side, the most important first, and the share of the time for each group.
#: Speed is measured alone afterwards.
MEASURED = {("accuracy", "forecast"): 0.4, ("laws", "misclassified", "automaton"): 0.5}
#: The seconds that each speed is measured for, in the first step.
SPEED_SECONDS = 0.15
#: The most states of an automaton that is kept in cards.json.
MOST_STATES = 60
#: What a run folder needs so that its model can be loaded.
KEPT_FILES = ("config.json", "status.json", "model.safetensors")


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


def train_all(cards: Sequence[PlannedCard], device: str, end: float) -> None:
    """Train the runs side by side; at the time `end` those that are under way are stopped and saved."""
    from sdssm.training.trainer import TrainingStopped, train_runs

    stamp, planned = start_stamp(), []
    for card in cards:
        task, preset = get_task(TASKS[card.task]), default_preset(card.model)
        settings = resolve_settings(card.model, preset, task.name, {"steps": card.steps})
        planned.append((card.folder, task, create_config(task, 0, settings, preset, stamp)))
    timer = threading.Timer(max(end - monotonic(), 1.0), os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()
    try:
        train_runs(cards[0].folder.parents[1], planned, device=device, progress=True)
    except TrainingStopped:
        print("  training stopped by the time limit", flush=True)
    finally:
        timer.cancel()


# -- in worker processes -----------------------------------------------------------------------------------------------


def start_worker() -> None:
    """Use one thread, and leave signals to the main process."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


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
    from sdssm.checking.checked_model import find_checked_model
    from sdssm.checking.checker import check_subject

    subject = find_checked_model(card.folder, device=device)
    subject = replace(subject, folder=None)  # the folder is temporary
    return check_subject(subject, sections=sections, max_seconds=seconds).to_json()


def finished(futures: Mapping[Future[Any], Any], end: float) -> Iterator[Future[Any]]:
    """Yield the futures as they finish, until the time `end`."""
    try:
        yield from as_completed(futures, timeout=max(0.0, end - monotonic()))
    except FuturesTimeout:
        print("  the time is up", flush=True)
        for future in futures:
            future.cancel()


# -- the first step ----------------------------------------------------------------------------------------------------


def run_campaign(arguments: argparse.Namespace) -> None:
    """Train all models, measure their cards, and write them with the run folders."""
    started = monotonic()
    ends = {name: started + part * arguments.max_seconds for name, part in PHASES.items()}
    root = Path(tempfile.mkdtemp(prefix="cards-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
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
        train_all(cards, device, ends["train"])
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
        stop(pool)  # its processes would disturb the timing
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
        stop(pool)
        shutil.rmtree(root, ignore_errors=True)
    print(f"  {monotonic() - started:4.0f} s: {arguments.out} written", flush=True)


def stop(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool without waiting for what they are measuring."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


def add_costs(cards: Sequence[PlannedCard], results: dict[str, ReportCard], device: str, end: float) -> None:
    """Measure size and speed one model after the other, while nothing else runs."""
    from sdssm.checking.card_section import measure_section
    from sdssm.checking.checked_model import find_checked_model
    from sdssm.checking.cost_measurement import measure_costs

    for card in cards:
        if card.name not in results or monotonic() > end:
            continue
        subject = find_checked_model(card.folder, device=device)
        measure = partial(measure_costs, subject.model, subject.task, train_length=subject.train_length)
        section = measure_section("costs", lambda seconds, run=measure: run(seconds=seconds), SPEED_SECONDS)  # type: ignore[misc]  # run is bound
        results[card.name] = results[card.name].with_section(section)


def write_cards(folder: Path, description: Mapping[str, Any], results: Mapping[str, ReportCard]) -> None:
    """Write cards.json and the table."""
    folder.mkdir(parents=True, exist_ok=True)
    order = {f"{task}/{model}": None for task in TASKS for model in MODELS}
    cards = {name: shorten(results[name].to_json()) for name in order if name in results}
    text = json.dumps({**description, "tasks": TASKS, "cards": cards}, separators=(",", ":"))
    for task in TASKS:  # a line for each card
        text = text.replace(f'"{task}/', f'\n"{task}/')
    (folder / "cards.json").write_text(text + "\n")
    write_table(folder)


def shorten(card: dict[str, Any]) -> dict[str, Any]:
    """Shorten a card: all lengths up to the training length, then a few for each doubling; no large automata."""
    data = card["sections"].get("accuracy", {}).get("data")
    if data is not None:
        lengths = data["lengths"]
        ends = {*geometric_lengths(lengths[-1]), *LENGTHS, *range(card["train_length"] + 1)}
        kept = [k for k, length in enumerate(lengths) if length in ends]
        for name in ("lengths", "accuracy", "low", "high", "strings", "best_constant"):
            values = [data[name][k] for k in kept]
            data[name] = [round(value, 3) if isinstance(value, float) else value for value in values]
    automaton = card["sections"].get("automaton", {}).get("data")
    if automaton is not None and (automaton["n_states"] or 0) > MOST_STATES:
        automaton["machine"] = None
    return card


def pack_runs(folder: Path, cards: Sequence[PlannedCard]) -> None:
    """Write the run folders of each task into one archive, without checkpoints of runs that are finished."""
    for task in {card.task: None for card in cards}:
        with tarfile.open(folder / f"runs-{task}.tar.gz", "w:gz") as archive:
            for card in cards:
                if card.task != task or not card.folder.is_dir():
                    continue
                has_weights = (card.folder / "model.safetensors").exists()
                for path in sorted(card.folder.rglob("*")):
                    if path.is_file() and (path.name in KEPT_FILES or (not has_weights and path.suffix != ".jsonl")):
                        archive.add(path, f"{card.name}/{path.relative_to(card.folder)}")


# -- the second step ---------------------------------------------------------------------------------------------------


def complete(arguments: argparse.Namespace) -> None:
    """Measure the sections that are missing in the cards of a folder, and write the results."""
    from sdssm.checking.checked_model import find_checked_model
    from sdssm.checking.checker import check_subject

    data = json.loads((arguments.complete / "cards.json").read_text())
    results = {name: ReportCard.from_json(card) for name, card in data["cards"].items()}
    description = {name: value for name, value in data.items() if name not in ("cards", "tasks")}
    end = monotonic() + arguments.max_seconds
    with tempfile.TemporaryDirectory(prefix="cards-") as temporary:
        for path in sorted(arguments.complete.glob("runs-*.tar.gz")):
            with tarfile.open(path) as archive:
                archive.extractall(temporary, filter="data")
        for folder in sorted(path.parent for path in Path(temporary).rglob("config.json")):
            name = str(folder.relative_to(temporary))
            card = results.get(name)
            missing = [
                section
                for section in arguments.sections or TITLES
                if arguments.again or card is None or section not in card.names or not card[section].is_measured
            ]
            if not missing or monotonic() > end or not (arguments.models is None or folder.name in arguments.models):
                continue
            subject = replace(find_checked_model(folder, device=arguments.device), folder=None)
            known = () if card is None else card.sections
            more = check_subject(subject, sections=missing, known=known, max_seconds=arguments.card_seconds)
            card = more if card is None else card
            for section in more.sections:
                if section.is_measured or section.name not in card.names:
                    card = card.with_section(section)
            results[name] = card
            lines = "; ".join(f"{section.name}: {section.summary or section.reason}" for section in more.sections)
            print(f"{name}: {lines}", flush=True)
            write_cards(arguments.results, description, results)  # after each, since it may be interrupted
    write_cards(arguments.results, description, results)
    print(arguments.results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--train", action="store_true", help="train all models and measure their cards")
    add("--complete", metavar="FOLDER", type=Path, help="measure what is missing in the cards of this folder")
    add("--table", metavar="FOLDER", type=Path, help="write the table of the cards of this folder")
    add("--out", type=Path, default=Path("card-data"), help="the folder of --train")
    add("--results", type=Path, default=Path("results/report-cards"), help="the folder of --complete")
    add("--max-seconds", type=float, default=280.0, help="stop then, and write what there is")
    add("--card-seconds", type=float, default=40.0, help="seconds for each card of --complete")
    add("--sections", nargs="+", help="with --complete: only these sections")
    add("--again", action="store_true", help="with --complete: measure sections that were measured, too")
    add("--device", default="auto", help="by default a GPU if there is one")
    add("--models", nargs="+", help="by default all of the catalogue")
    add("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS), help="by default all")
    add("--steps", type=int, help="of every model; by default as many as fit the time")
    add("--workers", type=int, default=14, help="processes that measure")
    arguments = parser.parse_args()
    from sdssm.devices import device_name, resolve_device

    device = resolve_device(arguments.device)
    arguments.device, arguments.device_name = str(device), device_name(device)
    if arguments.train:
        arguments.models = arguments.models or list(MODELS)
        run_campaign(arguments)
    elif arguments.complete is not None:
        complete(arguments)
    elif arguments.table is not None:
        write_table(arguments.table)
    else:
        parser.error("give --train, --complete FOLDER or --table FOLDER")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # worker processes that were terminated must not delay the end
