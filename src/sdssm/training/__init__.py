"""Training: many models side by side, from short strings to run folders.

train            train models on a task
resume           resume the unfinished runs in a folder
Runs             the run folders that both return
TrainingStopped  raised after Ctrl-C, once every run has been saved
Progress         what a progress display must implement
progress_for     a progress display that suits the standard output
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.training.progress import Progress, progress_for
    from sdssm.training.trained_runs import Runs
    from sdssm.training.trainer import TrainingStopped, resume, train
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "Progress": "sdssm.training.progress",
            "Runs": "sdssm.training.trained_runs",
            "TrainingStopped": "sdssm.training.trainer",
            "progress_for": "sdssm.training.progress",
            "resume": "sdssm.training.trainer",
            "train": "sdssm.training.trainer",
        },
    )

__all__ = ["Progress", "Runs", "TrainingStopped", "progress_for", "resume", "train"]
