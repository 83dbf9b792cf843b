"""Time a training step of each model.

    python -m benchmarks.models [--device auto|cpu|cuda] [--models NAME ...] [--json]

Every model has its default settings and is trained on parity with 128 strings of length 40 per step, by the training
engine (on a GPU with CUDA graphs). The baseline is the same step in eager torch, in the same process: a Python loop
over time, either inside every scan (the reference implementation) or around the model's own step, whichever is faster.
Convolutions and attention have no loop: their baseline is the eager step, and the table says so. The engine samples
new strings at each step, the baseline reuses the same ones. Nothing is timed unless both give the same loss on the same
strings and weights.
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
from sdssm.models import MODELS, State, TokenModel, default_preset
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.tasks.stream import uniform_numbers
from sdssm.training.engine import NOISE_STREAMS, STEPS_PER_BLOCK, TrainingEngine, new_model

TASK = sdssm.task("parity")
LENGTH, BATCH, REPLICAS = 40, 128, 16
#: The largest relative difference between the two losses.
TOLERANCE = 1e-4
#: Steps per round at most: enough for a stable time, and all rounds of an engine fit into one plan of its schedules.
MAX_STEPS = 300
#: How long to measure: the number of rounds, whose median is reported, and about how many seconds each takes.
Effort = tuple[int, float]
FULL, QUICK = (5, 0.1), (2, 0.0)
#: Columns of the table: title, key of the value, digits after the point.
COLUMNS = (
    ("parameters", "parameters", 0), ("transition", "transition", 0), ("one model", "us", 1),
    ("baseline", "baseline_us", 1), ("ratio", "ratio", 1), (f"each of {REPLICAS}", "us_a_model", 1),
    ("MiB", "mebibytes", 1),
)  # fmt: skip
#: Returns the loss () of strings (B, L).
LossFunction = Callable[[Tensor], Tensor]
Row = dict[str, float | str | None]


def run_config(name: str) -> RunConfig:
    """Return the configuration of a training of model `name` with its default preset."""
    preset, values = default_preset(name), {"batch": BATCH, "train_length": LENGTH, "curriculum": "fixed"}
    return create_config(TASK, 0, resolve_settings(name, preset, TASK.name, values), preset)


def new_engine(run: RunConfig, replicas: int, device: torch.device) -> TrainingEngine:
    """Return an engine that trains `replicas` models of the same configuration, with seeds from 0 on."""
    engine = TrainingEngine(TASK, [replace(run, seed=seed) for seed in range(replicas)], device)
    synchronized_time(device)  # the engine has its own stream, which does not wait for the stream of its construction
    return engine


def engine_step(engine: TrainingEngine, effort: Effort) -> float:
    """Return the seconds per step of an engine, sampling included."""
    block = STEPS_PER_BLOCK["cuda"] if engine.device.type == "cuda" else 1  # steps per CUDA graph
    engine.advance(2 * block)  # the first block compiles the kernels, the second captures the graph
    seconds = time_steps(lambda steps: engine.advance(steps * block), engine.device, effort, MAX_STEPS // block) / block
    if not engine.window().alive.all():
        raise RuntimeError("the loss of a replica is not finite, so it stopped training and the time is meaningless")
    return seconds


def step_memory(engine: TrainingEngine, held_bytes: int) -> float:
    """Return the peak memory of a step of an engine in MiB.

    The engine has done at least one step and holds `held_bytes` between steps.
    """
    # Memory that libraries allocated in the first step is not counted: it is there before and after this step.
    engine.wait()
    torch.cuda.reset_peak_memory_stats(engine.device)
    allocated_before = allocated(engine.device)
    engine.advance(1)
    engine.wait()
    return (torch.cuda.max_memory_allocated(engine.device) - allocated_before + held_bytes) / 2**20


class Baseline:
    """The same model in eager torch, on the strings and the noise of the engine's first step."""

    def __init__(self, engine: TrainingEngine) -> None:
        self.run, self.device = engine.runs[0], engine.device
        self.model = new_model(self.run).to(self.device)
        first_step = torch.zeros((), dtype=torch.int64, device=self.device)
        lengths = torch.full((1, 1), LENGTH, dtype=torch.int64, device=self.device)
        strings = engine.stream.draw(first_step, lengths, LENGTH)
        self.tokens, self.labels = strings.tokens[0, 0], strings.labels[0, 0]
        self.noise = {
            name: uniform_numbers(engine.stream.seeds, first_step, NOISE_STREAMS[name], shape)[0]
            for name, shape in self.model.noise_shapes(BATCH, LENGTH).items()
        }
        self.attraction: dict[str, Any] = {}
        if (
            self.run.model.readout == "cosine" and self.run.train.attraction
        ):  # its weight starts at 0; the cost is the same
            classes = torch.ones(self.run.n_classes, device=self.device)
            self.attraction = {"attraction": torch.zeros((), device=self.device), "classes": classes}
        train = self.run.train
        self.optimizer = torch.optim.Adam(self.model.parameters(), train.lr, train.betas, train.eps, train.weight_decay)

    def loss_by_scan(self, tokens: Tensor) -> Tensor:
        """Return the loss of the model itself; with the reference backend every scan is a Python loop."""
        noise = self.noise
        if tokens.shape[1] != LENGTH:
            shapes = self.model.noise_shapes(len(tokens), tokens.shape[1])
            noise = {name: torch.rand(shape, device=self.device) for name, shape in shapes.items()}
        return self.model.loss(tokens, self.labels, noise=noise, **self.attraction)[0]

    def loss_by_step(self, tokens: Tensor) -> Tensor:
        """Return the loss computed with the model's own step, symbol by symbol, and the readout at the end."""
        model = self.model
        if model.query is not None:
            tokens = torch.cat([tokens, torch.full_like(tokens[:, :1], model.query)], 1)
        state: State = None
        for u in select_rows(model.input_table(), tokens).unbind(1):
            features, state = model._step(u, state)
        loss: Tensor = model.readout.loss(features, self.labels, model.norm, vectors=model.vectors, **self.attraction)[
            0
        ]
        return loss

    def loss_functions(self) -> dict[str, LossFunction]:
        """Return the loss functions that can be a baseline, by name.

        Only functions that really loop over time in Python count, unless the model has no loop at all.
        """
        if not has_loop(self.model):
            return {"eager, no loop": self.loss_by_scan}
        candidates: dict[str, LossFunction] = {
            "loop in the scans": self.loss_by_scan,
            "loop of steps": self.loss_by_step,
        }
        loops = {name: function for name, function in candidates.items() if self._has_python_loop(function)}
        if not loops:
            raise RuntimeError("neither loss function loops over time in Python, so there is no baseline")
        return loops

    def _has_python_loop(self, loss_function: LossFunction) -> bool:
        """Return whether the number of calls to torch grows by at least one per symbol."""
        half, counts = LENGTH // 2, list[int]()
        for length in (half, LENGTH):
            with ops.use_backend("reference"), torch.no_grad(), CallCounter() as calls:
                loss_function(self.tokens[:, :length])
            counts.append(calls.count)
        return counts[1] - counts[0] >= LENGTH - half

    def loss(self, loss_function: LossFunction) -> float:
        """Return the value of a loss function on the strings of the engine's first step."""
        with ops.use_backend("reference"), torch.no_grad():
            return loss_function(self.tokens).item()

    def train(self, loss_function: LossFunction, steps: int) -> None:
        """Do training steps with a loss function."""
        with ops.use_backend("reference"), ops.unchecked():
            for _ in range(steps):
                loss = loss_function(self.tokens)
                self.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
                if self.run.train.clip is not None:
                    nn.utils.clip_grad_norm_(self.model.parameters(), self.run.train.clip)
                self.optimizer.step()

    def step(self, loss_function: LossFunction, effort: Effort) -> float:
        """Return the seconds per training step with a loss function."""
        self.train(loss_function, 1)
        return time_steps(lambda steps: self.train(loss_function, steps), self.device, effort, MAX_STEPS)


