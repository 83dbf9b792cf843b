"""How fast strings are drawn and labelled: `python benchmarks/tasks.py [--json]`.

The baseline is how it is usually written: a Python loop over the batch that applies the permutations one by one and
looks the last one up in a dict. Every figure is the best of several runs on 2 threads, taken in the same process; a
result that is wrong is not timed.
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


def best(run: Callable[[], object], repeat: int) -> float:
    """Seconds of the fastest of `repeat` runs, after one to warm up."""
    run()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def baseline(
    batch: int, length: int, number: dict[tuple[int, ...], int], rng: random.Random
) -> tuple[list[list[int]], list[int]]:
    """Strings of A5 and the label of each, one string after the other."""
    strings: list[list[int]] = []
    labels: list[int] = []
    for _ in range(batch):
        string = [rng.randrange(2) for _ in range(length)]
        state: tuple[int, ...] = (0, 1, 2, 3, 4)
        for symbol in string:
            move = SWAP if symbol else CYCLE
            state = tuple(state[i] for i in move)
        strings.append(string)
        labels.append(number[state])
    return strings, labels


def measure() -> list[dict[str, float | int | str]]:
    task = sdssm.task("a5")
    number = {tuple(map(int, name)): q for q, name in enumerate(task.machine.state_names)}
    strings, labels = baseline(64, 40, number, random.Random(0))
    if task.labels(torch.tensor(strings))[:, -1].tolist() != labels:
        raise SystemExit("the labels are wrong: nothing is timed")

    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    rows: list[dict[str, float | int | str]] = []
    for batch, length in ((128, 40), (128, 500), (512, 500)):
        loop = best(partial(baseline, batch, length, number, rng), 5)
        ours = best(partial(task.sample, batch, length, generator=generator), 50)
        rows.append({"what": f"a5: sample and label {batch} x {length}", "seconds": ours, "baseline": loop})
    for length in (10_000, 100_000, 1_000_000, 10_000_000):
        tokens = torch.randint(2, (1, length), generator=generator)
        if length == 100_000 and task.labels(tokens)[0].tolist() != task.machine.trace(tokens[0].numpy()).tolist():
            raise SystemExit("the labels of a long string are wrong: nothing is timed")
        rows.append({"what": f"a5: label one string of {length:,}", "seconds": best(partial(task.labels, tokens), 5)})
    for name, length in (("arithmetic", 39), ("random:1000x4:0", 40), ("s7", 40)):
        other = sdssm.task(name)
        seconds = best(partial(other.sample, 128, length, generator=generator), 50)
        rows.append({"what": f"{name}: sample and label 128 x {length}", "seconds": seconds})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
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
