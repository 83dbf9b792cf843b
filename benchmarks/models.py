"""How fast each model trains: `python -m benchmarks.models [--device auto|cpu|cuda] [--models NAME ...] [--json]`.

Every model has its default settings and learns parity from 128 strings of length 40 a step, in the engine: on a GPU as
a CUDA graph. The baseline is the same step in plain eager torch, in the same process: a Python loop over time, either
inside every scan (the reference) or around the whole model (its own step), whichever is faster. Convolutions and
attention have no loop: there it is the eager step, and the table says so. The engine draws its strings anew at each
step, the baseline has them given. Nothing is timed unless both give the same loss on the same strings and weights.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import sdssm
from sdssm import ops
from sdssm.devices import resolve_device
from sdssm.layers.convolution import Convolution
from sdssm.layers.mixer import select_rows
from sdssm.models import MODELS, Classifier, State, default_preset
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.tasks.stream import uniform_numbers
from sdssm.training.engine import NOISE_STREAMS, STEPS_PER_BLOCK, TrainingEngine, new_model

TASK = sdssm.task("parity")
LENGTH, BATCH, REPLICAS = 40, 128, 16
#: How far the two losses may lie apart, as a share of their size.
TOLERANCE = 1e-4
#: More steps a round tell nothing more; and all rounds of an engine fit into one plan of its schedules.
MOST_STEPS = 300
#: How long to measure: rounds, of which the median counts, and about how many seconds each.
Effort = tuple[int, float]
FULL, QUICK = (5, 0.1), (2, 0.0)
#: The table: titles, what stands below them, and with how many digits after the point.
COLUMNS = (
    ("parameters", "parameters", 0), ("transition", "transition", 0), ("one model", "us", 1),
    ("baseline", "baseline_us", 1), ("ratio", "ratio", 1), (f"each of {REPLICAS}", "us_a_model", 1),
    ("MiB", "mebibytes", 1),
)  # fmt: skip
#: A loss () of strings (B, L).
Way = Callable[[Tensor], Tensor]
Row = dict[str, float | str | None]


def config(name: str) -> RunConfig:
    chosen, values = default_preset(name), {"batch": BATCH, "train_length": LENGTH, "curriculum": "fixed"}
    return create_config(TASK, 0, resolve_settings(name, chosen, TASK.name, values), chosen)


def new_engine(run: RunConfig, replicas: int, device: torch.device) -> TrainingEngine:
    engine = TrainingEngine(TASK, [replace(run, seed=seed) for seed in range(replicas)], device)
    now(device)  # it works on a stream of its own, which does not wait for the one that made it
    return engine


def engine_step(engine: TrainingEngine, effort: Effort) -> float:
    """Seconds a step of an engine, strings included."""
    least = STEPS_PER_BLOCK["cuda"] if engine.device.type == "cuda" else 1  # so many steps are one graph
    engine.advance(2 * least)  # the first ones compile the kernels, the second ones capture the graph
    seconds = timed(lambda steps: engine.advance(steps * least), engine.device, effort, MOST_STEPS // least) / least
    if not engine.window().alive.all():
        raise RuntimeError("a loss is not finite, and its model has stopped: the time tells nothing")
    return seconds


def step_memory(engine: TrainingEngine, held: int) -> float:
    """MiB at the peak of a step of an engine that holds so many bytes between steps and has done one step."""
    # What libraries keep for themselves since the first step is no need of the model: it is there before and after.
    engine.wait()
    torch.cuda.reset_peak_memory_stats(engine.device)
    before = allocated(engine.device)
    engine.advance(1)
    engine.wait()
    return (torch.cuda.max_memory_allocated(engine.device) - before + held) / 2**20


class Baseline:
    """A step of the same model in eager torch, on the strings and the noise of the engine's first step."""

    def __init__(self, engine: TrainingEngine) -> None:
        self.run, self.device = engine.runs[0], engine.device
        self.model = new_model(self.run).to(self.device)
        first = torch.zeros((), dtype=torch.int64, device=self.device)
        lengths = torch.full((1, 1), LENGTH, dtype=torch.int64, device=self.device)
        strings = engine.stream.draw(first, lengths, LENGTH)
        self.tokens, self.labels = strings.tokens[0, 0], strings.labels[0, 0]
        self.noise = {
            name: uniform_numbers(engine.stream.seeds, first, NOISE_STREAMS[name], shape)[0]
            for name, shape in self.model.chance(BATCH, LENGTH).items()
        }
        self.attraction: dict[str, Any] = {}
        if self.run.model.readout == "cosine" and self.run.train.attraction:  # it begins at 0 and costs the same
            classes = torch.ones(self.run.n_classes, device=self.device)
            self.attraction = {"attraction": torch.zeros((), device=self.device), "classes": classes}
        of, leaves = self.run.train, self.model.parameters()
        self.optimizer = torch.optim.Adam(leaves, of.lr, of.betas, of.eps, of.weight_decay)

    def by_scans(self, tokens: Tensor) -> Tensor:
        """The model as it is, every scan a loop."""
        noise = self.noise
        if tokens.shape[1] != LENGTH:
            shapes = self.model.chance(len(tokens), tokens.shape[1])
            noise = {name: torch.rand(shape, device=self.device) for name, shape in shapes.items()}
        return self.model.loss(tokens, self.labels, noise=noise, **self.attraction)[0]

    def by_steps(self, tokens: Tensor) -> Tensor:
        """The model's own step, one symbol after the other, and the readout at the end."""
        model = self.model
        if model.query is not None:
            tokens = torch.cat([tokens, torch.full_like(tokens[:, :1], model.query)], 1)
        state: State = None
        for u in select_rows(model._table(), tokens).unbind(1):
            features, state = model._step(u, state)
        return model.readout.loss(features, self.labels, model.norm, vectors=model.vectors, **self.attraction)[0]

    def ways(self) -> dict[str, Way]:
        """The ways that are what they are called, by name."""
        if not has_loop(self.model):
            return {"eager, no loop": self.by_scans}
        known: dict[str, Way] = {"loop in the scans": self.by_scans, "loop of steps": self.by_steps}
        found = {name: way for name, way in known.items() if self._loops(way)}
        if not found:
            raise RuntimeError("neither way is a loop over time: there is no baseline")
        return found

    def _loops(self, way: Way) -> bool:
        """Whether each symbol takes calls of its own."""
        half, counts = LENGTH // 2, list[int]()
        for length in (half, LENGTH):
            with ops.use_backend("reference"), torch.no_grad(), Calls() as calls:
                way(self.tokens[:, :length])
            counts.append(calls.count)
        return counts[1] - counts[0] >= LENGTH - half

    def loss(self, way: Way) -> float:
        with ops.use_backend("reference"), torch.no_grad():
            return way(self.tokens).item()

    def step(self, way: Way, effort: Effort) -> float:
        """Seconds a step."""

        def some(steps: int) -> None:
            for _ in range(steps):
                loss = way(self.tokens)
                self.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch's own
                if self.run.train.clip is not None:
                    nn.utils.clip_grad_norm_(self.model.parameters(), self.run.train.clip)
                self.optimizer.step()

        with ops.use_backend("reference"), ops.unchecked():
            some(1)
            return timed(some, self.device, effort, MOST_STEPS)


