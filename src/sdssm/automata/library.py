"""Machines by name: the paper's, families of groups, languages, regular expressions, and files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np

from sdssm.automata import groups, languages
from sdssm.automata.bridges import from_object
from sdssm.automata.formats import FORMATS, find_att_files, read_machine
from sdssm.automata.machine import Machine
from sdssm.automata.mappings import machine_from_mapping
from sdssm.automata.partial import build_machine
from sdssm.automata.regex import expand_alphabet, regex_machine
from sdssm.errors import AutomatonError, FormatError, UnknownNameError, did_you_mean, format_value
from sdssm.files import format_path

#: Names without a parameter.
FIXED: dict[str, Callable[[], Machine]] = {
    "parity": lambda: Machine(table=[[0, 1], [1, 0]], states=["even", "odd"]),
    "even_pairs": languages.even_pairs,
    "cycle": lambda: groups.cyclic(5).machine([4, 0, 1], ["left", "stay", "right"]),
    "arithmetic": languages.arithmetic,
    "left_arithmetic": languages.left_arithmetic,
    "a5": lambda: _machine_from_permutations(groups.alternating(5), {"cycle": "12340", "swap": "10324"}),
    **{f"tomita{k}": partial(languages.tomita, k) for k in languages.TOMITA},
}

#: Names with a size: prefix -> smallest size, group, machine with the standard generators.
FAMILIES: dict[str, tuple[int, Callable[[int], groups.FiniteGroup], Callable[[int], Machine]]] = {
    "c2xc": (2, lambda n: groups.toggled_ring(n, mirrored=False), lambda n: _toggled_ring(n, mirrored=False)),
    "d": (2, lambda n: groups.toggled_ring(n, mirrored=True), lambda n: _toggled_ring(n, mirrored=True)),
    "z": (2, groups.cyclic, lambda n: groups.cyclic(n).machine([0, 1], ["stay", "+1"])),
    "c": (2, groups.cyclic, lambda n: groups.cyclic(n).machine([0, 1], ["stay", "+1"])),
    "s": (2, groups.symmetric, lambda n: _symmetric(n)),
    "a": (3, groups.alternating, lambda n: _alternating(n)),
}

#: The patterns of names, for help texts.
PATTERNS = {
    "parity, even_pairs, cycle, arithmetic, a5": "the paper's tasks, with c2xc4, c2xc30, d4 and d30",
    "c2xc{n}, d{n}": "a ring of n positions with a toggle; in d{n} the toggle reverses the direction of the ring",
    "z{n}, s{n}, a{n}": "counting mod n, also called c{n}; all permutations of n elements; all even ones",
    "{group}:all": "the group with every element as a symbol, as in a5:all; trained to length 128, tested to 512",
    "{group}:{g}:{seed}": "the group with g random generators, as in s5:32:0",
    "tomita1 ... tomita7": "the seven languages of Tomita",
    "dyck{n}": "balanced brackets of one kind, nested at most n deep",
    "prefix:{p}x{q}": "the first p symbols of a string over q symbols, as in prefix:4x2",
    "left_arithmetic": "arithmetic from left to right: * has no precedence",
    "random:{states}x{symbols}:{seed}": "a random machine, as in random:10x2:0",
    "regex:{expression}": "strings that match, as in regex:(ab)*; regex[a-z]:... gives the alphabet",
    "{name}*{name}": "a direct product, as in z3*d5",
    "{path}.json, {path}.dot": "a machine from a file; sink:{path} completes a partial one with a sink state",
    "{path}.att": "a machine from an AT&T text file; alphabet[a-d]:{path} gives it more symbols than the file shows",
}
#: The prefix of a file whose missing transitions lead to a sink state.
SINK = "sink:"
#: A file whose alphabet is given: the alphabet and the path.
ALPHABET = re.compile(r"alphabet\[((?:\\.|[^\]\\])*)\]:(.*)", re.DOTALL)


def get_machine(source: Any, *, sink: bool = False) -> Machine:
    """Return the machine of a name, a file, a table, or an automaton of another library.

    Args:
        source: a name such as "a5" (`sdssm tasks` lists them) or the path of a .json, .dot or .att file, as text or
            `Path`; a `Machine`, or an object with a `machine`, such as a task; a table of next states, states x
            symbols, with start state 0 and the number of the state as output (other ones: `Machine(table=...,
            start=..., outputs=...)`); a dictionary as in a JSON file; an automaton of automata-lib, AALpy, pythomata,
            or a networkx graph.
        sink: whether missing transitions (None in a table) lead to a new state that is never left; otherwise they are
            an error. In a name, write "sink:" before the path of a file.

    >>> get_machine("a5"), get_machine("z3*d5")
    (Machine(60 states, 2 symbols, 60 outputs), Machine(30 states, 4 symbols, 30 outputs))
    >>> get_machine([[0, 1], [1, 0]]).distinguish(get_machine("parity")) is None
    True
    >>> get_machine("parety")
    Traceback (most recent call last):
    sdssm.errors.UnknownNameError: no task or automaton is called 'parety'; did you mean 'parity'? ...
    """
    if isinstance(source, Machine):
        return source
    if isinstance(source, str):
        return _get_named(source, sink)
    if isinstance(source, PathLike):
        return read_machine(source, sink=sink)
    if isinstance(source, Mapping):
        return machine_from_mapping(source, sink=sink)
    if isinstance(getattr(source, "machine", None), Machine):
        return cast(Machine, source.machine)
    if isinstance(source, (list, tuple)):
        return build_machine(table=source, sink=sink)
    if hasattr(source, "__array__"):  # numpy, and tensors of other libraries
        return build_machine(table=np.asarray(source), sink=sink)
    return from_object(source, sink=sink)


def get_library_machine(name: str) -> Machine:
    """Return the machine of a name that needs no file: names in folders of others must not make us open one.

    >>> get_library_machine("a5").n_states
    60
    >>> get_library_machine("words.json")
    Traceback (most recent call last):
    sdssm.errors.UnknownNameError: 'words.json' is a file, which is not read here; ...
    """
    if machine_files(name):
        raise UnknownNameError(
            f"{format_value(name)} is a file, which is not read here; name it in the command, as in --task FILE"
        )
    return _get_named(name, False, files=False)


def machine_files(name: str) -> list[Path]:
    """Return the files that the machine of a name is read from; none if the name alone defines it.

    >>> machine_files("sink:words.json*z3"), machine_files("a5"), machine_files("regex:a.json")
    ([PosixPath('words.json')], [], [])
    """
    factors = [factor for factor in _split_product(name) if not factor.startswith(("regex:", "regex["))]
    return [path for path in map(_path, factors) if path.suffix in FORMATS]


def _path(factor: str) -> Path:
    """Return the path of a name that is one, without what stands before it."""
    match = ALPHABET.fullmatch(factor)
    return Path(match[2] if match else factor.removeprefix(SINK))


def _get_named(name: str, sink: bool, *, files: bool = True) -> Machine:
    """Return the machine of a name, which may be a product."""
    factors = _split_product(name)
    if len(factors) > 1 and "" in factors:
        raise UnknownNameError(f"{format_value(name)} has an empty factor; write a name on either side of each *")
    machine = _get_factor(factors[0], sink, files)
    for factor in factors[1:]:
        other = _get_factor(factor, sink, files)
        groups.check_n_states(format_value(name), machine.n_states * other.n_states)
        machine = machine * other
    return machine


def _split_product(name: str) -> list[str]:
    """Return the names between the stars.

    A regular expression, which may contain stars, extends to the end.
    """
    factors = []
    while not name.startswith("regex") and "*" in name:
        factor, _, name = name.partition("*")
        factors.append(factor)
    return [*factors, name]


def _get_factor(name: str, sink: bool, files: bool) -> Machine:
    """Return the machine of a name that is not a product."""
    if match := re.fullmatch(r"regex(?:\[((?:\\.|[^\]\\])*)\])?:(.*)", name, re.DOTALL):
        return regex_machine(match[2], None if match[1] is None else expand_alphabet(match[1]))
    if match := ALPHABET.fullmatch(name):
        symbols = match[1].split() if any(map(str.isspace, match[1])) else expand_alphabet(match[1])
        return read_machine(match[2], symbols=symbols)
    if Path(name).suffix in FORMATS:
        return read_machine(name.removeprefix(SINK), sink=sink or name.startswith(SINK))
    plain = name.strip().lower().replace("-", "_")
    if plain in FIXED:
        return FIXED[plain]()
    if match := re.fullmatch(r"dyck([0-9]{1,9})", plain):
        groups.check_n_states(plain, int(match[1]) + 2)
        if int(match[1]) < 1:
            raise AutomatonError(f"{plain} is too small; dyck{{n}} starts at n = 1")
        return languages.bounded_dyck(int(match[1]))
    if match := re.fullmatch(r"prefix:([0-9]{1,9})x([0-9]{1,9})", plain):
        return _prefix_machine(plain, *map(int, match.groups()))
    if match := re.fullmatch(r"random:([0-9]{1,9})x([0-9]{1,9}):([0-9]{1,18})", plain):
        return _random_machine(plain, *map(int, match.groups()))
    if match := re.fullmatch(r"([a-z]\w*?)([0-9]{1,9})(?::([0-9]{1,9}):([0-9]{1,18})|:(all))?", plain):
        prefix, size = match[1], int(match[2])
        if prefix in FAMILIES:
            least, group, standard = FAMILIES[prefix]
            if size < least:
                raise AutomatonError(f"{plain} is too small; {prefix}{{n}} starts at n = {least}")
            if match[5]:
                return group(size).full_machine()
            return standard(size) if match[3] is None else group(size).random_machine(int(match[3]), int(match[4]))
    if files and _is_folder(name):
        example = find_att_files(name)[0]
        raise FormatError(f"{format_value(name)} is a folder; name a file in it, such as {format_path(example)}")
    if files and _is_file(name.removeprefix(SINK)):
        return read_machine(name.removeprefix(SINK))  # its error says which files are read
    raise UnknownNameError(f"no task or automaton is called {format_value(name)}; {_suggest(plain)}")


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # a text that cannot be a path: too long, or with a null byte
        return False


def _is_folder(name: str) -> bool:
    try:
        return "/" in name and Path(name).is_dir()  # without a slash, a misspelt name may happen to be a folder too
    except (OSError, ValueError):
        return False


def _suggest(name: str) -> str:
    """Return a hint for the error message: the most similar known names, and where the names are listed."""
    if match := re.match(r"(c2xc|[dzsa])([0-9]{1,3})[:.]([0-9]{1,3})", name):
        return f"random generators are written as in '{match[1]}{match[2]}:{match[3]}:0'"
    known = [*FIXED, "random:10x2:0", "prefix:4x2", "regex:(ab)*"]
    if match := re.fullmatch(r"[a-z_]+?([0-9]{1,3})", name):
        known += [prefix + match[1] for prefix in (*FAMILIES, "dyck")]
    hint = did_you_mean(name, known, otherwise="")
    return f"{hint} 'sdssm tasks' lists them" if hint.startswith("did") else "'sdssm tasks' lists the names"


def _prefix_machine(name: str, length: int, symbols: int) -> Machine:
    if length < 1 or not 2 <= symbols <= 256:
        raise AutomatonError(
            f"{name} has prefixes of {length} symbols out of {symbols}; use at least 1 symbol, out of 2 to 256"
        )
    n_states = 1
    for _ in range(length):  # states of one length after another, so that no huge number is computed
        n_states = 1 + symbols * n_states
        groups.check_n_states(name, n_states)
    return languages.prefix_machine(length, symbols)


def _random_machine(name: str, states: int, symbols: int, seed: int) -> Machine:
    groups.check_n_states(name, states)
    if states < 1 or not 1 <= symbols <= 256:
        raise AutomatonError(
            f"{name} has {states} states and {symbols} symbols; use at least 1 state and 1 to 256 symbols"
        )
    return languages.random_machine(states, symbols, seed)


def _toggled_ring(n: int, *, mirrored: bool) -> Machine:
    """Return the paper's machine: symbol 0 toggles, symbol 1 moves."""
    return groups.toggled_ring(n, mirrored=mirrored).machine([n, 1], ["toggle", "move"])


def _symmetric(n: int) -> Machine:
    """Return S_n with the generators (0 1) and (0 1 ... n-1)."""
    group = groups.symmetric(n)  # raises an error if n is too large
    return _machine_from_permutations(group, {"swap": _cycle(n, 0, 1), "cycle": _cycle(n, *range(n))})


def _alternating(n: int) -> Machine:
    """Return A_n with the generators (0 1 2) and the longest even cycle.

    That cycle has all n elements, or all but the first if n is even.
    """
    group = groups.alternating(n)
    return _machine_from_permutations(group, {"turn": _cycle(n, 0, 1, 2), "cycle": _cycle(n, *range((n + 1) % 2, n))})


def _cycle(n: int, *cycle: int) -> str:
    """Return the name of the permutation of 0..n-1 with one cycle."""
    permutation = list(range(n))
    for i, j in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        permutation[i] = j
    return "".join(map(str, permutation))


def _machine_from_permutations(group: groups.FiniteGroup, permutations: dict[str, str]) -> Machine:
    """Return the machine of a permutation group, with a permutation such as "10234" for each symbol name."""
    return group.machine([group.names.index(p) for p in permutations.values()], list(permutations))
