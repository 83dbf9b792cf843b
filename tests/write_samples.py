"""Write a small folder of every kind: `python -m tests.write_samples tests/data/written-by-VERSION`.

`tests/test_compatibility.py` reads every folder `tests/data/written-by-*` that has a samples.json: each later version
must load, resume, evaluate and tabulate it. Write a folder when a file format has changed (CONTRIBUTING, release), and
never write it again: versions that wrote the old files are in use. The tests use the names below.

runs/finished      two seeds, with evaluation, states, certificate, extraction and horizon
runs/stopped       the same training, stopped after half of its steps
runs/killed        the same training, whose process was killed between the checkpoints of the two seeds
runs/machine       a task that is a machine without a name
runs/states        the preset "states", whose readout has a centre for each state
runs/module        a module of someone else, which is loaded with trust only
runs/experiments   the runs of experiment.toml, whose table is results/tiny
models/            a compiled model, a saved one, a saved module, an exact one made by snap
results/mlregtest  the records of a language
samples.json       logits of each model, mean accuracies, and what the table said
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import torch

import sdssm
from sdssm.cli import main as run_command
from sdssm.devices import resolve_device
from sdssm.exact.stored import store_result
from sdssm.experiments.mlregtest.configuration import Configuration
from sdssm.experiments.mlregtest.reproduction import plan_languages, run_languages
from sdssm.runs import find_runs
from sdssm.training.planning import plan_runs
from sdssm.training.trainer import train_runs

TOKENS = torch.tensor([[0, 1, 1, 0, 1, 1, 1, 0]])
#: Of all trainings; as small as possible, since the folders are stored in the repository.
TINY = {"state": 4, "dictionary": 2, "batch": 4, "train_length": 6}
STEPS = 20
MODULE = "tests.training.plugged_modules:LinearRnn"
LANGUAGES = Configuration(
    settings={"steps": 20, "state": 6, "dictionary": 3, "batch": 8, "train_length": 6},
    lengths=(3, 6, 12),
    strings=16,
    pairs=4,
    proof_seconds=0.05,
)
#: The even numbers of a: a language of MLRegTest by its form.
LANGUAGE = "0 1 a a\n0 0 b b\n1 0 a a\n1 1 b b\n0\n"
#: Trains as `runs/finished` does; the process ends as if killed when the first seed has saved step 10.
KILLED = """
import json, os, sys, sdssm
from sdssm.runs import RunFolder
save = RunFolder.save_checkpoint
def save_and_end(run, step, *arguments, **named):
    save(run, step, *arguments, **named)
    if step >= 10:
        os._exit(9)
RunFolder.save_checkpoint = save_and_end
settings = json.loads(sys.argv[2])
sdssm.train("parity", seeds=2, out="runs/killed", device="cpu", steps=int(sys.argv[1]), settings=settings)
"""
EXPERIMENT = """# A tiny experiment: its runs and its results folder are samples.
name = "tiny"
title = "Two tiny models: accuracy over lengths 1 to 20"
preset = "paper"
seeds = 1

[evaluate]
max_length = 20
scores = ["all"]

[[rows]]
model = "sd-ssm"
label = "SD-SSM"
tasks = ["parity"]
settings = { batch = 4, state = 4, steps = 8, train_length = 6 }

