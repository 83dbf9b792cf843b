"""Run folders: what one training leaves on disk, whole at every moment.

RunFolder      one run: config, status, events, checkpoints, results
find_runs      every run below a folder
load           the model of a run
group_by_resume_step        where runs go on, and which of them together
folder_name    a task's name as that of a folder
default_folder where runs go when nobody says
ENDED          the statuses of runs that will not be trained further
"""

from sdssm.runs.checkpoint import Checkpoint
from sdssm.runs.find import default_folder, find_runs, folder_name, group_by_resume_step
from sdssm.runs.folder import ENDED, RunFolder, Status
from sdssm.runs.weights import load

__all__ = [
    "ENDED",
    "Checkpoint",
    "RunFolder",
    "Status",
    "default_folder",
    "find_runs",
    "folder_name",
    "group_by_resume_step",
    "load",
]
