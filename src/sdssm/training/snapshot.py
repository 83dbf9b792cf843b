"""What progress displays show of a training: loss and accuracy of the replicas, and steps per second."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from statistics import median

from sdssm.formatting import count_of, format_chance, format_duration, format_loss, format_percent

#: The greatest number of groups of replicas, such as tasks, that are summarised one by one.
MAX_GROUPS = 12
#: The rate in steps per second is measured over the last RATE_SECONDS, and shown once it was measured for
#: STABLE_SECONDS after the first steps, which compile code.
RATE_SECONDS, STABLE_SECONDS = 15.0, 3.0


@dataclass(frozen=True)
class Snapshot:
    """Loss, accuracy in percent and whether it is alive, for each replica after `step` steps."""

    step: int
    loss: Sequence[float]
    accuracy: Sequence[float]
    alive: Sequence[bool]

    def select(self, replicas: Sequence[int]) -> Snapshot:
        """Return the values of some replicas."""
        loss, accuracy = ([row[k] for k in replicas] for row in (self.loss, self.accuracy))
        return Snapshot(self.step, loss, accuracy, [self.alive[k] for k in replicas])

    def describe(self, constant: Sequence[float] = ()) -> str:
        """Describe accuracy and loss of a single replica, or their minimum, median and maximum over several.

        `constant` is what the best constant answer scores on the training strings of each replica, in percent. Replicas
        that have diverged or wait are counted at the end.

        >>> Snapshot(1, [0.5], [90.0], [True]).describe([50.0])
        'accuracy 90.00 % (best constant 50), loss 0.5000'
        >>> print(Snapshot(1, [0.5, 0.7, 9.9], [90.0, 80.0, 50.0], [True, True, False]).describe([50.0]))
        accuracy min 80.00, median 85.00, max 90.00 % (best constant 50), median loss 0.6000, 1 diverged
        """
        levels = f" (best constant {format_chance(*constant)})" if constant else ""
        accuracies, loss = (
            list(map(format_percent, self._spread(self.accuracy))),
            format_loss(self._spread(self.loss)[1]),
        )
        if len(self.alive) == 1:
            return f"accuracy {accuracies[1]} %{levels}, loss {loss}{self.others}"
        least, middle, greatest = accuracies
        spread = f"min {least}, median {middle}, max {greatest}"
        return f"accuracy {spread} %{levels}, median loss {loss}{self.others}"

    def summary(self) -> tuple[str, str]:
        """Format minimum, median and maximum of accuracy and loss.

        >>> Snapshot(1, [0.5, 0.7, 9.9], [90.0, 80.0, 50.0], [True, True, False]).summary()
        ('80.00 / 85.00 / 90.00', '0.5000 / 0.6000 / 0.7000')
        """
        accuracy, loss = self._spread(self.accuracy), self._spread(self.loss)
        return " / ".join(map(format_percent, accuracy)), " / ".join(map(format_loss, loss))

    def _spread(self, values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
        """Return minimum, median and maximum over the replicas that train; None if there are none."""
        known = [value for value, alive in zip(values, self.alive, strict=True) if alive and not math.isnan(value)]
        return (min(known), median(known), max(known)) if known else (None, None, None)

    @property
    def others(self) -> str:
        """The number of replicas that the summary leaves out, as in `, 1 diverged, 4 waiting`."""
        waiting = sum(alive and math.isnan(value) for value, alive in zip(self.accuracy, self.alive, strict=True))
        counts = {"diverged": len(self.alive) - sum(self.alive), "waiting": waiting}
        return "".join(f", {count} {word}" for word, count in counts.items() if count)


def group_by_folder(names: Sequence[str]) -> dict[str, list[int]]:
    """Group replicas by the folder above their own, which has the name of their task or variant.

    If there are too many such folders, they are grouped by the first folder of their paths, and else not at all.

    >>> group_by_folder(["a5/seed-0", "a5/seed-1", "parity/seed-0"])
    {'a5': [0, 1], 'parity': [2]}
    >>> group_by_folder(["seed-0", "seed-1"])
    {'': [0, 1]}
    """
    for depth in (None, 1):
        groups: dict[str, list[int]] = {}
        for replica, name in enumerate(names):
            groups.setdefault("/".join(PurePath(name).parts[:-1][:depth]), []).append(replica)
        if len(groups) <= MAX_GROUPS:
            return groups
    return {"": list(range(len(names)))}


class StepRate:
    """Measures steps per second over the last seconds, and estimates the remaining time.

    The time before the first update is left out: it compiles code and starts the runs.
    """

    def __init__(self, steps: int, clock: Callable[[], float]) -> None:
        self.steps = steps
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()  # time and step

    def add(self, step: int) -> None:
        """Record that `step` steps are done now."""
        now = self._clock()
        if len(self._samples) > 2 and now - self._samples[-2][0] < RATE_SECONDS / 50:  # a few samples are enough
            self._samples.pop()
        self._samples.append((now, step))
        while len(self._samples) > 2 and now - self._samples[0][0] > RATE_SECONDS:
            self._samples.popleft()

    @property
    def rate(self) -> float:
        """Steps per second, 0 if not yet known."""
        if not self._samples:
            return 0.0
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        is_stable = end - start >= STABLE_SECONDS or (last >= self.steps and end > start)
        return (last - first) / (end - start) if is_stable else 0.0

    def describe(self, step: int) -> str:
        """Format the progress, as in `step 300 of 1,000, 52 steps/s, 0:13 left`."""
        text = f"step {step:,} of {self.steps:,}"
        if self.rate > 0:
            remaining = (self.steps - step) / self.rate
            text += f", {self.rate:,.0f} steps/s" if self.rate >= 10 else f", {self.rate:.2g} steps/s"
            text += f", {format_duration(remaining)} left" if step < self.steps else ""
        return text


def describe_start(replicas: int, steps: int, first: int) -> str:
    """Return the line that is shown before the first step is done.

    >>> describe_start(3, 1000, 0)
    'step 0 of 1,000: starting 3 runs; the first steps may take longer'
    """
    runs = count_of(replicas, "run")
    return f"step {first:,} of {steps:,}: starting {runs}; the first steps may take longer"
