"""Train sequence models to emulate finite automata on short strings, and find out whether they still do on long ones.

>>> import sdssm, torch
>>> task = sdssm.task("a5")
>>> batch = task.sample(128, 40, generator=torch.Generator().manual_seed(0))
>>> batch.tokens.shape, task.machine.is_solvable
(torch.Size([128, 40]), False)
"""

from sdssm import ops
from sdssm.automata import Machine
from sdssm.automata import named as machine
from sdssm.errors import SdssmError
from sdssm.tasks import Batch, Task, task

__version__ = "0.1.0"
__all__ = ["Batch", "Machine", "SdssmError", "Task", "__version__", "machine", "ops", "task"]
