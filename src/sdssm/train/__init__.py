"""Training: many models side by side, from short strings to run folders."""

from sdssm.train.progress import Progress, progress_for
from sdssm.train.trainer import Runs, TrainingStopped, train
from sdssm.train.trainer import resume_runs as resume

__all__ = ["Progress", "Runs", "TrainingStopped", "progress_for", "resume", "train"]
