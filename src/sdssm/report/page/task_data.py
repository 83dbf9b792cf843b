"""Tasks as the page shows them: machine, facts, chance."""

from __future__ import annotations

from dataclasses import replace

from sdssm.automata.formats import from_json
from sdssm.automata.library import machine_files
from sdssm.errors import RunError, SdssmError
from sdssm.report.page.identifiers import make_identifier
from sdssm.report.page.json_fields import LONGEST_NAME, LONGEST_TEXT, clip_text, round_number
from sdssm.report.page.machine_data import make_machine_data
from sdssm.report.page.page_types import TaskData
from sdssm.runs.schema import RunConfig
from sdssm.tasks import Task, describe_task
from sdssm.tasks.library import get_library_task
from sdssm.tasks.machine_facts import format_machine_facts

#: Facts are computed for machines up to this many states; some take seconds for larger ones.
MOST_STATES_WITH_FACTS = 2_000


def load_run_task(config: RunConfig) -> Task:
    """Return the task of a run from its config, or from the library; no file that the config names is read."""
    if config.machines is None:
        task = load_library_task(config.task, config.digest)
    else:
        machine, valid = config.machines
        task = Task(name=config.task, machine=from_json(machine), valid=None if valid is None else from_json(valid))
        if task.digest != config.digest:
            raise RunError("config.json: machines and digest do not fit together; train the run again")
    if (task.n_symbols, task.n_classes) != (config.n_symbols, config.n_classes):
        raise RunError(
            f"config.json: the model has {config.n_symbols} symbols and {config.n_classes} classes, but the task "
            f"{task.n_symbols} and {task.n_classes}; train the run again"
        )
    return replace(task, train_length=config.train_length, test_length=config.test_length)


def load_library_task(name: str, digest: str | None) -> Task:
    """Return a task of the library; raise a `RunError` if the name is that of a file, or now means another task."""
    shown = clip_text(name, LONGEST_NAME)
    if machine_files(name):
        raise RunError(f"the machine of the task {shown} is in a file of its own, which the page does not read")
    try:
        task = get_library_task(name)
    except SdssmError as error:
        raise RunError(f"the library has no task {shown}: {error}") from None
    if digest is not None and task.digest != digest:
        raise RunError(f"the task {shown} has changed since (fingerprint {digest}, now {task.digest}); train again")
    return task


def task_identifier(name: str, digest: str) -> str:
    """Return the identifier of a task; tasks of the same name with other machines have others."""
    return make_identifier(name, name, digest)


def make_task_data(task: Task) -> TaskData:
    """Return a task with its facts, as `sdssm tasks show` prints them, and its state diagram."""
    return {
        "id": task_identifier(task.name, task.digest),
        "name": clip_text(task.name, LONGEST_NAME),
        "machine": make_machine_data(task.machine, task.name),
        "facts": [(name, clip_text(text, LONGEST_TEXT)) for name, text in _collect_facts(task).items()],
        "chance": round_number(task.chance_accuracy, 4) or 0.0,
        "train_length": task.train_length,
        "test_length": task.test_length,
        "valid": None if task.valid is None else make_machine_data(task.valid, "valid strings", with_diagram=False),
    }


def _collect_facts(task: Task) -> dict[str, str]:
    if task.machine.n_states > MOST_STATES_WITH_FACTS:
        return {"states": f"{task.machine.n_states:,}", "facts": "sdssm tasks show prints them; that takes a while"}
    try:
        return {**format_machine_facts(task), **describe_task(task).to_lines()}
    except SdssmError as error:
        return {"facts": f"not known: {error}"}