def has_loop(model: Classifier) -> bool:
    """Whether it goes from state to state: neither attention nor a convolution, which see all inputs at once."""
    return model.recurrent and not any(isinstance(part, Convolution) for part in model.modules())


class Calls(TorchFunctionMode):
    """Counts what Python asks of torch; a loop inside a kernel of torch is one call.

    >>> with Calls() as calls:
    ...     _ = (torch.ones(2) * 2 + 1).sum()
    >>> calls.count
    4
    """

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def timed(some: Callable[[int], None], device: torch.device, effort: Effort, most: int) -> float:
    """Seconds for one of `some(steps)`: the median of rounds with as many steps as their seconds allow."""

    def one(steps: int) -> float:
        begin = now(device)
        some(steps)
        return (now(device) - begin) / steps

    rounds, seconds = effort
    steps = min(max(int(seconds / one(1)), 1), most)
    return statistics.median(one(steps) for _ in range(rounds))


def measure(name: str, device: torch.device, effort: Effort) -> Row:
    """All figures of one model; an error where the two losses differ."""
    gc.collect()  # of the model before: engines hold graphs, and graphs hold memory
    if gpu := device.type == "cuda":
        torch.cuda.empty_cache()
    begin, run = allocated(device), config(name)
    engine = new_engine(run, 1, device)
    held = allocated(device) - begin
    baseline = Baseline(engine)
    model, ways = baseline.model, baseline.ways()
    engine.advance(1)
    loss = float(engine.window().loss[0])
    for kind, way in ways.items():
        other = baseline.loss(way)
        if not abs(loss - other) <= TOLERANCE * abs(other):
            raise RuntimeError(f"the engine's loss is {loss:.7g}, that of the {kind} {other:.7g}: nothing is timed")
    mebibytes = step_memory(engine, held) if gpu else None
    ours = engine_step(engine, effort)
    times = {kind: baseline.step(way, effort) for kind, way in ways.items()}
    del engine  # with its graphs, before the next one makes its own
    many = engine_step(new_engine(run, REPLICAS, device), effort) / REPLICAS if gpu else None
    fastest = min(times, key=lambda kind: times[kind])
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "transition": sum(mixer.transition_parameters() for mixer in model.mixers),
        "us": ours * 1e6,
        "baseline": fastest,
        "baseline_us": times[fastest] * 1e6,
        "ratio": times[fastest] / ours,
        "us_a_model": None if many is None else many * 1e6,
        "mebibytes": mebibytes,
    }


