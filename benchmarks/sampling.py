"""Time a training step with covering strings against uniform ones: `python -m benchmarks.sampling [--device cuda]`.

The model is the default SD-SSM with batch 128 and lengths uniform on 1..40. Both samplings train the same replicas in
the same process, in turns, and the best of several turns counts. The last line is the greatest ratio.
"""

from __future__ import annotations

import argparse
import platform

import torch

import sdssm
from benchmarks.models import synchronized_time
from sdssm.models.catalogue import DEFAULT_PRESET
from sdssm.runs.schema import create_config, resolve_settings
from sdssm.tasks import Task
from sdssm.training.engine import TrainingEngine

#: Tasks with few and many states and symbols, and how many replicas train side by side on a GPU.
TASKS = {"tomita4": 16, "random:20x64:0": 16, "random:600x64:0": 4, "random:100x4:0": 64}
#: The most that covering strings may cost.
LIMIT = 1.5


def make_engine(task: Task, sampling: str, replicas: int, device: torch.device) -> TrainingEngine:
    """Return an engine that trains replicas of the default model on strings of a sampling."""
    settings = resolve_settings("sd-ssm", DEFAULT_PRESET, task.name, {"sampling": sampling})
    runs = [create_config(task, seed, settings, DEFAULT_PRESET) for seed in range(replicas)]
    return TrainingEngine(task, runs, device)


def compare(task: Task, replicas: int, device: torch.device, steps: int, turns: int) -> dict[str, float]:
    """Return the best seconds per step for each sampling."""
    engines = {name: make_engine(task, name, replicas, device) for name in ("uniform", "covering")}
    best = dict.fromkeys(engines, float("inf"))
    for name, engine in engines.items():
        engine.advance(steps)  # compiles kernels and captures graphs
        engine.wait()
        if not bool(engine.replicas.alive.all()):
            raise SystemExit(f"a training of {task.name} on {name} strings diverged; nothing is timed")
    for _ in range(turns):
        for name, engine in engines.items():
            start = synchronized_time(device)
            engine.advance(steps)
            engine.wait()
            best[name] = min(best[name], (synchronized_time(device) - start) / steps)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=None, help="steps of a turn (default: 40 on a CPU, 400 on a GPU)")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), help="names of tasks")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    steps = arguments.steps or (40 if device.type == "cpu" else 400)
    where = platform.processor() if device.type == "cpu" else torch.cuda.get_device_name(device)
    print(f"{where}  torch {torch.__version__}  sdssm {sdssm.__version__}")
    print(f"{'task':20s}{'replicas':>9s}{'uniform, ms/step':>18s}{'covering, ms/step':>19s}{'ratio':>8s}")
    ratios = []
    for name in arguments.tasks:
        replicas = 1 if device.type == "cpu" else TASKS.get(name, 16)
        best = compare(sdssm.task(name), replicas, device, steps, arguments.turns)
        ratios.append(best["covering"] / best["uniform"])
        uniform, covering = (1e3 * best[key] for key in ("uniform", "covering"))
        print(f"{name:20s}{replicas:9d}{uniform:18.3f}{covering:19.3f}{ratios[-1]:8.2f}", flush=True)
    print(f"covering strings take up to {max(ratios):.2f} times as long as uniform ones; the limit is {LIMIT}")


if __name__ == "__main__":
    main()
