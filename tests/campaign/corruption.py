"""Corruption: damage one file of a folder, and run a command that reads it.

A command may refuse the folder or warn, naming the file; or print exactly what it prints for the undamaged folder. What
it must not do is end with a traceback, or show a number that the undamaged folder does not have.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from sdssm.checksums import TENSOR_CHECKSUM, add_tensor_checksum
from tests.campaign.attack import Attack, Trial
from tests.campaign.mutation import mutate_bytes
from tests.campaign.sandbox import Outcome, find_fault, run_isolated, run_sdssm
from tests.campaign.templates import EVALUATE, FINISHED, KILLED, RESULTS, RUNS, STOPPED, make_templates

#: Commands of one attempt, on copies of the same damaged folder.
COMMANDS_EACH = 3
SPEC_RUN = "experiments"
#: Every kind of file: a pattern below the folder of the templates, and the commands that read it.
READERS: dict[str, tuple[str, ...]] = {
    f"{FINISHED}/config.json": ("load", "evaluate", "runs", "verify", "resume", "report"),
    f"{FINISHED}/status.json": ("load", "evaluate", "runs", "verify", "resume", "report"),
    f"{FINISHED}/events.jsonl": ("runs", "verify", "report"),
    f"{FINISHED}/model.safetensors": ("load", "evaluate", "runs", "verify", "resume", "report"),
    f"{FINISHED}/evaluation.json": ("runs", "verify", "report"),
    f"{FINISHED}/evaluation-states.safetensors": ("verify", "report"),
    f"{FINISHED}/certificate.json": ("verify", "report"),
    f"{FINISHED}/extraction.json": ("verify", "report"),
    f"{FINISHED}/horizon.json": ("verify", "report"),
    f"{FINISHED}/checkpoints/step-000000020.safetensors": ("load", "verify"),
    f"{STOPPED}/checkpoints/step-000000010.safetensors": ("verify", "continue"),
    f"{STOPPED}/config.json": ("verify", "continue"),
    f"{STOPPED}/status.json": ("verify", "continue"),
    f"{STOPPED}/events.jsonl": ("verify", "continue"),
    f"{KILLED}/plan-*.json": ("start",),
    f"{RESULTS}/results.json": ("report_results",),
    f"{SPEC_RUN}/**/seed-0/evaluation.json": ("tabulate",),
    f"{SPEC_RUN}/**/seed-0/model.safetensors": ("tabulate",),
    f"{SPEC_RUN}/**/seed-0/config.json": ("tabulate",),
    f"{SPEC_RUN}/**/seed-0/status.json": ("tabulate",),
}
#: Results that a run need not have.
OPTIONAL = ("evaluation.json", "evaluation-states.safetensors", "certificate.json", "extraction.json", "horizon.json")
COMMANDS: dict[str, tuple[str, ...]] = {
    "evaluate": (*EVALUATE, FINISHED),
    "runs": ("runs", RUNS),
    "verify": ("runs", RUNS, "--verify"),
    "resume": ("train", "--resume", "runs/parity", "--quiet"),
    "continue": ("train", "--resume", "runs/stopped", "--quiet"),
    "start": ("train", "--resume", KILLED, "--quiet"),
    "report": ("report", RUNS, "-o", "page.html"),
    "report_results": ("report", "results", "-o", "page.html"),
    "tabulate": ("reproduce", "tiny.toml", "--no-train", "--out", SPEC_RUN, "--reuse", "--results", "out", "--quiet"),
}


def flip_bit(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def truncate(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data))]


def zero_range(random: Random, data: bytes) -> bytes:
    start = random.randrange(len(data))
    end = min(len(data), start + random.choice((1, 16, 512, len(data))))
    return data[:start] + bytes(end - start) + data[end:]


DAMAGES: dict[str, Callable[[Random, bytes], bytes | None]] = {
    "bit flip": flip_bit,
    "truncated": truncate,
    "zeroed": zero_range,
    "edited": lambda random, data: mutate_bytes(random, data),
    "empty": lambda random, data: b"",
    "deleted": lambda random, data: None,
    "digit": lambda random, data: change_digit(random, data),
    "weights": lambda random, data: replace_weights(random, data),
    "NaN, right checksum": lambda random, data: replace_weights(random, data, is_sealed=True),
}


def change_digit(random: Random, data: bytes) -> bytes:
    """Change one digit of a text: what stays valid JSON, and is the hardest to notice."""
    places = [match.start() for match in re.finditer(rb"[0-9]", data)]
    if not places:
        return data
    at = random.choice(places)
    return data[:at] + str((int(data[at : at + 1]) + random.randint(1, 9)) % 10).encode() + data[at + 1 :]


def replace_weights(random: Random, data: bytes, *, is_sealed: bool = False) -> bytes:
    """Write NaN, infinity or zeros over a whole number of float32 weights; the header stays as it is.

    is_sealed: write NaN or infinity, and the checksum that belongs to it, as a program with a defect would.
    """
    size = int.from_bytes(data[:8], "little") + 8
    if not 8 < size < len(data) - 4:
        return data
    start = size + 4 * random.randrange((len(data) - size) // 4)
    count = random.choice((1, (len(data) - start) // 4))
    values = [b"\x00\x00\xc0\x7f", b"\x00\x00\x80\xff"]
    value = random.choice(values if is_sealed else [*values, bytes(4)])
    changed = data[:start] + value * count + data[start + 4 * count :]
    if not is_sealed:
        return changed
    metadata = json.loads(data[8:size]).get("__metadata__", {})
    metadata.pop(TENSOR_CHECKSUM, None)
    return add_tensor_checksum(changed, metadata)


def has_same_values(name: str, data: bytes, damaged: bytes) -> bool:
    """Return whether a JSON file has the same values after the change, such as 1E-5 for 1e-5: that is no damage.

    A digit beyond the precision of a float, and new white space, are others. The checksum is one of the values.
    """
    if not name.endswith((".json", ".jsonl")):
        return data == damaged
    try:
        before, after = ([repr(json.loads(line)) for line in _texts(name, content)] for content in (data, damaged))
    except (ValueError, RecursionError):
        return False
    return before == after


def _texts(name: str, content: bytes) -> list[bytes]:
    return content.split(b"\n")[:-1] if name.endswith(".jsonl") and content.endswith(b"\n") else [content]


def run_reader(name: str, folder: Path) -> Outcome:
    """Run a command, or load the model; the outcome's value is what must be equal besides the output."""
    if name == "load":

        def load() -> bytes:
            import sdssm

            return bytes(sdssm.load(FINISHED).to_safetensors())

        return run_isolated(load, folder=folder)
    outcome = run_sdssm(COMMANDS[name], folder)
    value: object = None
    if name in ("continue", "start"):
        model = folder / (STOPPED if name == "continue" else f"{KILLED}/seed-1") / "model.safetensors"
        value = model.read_bytes() if model.is_file() else None
    elif name in ("report", "report_results"):
        value = read_page(folder / "page.html")
    elif name == "tabulate":
        table = folder / "out" / "tiny" / "table.csv"
        value = table.read_text() if table.is_file() else None
    return Outcome(
        code=outcome.code,
        out=outcome.out,
        err=outcome.err,
        crash=outcome.crash,
        cpu_seconds=outcome.cpu_seconds,
        value=value,
    )


