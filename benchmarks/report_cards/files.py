"""The files of the report cards: cards.json, the table, and archives of the run folders."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report_cards.planning import TASKS, PlannedCard
from benchmarks.report_cards.table import LENGTHS, write_table
from sdssm.checking import ReportCard
from sdssm.checking.forecast_measurement import geometric_lengths
from sdssm.models.catalogue import MODELS

#: The most states of an automaton that is kept in cards.json.
MOST_STATES = 60
#: What a run folder needs so that its model can be loaded.
KEPT_FILES = ("config.json", "status.json", "model.safetensors")


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
