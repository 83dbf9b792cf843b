"""How the groups of a training are shared out: which workers there are, and which of them trains what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from sdssm.errors import ModelError
from sdssm.models.sent_models import send_models
from sdssm.training.group import ReplicaGroup

#: The fewest steps, of all groups together, for which processes are started on a CPU. A step takes a millisecond or
#: more, and a process a second or two until its first step.
WORTH_STEPS = 5_000
#: CPU threads of all workers together for each thread that torch has. More than one, as the threads of small models
#: mostly wait for each other.
THREADS_PER_CORE = 2


@dataclass(frozen=True)
class Worker:
    """A process that trains groups: its device, its number of CPU threads, and how many groups it trains at once.

    `threads` None: as many as torch chooses. `at_once` None: the default of the device.
    """

    device: str
    threads: int | None = None
    at_once: int | None = None


def choose_workers(
    devices: Sequence[torch.device], groups: Sequence[ReplicaGroup], at_once: int | None = None
) -> list[Worker]:
    """Return one worker for each of several devices, several on a CPU that has idle cores, or a single one."""
    if len(devices) > 1 or devices[0].type != "cpu":
        return [Worker(str(device), at_once=at_once) for device in devices]
    count = _count_cpu_workers(groups, at_once)
    if count < 2:
        return [Worker("cpu", at_once=at_once)]
    # The threads are not divided: sums in torch depend on their number in the last bits, and a run must have the same
    # numbers however many groups are left to train beside it.
    return [Worker("cpu", threads=torch.get_num_threads(), at_once=1)] * count


def _count_cpu_workers(groups: Sequence[ReplicaGroup], at_once: int | None) -> int:
    """Return how many groups train at once on a CPU, each in its process; 1 if processes are not worth their start."""
    cores, left = torch.get_num_threads(), sum(group.end_step - group.step for group in groups)
    if left < WORTH_STEPS or cores < 2 or len(groups) < 2:
        return 1
    try:
        send_models(folder.config.model for group in groups for folder in group.folders)
    except ModelError:  # a model of this session, which no other process can import
        return 1
    threads = min(cores, max(len(group.folders) for group in groups))  # the engine has one for each replica
    return min(len(groups), cores, THREADS_PER_CORE * cores // threads, at_once or cores)


def expected_work(groups: Sequence[ReplicaGroup], seconds: Mapping[Path, float]) -> list[float]:
    """Return the expected work of each group, in a unit of its own: the seconds, or the symbols to read.

    Seconds, which are known by the folder of a run, are used if the time of all groups was estimated.
    """
    if all(group.folders[0].path in seconds for group in groups):
        return [seconds[group.folders[0].path] for group in groups]
    return [
        float((group.end_step - group.step) * group.train.batch * sum(f.config.train_length for f in group.folders))
        for group in groups
    ]


def next_groups(waiting: Mapping[int, float], held: float, others: Sequence[float], wanted: int) -> list[int]:
    """Return the numbers of the waiting groups that a worker starts next, at most `wanted`.

    waiting: the work of the waiting groups by number; held, others: what this worker and the others have still to do.

    The longest group is dealt out first, each to the worker that has the least to do. Only what falls to this worker
    is returned; the rest waits, and is dealt out anew when a worker has room.

    >>> next_groups({0: 1.0, 1: 5.0, 2: 3.0, 3: 3.0}, held=0.0, others=[0.0], wanted=16)
    [1, 0]
    """
    loads, share = [held, *others], list[int]()
    for number in sorted(waiting, key=lambda number: -waiting[number]):
        worker = loads.index(min(loads))  # the first of several: one that holds nothing always gets a group
        loads[worker] += waiting[number]
        if worker == 0:
            share.append(number)
    return share[: max(wanted, 0)]
