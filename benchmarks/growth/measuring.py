"""Measure points in processes of their own, and keep what was measured in a JSON file for each device."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks import scan
from benchmarks.growth.methods import METHODS, Point, check_point, make_problem, why_not

#: What varies in a column of the figure, and its values; the rest is as in `Point`.
SWEEPS: dict[str, tuple[int, ...]] = {
    "length": (64, 256, 1024, 4096, 16_384, 65_536, 262_144),
    "size": (16, 32, 64, 128, 256, 512),
    "batch": (1, 4, 16, 64, 256),
    "replicas": (1, 4, 16, 64),
}
#: Seconds to start a process that measures, and seconds of repeated passes.
START, REPEATED = 60.0, 0.4
#: Returns a stored point: what was measured, or why the curve ends.
Measure = Callable[[Point], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one forward and backward pass may take; the curve of a method ends where it takes more."""

    seconds: float = 10.0
    gib: float = 4.0


def measure_here(point: Point, device: str, limits: Limits) -> dict[str, Any]:
    """Measure a point in this process: the least milliseconds and the peak MiB beyond the inputs, or why it ends."""
    try:
        error = check_point(point, device)  # compiles the kernels too
        loss, leaves = make_problem(point, device)
        if device == "cpu":
            limit_memory(limits.gib)
        benchmark = scan.Benchmark(device, REPEATED)
        start = time.perf_counter()
        peak = benchmark.peak_memory(loss, leaves)
        seconds = time.perf_counter() - start
        if peak > limits.gib * 1024:
            return {"ended": "memory", "mib": round(peak, 1)}
        if seconds > limits.seconds:
            return {"ended": "time", "ms": round(seconds * 1e3, 1)}
        return {"ms": benchmark.milliseconds(loss, leaves), "mib": peak, "error": error}
    except (MemoryError, RuntimeError) as problem:
        if isinstance(problem, scan.WrongResultError):
            return {"ended": "wrong", "why": str(problem)}
        if isinstance(problem, MemoryError) or any(text in str(problem) for text in ("memory", "bad_alloc")):
            return {"ended": "memory"}
        return {"ended": "error", "why": f"{type(problem).__name__}: {str(problem).splitlines()[0][:200]}"}


def limit_memory(gib: float) -> None:
    """Let this process allocate no more than `gib` on top of what it has."""
    limit = scan.status_field("VmData") * 1024 + int(gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def measure_in_process(point: Point, device: str, limits: Limits) -> dict[str, Any]:
    """Measure a point in a process of its own, so that peaks do not mix and a point that fails ends nothing else."""
    request = json.dumps({"point": dataclasses.asdict(point), "device": device, "limits": dataclasses.asdict(limits)})
    command = [sys.executable, "-m", "benchmarks.growth", "--point", request]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=START + 2 * limits.seconds)
    except subprocess.TimeoutExpired:
        return {"ended": "time"}
    if result.returncode:  # killed for memory (-9), or a crash
        return {"ended": "memory" if result.returncode == -9 else "error", "why": result.stderr[-200:]}
    measured: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return measured


def measure_all(
    path: Path,
    description: Mapping[str, Any],
    measure: Measure,
    *,
    sweeps: Mapping[str, Iterable[int]] = SWEEPS,
    methods: Iterable[str] = tuple(METHODS),
    again: bool = False,
    stop_after: float = float("inf"),
) -> bool:
    """Measure the points of all sweeps that the file lacks, and write it after each; return whether none is missing.

    Args:
        path: the JSON file.
        description: device, versions and command, which are written with the points.
        measure: measures a point.
        sweeps: what varies, and its values in rising order; a curve ends at the first point that has `ended`.
        methods: the methods to measure.
        again: measure points that the file has too.
        stop_after: seconds after which no further point is started.
    """
    document = load(path)
    stored = {to_point(row): row for row in document.get("points", [])}
    fresh: set[Point] = set()
    notes: dict[str, str] = {}
    start = time.perf_counter()
    for sweep, values in sweeps.items():
        for method in methods:
            for value in values:
                point = Point(method, **{sweep: value})
                if (reason := why_not(point)) is not None:
                    notes[method] = reason
                    break
                if point not in stored or (again and point not in fresh):
                    if time.perf_counter() - start > stop_after:
                        return False
                    stored[point] = {**dataclasses.asdict(point), **measure(point)}
                    fresh.add(point)
                    print(stored[point], file=sys.stderr, flush=True)
                    write(path, {**description, "notes": notes, "points": [stored[key] for key in sorted(stored)]})
                if "ended" in stored[point]:
                    break
    write(path, {**description, "notes": notes, "points": [stored[key] for key in sorted(stored)]})
    return True


def load(path: Path) -> dict[str, Any]:
    """Return a stored file, or an empty dictionary if there is none."""
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return document


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write a file with one point in a line; it appears under its name when it is complete."""
    lines = [json.dumps(round_numbers(row)) for row in document["points"]]
    head = json.dumps({**document, "points": []}, indent=1).removesuffix("[]\n}")
    scratch = path.with_suffix(".tmp")
    scratch.write_text(head + "[\n  " + ",\n  ".join(lines) + "\n ]\n}\n" if lines else head + "[]\n}\n")
    scratch.replace(path)


def round_numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with four digits of each measured number."""
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()}


def to_point(row: Mapping[str, Any]) -> Point:
    """Return the point of a stored row."""
    return Point(**{field.name: row[field.name] for field in dataclasses.fields(Point)})


def describe(device: str, limits: Limits) -> dict[str, Any]:
    """Return what a file says about its measurements: device, versions, command, limits."""
    return {
        "device": torch.cuda.get_device_name() if device != "cpu" else f"{os.cpu_count()} cores, {cpu_name()}",
        "versions": {"python": platform.python_version(), "torch": torch.__version__, **backend_version(device)},
        "threads": torch.get_num_threads(),
        "command": f"python -m benchmarks.growth --device {device}",
        "limits": dataclasses.asdict(limits),
    }


def cpu_name() -> str:
    """Return the name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def backend_version(device: str) -> dict[str, str]:
    """Return the version of what compiles the kernels."""
    import importlib.metadata

    name = "numba" if device == "cpu" else "triton"
    try:
        return {name: importlib.metadata.version(name)}
    except importlib.metadata.PackageNotFoundError:
        return {name: "not installed"}
