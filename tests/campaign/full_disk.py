"""Full disk: a training whose n-th write fails. It says so in one line, and resumes to the same weights afterwards."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign.attack import Attack, Trial
from tests.campaign.sandbox import REFUSED, Outcome, call_main, find_fault, run_isolated, run_sdssm
from tests.campaign.templates import FINISHED, TRAIN, make_templates

RESUME = ("train", "--resume", "runs/new", "--quiet")
MODEL = "runs/new/seed-0/model.safetensors"


def fail_from(number: int, lasting: bool) -> Callable[[], None]:
    """Return a function that makes the `number`-th call that writes fail, and if `lasting` all later ones."""

    def install() -> None:
        calls = 0

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            def write(*args: Any, **kwargs: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == number or (lasting and calls > number):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return function(*args, **kwargs)

            return write

        os.fsync = wrap(os.fsync)
        os.replace = wrap(os.replace)
        os.mkdir = wrap(os.mkdir)
        real_open = Path.open

        def open_file(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            return (wrap(real_open) if set(mode) & set("wax+") else real_open)(self, mode, *args, **kwargs)

        Path.open = open_file  # type: ignore[method-assign]  # in a fork, which ends soon

    return install


def limit_file_size(size: int) -> Callable[[], None]:
    """Return a function that lets every write beyond `size` bytes of a file fail, as a quota does."""

    def install() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    return install


def run_with(install: Callable[[], None], arguments: tuple[str, ...], folder: Path) -> Outcome:
    def call() -> int:
        install()
        return call_main(arguments)

    return run_isolated(call, folder=folder, memory=None, cpu_limit=30, wall_limit=60.0)


def judge_training(outcome: Outcome, folder: Path) -> str | None:
    """Return what is wrong with a training that ran out of space, or None; resume it with enough space."""
    fault = find_fault(outcome, allowance=30.0)
    if fault is not None:
        return fault
    run = folder / "runs/new/seed-0"
    if outcome.code == 0:  # only files that it can do without are missing
        return None if (folder / MODEL).read_bytes() == make_templates().trained else "exit code 0, and other weights"
    if outcome.code != REFUSED or not outcome.err.strip():
        return f"exit code {outcome.code} without a message"
    if not (run / "config.json").exists():  # nothing was trained yet
        again = run_sdssm(TRAIN, folder, memory=None, cpu_limit=30, wall_limit=60.0)
    else:
        again = run_sdssm(RESUME, folder, memory=None, cpu_limit=30, wall_limit=60.0)
    fault = find_fault(again, allowance=30.0)
    if fault is not None or again.code != 0:
        return f"with enough space again: {fault or again.err.strip()[-200:]}"
    if not (folder / MODEL).is_file():
        return f"with enough space again there is no model: {again.out.strip()[-150:]!r}"
    return None if (folder / MODEL).read_bytes() == make_templates().trained else "resumed to other weights"


def attack_fake(random: Random, folder: Path) -> Iterator[Trial]:
    """Let one write of a training fail, or all from then on; or do that to the commands that store a result."""
    make_templates().copy(folder, FINISHED)
    number, lasting = random.randint(1, 60), random.random() < 0.5
    shown = f"write {number}{' and all later ones' if lasting else ''} failed"
    problem = judge_training(run_with(fail_from(number, lasting), TRAIN, folder), folder)
    yield Trial(kind="training, failing call", problem=None if problem is None else f"{shown}: {problem}")
    file, arguments = random.choice(
        (
            (
                "evaluation.json",
                ("evaluate", FINISHED, "--max-length", "10", "--strings", "4", "--quiet", "--overwrite"),
            ),
            ("certificate.json", ("certify", FINISHED, "--quiet", "--strings", "16", "--search", "4", "--overwrite")),
            ("horizon.json", ("horizon", FINISHED, "--quiet", "--max-length", "8", "--overwrite")),
        )
    )
    stored, number = folder / FINISHED / file, random.randint(1, 4)
    before, written = stored.read_bytes(), stored.stat().st_mtime_ns
    outcome = run_with(fail_from(number, True), arguments, folder)
    fault = find_fault(outcome, allowance=30.0)
    after, is_written = stored.read_bytes(), stored.stat().st_mtime_ns != written
    if fault is None and after != before and not after.rstrip().endswith(b"}"):
        fault = f"{file} is incomplete"
    if fault is None and not is_written and "full" not in outcome.text:
        fault = f"{file} was not written, and no line says that the disk is full: {outcome.err!r}"
    yield Trial(
        kind="result, failing call", problem=None if fault is None else f"{arguments[0]}, write {number}: {fault}"
    )


def attack_quota(random: Random, folder: Path) -> Iterator[Trial]:
    """Limit the size of files during a training."""
    size = random.choice((0, 100, 1000, 2000, 4096, 6000, 15_000, random.randrange(20_000)))
    problem = judge_training(run_with(limit_file_size(size), TRAIN, folder), folder)
    yield Trial(kind="training, quota", problem=None if problem is None else f"files up to {size} bytes: {problem}")


def attack_tmpfs(random: Random, folder: Path) -> Iterator[Trial]:
    """Train on a small file system, which is enlarged before the training is resumed."""
    place, size = folder / "disk", random.randrange(4, 30) * 4096
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode != 0:
        yield Trial(kind="training, tmpfs", skipped="this user may not mount a file system")
        return
    try:
        outcome = run_sdssm(TRAIN, place, memory=None, cpu_limit=30, wall_limit=60.0)
        subprocess.run(["mount", "-o", "remount,size=10M", str(place)], capture_output=True, check=True)
        problem = judge_training(outcome, place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=False)
    yield Trial(kind="training, tmpfs", problem=None if problem is None else f"{size:,} bytes: {problem}")


def attack_disk(random: Random, folder: Path) -> Iterator[Trial]:
    """Fill the disk in one of three ways."""
    yield from random.choice((attack_fake, attack_fake, attack_quota, attack_tmpfs))(random, folder)


ATTACKS = (
    Attack(
        name="full-disk",
        subject="writes that fail at any moment: one line, the old files intact, and the same weights after --resume",
        attempt=attack_disk,
        share=1.5,
        patience=240.0,
    ),
)
