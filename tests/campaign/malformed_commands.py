"""Malformed commands: success, or one short line and exit code 2, whatever the arguments and files are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from shlex import join
from types import ModuleType

from tests.campaign.attack import Attack, Trial
from tests.campaign.corpus_files import read_commands
from tests.campaign.malformed_texts import valid_texts
from tests.campaign.mutation import HOSTILE_PIECES, mutate_text
from tests.campaign.sandbox import CPU_LIMIT, find_fault, run_sdssm
from tests.campaign.templates import EVALUATE, FINISHED, make_templates

#: Seconds of processor time for commands that time training steps.
MEASURING_LIMIT = 30
#: Commands of one attempt, which share a copy of the folders.
COMMANDS = 6
#: Valid commands that take less than a second. Words in capitals are replaced: MACHINE by a mutated file, SPEC by a
#: mutated experiment.
VALID = (
    ("tasks",),
    ("tasks", "show", "a5"),
    ("tasks", "show", "MACHINE"),
    ("tasks", "show", "regex:(ab)*", "--svg", "out.svg"),
    ("models", "sd-ssm", "--task", "parity"),
    ("settings", "lstm"),
    ("train", "parity", "--dry-run", "--seeds", "2", "--steps", "20", "--set", "state=8", "lr=1e-3"),
    ("train", "MACHINE", "--dry-run", "--steps", "20"),
    ("train", "--resume", "runs/parity", "--quiet"),
    (*EVALUATE, FINISHED),
    ("evaluate", FINISHED, "--lengths", "5,10", "--strings", "8", "--seed", "1", "--quiet"),
    ("runs", "runs", "--json"),
    ("compile", "parity", "--out", "compiled", "--length", "50", "--strings", "2", "--quiet"),
    ("extract", FINISHED, "--lengths", "5", "--strings", "4", "--max-states", "8", "--quiet", "--max-seconds", "1"),
    ("certify", FINISHED, "--strings", "16", "--search", "8", "--quiet", "--max-seconds", "1"),
    ("horizon", FINISHED, "--max-length", "16", "--strings", "4", "--seed", "1", "--quiet", "--max-seconds", "1"),
    ("snap", FINISHED, "--out", "snapped", "--max-states", "8", "--quiet", "--max-seconds", "1"),
    ("reproduce", "tiny.toml", "--no-train", "--out", "experiments", "--reuse", "--quiet"),
    ("reproduce", "SPEC", "--dry-run", "--out", "experiments", "--reuse", "--quiet"),
    ("sweep", "parity", "--grid", "lr=1e-4,1e-3", "--range", "state=4..8", "--trials", "3", "--search", "random",
     "--dry-run", "--quiet"),
    ("report", "runs", "-o", "page.html", "--title", "a title", "--max-mb", "1"),
    ("playground", FINISHED, "-o", "page.html"),
    ("completion", "bash"),
)  # fmt: skip
#: Words that stay, because without them a valid command would train for hours.
KEPT = {"--dry-run", "--no-train", "--quiet", "--max-seconds", "train", "reproduce", "sweep", "evaluate"}
#: Options with a value, for commands that may not have them.
OPTIONS = (
    "--task", "--model", "--preset", "--seeds", "--seed", "--steps", "--lr", "--batch", "--state", "--train-length",
    "--device", "--out", "--set", "--max-length", "--lengths", "--strings", "--max-states", "--length", "--layers",
    "--encoding", "--column-norm", "--search", "--every", "--format", "--title", "--max-mb", "--budget", "--workers",
    "--grid", "--range", "--trials", "--keep", "--rungs", "--select", "--name", "--port", "--host", "--svg", "--rows",
)  # fmt: skip
#: Values that are far out of range or malformed; none makes a valid command merely slow.
HOSTILE_VALUES = (
    *HOSTILE_PIECES, "999999999999", "99999999999999999999", "-99999999999999999999", "1e400", "-0", "0.0000001",
    "1,,2",
    "0,0", "1,2,x", "1..", "..1", "5..1", "nan..inf", "state=", "=8", "lr=nan", "state=-1", "state=99999999999",
    "batch=0", "steps=1e30", "cuda:99", "cpu:7", "meta", "/", "/etc/passwd", "/dev/null", "/dev/full", "/proc/self/mem",
    ".", "..", "runs", "runs/parity", "x" * 300, "x" * 300 + ".json", "x/" * 3000, "a.json", "a.dot", "a.att", "a.toml",
    "random:999999999x999:0", "random:2x2:-1", "s20", "z999999999999", "a5*a5*a5*a5", "prefix:99x99", "dyck999999999",
    "regex:" + "(" * 5000, "regex:(a|b)*a(a|b){30}", "regex:a{999999999}", "os:system", "no.module:Name", "lstm:1",
)  # fmt: skip


@cache
def hostile_arguments() -> ModuleType | None:
    """Return the module with hostile arguments of every option; None where it is not there."""
    name = "tests.campaign.hostile_arguments"
    return import_module(name) if find_spec(name) is not None else None


def choose_known(random: Random, folder: Path) -> list[str]:
    """Return a command that once broke something, or a mutation of the other list of valid commands."""
    module, known = hostile_arguments(), read_commands()
    if module is None or random.random() < 0.3:
        return random.choice(known)
    places = module.make_places(folder, folder / FINISHED)
    words = (
        random.choice(module.FINDINGS) if random.random() < 0.2 else module.mutate(random.choice(module.VALID), random)
    )
    return _as_typed([word.replace(f"{folder}/", "") for word in module.fill(words, places)])


def mutate_command(random: Random, arguments: tuple[str, ...]) -> list[str]:
    """Return a command with one or two words replaced, inserted or removed."""
    words = list(arguments)
    for _ in range(random.choice((1, 1, 2))):
        free = [k for k in range(1, len(words)) if words[k] not in KEPT and words[k - 1] not in KEPT]
        choice = random.randrange(5)
        if choice == 0 and free:
            del words[random.choice(free)]
        elif choice == 1:
            words += [random.choice(OPTIONS), random.choice(HOSTILE_VALUES)]
        elif choice == 2 and free:
            k = random.choice(free)
            words[k] = mutate_text(random, words[k])
        elif free:
            words[random.choice(free)] = random.choice(HOSTILE_VALUES)
    return _as_typed(words)


def _as_typed(words: Sequence[str]) -> list[str]:
    """Return arguments as a process gets them: without null bytes, and undecodable bytes as Python decodes them."""
    return [
        word.replace("\x00", "").encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape") for word in words
    ]


def is_bounded(word: str, folder: Path) -> bool:
    """Return whether a word is no folder outside of the campaign's, such as / or /proc: a search there takes long."""
    path = os.path.realpath(os.path.join(folder, word))  # noqa: PTH118  # a Path refuses some hostile words
    return not os.path.isdir(path) or Path(path).is_relative_to(os.path.realpath(folder.parent))  # noqa: PTH112


