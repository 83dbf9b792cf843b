"""Folders of a stranger: links, pipes, devices, endless files and absurd sizes, under limits of memory and time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign.attack import Attack, Trial
from tests.campaign.corpus_files import read_corpus
from tests.campaign.sandbox import BUSY_CPU_SECONDS, find_fault, run_sdssm
from tests.campaign.templates import FINISHED, RESULTS, RUN_FILES, make_templates

#: What lies outside of the folder. No command may change it, print it, or add to it.
SECRET = "the-text-of-a-file-outside"
FILES = (*RUN_FILES, "checkpoints/step-000000020.safetensors", "owner")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("evaluate", FINISHED, "--quiet"),
    ("runs", "runs"),
    ("runs", "runs", "--verify"),
    ("report", "runs", "results", "-o", "page.html"),
    ("playground", "runs", "-o", "page.html"),
    ("train", "--resume", "runs/parity", "--quiet"),
    ("train", "parity", "--out", "runs/parity", "--seeds", "1", "--steps", "5", "--batch", "4", "--state", "4",
     "--overwrite", "--quiet"),
    ("certify", FINISHED, "--quiet", "--strings", "16", "--search", "8"),
    ("extract", FINISHED, "--quiet", "--lengths", "5", "--strings", "4", "--max-states", "8"),
    ("horizon", FINISHED, "--quiet", "--max-length", "8"),
    ("snap", FINISHED, "--out", "snapped", "--max-states", "8", "--quiet"),
    ("reproduce", "tiny.toml", "--no-train", "--out", "experiments", "--reuse", "runs", "--results", "out", "--quiet"),
)  # fmt: skip
HUGE = (10**9, 2**31, 2**63, 10**18, 10**30, -1, 0, 1e308, 4_000_000, 100_000)


def _replace(path: Path) -> Path:
    """Remove a file or folder, so that something else can have its name; create the folder around it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def make_fifo(random: Random, run: Path, outside: Path) -> str:
    name = random.choice(FILES)
    os.mkfifo(_replace(run / name))
    return f"{name} is a FIFO"


def make_device_link(random: Random, run: Path, outside: Path) -> str:
    name, device = random.choice(FILES), random.choice(("/dev/zero", "/dev/full", "/proc/self/mem", "/dev/tty"))
    _replace(run / name).symlink_to(device)
    return f"{name} is a link to {device}"


def make_file_link(random: Random, run: Path, outside: Path) -> str:
    name = random.choice(FILES)
    _replace(run / name).symlink_to(outside / "notes.json")
    return f"{name} is a link to a file outside"


def make_folder_link(random: Random, run: Path, outside: Path) -> str:
    _replace(run / "checkpoints").symlink_to(outside)
    return "checkpoints is a link to a folder outside"


def make_loop(random: Random, run: Path, outside: Path) -> str:
    target = random.choice((run / "loop", run.parent / "up"))
    target.symlink_to(run.parent)
    return "a link to a folder above"


def make_folder(random: Random, run: Path, outside: Path) -> str:
    name = random.choice(FILES)
    _replace(run / name).mkdir()
    return f"{name} is a folder"


def make_sparse(random: Random, run: Path, outside: Path) -> str:
    name, size = random.choice(FILES), random.choice((3 << 30, 1 << 40))
    with _replace(run / name).open("wb") as file:
        file.truncate(size)
    return f"{name} has {size:,} bytes of zeros"


def make_sparse_tail(random: Random, run: Path, outside: Path) -> str:
    name = random.choice([name for name in FILES if name != "owner"])
    with (run / name).open("r+b") as file:
        file.truncate(1 << 40)
    return f"{name} ends in 1 TB of zeros"


def make_wide_header(random: Random, run: Path, outside: Path) -> str:
    name = random.choice([name for name in FILES if name.endswith(".safetensors")])
    size = random.choice((2**63 - 1, 2**40, 99_999_999))
    shape = random.choice(([2**31, 2**31], [10**18], [0, 2**62], [1] * 5000))
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}
    header = json.dumps({"readout.weight": entry, "__metadata__": {"step": "20", "sha256": "0"}}).encode()
    length = random.choice((size, len(header)))
    _replace(run / name).write_bytes(length.to_bytes(8, "little") + header + bytes(4))
    return f"{name} has a header of {length:,} bytes and the shape {str(shape)[:40]}"


def make_huge_number(random: Random, run: Path, outside: Path) -> str:
    """Replace a number anywhere in a JSON file."""
    name = random.choice([name for name in FILES if name.endswith(".json")])
    data = json.loads((run / name).read_text())
    places = list(_places(data, int | float))
    if not places:
        return make_nesting(random, run, outside)
    holder, key = random.choice(places)
    holder[key] = random.choice(HUGE)
    (run / name).write_text(json.dumps(data))
    return f"{key} in {name} is {holder[key]}"


def make_wrong_type(random: Random, run: Path, outside: Path) -> str:
    """Replace a value anywhere in a JSON file by one of another type, or by a path."""
    name = random.choice([name for name in FILES if name.endswith(".json")])
    data = json.loads((run / name).read_text())
    holder, key = random.choice(list(_places(data, object)))
    paths = (str(outside / "notes.json"), "/dev/zero", "../../../outside/notes.json", f"sink:{outside}/notes.json")
    others: tuple[Any, ...] = ([], {}, [["x"]], None, True, "x", "\x1b[2J", -1, 0.5, *paths)
    holder[key] = random.choice(others)
    (run / name).write_text(json.dumps(data))
    return f"{key} in {name} is {holder[key]!r}"


