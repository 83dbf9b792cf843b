"""Which groups train and which wait for a place: there may be more than a device has room for."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence

import torch

from sdssm.errors import RunError, SettingsError, format_value
from sdssm.runs import RunFolder
from sdssm.tasks import Task
from sdssm.training.failures import Failures
from sdssm.training.group import Group, last_step
from sdssm.training.progress import Progress

#: Groups that train at once. On a GPU they fill it together, and no more than it has queues for add anything; a CPU is
#: as fast with one, and several only show earlier how each of them does.
AT_ONCE = {"cpu": 4, "cuda": 16}
#: The share of the free memory that groups may take when they begin: they grow a little later.
SHARE = 0.8

#: Bytes that a training takes on its device, and bytes that are free there.
Memory = Callable[[], tuple[int, int]]


class NoRoomError(RunError):
    """A group that a device has no memory for."""


class Entry:
    """One group: its members while it waits, the group itself while it trains, and what was last seen of it."""

    def __init__(
        self,
        members: Sequence[tuple[RunFolder, Task]],
        step: int | None = None,
        *,
        tensorboard: bool = False,
        until: float = 1.0,
    ) -> None:
        self.members = members
        self.group: Group | None = None
        self.ended = False
        self.steps = last_step(members[0][0].config.train, until)
        self._from = step  # where it goes on; none: it is new
        self._done = step or 0
        self._tensorboard, self._until = tensorboard, until
        self._seen: list[tuple[float, float, bool]] | None = None

    @property
    def folders(self) -> list[RunFolder]:
        return [folder for folder, _ in self.members]

    @property
    def step(self) -> int:
        return self._done if self.group is None else self.group.engine.step

    @property
    def waits(self) -> bool:
        return self.group is None and not self.ended

    def begin(self, device: torch.device) -> None:
        """Take a place: the memory of its models, and a checkpoint to go on from, should it be killed at once."""
        group = Group(self.members, device, tensorboard=self._tensorboard, until=self._until)
        if self._from is None:
            group.save()
        else:
            group.restore(self._from)
        self.group = group
        if device.type == "cuda":  # it trains on a stream of its own, which must find all of this done
            torch.cuda.synchronize(device)

    def end(self) -> None:
        """Give the place up, done or not; what the runs came to is in their folders."""
        failures = Failures()
        if self.group is not None:
            with failures:
                self.group.end()
            self.ended = self.group.done and failures.first is None
            self._done = self.steps if self.ended else self.group.engine.step
            self.seen()
            device, self.group = self.group.engine.device, None
            _give_back(device)
        elif self.waits:
            for folder in self.folders:
                with failures:
                    if folder.status == "running":
                        folder.finish("stopped")
        failures.tell()

    def seen(self) -> list[tuple[float, float, bool]] | None:
        """Loss, accuracy and whether it still trains, of each replica, nan while it waits; None where nothing is known
        of what trains."""
        if self.group is not None and self.group.latest is not None:
            window = self.group.latest
            self._seen = list(zip(window.loss.tolist(), window.accuracy.tolist(), window.alive.tolist(), strict=True))
        if self._seen is None and self.group is None:
            return [(math.nan, math.nan, True)] * len(self.members)
        return self._seen


class Queue:
    """The groups of a training in their order: those whose turn has come train, the others wait or have ended.

    Who waits has its folders and holds them, and begins as one group when a place is free.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        device: torch.device,
        at_once: int | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.entries, self.device = list(entries), device
        self.at_once = checked(at_once, device)
        self._memory = memory or (lambda: _memory(device) if device.type == "cuda" else (0, 0))
        # On a GPU one begins, and the others once it is known what that takes.
        self._in_turns = len(self.entries) > (self.at_once if device.type == "cpu" else 1)
        self._full = False  # one more had no room: until another one ends nobody begins

    @property
    def training(self) -> list[Group]:
        return [entry.group for entry in self.entries if entry.group is not None]

    @property
    def done(self) -> bool:
        return all(entry.ended for entry in self.entries)

    def hold(self) -> None:
        """The folders of those that wait are theirs: no other process trains there."""
        for folder in self.folders:
            if folder.status != "diverged":
                folder.hold()

    def fill(self) -> None:
        """Let begin whom there is room for. One that finds too little memory waits on until another one has ended."""
        waiting = [entry for entry in self.entries if entry.waits]
        for entry in waiting[: self._room()]:
            try:
                entry.begin(self.device)
            except torch.OutOfMemoryError:
                self._full = True
            if self._full:  # here nothing holds what it had taken any more
                _give_back(self.device)
                break
        if self._full and not self.training:
            raise no_room(self.device)
        self._in_turns = self._in_turns or any(entry.waits for entry in self.entries)

    def _room(self) -> int:
        if self._full:
            return 0
        training = len(self.training)
        free = self.at_once - training
        if self.device.type != "cuda":
            return free
        if not training:
            return 1
        # What a group takes is known once it trains. So one begins, then as many again as train already, if they fit.
        taken, left = self._memory()
        return min(free, training, int(SHARE * left * training / max(taken, 1)))

    def end_done(self) -> None:
        """Those that are done make room."""
        for entry in self.entries:
            if entry.group is not None and entry.group.done:
                entry.end()
                self._full = False

    def end(self) -> None:
        """Everybody, wherever they are; what kept one from being saved is raised when the others are."""
        failures = Failures()
        for entry in self.entries:
            with failures:
                entry.end()
        failures.tell()

    # -- for who watches ---------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The least step of all groups; where some had to wait, the part of all steps that is done, in steps of one."""
        if not self._in_turns:
            return min(entry.step for entry in self.entries)
        done, every = sum(entry.step for entry in self.entries), sum(entry.steps for entry in self.entries)
        return self.steps * done // every

    @property
    def steps(self) -> int:
        return max(entry.steps for entry in self.entries)

    @property
    def folders(self) -> list[RunFolder]:
        """Of all replicas, in the order in which they are shown."""
        return [folder for entry in self.entries for folder in entry.folders]

    def show(self, progress: Progress) -> None:
        """Tell how each replica does, once something is known of all that train."""
        seen = [entry.seen() for entry in self.entries]
        known = [one for some in seen if some is not None for one in some]
        if all(some is not None for some in seen):
            loss, accuracy, alive = zip(*known, strict=True)
            progress.update(self.step, loss, accuracy, alive)


def checked(at_once: int | None, device: torch.device) -> int:
    """How many groups train at once: what was asked for, or the rule."""
    if at_once is None:
        return AT_ONCE[device.type]
    if type(at_once) is not int or at_once < 1:
        raise SettingsError(f"at_once is {format_value(at_once)}; it is how many groups train at once, 1 or more")
    return at_once


def no_room(device: torch.device | str) -> NoRoomError:
    return NoRoomError(
        f"the memory of {device} is too small for one more group of runs side by side; end what else runs there, or "
        "train fewer seeds, smaller models or smaller batches; what trained beside it is saved"
    )


def _give_back(device: torch.device) -> None:
    """Memory that nothing holds any more, for whoever begins next."""
    if device.type == "cuda":
        gc.collect()  # an engine and its graphs hold each other; on a CPU it has none, and goes with its group
        torch.cuda.empty_cache()


def _memory(device: torch.device) -> tuple[int, int]:
    return torch.cuda.memory_reserved(device), torch.cuda.mem_get_info(device)[0]