def read_page(path: Path) -> str | None:
    """Return the data of a report page without times and sizes, or None if there is no page."""
    if not path.is_file():
        return None
    blocks = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', path.read_text(), re.DOTALL)
    values = [_without_times(json.loads(block)) for block in blocks]
    return json.dumps(values, sort_keys=True)


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        volatile = ("created", "written", "seconds", "time", "bytes", "size", "modified", "made")
        return {key: _without_times(item) for key, item in value.items() if not str(key).startswith(volatile)}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


@cache
def undamaged_outcome(name: str) -> Outcome:
    """Return what a reader does with an undamaged folder."""
    with TemporaryDirectory() as folder:
        make_templates().copy(Path(folder))
        outcome = run_reader(name, Path(folder))
    if name != "verify" and (outcome.crash is not None or outcome.code != 0):
        raise RuntimeError(f"{name} fails on an undamaged folder: {outcome.crash or outcome.err}")
    return outcome


def name_of(file: str) -> str:
    """Return the word that a message must contain to name the file."""
    return "checkpoint" if "checkpoints/" in file else Path(file).name


def judge(name: str, file: str, damage: str, outcome: Outcome) -> str | None:
    """Return what is wrong with the outcome of a reader on a damaged folder, or None."""
    before = undamaged_outcome(name)
    if name == "load" and outcome.crash is not None and outcome.crash.split(":")[0].endswith("Error"):
        is_own = re.match(r"(RunError|ModelError|SdssmError|TaskError|SettingsError|FormatError)", outcome.crash)
        if not is_own:
            return outcome.crash
        return None if _is_named(file, outcome.crash) else f"the error does not name the file: {outcome.crash}"
    fault = find_fault(outcome, allowance=None)
    if fault is not None:
        return fault
    named = _is_named(file, outcome.text) or _names_more(file, outcome.value, before.value)
    if name == "verify":
        is_optional = Path(file).name in OPTIONAL or (file.startswith(FINISHED) and "checkpoints/" in file)
        if damage == "deleted" and is_optional:
            return None  # as if it had never been measured; and a finished run needs no checkpoint
        return None if named else f"--verify does not name the damage: {(outcome.err or outcome.out)[-100:]!r}"
    if outcome.code != 0:
        return None if named else f"the error does not name the file: {outcome.err.strip()[-200:]!r}"
    if outcome.value == before.value and (named or outcome.out == before.out):
        return None  # nothing but what is right was shown
    if damage == "deleted" and name == "start":
        return None  # without a plan nothing says that there should be more runs
    if damage == "deleted" and name != "continue":
        return _judge_deleted(file, outcome, before)
    if name == "continue":
        same = outcome.value == before.value
        return None if same else "the resumed training ended with other weights, and exit code 0"
    return None if named else f"exit code 0, and neither the same output nor a word about {name_of(file)}"


