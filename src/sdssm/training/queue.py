"""The training queue: which groups train on the device, and which wait for room there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

import torch

from sdssm.errors import RunError, SettingsError, format_value
from sdssm.runs import RunFolder
from sdssm.training.deferred_errors import DeferredErrors
from sdssm.training.group import ReplicaGroup
from sdssm.training.memory import device_memory, empty_device_cache
from sdssm.training.progress import Progress

#: Groups that train at once. Together they fill a GPU, and more than it has hardware queues for add no speed. A CPU is
#: as fast with one group; several only show earlier how each of them does.
GROUPS_AT_ONCE = {"cpu": 4, "cuda": 16}
#: The share of the free memory that groups may take when they start: they grow a little later.
MEMORY_SHARE = 0.8
#: The progress is written into the run folders at most every STATUS_SECONDS, and in at most STATUS_SHARE of the time:
#: there may be hundreds of runs on a slow file system.
STATUS_SECONDS, STATUS_SHARE = 3.0, 0.01


class DeviceMemoryError(RunError):
    """The device has too little memory for a group."""


class TrainingQueue:
    """The groups of a training, in order: they wait for room on the device, train, or have ended.

    `at_once` is the greatest number of groups that train at once, by default 16 on a GPU and 4 on a CPU. `memory`
    returns the bytes that the training has reserved on the device and the bytes that are free there.
    """

    def __init__(
        self,
        groups: Sequence[ReplicaGroup],
        device: torch.device,
        at_once: int | None = None,
        memory: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self.groups, self.device = list(groups), device
        self.at_once = resolve_at_once(at_once, device)
        self._memory = memory or (lambda: device_memory(device) if device.type == "cuda" else (0, 0))
        # Whether some group has to wait for others. On a GPU the first group shows how much memory the others need.
        self._has_waited = len(self.groups) > (self.at_once if device.type == "cpu" else 1)
        self._show_time = monotonic()
        self._next_status = self._show_time + STATUS_SECONDS
        self._is_full = False  # the last group that started ran out of memory: none starts until another one ends

    @property
    def training(self) -> list[ReplicaGroup]:
        """The groups that are on the device."""
        return [group for group in self.groups if group.state == "training"]

    @property
    def is_done(self) -> bool:
        """Whether all groups have ended."""
        return all(group.state == "ended" for group in self.groups)

    def claim_folders(self) -> None:
        """Claim the run folders of all groups, so that no other process trains there while a group waits."""
        for folder in self.folders:
            if folder.status != "diverged":
                folder.claim()

    def start_groups(self) -> list[ReplicaGroup]:
        """Start as many waiting groups as there is room for, and return them.

        A group that runs out of memory waits until another group has ended; if no group trains, it is an error.
        """
        waiting = [group for group in self.groups if group.state == "waiting"]
        started = []
        for group in waiting[: self._free_places()]:
            try:
                group.start(self.device)
                started.append(group)
            except torch.OutOfMemoryError:
                self._is_full = True
            if self._is_full:  # after the except block, where the error no longer refers to the group's tensors
                empty_device_cache(self.device)
                break
        if self._is_full and not self.training:
            raise out_of_memory_error(self.device)
        self._has_waited = self._has_waited or any(group.state == "waiting" for group in self.groups)
        return started

    def _free_places(self) -> int:
        """Return how many more groups may start now."""
        if self._is_full:
            return 0
        training = len(self.training)
        places = self.at_once - training
        if self.device.type != "cuda":
            return places
        if not training:
            return 1
        # The memory that a group needs is known once it trains. So first one group starts, then each time as many as
        # train already, if they fit.
        reserved, free = self._memory()
        return min(places, training, int(MEMORY_SHARE * free * training / max(reserved, 1)))

    def end_done_groups(self) -> None:
        """End the groups that are done, which makes room for others."""
        for group in self.training:
            if group.is_done:
                group.end()
                self._is_full = False

    def end(self) -> None:
        """End all groups; an error in one of them is raised after the others have been saved."""
        errors = DeferredErrors()
        for group in self.groups:
            with errors:
                group.end()
        errors.raise_first()

    # -- progress display --------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The least step of all groups; if some had to wait, the mean progress of all groups in steps of one."""
        if not self._has_waited:
            return min(group.step for group in self.groups)
        done, total = sum(group.step for group in self.groups), sum(group.end_step for group in self.groups)
        return self.steps * done // total

    @property
    def steps(self) -> int:
        """The greatest number of steps of all groups."""
        return max(group.end_step for group in self.groups)

    @property
    def folders(self) -> list[RunFolder]:
        """The run folders of all replicas, in the order in which they are shown."""
        return [folder for group in self.groups for folder in group.folders]

    def show_if_due(self, progress: Progress, seconds: float) -> None:
        """Update the display and the run folders if the last update of the display is `seconds` ago."""
        if monotonic() - self._show_time >= seconds:
            self.show(progress)
            self.write_progress()

    def show(self, progress: Progress) -> None:
        """Update the display with the state of each replica.

        It is first updated when every group in training has done a step.
        """
        self._mark_shown()
        rows = []
        for group in self.groups:
            snapshot = group.snapshot()
            if snapshot is None:
                return
            rows += snapshot
        loss, accuracy, alive = zip(*rows, strict=True)
        progress.update(self.step, loss, accuracy, alive)

    def _mark_shown(self) -> None:
        """Remember when the display was updated."""
        self._show_time = monotonic()

    def write_progress(self) -> None:
        """Write the progress of the groups in training into their run folders, if that is due."""
        start = monotonic()
        if start < self._next_status:
            return
        for group in self.training:
            group.write_progress()
        end = monotonic()
        self._next_status = end + max(STATUS_SECONDS, (end - start) / STATUS_SHARE)


def resolve_at_once(at_once: int | None, device: torch.device) -> int:
    """Return the number of groups that train at once: the value given, or the default for the device."""
    if at_once is None:
        return GROUPS_AT_ONCE[device.type]
    if type(at_once) is not int or at_once < 1:
        raise SettingsError(
            f"at_once is {format_value(at_once)}; it must be the number of groups that train at once, at least 1"
        )
    return at_once


def out_of_memory_error(device: torch.device | str) -> DeviceMemoryError:
    """Return the error of a group that does not fit on the device."""
    return DeviceMemoryError(
        f"the memory of {device} is too small for one more group of runs side by side; stop other programs on it, or "
        "train fewer seeds, smaller models or smaller batches; the other groups were saved"
    )
