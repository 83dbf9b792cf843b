"""How well trained models generalise: `python benchmarks/accuracy.py SET [--out runs/SET] [--steps N] [--seeds N]`.

A set is a list of trainings that share one GPU: `paper` (SD-SSM with the paper's settings, and the official commands
where they differ), `default` (the default recipe on the paper's nine tasks), `beyond` (the default recipe on other
automata), `complex` (the complex diagonal model in its four variants), `models` (the other models of the paper). The
command trains what is not trained yet, resumes what is not finished, evaluates every model, and writes SET.json, SET.md
and SET.png into `results/`.
"""

from __future__ import annotations

import argparse
import csv
import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import sdssm
from sdssm.models.presets import CHOMSKY, TABLE1
from sdssm.report.plots import save_plot
from sdssm.report.tables import percent
from sdssm.runs import RunFolder, find_runs, folder_name
from sdssm.runs.schema import RunConfig, configure, resolve
from sdssm.settings import plain
from sdssm.tasks import PAPER
from sdssm.train import TrainingStopped, progress_for
from sdssm.train.trainer import train_all

RESULTS = Path(__file__).parents[1] / "results"
#: A counter modulo 3 that only says whether it is at 0: few outputs, more states.
MOD3 = sdssm.Machine(table=[[0, 1], [1, 2], [2, 0]], outputs=[1, 0, 0])
#: Groups, random and aperiodic machines, and machines whose outputs merge many states.
BEYOND = (
    *("z7", "a4", "s4", "z3*d5", "s5", "a5:6:0", "s5:8:0"),
    *("random:10x2:0", "random:10x2:1", "random:10x2:2", "random:6x3:1", "random:20x3:0"),
    *("tomita2", "tomita3", "tomita4", "tomita5", "tomita6", "tomita7", "regex:(ab|c)*", "mod3"),
)
#: Lengths read beyond the test length: the mean over every length up to each is reported.
LONG = {"paper": (), "default": (5_000, 50_000), "beyond": (5_000,), "complex": (), "models": ()}
SEEDS = {"paper": 3, "default": 16, "beyond": 4, "complex": 3, "models": 3}
#: The four variants of the complex diagonal model: B = 0 or not, a linear readout or an MLP.
COMPLEX = ("paper-b0-linear", "paper-b0-mlp", "paper-linear", "paper")
#: Models that are trained on all seven tasks of the paper's first table, and those it has on the first four alone.
SEVEN, FOUR = ("rnn", "lstm", "regular-lrnn"), ("s4d", "h3", "hyena", "mamba")


def task_of(name: str) -> sdssm.Task:
    return sdssm.Task(name="mod3", machine=MOD3) if name == "mod3" else sdssm.task(name)


def trainings(which: str) -> list[tuple[str, str, str]]:
    """Model, preset and task of each training of a set."""
    if which == "paper":
        of = [("sd-ssm", "paper", name) for name in PAPER]
        return of + [("sd-ssm", "readme", name) for name in ("c2xc4", "d4")]
    if which == "complex":
        return [("complex-diagonal", preset, name) for name in ("c2xc30", "d30") for preset in COMPLEX]
    if which == "models":
        return [
            (model, "paper", name)
            for names, models in ((TABLE1, SEVEN), (CHOMSKY, FOUR))
            for model in models
            for name in names
        ]
    return [("sd-ssm", "scale-free", name) for name in (PAPER if which == "default" else BEYOND)]


def planned(which: str, out: Path, seeds: int, settings: dict[str, Any]) -> list[tuple[Path, sdssm.Task, RunConfig]]:
    """Folder, task and config of every training of a set."""
    found = []
    for model, preset, name in trainings(which):
        of = task_of(name)
        resolved = resolve(model, preset, of.name, settings)
        for seed in range(seeds):
            folder = out / folder_name(of.name) / f"{model}-{preset}" / f"seed-{seed}"
            found.append((folder, of, configure(of, seed, resolved, preset)))
    return found


def evaluated(out: Path, long: tuple[int, ...], device: str, workers: int) -> list[dict[str, Any]]:
    """One record a run: its curve to the test length, and means over every length to longer ones."""
    done = [folder.path for folder in find_runs(out)]
    record = partial(_record, long=long, device=device)
    if workers == 1:
        return [record(path) for path in done]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:  # a GPU takes several at a time
        return list(pool.map(record, done))


