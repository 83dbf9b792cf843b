"""Tasks: strings and the labels of all their prefixes.

task(name)     a task of the library
Task           a machine and which strings may be asked
Batch          strings and labels
"""

from sdssm.tasks.library import BEYOND, PAPER, get_task
from sdssm.tasks.task import Batch, Task

__all__ = ["BEYOND", "PAPER", "Batch", "Task", "get_task"]
