"""Evaluations of several tasks at the same time in one pool, as many tasks as memory has room for.

While the strings of one task are read on a GPU, the tables of the next are computed on the host, and the results of the
one before are written.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Generic, TypeVar

Group = TypeVar("Group")


@dataclass(frozen=True, eq=False)
class TaskEvaluations(Generic[Group]):
    """The evaluations of one task: groups of runs that read the same strings.

    Attributes:
        groups: the arguments of the calls.
        bytes_needed: an estimate of the memory that they need together.
        strings: what keeps the strings of the task; open from before the first call until after the last.
    """

    groups: Sequence[Group]
    bytes_needed: float
    strings: AbstractContextManager[None]


class _RunningTask(Generic[Group]):
    """A task of which not all calls have ended."""

    def __init__(self, task: TaskEvaluations[Group]) -> None:
        self.task, self.left = task, len(task.groups)
        self._open = ExitStack()
        self._open.enter_context(task.strings)

    def end_call(self) -> bool:
        """Say that a call has ended; return whether it was the last one of the task."""
        self.left -= 1
        if self.left == 0:
            self._open.close()
        return self.left == 0


def run_in_flight(
    pool: Executor,
    call: Callable[[Group], None],
    tasks: Iterable[TaskEvaluations[Group]],
    *,
    memory: float,
    most: int,
) -> Generator[Group]:
    """Call a function for each group of each task in a pool, and yield each group after its call.

    Tasks start in their order, each as soon as fewer than `most` are running and its memory fits beside theirs. A task
    that needs more than `memory` runs alone. After an error no further call starts; when those in progress have ended,
    the error of the first group in order is raised.

    Args:
        pool: where the calls run.
        call: the function.
        tasks: the tasks, each with at least one group; one is read ahead.
        memory: the bytes that the tasks share.
        most: the greatest number of tasks at the same time.
    """
    waiting, running = iter(tasks), list[_RunningTask[Group]]()
    calls = dict[Future[None], tuple[int, _RunningTask[Group], Group]]()
    errors = dict[int, BaseException]()
    upcoming, started = next(waiting, None), 0

    def has_room(task: TaskEvaluations[Group]) -> bool:
        used = sum(other.task.bytes_needed for other in running)
        return not running or (len(running) < most and used + task.bytes_needed <= memory)

    def end_call(future: Future[None]) -> tuple[int, Group]:
        number, task, group = calls.pop(future)
        if task.end_call():
            running.remove(task)
        return number, group

    try:
        while calls or (upcoming is not None and not errors):
            while upcoming is not None and not errors and has_room(upcoming):
                running.append(_RunningTask(upcoming))
                for group in upcoming.groups:
                    calls[pool.submit(call, group)] = (started, running[-1], group)
                    started += 1
                upcoming = next(waiting, None)
            for future in wait(calls, return_when=FIRST_COMPLETED).done:
                number, group = end_call(future)
                if future.cancelled():
                    continue
                if error := future.exception():
                    errors[number] = error
                    for other in calls:
                        other.cancel()
                else:
                    yield group
    finally:  # after an interruption, calls in progress end before the strings that they read are freed
        for future in calls:
            future.cancel()
        wait(calls)
        for future in list(calls):
            end_call(future)
    if errors:
        raise errors[min(errors)]