def write_files(random: Random, arguments: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """Write a mutated machine and a mutated experiment, and return the command with their names."""
    ending = random.choice(("json", "dot", "att"))
    machine, texts = folder / f"machine.{ending}", valid_texts(ending)
    machine.write_text(mutate_text(random, random.choice(texts), texts), encoding="utf-8", errors="replace")
    spec = folder / "spec.toml"
    spec.write_text(mutate_text(random, random.choice(valid_texts("toml"))), encoding="utf-8", errors="replace")
    names = {"MACHINE": machine.name, "SPEC": spec.name}
    return tuple(names.get(word, word) for word in arguments)


def attack_commands(random: Random, folder: Path) -> Iterator[Trial]:
    """Run mutated commands in a copy of the folders, each in a fork."""
    make_templates().copy(folder)
    for _ in range(COMMANDS):
        if random.random() < 0.4:
            arguments = choose_known(random, folder)
        else:
            base = random.choice(VALID)
            has_file = "MACHINE" in base or "SPEC" in base
            written = write_files(random, base, folder)
            arguments = list(written) if has_file and random.random() < 0.7 else mutate_command(random, written)
        arguments = [word if is_bounded(word, folder) else "/nonexistent" for word in arguments]
        # A sweep times a few training steps of every size before it shows a plan.
        limit = MEASURING_LIMIT if "sweep" in arguments[:1] else CPU_LIMIT
        fault = find_fault(run_sdssm(arguments, folder, cpu_limit=limit))
        shown = join(word if len(word) <= 60 else word[:50] + f"...({len(word)})" for word in arguments)
        problem = None if fault is None else f"{fault} for {shown!r}"
        yield Trial(kind=f"sdssm {arguments[0]}" if arguments[0].isalpha() else "sdssm", problem=problem)


ATTACKS = (
    Attack(
        name="malformed-commands",
        subject="mutated arguments, machines and experiments through every command",
        attempt=attack_commands,
        share=3.0,
        patience=240.0,
    ),
)
