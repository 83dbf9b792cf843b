"""Accuracy, loss and learning rate of each replica for TensorBoard, in its run folder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sdssm.errors import RunWarning
from sdssm.extras import import_extra
from sdssm.files import format_path


class TensorBoard:
    """Writes scalars beside the other files of each run; `tensorboard --logdir runs` shows them.

    `first` is the step that the training starts or goes on from: what an interrupted one wrote past it is hidden.
    """

    def __init__(self, folders: Sequence[Path], *, first: int = 0) -> None:
        import_extra("tensorboard", "--tensorboard")
        writer = import_extra("torch.utils.tensorboard", "--tensorboard").SummaryWriter
        self._folders = list(folders)
        self._writers: list[Any] = [writer(str(folder), purge_step=first + 1 if first else None) for folder in folders]

    def update(
        self,
        step: int,
        loss: Sequence[float],
        accuracy: Sequence[float],
        alive: Sequence[bool],
        learning_rate: Sequence[float],
    ) -> None:
        """The scalars of a step; a replica that no longer trains has none."""
        for k, one in enumerate(zip(accuracy, loss, learning_rate, strict=True)):
            if alive[k] and self._writers[k] is not None:
                try:
                    for name, value in zip(("accuracy", "loss", "learning_rate"), one, strict=True):
                        self._writers[k].add_scalar(name, value, step)
                except Exception as error:  # a full disk: the training goes on without pictures
                    self._writers[k] = None
                    where = format_path(self._folders[k])
                    warnings.warn(f"TensorBoard cannot write in {where}: {error}; left off", RunWarning, stacklevel=2)

    def close(self) -> None:
        for writer in self._writers:
            if writer is not None:
                try:
                    writer.close()
                except Exception as error:
                    warnings.warn(f"TensorBoard cannot write its last scalars: {error}", RunWarning, stacklevel=2)
