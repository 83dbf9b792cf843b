"""Hostile arguments of every command: values that are empty, huge, no numbers, too long, not printable, or bad paths.

Plain data, and functions that combine it. A word in braces stands for a path that the caller makes: see `PLACES`. What
must hold for each: exit code 0 or 2, no traceback, within seconds; after an error one line of at most 300 letters;
and no control character in what is printed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

#: The paths that arguments name in braces; `make_places` makes all of them but the run.
PLACES = ("run", "out", "missing", "folder", "empty", "text", "fifo", "binary", "nameless")

#: Valid arguments of every command, which take seconds at most. They train nothing.
VALID: tuple[tuple[str, ...], ...] = (
    ("tasks", "--json"),
    ("tasks", "show", "parity", "--length", "5", "--train-length", "10", "--seed", "1", "--states"),
    ("tasks", "show", "regex:(ab)*", "--svg", "{out}.svg", "--out", "{out}.json"),
    ("models", "lstm", "--task", "parity", "--json"),
    ("settings", "lr"),
    ("train", "parity", "--dry-run", "--seeds", "2", "--steps", "5", "--lr", "0.1", "--batch", "8", "--state", "8"),
    ("train", "parity", "--dry-run", "--train-length", "9", "--set", "dictionary=4", "--model", "sd-ssm"),
    ("train", "parity", "--dry-run", "--preset", "paper", "--device", "cpu", "--out", "{out}"),
    ("evaluate", "{run}", "--max-length", "9", "--strings", "8", "--seed", "3", "--device", "cpu"),
    ("evaluate", "{run}", "--lengths", "5,7", "--strings", "8", "--plot", "{out}.svg", "--json"),
    ("check", "{run}", "--max-length", "9", "--strings", "8", "--seed", "0", "--max-seconds", "1", "--quiet"),
    ("check", "{run}", "--sections", "laws", "--max-seconds", "1", "--quiet", "--markdown", "{out}.md"),
    ("runs", "{run}", "--json"),
    ("compile", "parity", "--out", "{out}", "--seed", "0", "--length", "9", "--strings", "2", "--column-norm", "2"),
    ("compile", "parity", "--out", "{out}", "--model", "complex-diagonal", "--layers", "1"),
    (
        "extract",
        "{run}",
        "--lengths",
        "5",
        "--strings",
        "8",
        "--max-states",
        "9",
        "--seed",
        "0",
        "--max-seconds",
        "1",
        "--quiet",
    ),
    ("extract", "{run}", "--svg", "{out}.svg", "--out", "{out}.json", "--max-seconds", "1", "--quiet"),
    ("certify", "{run}", "--strings", "9", "--search", "9", "--max-seconds", "1", "--quiet", "--task", "parity"),
    ("horizon", "{run}", "--max-length", "9", "--strings", "8", "--seed", "0", "--max-seconds", "1", "--quiet"),
    ("snap", "{run}", "--out", "{out}", "--every", "4", "--max-seconds", "1", "--quiet"),
    ("export", "{run}", "--format", "numpy", "--out", "{out}", "--json"),
    ("reproduce", "overview", "--no-train", "--budget", "0.01", "--seeds", "1", "--workers", "1", "--out", "{out}"),
    ("reproduce", "overview", "--no-train", "--results", "{out}", "--models", "sd-ssm"),
    ("reproduce", "mlregtest", "--dry-run", "--data", "{folder}", "--part", "1/2", "--at-once", "2"),
    ("sweep", "parity", "--dry-run", "--grid", "lr=1e-3,1e-2", "--seeds", "1", "--max-length", "9", "--name", "mine"),
    (
        "sweep",
        "parity",
        "--dry-run",
        "--range",
        "lr=1e-5..1e-2",
        "--search",
        "random",
        "--trials",
        "3",
        "--parallel",
        "2",
    ),
    (
        "sweep",
        "parity",
        "--dry-run",
        "--grid",
        "lr=1e-3,1e-2",
        "--keep",
        "0.5",
        "--rungs",
        "0.1,0.5",
        "--budget",
        "0.5",
    ),
    ("report", "{run}", "--out", "{out}.html", "--title", "mine", "--max-mb", "2"),
    ("playground", "{run}", "--out", "{out}.html", "--title", "mine"),
    ("figure", "matrices", "{run}", "--out", "{out}.svg", "--columns", "1", "--strings", "4"),
    ("completion", "bash"),
)

#: Numbers, and texts in their place.
NUMBERS: tuple[str, ...] = (
    "",
    " ",
    "0",
    "-1",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "1e30",
    "1e-400",
    "999999999",
    "999999999999",
    "99999999999999999999",
    "9" * 5_000,
    "1" + "0" * 30,
    "0x10",
    "1_0",
    "\u0663",
    "true",
    "none",
    "[1]",
    "{}",
    "1,2,3",
    ",",
)
#: Names and texts.
TEXTS: tuple[str, ...] = (
    "x" * 300,
    "x" * 10_000,
    "\x1b]0;pwned\x07",
    "\x9b31m",
    "\u202egnp",
    "two\nlines",
    "carriage\rreturn",
    "null\0byte",
    "\udcff\udcfe",
    "\ud800",
    "-",
    "--",
    "--no-such-option",
    "..",
    "*",
    "a*",
    "\u03b1\u03b2",
    "%s%d{}",
    "=",
    "lr=",
    "=1",
    "seed=1",
    "steps=1e400",
    "lr=nan",
    "state=999999999999",
)
#: Names of tasks.
TASKS: tuple[str, ...] = (
    "regex:" + "a" * 10_000,
    "regex:" + "(" * 10_000,
    "regex:(((a{99}){99}){99}){99}",
    "regex:(a|b)*a(a|b){40}",
    "regex:(a?){500}a{500}",
    "regex:[" + "a" * 10_000,
    "regex[" + "ab" * 5_000 + "]:a",
    "regex:\x1b[31m",
    "regex:a{999999999}",
    "regex:",
    "random:999999999x999999999:0",
    "random:10x2:999999999999999999",
    "prefix:99x9",
    "prefix:999999999x256",
    "dyck999999999",
    "s99999",
    "s7:all",
    "z999999999:99:0",
    "z10000*z10000",
    "*".join(["z2"] * 40),
    "*".join(["parity"] * 2_000),
    "d5:999999999:0",
    "alphabet[a-z]:{missing}.att",
    "sink:{missing}.json",
)
#: Paths.
PATHS: tuple[str, ...] = (
    "/dev/null",
    "/dev/zero",
    "/proc/self/mem",
    "/proc/self/environ",
    "/nonexistent/a/b/c",
    "/" + "x/" * 3_000,
    "{missing}",
    "{folder}",
    "{empty}",
    "{text}",
    "{fifo}",
    "{fifo}.json",
    "{binary}",
    "{nameless}",
    "{folder}.json",
    "x" * 300,
    "~root",
)
HOSTILE = (*NUMBERS, *TEXTS, *TASKS, *PATHS)

#: Arguments that once ended in a traceback, a hang or a line of thousands of letters.
FINDINGS: tuple[tuple[str, ...], ...] = (
    ("train", "parity", "--seeds", "999999999"),
    ("train", "parity", "--steps", "9" * 5_000),
    ("train", "x" * 300, "--dry-run"),
    ("train", "regex:" + "a" * 10_000 + "("),
    ("extract", "{run}", "--seed", "99999999999999999999"),
    ("extract", "{run}", "--lengths", "9999999999"),
    ("extract", "{run}", "--strings", "999999999999"),
    ("compile", "parity", "--out", "{out}", "--length", "999999999999"),
    ("compile", "parity", "--out", "x" * 300),
    ("evaluate", "{run}", "--strings", "999999999999"),
    ("certify", "{run}", "--strings", "999999999999"),
    ("horizon", "{run}", "--strings", "999999999999"),
    ("check", "{run}", "--strings", "999999999999"),
    ("figure", "states", "{run}", "--out", "{out}.svg", "--strings", "999999999999"),
    ("tasks", "show", "\x1b]0;pwned\x07"),
    ("tasks", "show", "regex:" + "(" * 10_000),
    ("models", "\x9b31m"),
    ("runs", "\u202e"),
    ("\x1b[2J",),
    ("sweep", "parity", "--grid", "lr=1", "--dry-run", "--name", "x" * 300),
)


def make_places(root: Path, run: Path) -> dict[str, str]:
    """Make the paths that arguments name, below a folder; `run` is a folder with a run."""
    folder, empty = root / "folder", root / "empty"
    for path in (folder, empty, root / "folder.json"):
        path.mkdir(exist_ok=True)
    (folder / "one.att").write_text("0 1 a a\n1 0 b b\n0\n")
    (root / "text").write_text("a text\n")
    (root / "binary").write_bytes(bytes(range(256)) * 4)
    for name in ("fifo", "fifo.json"):
        if not (root / name).exists():
            os.mkfifo(root / name)
    nameless = os.fsdecode(os.fsencode(root) + b"/\xff\xfe")
    Path(nameless).mkdir(exist_ok=True)
    names = ("out", "missing", "folder", "empty", "text", "fifo", "binary")
    return {"run": str(run), "nameless": nameless, **{name: str(root / name) for name in names}}


def fill(arguments: Sequence[str], places: Mapping[str, str]) -> list[str]:
    """Return arguments with the paths in place of the words in braces."""
    filled = []
    for argument in arguments:
        for name, path in places.items():
            argument = argument.replace(f"{{{name}}}", path)
        filled.append(argument)
    return filled


def substitutions(arguments: Sequence[str], values: Sequence[str] = HOSTILE) -> Iterator[list[str]]:
    """Yield the arguments with each value in place of each argument but the name of the command and of options."""
    for place in range(1, len(arguments)):
        if not arguments[place].startswith("--"):
            for value in values:
                yield [*arguments[:place], value, *arguments[place + 1 :]]


def mutate(arguments: Sequence[str], random: Random) -> list[str]:
    """Return arguments with one to three changes: a value replaced, dropped, repeated, swapped or garbled."""
    changed = list(arguments)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(1, max(2, len(changed)))
        kind = random.choice(("replace", "replace", "replace", "drop", "repeat", "swap", "garble"))
        if place >= len(changed):
            changed.append(random.choice(HOSTILE))
        elif kind == "replace":
            changed[place] = random.choice(HOSTILE)
        elif kind == "drop":
            del changed[place]
        elif kind == "repeat":
            changed.insert(place, changed[place])
        elif kind == "swap":
            other = random.randrange(1, len(changed))
            changed[place], changed[other] = changed[other], changed[place]
        else:
            text = changed[place]
            cut = random.randrange(len(text) + 1)
            changed[place] = text[:cut] + random.choice(("\x1b", "\0", "9" * 30, "\u202e", "*", ",", "=")) + text[cut:]
    if "--dry-run" in arguments and "--dry-run" not in changed:  # otherwise a valid command would train for hours
        changed.append("--dry-run")
    return changed


def random_arguments(count: int, random: Random) -> Iterator[list[str]]:
    """Yield so many mutations of valid arguments."""
    for _ in range(count):
        yield mutate(random.choice(VALID), random)