[[rows]]
model = "rnn"
label = "RNN"
tasks = ["parity"]
settings = { batch = 4, state = 4, steps = 8, train_length = 6 }
"""


def write_samples(folder: Path) -> None:
    """Write all folders; paths in them are relative to `folder`, so that no path of this machine is stored."""
    folder.mkdir(parents=True)
    with chdir(folder):
        write_runs()
        write_models()
        write_experiment()
        write_languages()
        Path("samples.json").write_text(json.dumps(describe_samples(), indent=1) + "\n")


def write_runs() -> None:
    """Train the runs, stop one training, and store every kind of result with a run."""
    device = resolve_device("cpu")
    common: dict[str, Any] = {"preset": None, "variants": None, "device": device, "steps": STEPS}
    path, planned = plan_runs("parity", model="sd-ssm", seeds=2, out="runs/stopped", settings=TINY, **common)
    train_runs(path, planned, device=device, until=0.5)
    train("parity", out="runs/finished", seeds=2, settings=TINY)
    settings = json.dumps({**TINY, "checkpoint_every": 5})
    ended = subprocess.run([sys.executable, "-c", KILLED, str(STEPS), settings], check=False)
    if ended.returncode != 9:
        raise SystemExit("the training that is to be killed ended by itself")
    machine = sdssm.machine([[0, 1], [1, 2], [2, 0]])
    train(machine, out="runs/machine", settings=TINY)
    states = {"batch": 4, "train_length": 6, "state": 8, "dictionary": 2}
    train("regex:(ab)*", out="runs/states", preset="states", settings=states)
    train("parity", out="runs/module", model=MODULE, settings={"batch": 4, "train_length": 6, "width": 3})
    for run in find_runs("runs/finished"):
        sdssm.evaluate(run.path, max_length=20, strings=32, device="cpu")
        sdssm.evaluate(run.path, lengths=[10, 40], strings=32, device="cpu")
        store_result(run, sdssm.certify(run.path, max_seconds=5))
        store_result(run, sdssm.extract(run.path, max_seconds=5, lengths=[8], strings=16))
        store_result(run, sdssm.horizon(run.path, max_length=16, strings=16))


def train(task: Any, **arguments: Any) -> None:
    """Train for a few steps on the CPU."""
    sdssm.train(task, steps=STEPS, device="cpu", **arguments)


def write_models() -> None:
    """Save models of every kind."""
    compiled = sdssm.compile("parity")
    compiled.save("models/compiled")
    sdssm.load("runs/finished/seed-0").save("models/saved")
    sdssm.load("runs/module/seed-0", trust=True).save("models/module")
    sdssm.snap(compiled, "parity").save("models/snapped")


def write_experiment() -> None:
    """Run an experiment, and write its results folder."""
    Path("experiment.toml").write_text(EXPERIMENT)
    code = run_command(["reproduce", "experiment.toml", *PLACES, "--device", "cpu", "--quiet"])
    if code:
        raise SystemExit(f"the experiment ended with exit code {code}")
    for picture in Path("results").rglob("curves*"):  # large, and never read
        picture.unlink()


PLACES = ("--out", "runs/experiments", "--results", "results")


def write_languages() -> None:
    """Train a language of MLRegTest, and write its records and tables."""
    data = Path("languages")
    data.mkdir()
    (data / "02.02.Zp.2.1.0.att").write_text(LANGUAGE)
    plan = plan_languages(data, LANGUAGES, results="results", languages=["all"])
    run_languages(plan, LANGUAGES, device="cpu", workers=0, results="results")


def describe_samples() -> dict[str, Any]:
    """Return what later versions must compute from the folders."""
    names = [str(run.path) for run in find_runs("runs")]
    models = [*(name for name in names if not name.startswith("runs/experiments")), *map(str, Path("models").iterdir())]
    evaluated = [Path(name, "evaluation.json") for name in names]
    with Path("results/tiny/table.csv").open() as file:
        cells = list(csv.DictReader(file))
    return {
        "sdssm": sdssm.__version__,
        "runs": len(names),
        "logits": {name: sdssm.load(name, trust=True)(TOKENS)[0].tolist() for name in sorted(models)},
        "means": {str(path.parent): json.loads(path.read_text())["mean"] for path in evaluated if path.exists()},
        "cells": cells,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new folder, tests/data/written-by-VERSION")
    sys.path.insert(0, str(Path.cwd()))  # the module of someone else is searched here, also from other folders
    write_samples(parser.parse_args().folder)
