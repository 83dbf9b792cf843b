"""Folders to attack: finished runs with every kind of file, a stopped run, an experiment and its results."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from sdssm.runs import RunFolder
from tests.campaign.sandbox import call_main

#: The files of a finished run, besides its checkpoints.
RUN_FILES = (
    "config.json",
    "status.json",
    "events.jsonl",
    "model.safetensors",
    "evaluation.json",
    "evaluation-states.safetensors",
    "certificate.json",
    "extraction.json",
    "horizon.json",
)
#: An experiment of two runs.
SPEC = """name = "tiny"
tasks = ["parity"]
seeds = 2
[[rows]]
model = "sd-ssm"
settings = {state = 8, batch = 16, steps = 20}
[evaluate]
max_length = 20
strings = 16
"""
#: Names that are the same in every copy.
RUNS, FINISHED, STOPPED, RESULTS = "runs", "runs/parity/seed-0", "runs/stopped/seed-0", "results/tiny"
#: A training that was killed after it had created the first of its two run folders: its plan is still there.
KILLED = "killed"
TINY = ("--steps", "20", "--batch", "16", "--state", "8", "--set", "checkpoint_every=10", "--quiet")
TRAIN = ("train", "parity", "--out", "runs/new", "--seeds", "1", *TINY)
EVALUATE = ("evaluate", "--max-length", "20", "--strings", "16", "--quiet", "--json")


@dataclass(frozen=True, kw_only=True)
class Templates:
    """A folder with `runs`, `results` and `tiny.toml`, and what undamaged folders lead to."""

    folder: Path
    trained: bytes  #: model.safetensors of `TRAIN`, and of the stopped run after it was resumed

    def copy(self, target: Path, *parts: str) -> Path:
        """Copy the folder, or only these parts of it, into another one, and return that."""
        for part in parts or (RUNS, KILLED, "experiments", "results", "tiny.toml"):
            source = self.folder / part
            (target / part).parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target / part)
            else:
                shutil.copy(source, target / part)
        return target


@cache
def make_templates() -> Templates:
    """Train and measure tiny models once in this process; forks of it share the result."""
    folder = Path(mkdtemp(prefix="campaign-templates-"))
    owner = os.getpid()
    import atexit

    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    (folder / "tiny.toml").write_text(SPEC)
    with inside(folder):
        call_quietly(["train", "parity", "--out", "runs/parity", "--seeds", "2", *TINY])
        for run in ("runs/parity/seed-0", "runs/parity/seed-1"):
            call_quietly([*EVALUATE, run])
            call_quietly(["certify", run, "--quiet", "--strings", "64", "--search", "16"])
            call_quietly(["extract", run, "--quiet", "--lengths", "10", "--strings", "8", "--max-states", "16"])
            call_quietly(["horizon", run, "--quiet", "--max-length", "20"])
        call_quietly(["train", "parity", "--out", "runs/stopped", "--seeds", "1", *TINY])
        trained = Path(STOPPED, "model.safetensors").read_bytes()
        stop_at(Path(STOPPED), 10)
        start_and_kill(Path(KILLED))
        call_quietly(["reproduce", "tiny.toml", "--out", "experiments", "--reuse", "--results", "results", "--quiet"])
        call_quietly(["report", "runs", "results", "-o", "report.html"])
        Path("report.html").unlink()
    return Templates(folder=folder, trained=trained)


def stop_at(run: Path, step: int) -> None:
    """Make a finished run one that was stopped at an earlier checkpoint."""
    folder = RunFolder.open(run)
    folder.rewind(step)
    folder.finish("stopped")


def start_and_kill(out: Path) -> None:
    """Leave what a training leaves that is killed while it creates its second run folder."""
    from sdssm.runs.plan_file import StartPlan

    call_quietly(["train", "parity", "--out", str(out), "--seeds", "2", *TINY])
    configs = {run.absolute(): RunFolder.open(run).config for run in (out / "seed-0", out / "seed-1")}
    StartPlan(file=out.absolute() / "plan-0123abcd.json", configs=configs).write()
    shutil.rmtree(out / "seed-1")


def call_quietly(arguments: Sequence[str]) -> str:
    """Run a command in this process, which must succeed, and return what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = call_main(arguments)
    if code != 0:
        raise RuntimeError(f"sdssm {' '.join(arguments)} exited with {code}: {err.getvalue()}")
    return out.getvalue()


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Make a folder the current one in the block."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