def _judge_deleted(file: str, outcome: Outcome, before: Outcome) -> str | None:
    """Return what is wrong if a file is gone: less may be shown, but nothing else, and the run stays finished."""
    if file.endswith("status.json"):  # its numbers are taken from the event log
        return None if "running" not in outcome.out else "without status.json a finished run counts as unfinished"
    if file.endswith("config.json") and re.search(r"\b1 (of 2 )?seed", outcome.out):
        return None  # a table of the other run, which says so
    # Lines that count what is there or missing, or name the file.
    counted = rf"(?m)^.*(\.html: |\b(has no|have no|were not|was not)\b|{re.escape(name_of(file))}).*$"
    shown = re.sub(counted, "", outcome.out)
    new = _numbers(shown) - _numbers(before.out)
    return f"with the file deleted it shows other numbers: {sorted(new)[:5]}" if new else None


def _names_more(file: str, value: object, before: object) -> bool:
    """Return whether a page names the file more often than it does without damage: in its list of problems."""
    if not isinstance(value, str) or not isinstance(before, str):
        return False
    return value.count(name_of(file)) > before.count(name_of(file))


def _is_named(file: str, text: str) -> bool:
    return name_of(file) in text or ("seed-0" in text and re.search(r"damaged|checksum|match", text) is not None)


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:\.\d+)?", text))


def attack_files(random: Random, folder: Path) -> Iterator[Trial]:
    """Damage a file, and run some of the commands that read it on copies of the damaged folder."""
    templates, pattern = make_templates(), random.choice(list(READERS))
    found = sorted(templates.folder.glob(pattern))
    if not found:
        yield Trial(kind=f"{Path(pattern).name}", skipped="this version writes no such file")
        return
    file = random.choice(found).relative_to(templates.folder)
    is_model = file.name == "model.safetensors"
    damage = random.choice(
        [
            damage
            for damage in DAMAGES
            if (damage != "weights" or file.suffix == ".safetensors")
            and (damage != "NaN, right checksum" or is_model)  # a checkpoint may hold what a training has diverged to
        ]
    )
    source = templates.folder / file
    data = source.read_bytes()
    damaged = DAMAGES[damage](random, data)
    name = "plan" if file.name.startswith("plan-") else "checkpoint" if "checkpoints" in pattern else file.name
    kind = f"{name}, {damage}"
    if damaged is not None and has_same_values(file.name, data, damaged):
        yield Trial(kind=kind, skipped="the values are the same after the change")
        return
    names = READERS[pattern]
    for name in random.sample(names, min(COMMANDS_EACH, len(names))):
        copy = templates.copy(folder / name)
        if damaged is None:
            (copy / file).unlink()
        else:
            (copy / file).write_bytes(damaged)
        problem = judge(name, str(file), damage, run_reader(name, copy))
        shutil.rmtree(copy)
        yield Trial(kind=kind, problem=None if problem is None else f"{name}, {file}: {problem}")


ATTACKS = (
    Attack(
        name="corruption",
        subject="every file of a run or an experiment: flipped bits, truncated, zeroed, edited, deleted",
        attempt=attack_files,
        share=5.0,
        patience=120.0,
    ),
)
