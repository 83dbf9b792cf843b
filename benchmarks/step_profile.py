"""Show where the time of a training step goes on a GPU: `python -m benchmarks.step_profile [CASE ...] [--length L]`.

A case is `MODEL[/PRESET]@TASK*REPLICAS[:NAME=VALUE,...]`, such as `sd-ssm/paper@a5*64`. For each case the script prints
the time of a step, how many kernels it launches, how much of the time a kernel runs, and the kernels that take most.
With `--length 40` all strings have 40 symbols, as in `benchmarks.models`; otherwise their lengths are those of the
preset. `benchmarks.step_launches` counts the kernels without a GPU.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import defaultdict

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.step_cases import read_case
from sdssm.training.engine import STEPS_PER_BLOCK, TrainingEngine

CASES = (
    "sd-ssm/paper@a5*1",
    "sd-ssm/paper@a5*64",
    "sd-ssm/scale-free@a5*16",
    "transformer@parity*16",
    "mamba@parity*16",
)
#: Steps that are timed, and steps that are profiled.
TIMED, PROFILED = 300, 50
#: The batch size where the length is given.
BATCH = 128


def new_engine(case: str, length: int | None) -> TrainingEngine:
    """Return the engine of a case on the GPU, for strings of one length if it is given."""
    changes = {"batch": BATCH, "train_length": length, "curriculum": "fixed"} if length else {}
    return TrainingEngine(*read_case(case, changes), torch.device("cuda"))


def step_time(engine: TrainingEngine) -> float:
    """Return the microseconds of a step, sampling included."""
    engine.advance(2 * STEPS_PER_BLOCK["cuda"])  # compiles the kernels and captures the graph
    engine.wait()
    torch.cuda.synchronize()
    start = time.perf_counter()
    engine.advance(TIMED)
    engine.wait()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / TIMED * 1e6


def kernel_times(engine: TrainingEngine) -> dict[str, tuple[float, int]]:
    """Return time in microseconds and number of launches of each kernel, over `PROFILED` steps."""
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        engine.advance(PROFILED)
        engine.wait()
        torch.cuda.synchronize()
    totals: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for event in record.events():
        duration, count = totals[event.name]
        totals[event.name] = duration + event.device_time, count + 1
    return {name: value for name, value in totals.items() if value[0] > 0}


def show(case: str, length: int | None, most: int) -> None:
    """Print the profile of one case."""
    engine = new_engine(case, length)
    step = step_time(engine)
    totals = kernel_times(engine)
    busy, launches = (sum(values) / PROFILED for values in zip(*totals.values(), strict=True))
    each = step / len(engine.runs)
    print(f"\n{case}: {step:.1f} us a step, {each:.1f} us for each model; {launches:.0f} kernels run for {busy:.1f} us")
    for name, (duration, count) in sorted(totals.items(), key=lambda item: -item[1][0])[:most]:
        short = re.sub(r"void |at::native::|\(anonymous namespace\)::", "", name)[:110]
        print(f"  {duration / PROFILED:9.2f} us  {count / PROFILED:6.1f} launches  {short}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="CASE")
    parser.add_argument("--length", type=int, metavar="L", help="the length of all strings")
    parser.add_argument("--most", type=int, default=16, help="how many kernels to show")
    arguments = parser.parse_args()
    for case in arguments.cases:
        show(case, arguments.length, arguments.most)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
