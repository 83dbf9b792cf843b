"""Sums of loss and accuracy over the steps since the last event, on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class WindowMeans(NamedTuple):
    """Means over the steps of one logging window, which ends at `step`, on the device.

    loss (R,); accuracy (R,) in percent; alive (R,), False for replicas that have diverged.
    """

    step: int
    loss: Tensor
    accuracy: Tensor
    alive: Tensor


class LoggingWindow:
    """Loss and number of correct predictions of R replicas, added up over the current logging window.

    The sums keep their memory, since CUDA graphs add to them. `steps` is the number of steps in them, which only the
    host knows.
    """

    def __init__(self, replicas: int, labels_per_step: int, device: torch.device) -> None:
        self.steps = 0
        self._labels_per_step = labels_per_step
        self._loss = torch.zeros(replicas, device=device)
        self._correct = torch.zeros(replicas, dtype=torch.int64, device=device)

    def add(self, loss: Tensor, correct: Tensor) -> None:
        """Add the loss (R,) and the number of correct predictions (R,) of a step, or their sums over several."""
        self._loss += loss
        self._correct += correct

    def means(self) -> tuple[Tensor, Tensor]:
        """Return the mean loss (R,), and the mean accuracy (R,) in percent; zeros without steps."""
        steps = max(self.steps, 1)
        return self._loss / steps, self._correct.double() / (steps * self._labels_per_step) * 100

    def clear(self) -> None:
        """Start a new window."""
        self._loss.zero_()
        self._correct.zero_()
        self.steps = 0

    # The names in a checkpoint are part of its format.

    def state(self, replica: int) -> dict[str, Tensor]:
        """Return the sums of a replica, for a checkpoint."""
        return {
            "window.loss": self._loss[replica],
            "window.right": self._correct[replica],
            "window.count": torch.tensor(self.steps),
        }

    def load_state(self, replica: int, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self._loss[replica] = tensors["window.loss"]
        self._correct[replica] = tensors["window.right"]
        self.steps = int(tensors["window.count"])
