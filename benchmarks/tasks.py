"""Time the sampling and labelling of strings: `python benchmarks/tasks.py [--json]`.

The baseline is the usual implementation: a Python loop over the batch that applies the permutations of A5 one by one
and looks up the label in a dict. Every time is the best of several runs on 2 threads in the same process. Nothing is
timed if the labels are wrong.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import time
from collections.abc import Callable
from functools import partial

import torch

import sdssm

CYCLE, SWAP = (1, 2, 3, 4, 0), (1, 0, 3, 2, 4)


def best_seconds(run: Callable[[], object], repeat: int) -> float:
    """Return the seconds of the fastest of `repeat` runs, after a warm-up run."""
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def sample_in_python(
    batch: int, length: int, state_index: dict[tuple[int, ...], int], rng: random.Random
) -> tuple[list[list[int]], list[int]]:
    """Return strings of A5 and their labels, sampled one by one in Python."""
    strings: list[list[int]] = []
    labels: list[int] = []
    for _ in range(batch):
        string = [rng.randrange(2) for _ in range(length)]
        state: tuple[int, ...] = (0, 1, 2, 3, 4)
        for symbol in string:
            permutation = SWAP if symbol else CYCLE
            state = tuple(state[i] for i in permutation)
        strings.append(string)
        labels.append(state_index[state])
    return strings, labels


def measure() -> list[dict[str, float | int | str]]:
    """Return the timings; exit if a label is wrong."""
    task = sdssm.task("a5")
    state_index = {tuple(map(int, name)): q for q, name in enumerate(task.machine.state_names)}
    strings, labels = sample_in_python(64, 40, state_index, random.Random(0))
    if task.labels(torch.tensor(strings))[:, -1].tolist() != labels:
        raise SystemExit("the labels are wrong; nothing is timed")

    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    rows: list[dict[str, float | int | str]] = []
    for batch, length in ((128, 40), (128, 500), (512, 500)):
        python_seconds = best_seconds(partial(sample_in_python, batch, length, state_index, rng), 5)
        our_seconds = best_seconds(partial(task.sample, batch, length, generator=generator), 50)
        rows.append(
            {"what": f"a5: sample and label {batch} x {length}", "seconds": our_seconds, "baseline": python_seconds}
        )
    for length in (10_000, 100_000, 1_000_000, 10_000_000):
        tokens = torch.randint(2, (1, length), generator=generator)
        if length == 100_000 and task.labels(tokens)[0].tolist() != task.machine.trace(tokens[0].numpy()).tolist():
            raise SystemExit("the labels of a long string are wrong; nothing is timed")
        rows.append(
            {"what": f"a5: label one string of {length:,}", "seconds": best_seconds(partial(task.labels, tokens), 5)}
        )
    for name, length in (("arithmetic", 39), ("random:1000x4:0", 40), ("s7", 40)):
        other_task = sdssm.task(name)
        seconds = best_seconds(partial(other_task.sample, 128, length, generator=generator), 50)
        rows.append({"what": f"{name}: sample and label 128 x {length}", "seconds": seconds})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    rows = measure()
    versions = {"python": platform.python_version(), "torch": torch.__version__, "sdssm": sdssm.__version__}
    if arguments.json:
        print(json.dumps({"versions": versions, "threads": torch.get_num_threads(), "rows": rows}, indent=1))
        return
    print("  ".join(f"{name} {version}" for name, version in versions.items()), " 2 threads")
    print(f"{'':44s}{'ms':>10s}{'Python loop, ms':>18s}{'ratio':>8s}")
    for row in rows:
        seconds = float(row["seconds"])
        line = f"{row['what']:44s}{1e3 * seconds:10.3f}"
        if "baseline" in row:
            line += f"{1e3 * float(row['baseline']):18.2f}{float(row['baseline']) / seconds:7.0f}x"
        print(line)


if __name__ == "__main__":
    main()
