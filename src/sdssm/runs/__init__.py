"""Run folders: what one training leaves on disk, whole at every moment.

RunFolder      one run: config, status, events, checkpoints, results
find_runs      every run below a folder
load           the model of a run
shared_step    where runs that train side by side can all go on
folder_name    a task's name as that of a folder
"""

from sdssm.runs.checkpoint import Checkpoint
from sdssm.runs.find import find_runs, folder_name, shared_step
from sdssm.runs.folder import RunFolder, Status
from sdssm.runs.weights import load

__all__ = ["Checkpoint", "RunFolder", "Status", "find_runs", "folder_name", "load", "shared_step"]