def measure_all(names: list[str], device: torch.device, effort: Effort) -> list[Row]:
    """A row for each model; one that fails says why in its own, and the others go on."""
    rows, begin = list[Row](), time.perf_counter()
    for name in names:
        try:
            rows.append(measure(name, device, effort))
        except Exception as error:  # whatever it is, it is this model's
            traceback.print_exc()
            rows.append({"model": name, "error": f"{type(error).__name__}: {error}"})
        outcome = "failed" if "error" in rows[-1] else "done"
        print(f"{time.perf_counter() - begin:7.1f} s  {name} {outcome}", file=sys.stderr, flush=True)
    return rows


def shown(row: Row, unit: float) -> str:
    """A line of the table; times are divided by `unit` us.

    >>> shown({"model": "rnn", "error": "ModelError: no"}, 1.0)
    'rnn               ModelError: no'
    """
    line = f"{row['model']:18s}"
    if "error" in row:
        return line + " ".join(str(row["error"]).split())
    for _, key, digits in COLUMNS:
        value, each = row[key], unit if "us" in key.split("_") else 1.0
        line += f"{'-' if value is None else f'{float(value) / each:,.{digits}f}':>12s}"
    return f"{line}  {row['baseline']}"


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME", help="only these")
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args(given)
    device = resolve_device(arguments.device)
    gpu = device.type == "cuda"
    where = torch.cuda.get_device_name(device) if gpu else f"CPU, {torch.get_num_threads()} threads"
    rows = measure_all(arguments.models, device, QUICK if arguments.quick else FULL)
    versions = {"python": platform.python_version(), "torch": torch.__version__, "sdssm": sdssm.__version__}
    if arguments.json:
        print(json.dumps({"device": where, "versions": versions, "rows": rows}, indent=1))
    else:
        unit, of = (1, "us") if gpu else (1_000, "ms")
        print("  ".join(f"{name} {version}" for name, version in versions.items()), " ", where)
        print(f"{TASK.name}, {BATCH} strings of length {LENGTH} a step; times of a step in {of}")
        print(" " * 18 + "".join(f"{title:>12s}" for title, _, _ in COLUMNS))
        print("\n".join(shown(row, unit) for row in rows))
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
