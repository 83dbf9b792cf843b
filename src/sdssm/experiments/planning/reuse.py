"""Runs that were made elsewhere, by `sdssm train` or into another folder, in the place of those that a plan lacks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from sdssm.errors import RunError, SdssmError
from sdssm.experiments.planning.plan import Plan, PlannedRun, fingerprint, same_training
from sdssm.experiments.results.folder import read_json
from sdssm.files import format_path
from sdssm.models.classifier import CONFIG, WEIGHTS
from sdssm.runs import ENDED, RunFolder
from sdssm.runs.find import natural
from sdssm.runs.folder import STATUS

#: What two runs have in common before their settings are looked at: digest of the task, model, seed, steps.
Kind = tuple[Any, ...]


def reuse(plan: Plan, places: Sequence[Path]) -> Plan:
    """The plan, with runs that ended below `places` instead of those that did not end in its own folders.

    They have the same task, settings, seed and steps, and stay where they are: what evaluates them writes there.
    Folders that cannot be read are passed over.
    """
    for place in places:
        if not place.is_dir():
            raise RunError(f"there is no folder {format_path(place)} to take runs from; give one, or none to take none")
    missing = [run for run in plan.runs if run.status not in ENDED]
    kinds = {(run.config.digest, run.config.model.name, run.config.seed, run.config.train.steps) for run in missing}
    candidates: dict[tuple[str, int], list[RunFolder]] = {}
    for folder in _ended(places, kinds) if kinds else ():
        candidates.setdefault((fingerprint(folder.config), folder.config.seed), []).append(folder)

    def found(run: PlannedRun) -> PlannedRun:
        for folder in candidates.get((fingerprint(run.config), run.config.seed), ()):
            if same_training(run.config, folder.config):
                return replace(run, folder=folder.path, config=folder.config, reused=True)
        return run

    left = {id(run) for run in missing} if candidates else set()
    return replace(plan, runs=tuple(found(run) if id(run) in left else run for run in plan.runs))


def _ended(places: Sequence[Path], kinds: set[Kind]) -> list[RunFolder]:
    """Whole runs of these kinds, finished ones first. Only of those the settings are read: most runs are others'."""
    order: list[tuple[int, Any, RunFolder]] = []
    for path in _run_folders(places):
        config = read_json(path / CONFIG) or {}
        if _kind(config) not in kinds:
            continue
        status = (read_json(path / STATUS) or {}).get("status")
        try:
            if status in ENDED and _is_whole(path, status):
                order.append((ENDED.index(status), natural(str(path)), RunFolder.open(path)))
        except SdssmError:
            continue
    return [folder for *_, folder in sorted(order, key=lambda one: one[:2])]


def _run_folders(places: Sequence[Path]) -> Iterator[Path]:
    """Every folder with a config, once; none is looked for within another."""
    seen: set[str] = set()
    for place in places:
        for folder, below, files in os.walk(place):
            if CONFIG in files:
                below.clear()
                if (real := os.path.realpath(folder)) not in seen:
                    seen.add(real)
                    yield Path(folder)


def _kind(config: Mapping[str, Any]) -> Kind | None:
    try:
        found = config["digest"], config["model"]["name"], config["seed"], config["train"]["steps"]
        hash(found)
    except (KeyError, TypeError):
        return None
    return found


def _is_whole(path: Path, status: str) -> bool:
    """Whether its weights are there; one that diverged may have none."""
    if status == "diverged" and not (path / WEIGHTS).exists():
        return True
    try:
        with safe_open(path / WEIGHTS, framework="pt"):
            return True
    except (OSError, SafetensorError):
        return False
