"""Run the command line and other programs, and capture what they print."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sdssm.cli import main

#: The command as a program of its own.
SDSSM = [sys.executable, "-m", "sdssm"]
#: The required dependencies: besides the standard library, only these may be imported with the package.
REQUIRED = {"torch", "numpy", "safetensors", "jinja2"}
HIDE_MODULES = """
import sys
from importlib.machinery import PathFinder

class HidingFinder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {hidden} else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [HidingFinder if finder is PathFinder else finder for finder in sys.meta_path]
"""


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `sdssm` with these arguments in this process; return exit code, standard output and standard error."""
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def run_on_terminal(*arguments: str) -> tuple[int, str]:
    """Run `sdssm` in a process with a terminal as its standard output; return exit code and what the terminal got."""
    reader, writer = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    shown = b""
    with subprocess.Popen([*SDSSM, *arguments], stdout=writer, env=environment) as process:
        os.close(writer)
        while True:
            try:
                piece = os.read(reader, 4096)
            except OSError:  # on Linux, reading from a closed terminal is an error
                break
            if not piece:
                break
            shown += piece
    os.close(reader)
    return process.returncode, shown.decode()


def run_without(hidden: set[str], code: str) -> str:
    """Run a program as if the modules `hidden` were not installed, and return what it prints."""
    program = HIDE_MODULES.format(hidden=hidden) + code
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


@contextmanager
def started_studio(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a studio; yield the process and its port once it has printed its address."""
    command = [*SDSSM, "studio", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if match := re.search(r"http://[\w.]+:(\d+)/", line):
                    yield process, int(match[1])
                    break
            else:
                raise AssertionError(process.communicate())
        finally:
            process.kill()


def is_running(process: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