def has_loop(model: TokenModel) -> bool:
    """Return whether the model is a recurrence.

    Attention and convolutions are not: they see all inputs at once.
    """
    return model.is_recurrent and not any(isinstance(part, Convolution) for part in model.modules())


class CallCounter(TorchFunctionMode):
    """Count the calls from Python to torch; a loop inside a kernel of torch is one call.

    >>> with CallCounter() as calls:
    ...     _ = (torch.ones(2) * 2 + 1).sum()
    >>> calls.count
    4
    """

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def synchronized_time(device: torch.device) -> float:
    """Return the current time in seconds, after all work on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def allocated(device: torch.device) -> int:
    """Return the bytes that torch has allocated on a GPU; 0 on a CPU."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def time_steps(run_steps: Callable[[int], None], device: torch.device, effort: Effort, max_steps: int) -> float:
    """Return the seconds per step of `run_steps(steps)`: the median of several rounds."""

    def seconds_per_step(steps: int) -> float:
        start = synchronized_time(device)
        run_steps(steps)
        return (synchronized_time(device) - start) / steps

    rounds, seconds = effort
    steps = min(max(int(seconds / seconds_per_step(1)), 1), max_steps)
    return statistics.median(seconds_per_step(steps) for _ in range(rounds))


def measure(name: str, device: torch.device, effort: Effort) -> Row:
    """Return the results of one model; raise an error if the two losses differ."""
    gc.collect()  # frees the engine of the previous model: engines hold graphs, and graphs hold memory
    if on_gpu := device.type == "cuda":
        torch.cuda.empty_cache()
    bytes_before, run = allocated(device), run_config(name)
    engine = new_engine(run, 1, device)
    held_bytes = allocated(device) - bytes_before
    baseline = Baseline(engine)
    model, loss_functions = baseline.model, baseline.loss_functions()
    engine.advance(1)
    loss = float(engine.window().loss[0])
    for kind, loss_function in loss_functions.items():
        baseline_loss = baseline.loss(loss_function)
        if not abs(loss - baseline_loss) <= TOLERANCE * abs(baseline_loss):
            raise RuntimeError(
                f"the engine's loss is {loss:.7g} and the baseline's ({kind}) is {baseline_loss:.7g}; nothing is timed"
            )
    mebibytes = step_memory(engine, held_bytes) if on_gpu else None
    engine_seconds = engine_step(engine, effort)
    times = {kind: baseline.step(loss_function, effort) for kind, loss_function in loss_functions.items()}
    del engine  # and its graphs, before the next engine captures its own
    seconds_of_replica = engine_step(new_engine(run, REPLICAS, device), effort) / REPLICAS if on_gpu else None
    fastest = min(times, key=lambda kind: times[kind])
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "transition": sum(mixer.transition_parameters() for mixer in model.mixers),
        "us": engine_seconds * 1e6,
        "baseline": fastest,
        "baseline_us": times[fastest] * 1e6,
        "ratio": times[fastest] / engine_seconds,
        "us_a_model": None if seconds_of_replica is None else seconds_of_replica * 1e6,
        "mebibytes": mebibytes,
    }


