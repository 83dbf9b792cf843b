"""Write accuracy, loss and learning rate of each replica for TensorBoard, into its run folder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sdssm.errors import RunWarning
from sdssm.extras import import_extra
from sdssm.files import format_path


class TensorBoard:
    """Writes scalars into the folder of each run; `tensorboard --logdir runs` shows them.

    `first` is the step at which the training starts or resumes: scalars of later steps, which an interrupted training
    wrote, are hidden.
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
        """Write the scalars of a step, for replicas that have not diverged."""
        for replica, values in enumerate(zip(accuracy, loss, learning_rate, strict=True)):
            if alive[replica] and self._writers[replica] is not None:
                try:
                    for name, value in zip(("accuracy", "loss", "learning_rate"), values, strict=True):
                        self._writers[replica].add_scalar(name, value, step)
                except Exception as error:  # such as a full disk: the training continues without scalars
                    self._writers[replica] = None
                    folder = format_path(self._folders[replica])
                    warnings.warn(
                        f"TensorBoard cannot write in {folder}: {error}; no more scalars are written there",
                        RunWarning,
                        stacklevel=2,
                    )

    def close(self) -> None:
        """Write the scalars that are still buffered."""
        for writer in self._writers:
            if writer is not None:
                try:
                    writer.close()
                except Exception as error:
                    warnings.warn(f"TensorBoard cannot write its last scalars: {error}", RunWarning, stacklevel=2)
