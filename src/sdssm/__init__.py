"""Train sequence models to emulate finite automata on short strings, and find out whether they still do on long ones.

>>> import sdssm, torch
>>> task = sdssm.task("a5")
>>> batch = task.sample(128, 40, generator=torch.Generator().manual_seed(0))
>>> batch.tokens.shape, task.machine.is_solvable
(torch.Size([128, 40]), False)
"""

import os as _os

# torch's threads wait for each other after every small tensor. Where they spin, and another program wants the same
# cores, training is ten times slower; asleep they cost little. It is read once, when torch is loaded.
_os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from sdssm import ops  # after the line above
from sdssm.automata import Machine
from sdssm.automata import get_machine as machine
from sdssm.errors import SdssmError
from sdssm.evaluation import Evaluation, evaluate
from sdssm.exact import certify, compile, extract, horizon, snap  # noqa: A004  # inside the package its name is clear
from sdssm.models import Classifier, ModelSettings
from sdssm.runs import load
from sdssm.tasks import Batch, Task
from sdssm.tasks import get_task as task
from sdssm.training import Runs, resume, train

__version__ = "0.1.0"
__all__ = [
    "Batch",
    "Classifier",
    "Evaluation",
    "Machine",
    "ModelSettings",
    "Runs",
    "SdssmError",
    "Task",
    "__version__",
    "certify",
    "compile",
    "evaluate",
    "extract",
    "horizon",
    "load",
    "machine",
    "ops",
    "resume",
    "snap",
    "task",
    "train",
]
