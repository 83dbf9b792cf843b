"""Bit flips: many single flipped bits in each kind of file; `runs --verify` must name every one of them.

`load` and `evaluate` are asked too where they read the file. All calls are made in one process, because thousands of
flips are wanted.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.campaign.attack import Attack, Trial
from tests.campaign.corruption import flip_bit, has_same_values, name_of
from tests.campaign.sandbox import Outcome, call_main, describe_crash, find_fault
from tests.campaign.templates import FINISHED, KILLED, RESULTS, RUN_FILES, inside, make_templates

#: Flips of one attempt, each in the undamaged file.
FLIPS = 20
FILES = (*RUN_FILES, "checkpoints/step-000000010.safetensors", "checkpoints/step-000000020.safetensors")


def call_captured(arguments: tuple[str, ...]) -> Outcome:
    """Run a command in this process and capture what it prints."""
    out, err = io.StringIO(), io.StringIO()
    code, crash = None, None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = call_main(arguments)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0
        except Exception as error:
            crash = describe_crash(error)
    return Outcome(code=code, out=out.getvalue(), err=err.getvalue(), crash=crash)


def find_silence(file: str) -> str | None:
    """Return what is wrong about how the damaged file in the current folder is taken, or None."""
    if file in OTHER_FILES:
        return OTHER_FILES[file]()
    outcome = call_captured(("runs", FINISHED, "--verify"))
    fault = find_fault(outcome)
    if fault is not None:
        return fault
    if name_of(file) not in outcome.text or "no option --verify" in outcome.text:
        return f"--verify does not name {file}: {outcome.text.strip()[-100:]!r}"
    return find_wrong_model(file) if file in ("config.json", "model.safetensors") else None


def find_wrong_results() -> str | None:
    """Read damaged results as `report` and `reproduce` do; return what is wrong if they are accepted."""
    from sdssm.errors import RunError
    from sdssm.experiments.json_files import read_json
    from sdssm.report.page.results_data import ResultsFile

    try:
        ResultsFile(Path(RESULTS))
    except RunError as error:
        if "results.json" not in str(error):
            return f"the error does not name the file: {str(error)[:150]!r}"
        return None if read_json(Path(RESULTS, "results.json")) is None else "reproduce accepts the damaged file"
    return "report accepts the damaged file"


def find_wrong_plan() -> str | None:
    """Read a damaged plan as `train --resume` does; return what is wrong if it is accepted or not named."""
    from sdssm.runs.plan_file import find_plans

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plans = find_plans(Path(KILLED))
    if plans:
        return "the damaged plan is accepted"
    return None if any("plan-" in str(warning.message) for warning in caught) else "no warning names the plan"


#: Files beside those of a run, from the folder of the templates, and what checks each.
OTHER_FILES = {f"{RESULTS}/results.json": find_wrong_results, f"{KILLED}/plan-0123abcd.json": find_wrong_plan}


def find_wrong_model(file: str) -> str | None:
    """Load the model; return what is wrong if that neither fails with an error of the package nor names the file."""
    import sdssm
    from sdssm.errors import SdssmError

    try:
        sdssm.load(FINISHED)
    except SdssmError as error:
        return None if file in str(error) else f"load does not name the file: {str(error)[:150]!r}"
    except Exception as error:
        return f"load: {describe_crash(error)}"
    return "load accepts the damaged file"


def attack_bits(random: Random, folder: Path) -> Iterator[Trial]:
    """Flip one bit at a time in a file of a run."""
    make_templates().copy(folder, FINISHED, RESULTS, KILLED)
    file = random.choice((*FILES, *OTHER_FILES))
    path = folder / file if file in OTHER_FILES else folder / FINISHED / file
    data = path.read_bytes()
    with inside(folder):
        for _ in range(FLIPS):
            damaged = flip_bit(random, data)
            while has_same_values(file, data, damaged):  # as in the last digit of a float, which is no damage
                damaged = flip_bit(random, data)
            path.write_bytes(damaged)
            problem = find_silence(file)
            path.write_bytes(data)
            yield Trial(kind="checkpoint" if "checkpoints" in file else Path(file).name, problem=problem)


ATTACKS = (
    Attack(
        name="bit-flips",
        subject="single flipped bits in every file of a run: runs --verify and load name the file",
        attempt=attack_bits,
        share=0.7,
    ),
)
