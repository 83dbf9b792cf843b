"""Machines by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sdssm.automata import groups, languages
from sdssm.automata.formats import FORMATS, read_machine
from sdssm.automata.machine import Machine
from sdssm.automata.regex import regex_machine
from sdssm.errors import AutomatonError, UnknownNameError, did_you_mean, format_value

#: Names without a parameter.
FIXED: dict[str, Callable[[], Machine]] = {
    "parity": lambda: Machine(table=[[0, 1], [1, 0]], states=["even", "odd"]),
    "even_pairs": languages.even_pairs,
    "cycle": lambda: groups.cyclic(5).machine([4, 0, 1], ["left", "stay", "right"]),
    "arithmetic": languages.arithmetic,
    "a5": lambda: _arranging(groups.alternating(5), {"cycle": "12340", "swap": "10324"}),
    **{f"tomita{k}": partial(languages.tomita, k) for k in languages.TOMITA},
}

#: Names with a size: prefix -> smallest size, group, machine with the standard generators.
FAMILIES: dict[str, tuple[int, Callable[[int], groups.Group], Callable[[int], Machine]]] = {
    "c2xc": (2, lambda n: groups.toggled_ring(n, mirrored=False), lambda n: _toggled(n, mirrored=False)),
    "d": (2, lambda n: groups.toggled_ring(n, mirrored=True), lambda n: _toggled(n, mirrored=True)),
    "z": (2, groups.cyclic, lambda n: groups.cyclic(n).machine([0, 1], ["stay", "+1"])),
    "s": (2, groups.symmetric, lambda n: _symmetric(n)),
    "a": (3, groups.alternating, lambda n: _alternating(n)),
}

#: How names are written, for help texts.
PATTERNS = {
    "parity, even_pairs, cycle, arithmetic, a5": "the paper's tasks, with c2xc4, c2xc30, d4 and d30",
    "c2xc{n}, d{n}": "a ring of n places with a toggle; in d{n} the toggle turns the ring's direction",
    "z{n}, s{n}, a{n}": "counting mod n; all, or all even, arrangements of n things",
    "{group}:{g}:{seed}": "the group with g random generators, as in s5:32:0",
    "tomita1 ... tomita7": "the seven languages of Tomita",
    "random:{states}x{symbols}:{seed}": "a random machine, as in random:10x2:0",
    "regex:{expression}": "strings that match, as in regex:(ab)*; regex[abc]:... gives the alphabet",
    "{name}*{name}": "a direct product, as in z3*d5",
    "{path}.json, {path}.dot": "a machine from a file",
}


def get_machine(name: str) -> Machine:
    """The machine of this name.

    >>> get_machine("a5"), get_machine("z3*d5")
    (Machine(60 states, 2 symbols, 60 outputs), Machine(30 states, 4 symbols, 30 outputs))
    >>> get_machine("parety")
    Traceback (most recent call last):
    sdssm.errors.UnknownNameError: no machine is called 'parety'; did you mean 'parity'?
    """
    factors = _factors(name)
    if len(factors) > 1 and "" in factors:
        raise UnknownNameError(f"{format_value(name)} has an empty factor; write a name on either side of each *")
    machine = _factor(factors[0])
    for factor in factors[1:]:
        other = _factor(factor)
        groups.refuse_past_limit(format_value(name), machine.n_states * other.n_states)
        machine = machine * other
    return machine


def _factors(name: str) -> list[str]:
    """The names between the stars; an expression, which has stars of its own, reaches to the end."""
    factors = []
    while not name.startswith("regex") and "*" in name:
        factor, _, name = name.partition("*")
        factors.append(factor)
    return [*factors, name]


def _factor(name: str) -> Machine:
    if found := re.fullmatch(r"regex(?:\[([^\]]*)\])?:(.*)", name, re.DOTALL):
        return regex_machine(found[2], found[1])
    if Path(name).suffix in FORMATS:
        return read_machine(Path(name))
    plain = name.strip().lower().replace("-", "_")
    if plain in FIXED:
        return FIXED[plain]()
    if found := re.fullmatch(r"random:([0-9]{1,9})x([0-9]{1,9}):([0-9]{1,18})", plain):
        return _random(plain, *map(int, found.groups()))
    if found := re.fullmatch(r"([a-z]\w*?)([0-9]{1,9})(?::([0-9]{1,9}):([0-9]{1,18}))?", plain):
        prefix, size = found[1], int(found[2])
        if prefix in FAMILIES:
            least, group, standard = FAMILIES[prefix]
            if size < least:
                raise AutomatonError(f"{plain} is too small; {prefix}{{n}} begins at n = {least}")
            return standard(size) if found[3] is None else group(size).random_machine(int(found[3]), int(found[4]))
    raise UnknownNameError(f"no machine is called {format_value(name)}; {_hint(plain)}")


def _hint(name: str) -> str:
    """The nearest name that exists, or where to find one."""
    if found := re.match(r"(c2xc|[dzsa])([0-9]{1,3})[:.]([0-9]{1,3})", name):
        return f"random generators are asked for as in '{found[1]}{found[2]}:{found[3]}:0'"
    known = [*FIXED, "random:10x2:0", "regex:(ab)*"]
    if found := re.fullmatch(r"[a-z_]+?([0-9]{1,3})", name):
        known += [prefix + found[1] for prefix in FAMILIES]
    hint = did_you_mean(name, known)
    return "'sdssm tasks' lists the names" if hint.startswith("known") else hint


def _random(name: str, states: int, symbols: int, seed: int) -> Machine:
    groups.refuse_past_limit(name, states)
    if states < 1 or not 1 <= symbols <= 256:
        raise AutomatonError(
            f"{name} asks for {states} states and {symbols} symbols; at least 1 state, 1 to 256 symbols"
        )
    return languages.random_machine(states, symbols, seed)


def _toggled(n: int, *, mirrored: bool) -> Machine:
    """The paper's machines: symbol 0 toggles, symbol 1 moves."""
    return groups.toggled_ring(n, mirrored=mirrored).machine([n, 1], ["toggle", "move"])


def _symmetric(n: int) -> Machine:
    """(0 1) and (0 1 ... n-1)."""
    group = groups.symmetric(n)  # refuses what is too large before anything is spelled out
    return _arranging(group, {"swap": _cycle(n, 0, 1), "cycle": _cycle(n, *range(n))})


def _alternating(n: int) -> Machine:
    """(0 1 2) and the longest even cycle: of all n things, or of all but the first where n is even."""
    group = groups.alternating(n)
    return _arranging(group, {"turn": _cycle(n, 0, 1, 2), "cycle": _cycle(n, *range((n + 1) % 2, n))})


def _cycle(n: int, *cycle: int) -> str:
    """The name of the arrangement of 0..n-1 with one cycle: place i of the cycle receives what follows it."""
    out = list(range(n))
    for i, j in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        out[i] = j
    return "".join(map(str, out))


def _arranging(group: groups.Group, arrangements: dict[str, str]) -> Machine:
    return group.machine([group.names.index(a) for a in arrangements.values()], list(arrangements))
