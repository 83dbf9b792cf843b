"""What the gallery says about each run, read from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from sdssm.report.page.run_data import PageRun, read_run
from sdssm.tasks.machine_facts import format_machine_facts


class RunFacts(TypedDict):
    """Facts about a run; accuracies in percent."""

    task: str
    states: int
    symbols: int
    classes: int
    chance: float
    solvable: str
    commutative: str
    train_length: int
    max_length: int
    strings: int  #: of each length
    model: str
    seed: int
    steps: int
    device: str
    within: float
    beyond: float
    first_failure: int | None
    extracted_states: int | None
    equals_task: bool | None
    faithful: bool | None  #: whether the model agrees with the extracted automaton on all strings that were compared
    certified: bool  #: whether there is a certificate
    certified_exact: int | None  #: None: every length
    certified_float32: int | None
    horizon: int | None
    horizon_is_limit: bool


def read_facts(path: Path) -> RunFacts:
    """Read what a run folder says about its run; one that was not measured is an error."""
    run = read_run(path)
    if run.data["problems"]:
        raise ValueError(f"{path}: {run.data['problems'][0]}")
    return collect_facts(run)


def collect_facts(run: PageRun) -> RunFacts:
    """Return the facts about a run that was measured."""
    data, task = run.data, run.task
    within, beyond, longest = data["mean_within"], data["mean_beyond"], data["max_length"]
    if run.evaluation is None or within is None or beyond is None or longest is None:
        raise ValueError(f"{data['folder']} was not evaluated beyond its training lengths; make gallery evaluates it")
    theory = format_machine_facts(task)
    certified, extraction, horizon = data["certified"], data["extraction"], data["horizon"]
    return {
        "task": task.name,
        "states": task.machine.n_states,
        "symbols": task.n_symbols,
        "classes": task.n_classes,
        "chance": round(task.chance_accuracy, 2),
        "solvable": theory.get("solvable", "not known"),
        "commutative": theory.get("commutative", "not known"),
        "train_length": task.train_length,
        "max_length": longest,
        "strings": run.evaluation.strings,
        "model": data["model"],
        "seed": data["seed"] or 0,
        "steps": data["step"],
        "device": data["device"] or "not known",
        "within": within,
        "beyond": beyond,
        "first_failure": data["first_failure"],
        "extracted_states": None if extraction is None else extraction["n_states"],
        "equals_task": None if extraction is None else extraction["equals_task"],
        "faithful": None if extraction is None else extraction["faithful"],
        "certified": certified is not None,
        "certified_exact": None if certified is None else certified["exact"],
        "certified_float32": None if certified is None else certified["float32"],
        "horizon": None if horizon is None else horizon["longest"],
        "horizon_is_limit": horizon is not None and horizon["reached"],
    }
