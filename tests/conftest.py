"""For all tests: the same examples on CI each time, and the longest tests first."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from tests.interpreted import INTERPRETED, stay_interpreted, takes_part

if find_spec("hypothesis"):  # the scan tests also run on GPU machines where nothing can be installed
    from hypothesis import settings

    settings.register_profile("explore", deadline=None)  # an example's time depends on what else the machine does
    settings.register_profile("repeat", deadline=None, derandomize=True)
    settings.load_profile("repeat" if os.environ.get("CI") else "explore")


if INTERPRETED:
    stay_interpreted()

#: Files with tests that take long, the longest first: one of them at the end would leave the other cores idle.
LONG = [
    "test_interpreted.py",
    "experiments/test_ray.py",
    "cli/test_train.py",
    "test_package.py",
    "training/test_training.py",
    "cli/test_tasks.py",
    "runs/test_folder.py",
    "experiments/test_workers.py",
    "test_benchmarks_models.py",
]


def place(item: pytest.Item) -> int:
    file = item.nodeid.partition("::")[0].removeprefix("tests/")
    return LONG.index(file) if file in LONG else len(LONG)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those that are for this process, in their order but for the long ones."""
    config.hook.pytest_deselected(items=[item for item in items if not takes_part(item)])
    items[:] = sorted(filter(takes_part, items), key=place)
