"""Training: many models side by side, from short strings to run folders."""

from sdssm.train.progress import Progress, progress_for
from sdssm.train.trainer import Runs, TrainingStopped, resume_runs, train

resume = resume_runs

__all__ = ["Progress", "Runs", "TrainingStopped", "progress_for", "resume", "train"]
