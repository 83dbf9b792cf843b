"""What made a run: the versions of packages, the commit of this one, and the process that started it."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def start_stamp() -> str:
    """Return the time and the process id, which runs that are started together have in common."""
    return f"{datetime.now(UTC).isoformat(timespec='microseconds')} process {os.getpid()}"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a training depends on."""
    return dict(_versions())


@cache  # a hyperparameter search calls it for each of a thousand candidates
def _versions() -> dict[str, str]:
    packages = {"python": platform.python_version()}
    for package in ("sdssm", "torch", "numpy", "triton", "numba"):
        try:
            packages[package] = version(package)
        except PackageNotFoundError:
            continue
    return packages


@cache  # it does not change while the process runs, and git is slow
def source_commit() -> str | None:
    """Return the commit of the working tree that contains this package, if there is one."""
    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607  # the git that the user would call
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
