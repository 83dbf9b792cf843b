"""Tasks: strings, and the labels of all their prefixes.

get_task(name)   the task of a name, or of a machine
list_tasks()     the names of the paper's tasks, and an example of each further family
Task             a machine, and which strings are valid
Batch            strings, labels and lengths
collate_strings  a batch of single strings, for torch's DataLoader
chance_accuracy  the accuracy of a random guess
describe_task    what is known before training: constant answers, what training strings cover, whether they identify it
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.tasks.batch import Batch, collate_strings
    from sdssm.tasks.facts import TaskFacts, describe_task
    from sdssm.tasks.library import EXAMPLE_TASKS, PAPER_TASKS, get_task, list_tasks
    from sdssm.tasks.task import Task, chance_accuracy
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "Batch": "sdssm.tasks.batch",
            "EXAMPLE_TASKS": "sdssm.tasks.library",
            "PAPER_TASKS": "sdssm.tasks.library",
            "Task": "sdssm.tasks.task",
            "TaskFacts": "sdssm.tasks.facts",
            "chance_accuracy": "sdssm.tasks.task",
            "collate_strings": "sdssm.tasks.batch",
            "describe_task": "sdssm.tasks.facts",
            "get_task": "sdssm.tasks.library",
            "list_tasks": "sdssm.tasks.library",
        },
    )

__all__ = [
    "EXAMPLE_TASKS",
    "PAPER_TASKS",
    "Batch",
    "Task",
    "TaskFacts",
    "chance_accuracy",
    "collate_strings",
    "describe_task",
    "get_task",
    "list_tasks",
]
