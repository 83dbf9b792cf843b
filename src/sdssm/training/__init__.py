"""Training: many models side by side, from short strings to run folders."""

from sdssm.training.progress import Progress, progress_for
from sdssm.training.trainer import Runs, TrainingStopped, train
from sdssm.training.trainer import resume_runs as resume

__all__ = ["Progress", "Runs", "TrainingStopped", "progress_for", "resume", "train"]
