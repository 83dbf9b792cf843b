"""Rounds of a training: each advances all groups on a device, and writes what they did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import monotonic

import torch

from sdssm.training.deferred_errors import DeferredErrors
from sdssm.training.group import ReplicaGroup
from sdssm.training.memory import keep_freed_memory
from sdssm.training.progress import Progress, WarningProgress
from sdssm.training.queue import TrainingQueue, out_of_memory_error
from sdssm.training.signals import StopFlag

#: Seconds of work that are queued on a GPU before the results are read and signals are checked; on a CPU, seconds
#: between two updates of the display.
ROUND_SECONDS = 1.0
#: The least number of logging windows in a round on a GPU, with which a training starts: if steps are slow, a whole
#: window may take minutes.
LEAST_WINDOWS = 1 / 500


def train_queue(queue: TrainingQueue, progress: Progress, stop: StopFlag) -> None:
    """Train all groups of a queue until they are done or a signal stops them.

    An error in one group is raised after all groups have been saved.
    """
    try:
        try:
            _advance_all(queue, progress, stop)
        except Exception:
            with suppress(Exception):  # the first error is the one to report
                queue.end()
            raise
        queue.end()
    except torch.OutOfMemoryError as error:
        raise out_of_memory_error(queue.device) from error


def _advance_all(queue: TrainingQueue, progress: Progress, stop: StopFlag) -> None:
    """Train in rounds: each advances all groups on the device, and writes what they did."""
    is_cpu = queue.device.type == "cpu"
    if is_cpu:
        keep_freed_memory()
    windows = 1.0 if is_cpu else LEAST_WINDOWS  # logging windows in a round
    shown: set[str] = set()  # how models of others are executed
    while not queue.is_done and not stop():
        round_start = monotonic()
        _show_plans(queue.start_groups(), shown, progress)
        groups = [group for group in queue.training if not group.is_done]
        errors = DeferredErrors()  # raised when all groups are at the end of the round and can be saved
        turn_seconds = ROUND_SECONDS / max(len(groups), 1)
        for _ in _interleave([group.advance(windows, stop, turn_seconds) for group in groups], errors):
            if is_cpu:  # a GPU has not finished these steps yet
                queue.show_if_due(progress, ROUND_SECONDS)
        for group in groups:
            group.write_results(progress.message, errors)
        errors.raise_first()
        queue.show(progress)
        queue.write_progress()
        queue.end_done_groups()
        if not is_cpu:
            seconds = max(monotonic() - round_start, 1e-3)
            windows = max(LEAST_WINDOWS, min(2 * windows, windows * ROUND_SECONDS / seconds))


def _show_plans(groups: Sequence[ReplicaGroup], shown: set[str], progress: Progress) -> None:
    """Show how the models of others in these groups are executed, each line once."""
    for group in groups:
        if group.execution.is_tested and group.execution.describe() not in shown:
            shown.add(group.execution.describe())
            # Without a display messages are warnings, and only an inexact resume is worth one.
            if group.execution.inexact_resume is not None or not isinstance(progress, WarningProgress):
                progress.message(group.execution.describe())


def _interleave(iterators: list[Iterator[None]], errors: DeferredErrors) -> Iterator[None]:
    """Take one item of each iterator in turn until all are exhausted or have failed; yield after each pass.

    This queues work of all groups on a GPU at the same time.
    """
    while iterators:
        unfinished = []
        for iterator in iterators:
            with errors:
                for _ in iterator:
                    unfinished.append(iterator)
                    break
        iterators = unfinished
        yield