def _record(path: Path, long: tuple[int, ...], device: str) -> dict[str, Any]:
    folder = RunFolder.open(path)
    config = folder.config
    # Strings that lengths share move their accuracies together: where a bound is at stake each has its own.
    fresh = config.model.name == "complex-diagonal"
    (run,) = sdssm.evaluate(folder, device=device, fresh=fresh).runs
    means: dict[str, float | None] = {}
    if long:
        (far,) = sdssm.evaluate(folder, lengths=long, device=device).runs
        means = dict(zip(map(str, long), far.mean_to or (), strict=True))
    return {
        "task": config.task,
        "model": run.model,
        "preset": config.preset,
        "seed": config.seed,
        "train_length": config.train_length,
        "max_length": run.max_length,
        "status": folder.status,
        "steps": folder.step,
        "seconds": folder.progress.seconds,
        "train_accuracy": folder.progress.accuracy,
        **{name: getattr(run, name) for name in ("mean", "mean_within", "mean_beyond", "first_below_99")},
        "means": means,
        "accuracy": [None if value is None else round(value, 2) for value in run.accuracy],
    }


def table(records: list[dict[str, Any]], long: tuple[int, ...]) -> str:
    """A Markdown table: a row for each task and preset."""
    listed = csv.DictReader((RESULTS / "published.csv").open())
    published = {(row["model"], row["preset"], row["task"]): row for row in listed}
    far = "".join(f" mean to {length:,} |" for length in long)
    lines = [
        "| model | settings | task | steps | seeds | max | mean | min | published max / average | "
        f"mean beyond training lengths | seeds at 100.00 |{far}",
        "|---|---|---|---|---|---|---|---|---|---|---|" + "---|" * len(long),
    ]
    kinds = dict.fromkeys((record["model"], record["preset"], record["task"]) for record in records)
    for kind in sorted(kinds, key=lambda kind: kind[:2]):
        rows = [record for record in records if (record["model"], record["preset"], record["task"]) == kind]
        means = [record["mean"] for record in rows]
        # The default recipe is ours: it stands beside the best that was published for the same model.
        known = published.get(kind) or published.get((kind[0], "paper", kind[2]))
        theirs = f"{known['max']} / {known['average'] or '-'}" if known else "-"
        exact = sum(mean == 100 for mean in means)
        cells = [*kind, f"{min(record['steps'] for record in rows):,}", str(len(rows))]
        cells += [percent(value) for value in (max(means), sum(means) / len(means), min(means))]
        beyond = [record["mean_beyond"] for record in rows]
        cells += [theirs, percent(sum(beyond) / len(beyond)), f"{exact} of {len(rows)}"]
        for length in long:
            values = [record["means"][str(length)] for record in rows]
            cells.append(f"{percent(sum(values) / len(values))} (min {percent(min(values))})")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=list(LONG), help="which trainings")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tasks", nargs="+", help="only these")
    parser.add_argument("--models", nargs="+", help="only these")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="processes that evaluate")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the tables go")
    arguments = parser.parse_args()
    out = arguments.out or Path("runs") / arguments.set
    seeds = arguments.seeds or SEEDS[arguments.set]
    settings = {} if arguments.steps is None else {"steps": arguments.steps}
    try:
        plan = planned(arguments.set, out, seeds, settings)
        plan = [one for one in plan if not arguments.tasks or one[1].name in arguments.tasks]
        plan = [one for one in plan if not arguments.models or one[2].model.name in arguments.models]
        train_all(out, plan, device=arguments.device, progress=progress_for(False), resume=True)
    except TrainingStopped:
        print("stopped: what follows is how far it got; the same command goes on")
    long = LONG[arguments.set]
    records = evaluated(out, long, arguments.device, arguments.workers)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    told = f"`python benchmarks/accuracy.py {arguments.set}`, {gpu}, torch {torch.__version__}"
    trained = max(record["seconds"] for record in records)  # they train side by side
    told += f"; {sum(record['steps'] for record in records):,} steps in {trained:.0f} s"
    arguments.results.mkdir(parents=True, exist_ok=True)
    configs = {
        f"{c.model.name} {c.preset} {c.task}": plain(c.settings) for c in (folder.config for folder in find_runs(out))
    }
    data = {"command": told, "settings": configs, "runs": records}
    (arguments.results / f"{arguments.set}.json").write_text(json.dumps(data, separators=(",", ":")) + "\n")
    text = f"{told}\n\n{table(records, long)}\n"
    (arguments.results / f"{arguments.set}.md").write_text(text)
    print(text)
    if find_spec("matplotlib") is not None:
        save_plot(data, arguments.results / f"{arguments.set}.png")


if __name__ == "__main__":
    main()