def measure_all(names: list[str], device: torch.device, effort: Effort) -> list[Row]:
    """Return a row for each model.

    The row of a model that fails holds the error, and the others are still measured.
    """
    rows, start = list[Row](), time.perf_counter()
    for name in names:
        try:
            rows.append(measure(name, device, effort))
        except Exception as error:  # any error is reported in the row of its model
            traceback.print_exc()
            rows.append({"model": name, "error": f"{type(error).__name__}: {error}"})
        outcome = "failed" if "error" in rows[-1] else "done"
        print(f"{time.perf_counter() - start:7.1f} s  {name} {outcome}", file=sys.stderr, flush=True)
    return rows


def format_row(row: Row, unit: float) -> str:
    """Return a line of the table; times are divided by `unit` us.

    >>> format_row({"model": "rnn", "error": "ModelError: no"}, 1.0)
    'rnn               ModelError: no'
    """
    line = f"{row['model']:18s}"
    if "error" in row:
        return line + " ".join(str(row["error"]).split())
    for _, key, digits in COLUMNS:
        value, divisor = row[key], unit if "us" in key.split("_") else 1.0
        line += f"{'-' if value is None else f'{float(value) / divisor:,.{digits}f}':>12s}"
    return f"{line}  {row['baseline']}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME", help="measure only these models"
    )
    parser.add_argument("--quick", action="store_true", help="few steps, for a test")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    arguments = parser.parse_args(argv)
    device = resolve_device(arguments.device)
    on_gpu = device.type == "cuda"
    device_name = torch.cuda.get_device_name(device) if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    rows = measure_all(arguments.models, device, QUICK if arguments.quick else FULL)
    versions = {"python": platform.python_version(), "torch": torch.__version__, "sdssm": sdssm.__version__}
    if arguments.json:
        print(json.dumps({"device": device_name, "versions": versions, "rows": rows}, indent=1))
    else:
        unit, unit_name = (1, "us") if on_gpu else (1_000, "ms")
        print("  ".join(f"{name} {version}" for name, version in versions.items()), " ", device_name)
        print(f"{TASK.name}, {BATCH} strings of length {LENGTH} per step; time per step in {unit_name}")
        print(" " * 18 + "".join(f"{title:>12s}" for title, _, _ in COLUMNS))
        print("\n".join(format_row(row, unit) for row in rows))
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
