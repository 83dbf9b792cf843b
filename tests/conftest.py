"""Settings of all tests: which run in this process, in which order, and failures printed as they happen."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

from tests.browser.chromium import NO_BROWSER
from tests.interpreted import IN_INTERPRETER, belongs_to_this_process, speed_up_interpreter

# The tests also run on GPU machines where pytest is installed, but neither hypothesis nor plugins of pytest.
if find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("explore", deadline=None)  # the time of an example depends on the machine's other work
    settings.register_profile("repeat", deadline=None, derandomize=True)
    settings.load_profile("repeat" if os.environ.get("CI") else "explore")
else:
    from tests import no_hypothesis

    sys.modules["hypothesis"] = no_hypothesis

if IN_INTERPRETER:
    speed_up_interpreter()

if "PYTEST_XDIST_WORKER" in os.environ:
    # A worker has one core. Two threads of one worker would wait for each other while the other worker has the core; so
    # would those of the programs that tests start.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Use one thread: test workers share the cores, and waiting threads make small scans a hundred times slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


#: Files with long tests, the longest first: started last, such a test would leave the other cores idle.
LONG_FILES = [
    "test_interpreted.py",
    "experiments/test_ray.py",
    "test_plugin_package.py",
    "test_install.py",
    "campaign/test_slice.py",
    "test_examples.py",
    "test_tutorial.py",
    "cli/test_train.py",
    "test_package.py",
    "training/test_training.py",
    "cli/test_tasks.py",
    "runs/test_folder.py",
    "experiments/test_workers.py",
    "test_benchmarks_models.py",
]
#: Lines of a failure's message that are printed when it happens; the whole report follows at the end.
MESSAGE_LINES = 30


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    if not pluginmanager.hasplugin("timeout"):
        parser.addini("timeout", "ignored, because pytest-timeout is not installed")


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout: ignored, because pytest-timeout is not installed")
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist prints nothing
        config.pluginmanager.register(FailurePrinter(config))


class FailurePrinter:
    """Prints the location and the message of each failure at once, not only when all tests have ended."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if not report.failed or terminal is None:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        text = report.longreprtext if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"
        terminal.write_line("")  # ends the line of dots
        terminal.write_line(f"FAILED {report.nodeid}", red=True)
        for line in text.splitlines()[:MESSAGE_LINES]:
            terminal.write_line(f"  {line}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in a line at the end that the tests in a browser did not run; a skipped test alone is easily missed."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if NO_BROWSER in report.longreprtext]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests in a browser were skipped, {NO_BROWSER}", yellow=True)


def start_position(item: pytest.Item) -> int:
    """The position of a test's file among the long ones; tests of all other files follow."""
    file = item.nodeid.partition("::")[0].removeprefix("tests/")
    return LONG_FILES.index(file) if file in LONG_FILES else len(LONG_FILES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of this process, and move the tests of long files to the front."""
    config.hook.pytest_deselected(items=[item for item in items if not belongs_to_this_process(item)])
    items[:] = sorted(filter(belongs_to_this_process, items), key=start_position)
