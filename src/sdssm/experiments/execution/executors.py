"""Where a plan is trained and evaluated: on this machine, or on many through Ray."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import torch

from sdssm.devices import device_name, resolve_device
from sdssm.errors import SettingsError, did_you_mean
from sdssm.experiments.execution.runner import evaluate_plan, run_plan
from sdssm.experiments.planning.plan import Plan, Trainings
from sdssm.training.progress import Progress

#: Told how many of how many runs are evaluated.
Found = Callable[[int, int], None]


class Engine(Protocol):
    """What runs a plan. It is entered before anything is begun, and refuses there what it cannot do."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run_plan(self, plan: Trainings, progress: Progress | None = None) -> None:
        """Train what a plan wants: what is finished stays as it is, what is not goes on."""

    def evaluate_plan(self, plan: Plan, found: Found | None = None) -> None:
        """Evaluate what a plan wants and nobody has evaluated as it asks."""

    @property
    def device_name(self) -> str:
        """What the devices are called, for the record."""


class LocalEngine:
    """This machine: `run_plan` and `evaluate_plan` with a device and a number of processes that evaluate."""

    def __init__(self, device: str | torch.device = "auto", *, workers: int = 1) -> None:
        self.device, self.workers = str(resolve_device(device)), workers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def run_plan(self, plan: Trainings, progress: Progress | None = None) -> None:
        run_plan(plan, self.device, progress)

    def evaluate_plan(self, plan: Plan, found: Found | None = None) -> None:
        evaluate_plan(plan, self.device, workers=self.workers, found=found)

    @property
    def device_name(self) -> str:
        return device_name(self.device)


#: The engines, by name.
ENGINES = ("local", "ray")


def engine_named(
    name: str, *, device: str | torch.device = "auto", workers: int = 1, address: str | None = None
) -> Engine:
    """The engine of this name. Nothing is begun, nobody is called, before it is entered.

    >>> with engine_named("local", device="cpu") as engine:
    ...     engine.device_name
    'CPU'
    """
    if name not in ENGINES:
        raise SettingsError(f"there is no engine {name!r}; {did_you_mean(name, ENGINES)}")
    if name == "local":
        if address is not None:
            raise SettingsError(f"the address {address!r} is that of a Ray cluster; add --engine ray, or leave it out")
        return LocalEngine(device, workers=workers)
    from sdssm.experiments.execution.ray_executor import RayEngine

    return RayEngine(str(device), workers=workers, address=address)
