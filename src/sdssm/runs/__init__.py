"""Run folders: everything about one training on disk, in a consistent state at every moment.

RunFolder             one run: config, status, events, checkpoints, results
RunStatus, Checkpoint what its status.json and its checkpoints hold
FINAL_STATUSES        the statuses of runs that are not trained further
find_runs             all runs below a folder
load                  the model of a run
group_by_resume_step  the steps from which runs of one shape resume
folder_name           the name of a task as the name of a folder
default_folder        the folder of runs if the user gives none
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.runs.checkpoint import Checkpoint
    from sdssm.runs.find import default_folder, find_runs, folder_name, group_by_resume_step
    from sdssm.runs.folder import FINAL_STATUSES, RunFolder, RunStatus
    from sdssm.runs.weights import load
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "Checkpoint": "sdssm.runs.checkpoint",
            "FINAL_STATUSES": "sdssm.runs.folder",
            "RunFolder": "sdssm.runs.folder",
            "RunStatus": "sdssm.runs.folder",
            "default_folder": "sdssm.runs.find",
            "find_runs": "sdssm.runs.find",
            "folder_name": "sdssm.runs.find",
            "group_by_resume_step": "sdssm.runs.find",
            "load": "sdssm.runs.weights",
        },
    )

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
