"""What `sdssm train` does before its first step: modules that it imports, code that numba compiles. No seconds here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sdssm import first_start

#: Slow to import, and nothing that training a model of the catalogue on a CPU needs.
UNNEEDED = ("sympy", "matplotlib", "scipy", "pandas", "torch._dynamo", "torch._inductor", "triton", "onnx", "ray")
TRAIN = f"""
import sys
from sdssm.cli import main
status = main(["train", "a5", "--steps", "1", "--batch", "2", "--quiet", "--device", "cpu", "--out", sys.argv[1]])
assert status == 0, status
print(*(name for name in {UNNEEDED!r} if name in sys.modules))
"""
#: Prints whether compiling one of our kernels, and then a planted one, compiles string formatting.
COMPILE = """
import numpy
from numba import njit
from sdssm.ops.numba_kernels import start_state
from numba.core import event
names = set()
class Names(event.Listener):
    def on_start(self, started): names.add(started.data["dispatcher"].py_func.__module__)
    def on_end(self, ended): pass
@njit
def assign(source, out):
    out[:] = source
with event.install_listener("numba:compile", Names()):
    start_state(numpy.ones((1, 2)), 0, numpy.ones(2))
    ours = "numba.cpython.unicode" in names
    assign(numpy.ones(2), numpy.ones(2))
print(ours, "numba.cpython.unicode" in names, "sdssm.ops.numba_kernels" in names)
"""
#: Prints how many processes compile kernels, and which kernels of the token scan this process compiles itself.
TRAIN_FIRST = """
import subprocess, sys
from sdssm.cli import main
from numba.core import event
started, names = [], []
class Counted(subprocess.Popen):
    def __init__(self, command, **options):
        started.append(command[-1])
        super().__init__(command, **options)
subprocess.Popen = Counted
class Names(event.Listener):
    def on_start(self, begun): names.append(begun.data["dispatcher"].py_func)
    def on_end(self, ended): pass
with event.install_listener("numba:compile", Names()):
    out = sys.argv[1]
    assert main(["train", "a5", "--steps", "1", "--batch", "2", "--quiet", "--device", "cpu", "--out", out]) == 0
from sdssm import first_start
assert not first_start._started
names = {name.__name__ for name in names if name.__module__ == first_start.KERNELS}
print(started.count("sdssm.first_start"), *sorted(names))
"""
#: Prints whether the process that compiles is alive when the command has ended early.
END_EARLY = """
import atexit
from sdssm import first_start
processes = []
atexit.register(lambda: print(*(process.poll() is None for process in processes)))  # after what is registered later
first_start.start_compiling()
processes.extend(first_start._started)
"""


def run_script(script: str, *arguments: str) -> list[str]:
    """Return the words of the last line that a script prints in a new process."""
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True, timeout=300
    )
    return result.stdout.splitlines()[-1].split()


def test_a_training_imports_nothing_slow_that_it_does_not_need(tmp_path: Path) -> None:
    assert run_script(TRAIN, str(tmp_path / "runs")) == []


def test_kernels_compile_no_string_formatting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba compiles the text of an error into `out[:] = source`, which takes long; the planted one shows it."""
    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # an empty cache: everything is compiled
    assert run_script(COMPILE) == ["False", "True", "True"]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has nothing to compile on beside the imports")
def test_a_second_process_compiles_what_the_first_step_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty cache one process is started and this one compiles no kernel of the scan; afterwards none is."""
    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    assert run_script(TRAIN_FIRST, str(tmp_path / "first")) == ["1"]
    assert run_script(TRAIN_FIRST, str(tmp_path / "second")) == ["0"]
    assert first_start._is_cached()
    for file in (tmp_path / "cache").rglob("*.nbc"):  # as if the source had changed since
        os.utime(file, (0, 0))
    assert not first_start._is_cached()


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has nothing to compile on beside the imports")
def test_a_command_that_ends_early_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert run_script(END_EARLY) == ["False"]


def test_one_core_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert run_script(f"import os; os.cpu_count = lambda: 1\n{END_EARLY}print(len(processes))") == []
