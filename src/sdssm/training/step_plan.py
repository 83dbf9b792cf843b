"""What is known of many steps before they run, on the host and on the device: lengths, scheduled values, seeds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sdssm.runs.schema import RunConfig
from sdssm.tasks.stream import StringStream
from sdssm.training.replicas import HostStep
from sdssm.training.schedules import Ints
from sdssm.training.step_values import module_seeds, plan_steps

#: Steps whose lengths and schedules are copied to the device at once.
PLAN = 2_000


class StepPlan:
    """String lengths and scheduled values of the next steps of R replicas.

    After `cover`, `lengths` (count, R) and `values` (count, R, columns) are on the device; for the columns see
    `plan_steps`. They keep their memory, since CUDA graphs read them. A graph does not know which step it runs: it
    reads the row of the next step, and its number, from the device (`next_row`, `next_step`).

    ramped_buffers: names of the buffers that follow a schedule.
    attractions: the final weight of the centre loss of each replica.
    has_module_seeds: whether modules of others draw random numbers, which start from a seed for each step.
    """

    lengths: Tensor
    values: Tensor
    next_row: Tensor
    next_step: Tensor

    def __init__(
        self,
        runs: Sequence[RunConfig],
        stream: StringStream,
        device: torch.device,
        *,
        ramped_buffers: Sequence[str],
        attractions: Sequence[float],
        has_module_seeds: bool,
    ) -> None:
        self._runs, self._stream, self._device = runs, stream, device
        self._ramped_buffers, self._attractions = ramped_buffers, attractions
        self._has_module_seeds = has_module_seeds
        self._planned = range(0)  # steps
        self._host_lengths: Ints
        self._module_seeds: Ints

    def cover(self, step: int) -> None:
        """Plan the steps from this one on, unless it is planned already."""
        if step in self._planned:
            return
        lengths, values = plan_steps(self._runs, self._stream, step, PLAN, self._ramped_buffers, self._attractions)
        if not self._planned:
            self.lengths, self.values = (torch.from_numpy(array).to(self._device) for array in (lengths, values))
            self.next_row, self.next_step = (torch.zeros((), dtype=torch.int64, device=self._device) for _ in range(2))
        else:
            self.lengths.copy_(torch.from_numpy(lengths), non_blocking=False)
            self.values.copy_(torch.from_numpy(values), non_blocking=False)
        self.next_row.zero_()
        self.next_step.fill_(step)
        self._planned, self._host_lengths = range(step, step + PLAN), lengths
        if self._has_module_seeds:
            self._module_seeds = module_seeds(self._stream.seeds, step, PLAN)

    def steps_left(self, step: int) -> int:
        """Return how many steps from this one on are planned."""
        return self._planned.stop - step

    def row(self, step: int) -> int:
        """Return the row of a step in `lengths` and `values`."""
        return step - self._planned.start

    def longest(self, step: int, count: int = 1) -> int:
        """Return the greatest length of the strings of `count` steps from this one on, without waiting for a GPU."""
        row = self.row(step)
        return int(self._host_lengths[row : row + count].max())

    def host_step(self, step: int) -> HostStep:
        """Return what the host knows of a step in which modules are called one after the other."""
        row = self.row(step)
        return HostStep(step, tuple(self._host_lengths[row].tolist()), tuple(self._module_seeds[row].tolist()))
