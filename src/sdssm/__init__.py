"""Train sequence models to emulate finite automata on short strings, and test them on long ones.

train, resume, evaluate, load      from a task to run folders, accuracy at every length, trained models
check                              the report card of a model, also of your own
task, machine, Task, Machine       strings with labels, and the automata behind them
extract, certify, compile, snap    between automata and weights; horizon measures a length, certify proves one
list_models, list_tasks, list_experiments; reproduce runs an experiment
testing                            the laws that every model obeys, also for your own test suite
ops                                the recurrences with their gradients; sdssm.layers has the modules

>>> import sdssm, torch
>>> task = sdssm.task("a5")
>>> batch = task.sample(128, 40, generator=torch.Generator().manual_seed(0))
>>> batch.tokens.shape, task.machine.is_solvable
(torch.Size([128, 40]), False)
"""

import os as _os
from typing import TYPE_CHECKING

# torch's threads wait for each other after every small operation. If they spin while waiting and another program uses
# the same cores, training is ten times slower; sleeping costs little. torch reads this once, when it is imported.
_os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from sdssm.errors import SdssmError  # after the line above
from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm import ops, testing
    from sdssm.automata import Machine
    from sdssm.automata import get_machine as machine
    from sdssm.checking import ReportCard, check
    from sdssm.evaluation import Evaluation, evaluate
    from sdssm.exact import certify, compile, extract, horizon, snap  # noqa: A004  # shadows the builtin on purpose
    from sdssm.experiments import list_experiments, reproduce
    from sdssm.exporting import export
    from sdssm.models import Classifier, ModelSettings, TokenModel, list_models, register
    from sdssm.runs import load
    from sdssm.tasks import Batch, Task, list_tasks
    from sdssm.tasks import get_task as task
    from sdssm.training import Runs, resume, train
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "Batch": "sdssm.tasks",
            "Classifier": "sdssm.models",
            "Evaluation": "sdssm.evaluation",
            "Machine": "sdssm.automata",
            "ModelSettings": "sdssm.models",
            "ReportCard": "sdssm.checking",
            "Runs": "sdssm.training",
            "Task": "sdssm.tasks",
            "TokenModel": "sdssm.models",
            "certify": "sdssm.exact",
            "check": "sdssm.checking",
            "compile": "sdssm.exact",
            "evaluate": "sdssm.evaluation",
            "export": "sdssm.exporting",
            "extract": "sdssm.exact",
            "horizon": "sdssm.exact",
            "list_experiments": "sdssm.experiments",
            "list_models": "sdssm.models",
            "list_tasks": "sdssm.tasks",
            "load": "sdssm.runs",
            "machine": "sdssm.automata:get_machine",
            "register": "sdssm.models",
            "reproduce": "sdssm.experiments",
            "resume": "sdssm.training",
            "snap": "sdssm.exact",
            "task": "sdssm.tasks:get_task",
            "train": "sdssm.training",
        },
    )


__version__ = "0.1.0"
__all__ = [
    "Batch",
    "Classifier",
    "Evaluation",
    "Machine",
    "ModelSettings",
    "ReportCard",
    "Runs",
    "SdssmError",
    "Task",
    "TokenModel",
    "__version__",
    "certify",
    "check",
    "compile",
    "evaluate",
    "export",
    "extract",
    "horizon",
    "list_experiments",
    "list_models",
    "list_tasks",
    "load",
    "machine",
    "ops",
    "register",
    "reproduce",
    "resume",
    "snap",
    "task",
    "testing",
    "train",
]
