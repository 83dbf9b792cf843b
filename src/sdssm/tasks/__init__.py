"""Tasks: strings, and the labels of all their prefixes.

get_task(name)   the task of a name, or of a machine
list_tasks()     the names of the paper's tasks, and an example of each further family
Task             a machine, and which strings are valid
Batch            strings, labels and lengths
collate_strings  a batch of single strings, for torch's DataLoader
chance_accuracy  the accuracy of a random guess
"""

from sdssm.tasks.batch import Batch, collate_strings
from sdssm.tasks.library import EXAMPLE_TASKS, PAPER_TASKS, get_task, list_tasks
from sdssm.tasks.task import Task, chance_accuracy

__all__ = [
    "EXAMPLE_TASKS",
    "PAPER_TASKS",
    "Batch",
    "Task",
    "chance_accuracy",
    "collate_strings",
    "get_task",
    "list_tasks",
]
