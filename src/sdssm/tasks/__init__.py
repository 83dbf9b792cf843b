"""Tasks: strings, and the labels of all their prefixes.

get_task(name)   the task of a name, or of a machine
list_tasks()     the names of the paper's tasks, and an example of each further family
Task             a machine, and which strings are valid
Batch            strings and labels
chance_accuracy  the accuracy of a random guess
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.tasks.library import EXAMPLE_TASKS, PAPER_TASKS, get_task, list_tasks
    from sdssm.tasks.task import Batch, Task, chance_accuracy
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "Batch": "sdssm.tasks.task",
            "EXAMPLE_TASKS": "sdssm.tasks.library",
            "PAPER_TASKS": "sdssm.tasks.library",
            "Task": "sdssm.tasks.task",
            "chance_accuracy": "sdssm.tasks.task",
            "get_task": "sdssm.tasks.library",
            "list_tasks": "sdssm.tasks.library",
        },
    )

__all__ = ["EXAMPLE_TASKS", "PAPER_TASKS", "Batch", "Task", "chance_accuracy", "get_task", "list_tasks"]
