"""The languages of a folder: what their file names say, and which of them are used to choose settings.

A file name has the size of the alphabet, the size of the tier, the class, k, t and a number: 16.07.TLT.4.1.3.att. Files
with other names are of the class "other".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from sdssm.automata.att import check_language
from sdssm.automata.formats import read_machine
from sdssm.errors import FormatError, SettingsError, did_you_mean
from sdssm.files import describe_file_error, format_path
from sdssm.tasks.task import Task

SUFFIX = ".att"
#: The class of a file whose name does not follow MLRegTest.
OTHER = "other"
#: The classes in the order in which they are listed: local, piecewise, both, and beyond.
CLASSES = ("SL", "TSL", "LT", "TLT", "LTT", "TLTT", "SP", "PT", "PLT", "TPLT", "SF", "Zp", "Reg", OTHER)
#: The parts of a folder that `select_languages` knows.
TUNING, STUDIED, HELD_OUT, ALL = "tuning", "studied", "held-out", "all"
PARTS = (TUNING, STUDIED, HELD_OUT, ALL)
TUNING_FILE, STUDIED_FILE = "tuning.txt", "studied.txt"
#: The languages outside of `tuning.txt` whose test lengths were looked at while the loss was found. `studied.txt` has
#: the names that were written down.
STUDIED_COUNT = 36


class LanguageName(NamedTuple):
    """What the name of a language says; numbers are None for names that do not follow MLRegTest."""

    kind: str  #: the class, such as TLT
    alphabet: int | None  #: the number of symbols
    tier: int | None  #: the number of symbols that matter
    k: int | None
    t: int | None
    number: int | None


def parse_name(name: str) -> LanguageName:
    """Return what a name says.

    >>> parse_name("16.07.TLT.4.1.3")
    LanguageName(kind='TLT', alphabet=16, tier=7, k=4, t=1, number=3)
    >>> parse_name("mine").kind
    'other'
    """
    match = re.fullmatch(r"(\d+)\.(\d+)\.([A-Za-z]+)\.(\d+)\.(\d+)\.(\d+)", name)
    if match is None:
        return LanguageName(OTHER, None, None, None, None, None)
    alphabet, tier, kind, *numbers = match.groups()
    return LanguageName(kind, int(alphabet), int(tier), *map(int, numbers))


@dataclass(frozen=True)
class Language:
    """A language of a folder: its name, and the task of recognising it."""

    name: str
    task: Task

    @property
    def kind(self) -> str:
        """The class that its name says, or "other"."""
        return parse_name(self.name).kind

    @property
    def alphabet(self) -> int:
        """The number of symbols of its automaton."""
        return self.task.n_symbols


def list_languages(folder: Path) -> dict[str, Path]:
    """Return the .att files in a folder by the name of the language, sorted; an error if there are none."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError as error:
        raise FormatError(f"cannot read the folder {format_path(folder)}: {describe_file_error(error)}") from None
    if not paths:
        raise FormatError(
            f"{format_path(folder)} holds no {SUFFIX} files; give the folder with the automata of MLRegTest"
        )
    return {path.name.removesuffix(SUFFIX): path for path in paths}


def select_languages(names: Sequence[str], chosen: Iterable[str]) -> list[str]:
    """Return the names of a part of a folder: tuning, studied, held-out, all, or languages by name, in its order.

    >>> select_languages(["04.04.SL.2.1.0", "mine"], ["mine"])
    ['mine']
    >>> select_languages(["mine"], ["mien"])
    Traceback (most recent call last):
    sdssm.errors.SettingsError: the folder has no language 'mien'; did you mean 'mine'?
    """
    parts: dict[str, set[str]] = {part: set() for part in PARTS}
    for name in names:
        parts[part_of(name)].add(name)
        parts[ALL].add(name)
    selected = set[str]()
    for word in chosen:
        if word in parts:
            selected |= parts[word]
        elif word.removesuffix(SUFFIX) in names:
            selected.add(word.removesuffix(SUFFIX))
        else:
            hint = did_you_mean(word, [*PARTS, *names], f"give {', '.join(PARTS)}, or names of files")
            raise SettingsError(f"the folder has no language {word!r}; {hint}")
    if not selected:
        raise SettingsError(f"the folder has no {' or '.join(chosen)} languages; give --languages all")
    return [name for name in names if name in selected]


def read_language(path: Path) -> Language:
    """Return the language of a file; an error names the file."""
    name = path.name.removesuffix(SUFFIX)
    machine = read_machine(path, sink=True)
    try:
        check_language(machine)
    except FormatError as error:
        raise FormatError(f"{format_path(path)}: {error}") from None
    return Language(name, Task(name=name, machine=machine))


# -- the languages on which settings are chosen ------------------------------------------------------------------------


@cache
def tuning_names() -> frozenset[str]:
    """Return the 100 languages on which settings are chosen.

    >>> len(tuning_names())
    100
    """
    return _listed(TUNING_FILE)


@cache
def studied_names() -> frozenset[str]:
    """Return the languages, of those named, whose test lengths were looked at while the loss was found.

    >>> studied_names() & tuning_names()
    frozenset()
    """
    return _listed(STUDIED_FILE)


def _listed(file: str) -> frozenset[str]:
    text = files("sdssm.experiments.mlregtest").joinpath(file).read_text()
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def part_of(name: str) -> str:
    """Return the part that a language belongs to: tuning, studied or held-out.

    >>> part_of("04.03.TSL.4.1.5"), part_of("mine")
    ('studied', 'held-out')
    """
    if name in tuning_names():
        return TUNING
    return STUDIED if name in studied_names() else HELD_OUT


def choose_tuning(sizes: dict[str, int], count: int = 100, seed: int = 0) -> list[str]:
    """Choose languages in proportion to classes and alphabets, and of all sizes; `sizes` are numbers of states.

    The names are sorted by class, alphabet, number of states and name, and every n-th is taken, from a start that the
    seed decides: systematic sampling. Each class and alphabet gets its share, and within it small and large automata
    do.

    >>> choose_tuning({"04.04.SL.2.1.0": 3, "04.04.SL.2.1.1": 9, "16.16.SL.2.1.0": 5, "16.16.SP.2.1.0": 4}, count=2)
    ['04.04.SL.2.1.1', '16.16.SP.2.1.0']
    """
    from random import Random

    def key(name: str) -> tuple[int, int, int, str]:
        parsed = parse_name(name)
        return CLASSES.index(parsed.kind), parsed.alphabet or 0, sizes[name], name

    ordered = sorted(sizes, key=key)
    step = len(ordered) / count
    start = Random(seed).random() * step  # noqa: S311  # no secret: a sample that can be repeated
    return sorted(ordered[int(start + step * number)] for number in range(count))
