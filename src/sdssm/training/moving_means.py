"""Moving averages of loss and accuracy, for displays.

Each step draws the length of its strings, and long strings are harder: the accuracy of a few steps jumps with the
lengths that were drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

#: The weight of a step falls by a factor e within this many later steps.
MEMORY_STEPS = 100


class MovingMeans:
    """Weighted means of loss and accuracy over the last steps, for each of R replicas.

    Before many steps were added, it is the mean over all of them.

    >>> means = MovingMeans(1)
    >>> means.add(10, [0.5], [60.0])
    >>> means.add(10, [0.5], [80.0])
    >>> means.values()[1].round(1).tolist()  # the newer steps count a little more
    [70.5]
    """

    def __init__(self, replicas: int) -> None:
        self._sums = np.zeros((2, replicas))
        self._weight = 0.0

    def add(self, steps: int, loss: Sequence[float], accuracy: Sequence[float]) -> None:
        """Add the means over `steps` more steps."""
        self._sums, self._weight = self._with(steps, loss, accuracy)

    def values(self, steps: int = 0, loss: Sequence[float] = (), accuracy: Sequence[float] = ()) -> np.ndarray:
        """Return the means of loss and accuracy (2, R) with `steps` more steps, which are not added.

        NaN if there are no steps at all.
        """
        sums, weight = self._with(steps, loss, accuracy)
        return sums / weight if weight else np.full_like(sums, math.nan)

    def _with(self, steps: int, loss: Sequence[float], accuracy: Sequence[float]) -> tuple[np.ndarray, float]:
        if not steps:
            return self._sums, self._weight
        kept = math.exp(-steps / MEMORY_STEPS)
        # The weight of the new steps themselves falls too: the sum of exp(-t / MEMORY_STEPS) over them.
        added = (1 - kept) / (1 - math.exp(-1 / MEMORY_STEPS))
        with np.errstate(all="ignore"):  # the loss of a replica that diverges may be huge
            return kept * self._sums + added * np.array([loss, accuracy], dtype=float), kept * self._weight + added
