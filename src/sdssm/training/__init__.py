"""Training: many models side by side, from short strings to run folders.

train            train models on a task
resume           resume the unfinished runs in a folder
Runs             the run folders that both return
TrainingStopped  raised after Ctrl-C, once every run has been saved
Progress         what a progress display must implement
progress_for     a progress display that suits the standard output
"""

from sdssm.training.progress import Progress, progress_for
from sdssm.training.trainer import Runs, TrainingStopped, resume, train

__all__ = ["Progress", "Runs", "TrainingStopped", "progress_for", "resume", "train"]