def make_nesting(random: Random, run: Path, outside: Path) -> str:
    name = random.choice([name for name in FILES if name.endswith((".json", ".jsonl"))])
    depth = random.choice((900, 5000, 100_000))
    (run / name).write_text(random.choice(("[" * depth, '{"a":' * depth, "[" * depth + "]" * depth)) + "\n")
    return f"{name} is nested {depth:,} deep"


def make_huge_machine(random: Random, run: Path, outside: Path) -> str:
    """Make the task a machine of many states, or one whose text is not a machine."""
    data = json.loads((run / "config.json").read_text())
    states, symbols = random.choice(((200_000, 256), (20_000, 2), (2, 100_000)))
    if states * symbols > 1_000_000:
        text = '{"table": [' + ",".join(["[" + "0," * 255 + "0]"] * 4000) + "]}"
    else:
        text = json.dumps({"table": [[0] * symbols] * states})
    data["machines"] = random.choice(([text, None], [text, text], [["x"]], ["{}", None], ["[" * 9000, None], "x"))
    data["task"] = random.choice((data["task"], "my task", "s9", f"random:{states}x{symbols}:0", "a5*a5*a5"))
    (run / "config.json").write_text(json.dumps(data))
    return f"machines in config.json are {str(data['machines'])[:40]!r}, the task is {data['task']!r}"


def make_many_events(random: Random, run: Path, outside: Path) -> str:
    line = random.choice(
        ('{"step": 1e400}', '{"step": 9999999999999999999999}', '{"loss": {}}', "null", '{"a": "\x1b"}')
    )
    (run / "events.jsonl").write_text((line + "\n") * random.choice((1, 20_000)))
    return f"events.jsonl repeats {line!r}"


def make_known_config(random: Random, run: Path, outside: Path) -> str:
    """Merge a finding of the corpus into config.json."""
    text = random.choice(read_corpus("config"))
    data = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**data, **json.loads(text)}))
    return f"config.json has {text.strip()[:80]}"


MAKERS: dict[str, Callable[[Random, Path, Path], str]] = {
    "FIFO": make_fifo,
    "link to a device": make_device_link,
    "link to a file outside": make_file_link,
    "link to a folder outside": make_folder_link,
    "link to a folder above": make_loop,
    "folder instead of a file": make_folder,
    "sparse file": make_sparse,
    "sparse end of a file": make_sparse_tail,
    "safetensors header": make_wide_header,
    "huge number": make_huge_number,
    "wrong type or path": make_wrong_type,
    "deep nesting": make_nesting,
    "machine in config.json": make_huge_machine,
    "event log": make_many_events,
    "config of the corpus": make_known_config,
}


def _places(value: Any, kind: Any) -> Iterator[tuple[Any, Any]]:
    """Yield container and key of all values of a type, at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if isinstance(item, kind) and not isinstance(item, bool):
            yield value, key
        yield from _places(item, kind)


def remove_checksums(run: Path) -> None:
    """Remove the checksums of JSON files, as a stranger can, so that a changed value gets as far as possible."""
    for path in [*run.glob("*.json"), *run.glob("*.jsonl")]:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        values = [json.loads(line) for line in lines]
        for value in values:
            for field in ("checksum", "crc"):
                value.pop(field, None)
        path.write_text("".join(json.dumps(value) + "\n" for value in values))


def attack_folder(random: Random, folder: Path) -> Iterator[Trial]:
    """Make a folder hostile, and run a few commands on it."""
    inside, outside = folder / "inside", folder / "outside"
    inside.mkdir()
    outside.mkdir()
    make_templates().copy(inside, "runs/parity", RESULTS, "tiny.toml")
    (outside / "notes.json").write_text(json.dumps({SECRET: [SECRET]}))
    (outside / "step-000000020.safetensors").write_bytes(b"a file of another program")
    kind = random.choice(list(MAKERS))
    if random.random() < 0.7:
        remove_checksums(inside / FINISHED)
    detail = MAKERS[kind](random, inside / FINISHED, outside)
    before = _contents(outside)
    chosen = random.sample(COMMANDS, 3)
    if "outside" in kind:  # the commands that write are the ones that could follow a link
        chosen[random.randrange(3)] = random.choice([words for words in COMMANDS if words[0] == "train"])
    for arguments in chosen:
        outcome = run_sdssm(arguments, inside)
        fault = find_fault(outcome, allowance=BUSY_CPU_SECONDS)
        if fault is None and _contents(outside) != before:
            fault = "files outside of the folder were changed"
        if fault is None and SECRET in outcome.text:
            fault = "the contents of a file outside were printed"
        page = inside / "page.html"
        if fault is None and page.is_file() and SECRET in page.read_text():
            fault = "the page has the contents of a file outside"
        problem = None if fault is None else f"{' '.join(arguments[:2])}, {detail}: {fault}"
        yield Trial(kind=kind, problem=problem)
        if fault is not None:
            return  # later commands may fail because of this one


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


ATTACKS = (
    Attack(
        name="hostile-folders",
        subject="links, pipes, devices, sparse files and absurd numbers in a run folder, with bounded memory and time",
        attempt=attack_folder,
        share=3.0,
        patience=180.0,
    ),
)
