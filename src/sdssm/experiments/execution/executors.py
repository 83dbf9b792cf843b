"""Executors: where a plan is trained and evaluated, on this machine or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from sdssm.devices import DeviceLike, check_device_names, device_name, resolve_devices
from sdssm.errors import SettingsError, did_you_mean
from sdssm.experiments.execution.evaluations import EvaluationCallback, evaluate_plan
from sdssm.experiments.execution.runner import run_plan
from sdssm.experiments.planning.plan import Plan, TrainingPlan
from sdssm.models.sent_models import send_models
from sdssm.progress import ProgressOption
from sdssm.training.progress import Progress


class Executor(Protocol):
    """Trains and evaluates plans. It is a context manager, and raises on entering if it cannot run."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run_plan(self, plan: TrainingPlan, progress: Progress | None = None) -> None:
        """Train the selected runs of a plan. Finished runs are left alone, and interrupted ones resume."""

    def evaluate_plan(
        self, plan: Plan, on_evaluated: EvaluationCallback | None = None, *, progress: ProgressOption = False
    ) -> None:
        """Evaluate the selected runs that were not yet evaluated as the experiment requires."""

    @property
    def device_name(self) -> str:
        """The names of the devices, for the record in the results."""


class LocalExecutor:
    """Runs plans on this machine: trains on one or several devices, evaluates on the first in `workers` processes."""

    def __init__(self, device: DeviceLike | Sequence[DeviceLike] = "auto", *, workers: int = 1) -> None:
        self.devices, self.workers = [str(name) for name in resolve_devices(device)], workers

    @property
    def device(self) -> str:
        """The device on which runs are evaluated."""
        return self.devices[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def run_plan(self, plan: TrainingPlan, progress: Progress | None = None) -> None:
        if self.workers > 1:  # a model that no evaluation process can import is an error before it is trained
            send_models(run.config.model for run in plan.selected_runs())
        run_plan(plan, self.devices, progress)

    def evaluate_plan(
        self, plan: Plan, on_evaluated: EvaluationCallback | None = None, *, progress: ProgressOption = False
    ) -> None:
        evaluate_plan(plan, self.device, workers=self.workers, on_evaluated=on_evaluated, progress=progress)

    @property
    def device_name(self) -> str:
        return ", ".join(dict.fromkeys(map(device_name, self.devices)))


#: The names of the executors, as --engine takes them.
EXECUTORS = ("local", "ray")


def get_executor(
    name: str, *, device: DeviceLike | Sequence[DeviceLike] = "auto", workers: int = 1, address: str | None = None
) -> Executor:
    """Return the executor of this name. It does nothing, and connects to nothing, until it is entered.

    >>> with get_executor("local", device="cpu") as executor:
    ...     executor.device_name
    'CPU'
    """
    if name not in EXECUTORS:
        raise SettingsError(f"there is no engine {name!r}; {did_you_mean(name, EXECUTORS)}")
    if name == "local":
        if address is not None:
            raise SettingsError(f"the address {address!r} is that of a Ray cluster; add --engine ray, or remove it")
        return LocalExecutor(device, workers=workers)
    from sdssm.experiments.execution.ray_executor import RayExecutor

    names = device if isinstance(device, str) else ",".join(check_device_names(device))
    return RayExecutor(names, workers=workers, address=address)
