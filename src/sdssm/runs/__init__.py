"""Run folders: everything about one training on disk, in a consistent state at every moment.

RunFolder             one run: config, status, events, checkpoints, results
find_runs             all runs below a folder
load                  the model of a run
group_by_resume_step  the steps from which runs of one shape resume
folder_name           the name of a task as the name of a folder
default_folder        the folder of runs if the user gives none
ENDED                 the statuses of runs that are not trained further
"""

from sdssm.runs.checkpoint import Checkpoint
from sdssm.runs.find import default_folder, find_runs, folder_name, group_by_resume_step
from sdssm.runs.folder import FINAL_STATUSES, RunFolder, RunStatus
from sdssm.runs.weights import load

__all__ = [
    "FINAL_STATUSES",
    "Checkpoint",
    "RunFolder",
    "RunStatus",
    "default_folder",
    "find_runs",
    "folder_name",
    "group_by_resume_step",
    "load",
]
