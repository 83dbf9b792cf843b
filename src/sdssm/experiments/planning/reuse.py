"""Reuse of runs from other folders, for example those of `sdssm train`, in a plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sdssm.checksums import ChecksumError, check_tensors, read_tensors_file
from sdssm.errors import RunError, SdssmError
from sdssm.experiments.json_files import read_json
from sdssm.experiments.planning.fingerprints import fingerprint, is_same_training
from sdssm.experiments.planning.plan import Plan, PlannedRun
from sdssm.files import format_path
from sdssm.models.settings import CONFIG_FILE, WEIGHTS_FILE
from sdssm.runs import FINAL_STATUSES, RunFolder
from sdssm.runs.find import natural_sort_key
from sdssm.runs.own_files import STATUS_FILE

#: Cheap comparison of two runs before all of their settings are read: digest of the task, model, seed, steps.
RunKey = tuple[Any, ...]


def reuse_runs(plan: Plan, folders: Sequence[Path]) -> Plan:
    """Return the plan with missing runs replaced by ended runs found below `folders`.

    A run is reused if its task, settings, seed and steps are the same. It stays where it is, and its evaluation is
    written there. Run folders that cannot be read are skipped.
    """
    for folder in folders:
        if not folder.is_dir():
            raise RunError(
                f"there is no folder {format_path(folder)} to reuse runs from; give an existing one, or none"
            )
    missing = [run for run in plan.runs if run.status not in FINAL_STATUSES]
    keys = {(run.config.digest, run.config.model.name, run.config.seed, run.config.train.steps) for run in missing}
    candidates: dict[tuple[str, int], list[RunFolder]] = {}
    for run_folder in _ended_runs(folders, keys) if keys else ():
        config = run_folder.config
        candidates.setdefault((fingerprint(config), config.seed), []).append(run_folder)

    def replacement(run: PlannedRun) -> PlannedRun:
        for run_folder in candidates.get((fingerprint(run.config), run.config.seed), ()):
            if is_same_training(run.config, run_folder.config):
                return replace(run, folder=run_folder.path, config=run_folder.config, reused=True)
        return run

    replaceable = {id(run) for run in missing} if candidates else set()
    return replace(plan, runs=tuple(replacement(run) if id(run) in replaceable else run for run in plan.runs))


def _ended_runs(folders: Sequence[Path], keys: set[RunKey]) -> list[RunFolder]:
    """Return complete runs with these keys, finished ones first.

    Other runs, usually most of them, are not opened.
    """
    order: list[tuple[int, Any, RunFolder]] = []
    for path in _run_folders(folders):
        config = read_json(path / CONFIG_FILE) or {}
        if _run_key(config) not in keys:
            continue
        status = (read_json(path / STATUS_FILE) or {}).get("status")
        try:
            if status in FINAL_STATUSES and _is_complete(path, status):
                order.append((FINAL_STATUSES.index(status), natural_sort_key(str(path)), RunFolder.open(path)))
        except SdssmError:
            continue
    return [run_folder for *_, run_folder in sorted(order, key=lambda entry: entry[:2])]


def _run_folders(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield every folder with a config once. Run folders are not searched for further ones."""
    seen: set[str] = set()
    for top in folders:
        for folder, subfolders, files in os.walk(top):
            if CONFIG_FILE in files:
                subfolders.clear()
                if (real := os.path.realpath(folder)) not in seen:
                    seen.add(real)
                    yield Path(folder)


def _run_key(config: Mapping[str, Any]) -> RunKey | None:
    try:
        key = config["digest"], config["model"]["name"], config["seed"], config["train"]["steps"]
        hash(key)
    except (KeyError, TypeError):
        return None
    return key


def _is_complete(path: Path, status: str) -> bool:
    """Return whether the weights are there and not damaged; a diverged run may have none."""
    if status == "diverged" and not (path / WEIGHTS_FILE).exists():
        return True
    try:
        check_tensors(read_tensors_file(path / WEIGHTS_FILE))
    except (OSError, ChecksumError):
        return False
    return True
