"""The readers that are fuzzed, and the rules that hold for every input.

A reader returns, or raises an `SdssmError`; nothing else. It takes bounded time and memory. What it returns survives
a round trip: the machine, written and read again, is the same. A regular expression matches what Python's `re` does.
"""

from __future__ import annotations

import re
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice, product
from pathlib import Path
from unittest import mock

from sdssm.automata import Machine, from_att, from_dot, from_json, get_machine, to_att, to_dot, to_json
from sdssm.cli.sweep import parse_choices
from sdssm.errors import FormatError, ModelError, SdssmError
from sdssm.experiments.specs.catalogue import list_experiments
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.experiments.sweeps.sweep_spec import make_sweep_spec
from sdssm.runs.schema import resolve_settings

#: The most CPU seconds that an input of `MOST_BYTES` may take. The commands promise two seconds.
MOST_SECONDS = 2.0
#: The longest input that is tried.
MOST_BYTES = 2_000
#: How much memory an input may add to what the process has.
MOST_MEMORY = 1 << 30


class BrokenRuleError(AssertionError):
    """A reader returned something wrong, or took too long."""


@dataclass(frozen=True)
class Target:
    """A reader, inputs to start from, and the words of its language."""

    name: str
    read: Callable[[str], object]
    seeds: tuple[str, ...]
    words: tuple[str, ...]

    def check(self, data: bytes) -> None:
        """Read an input; raise anything but an `SdssmError` if a rule is broken."""
        text = data.decode("utf-8", errors="replace")
        started = time.process_time()
        with suppress(SdssmError):
            self.read(text)
        seconds = time.process_time() - started
        if seconds > MOST_SECONDS:
            raise BrokenRuleError(f"{self.name}: {len(data)} bytes took {seconds:.1f} s; at most {MOST_SECONDS:g} s")


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let an allocation of more than `MOST_MEMORY` raise MemoryError."""
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()  # data and stack
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + MOST_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextmanager
def without_imports() -> Iterator[None]:
    """Import no module that an input names: an experiment may name any, and its user asks for it."""

    def refuse(path: str, *, in_current_folder: bool = True) -> tuple[object, str]:
        raise ModelError(f"{path} is not imported here")

    with mock.patch("sdssm.models.registry.import_object", refuse), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# -- the readers -------------------------------------------------------------------------------------------------------


def _read_regex(text: str) -> None:
    machine = get_machine("regex" + text)
    pattern = text.removeprefix(":")
    if pattern != text and len(pattern) <= 20 and machine.n_symbols <= 3:
        _compare_with_re(machine, pattern)


def _compare_with_re(machine: Machine, pattern: str) -> None:
    """Compare outputs on all short strings with Python's `re`, if the pattern means the same there."""
    if re.search(r"\{|\[\^?\]|[*+?]\+|[*+?]\?", pattern):
        return  # literal braces, ] as the first letter of a set, possessive and lazy repetition
    try:
        expected = re.compile(pattern, re.DOTALL)
    except re.error:  # a**, which is a* here
        return
    for length in range(4):
        for letters in product(machine.symbol_names, repeat=length):
            word = "".join(letters)
            if machine.output(word) != (expected.fullmatch(word) is not None):
                raise BrokenRuleError(f"regex: {pattern!r} and Python differ on {word!r}")


def _read_machine_by(reader: Callable[..., Machine], writer: Callable[[Machine], str]) -> Callable[[str], None]:
    """Return a function that reads a machine with and without a sink state, and tries the round trip."""

    def read(text: str) -> None:
        for sink in (False, True):
            with suppress(SdssmError):
                machine = reader(text, sink=sink)
                _check_same(_read_again(reader, writer(machine)) == machine, text)

    return read


def _read_att(text: str) -> None:
    """Read a machine; some cannot be written, and the file has no output for the empty string."""
    machine = from_att(text)
    try:
        written = to_att(machine)
    except FormatError:
        return
    _check_same(_read_again(from_att, written).distinguish(machine) is None, text)


def _read_again(reader: Callable[[str], Machine], written: str) -> Machine:
    """Return the machine of a text that this package wrote, which must be readable."""
    try:
        return reader(written)
    except SdssmError as error:
        raise BrokenRuleError(f"written: {error} in what was written: {written[:200]!r}") from None


def _check_same(is_same: bool, text: str) -> None:
    if not is_same:
        raise BrokenRuleError(f"round trip: a machine changes when it is written and read again: {text[:200]!r}")


def _read_spec(text: str) -> None:
    spec = parse_spec(text, source="input.toml")
    for row in spec.rows[:3]:
        for settings in islice(row.variants(), 3):
            try:
                resolve_settings(row.model, "scale-free", row.tasks[0], {**row.settings, **settings})
            except SdssmError:
                continue


def _read_sweep(text: str) -> None:
    """Read lines such as lr=1e-5..1e-2 (a range) and state=8,16 (a list)."""
    pairs = [line.partition("=")[::2] for line in text.splitlines()[:4] if "=" in line]
    ranges = {name: value for name, value in pairs if ".." in value}
    choices = {name: parse_choices(value) for name, value in pairs if ".." not in value}
    spec = make_sweep_spec(["parity"], model="lstm", choices=choices, ranges=ranges)
    spec.rows[0].space.size()
    spec.rows[0].space.corners()


# -- where they start --------------------------------------------------------------------------------------------------

_MACHINES = tuple(map(get_machine, ("parity", "d4", "regex:(ab|c)*", "tomita4", "z3")))
_EXTRA_DOT = (
    'digraph { s [shape=none]; s -> e; e -> o [label="0,1"]; o -> e [label=a]; o [shape=doublecircle] }',
    'digraph { a -> b [label="x/1"]; b -> a [label="x/on"] }',
    "strict digraph g { node [shape=circle] subgraph c { a:n -> b -> a [label=<x>] } /* c */ # d\n}",
)
_EXTRA_JSON = (
    '{"p": {"a": "q"}, "q": {"b": "p"}, "accepting": ["p"], "start": "p"}',
    '{"transitions": [["e", "0", "e"], ["e", "1", "o"], ["o", "0", "o"]], "states": ["e", "o"]}',
    '{"table": [[0, null], [1, 0]], "accepting": [1], "states": ["é", "b"], "symbols": ["x", "y"]}',
    '{"transitions": {"e": {"0": "e"}}, "initial_state": "e", "outputs": {"e": 0}, "alphabet": ["0", "1"]}',
)
_EXTRA_ATT = ("0 1 a a\n1 0 b b\n0", "0\t1\ta\tx\n1\t0\ta\ty\t0.0\n", "s t @_SPACE_@\nt 0.0\n", "0 0 a 0\n0 1 b\n1 0.0")
_SPEC = """name = "mine"
title = "t"
seeds = [0, 3]
preset = "auto"
[table]
choose = "within"
[evaluate]
max_length = 50
lengths = [10, 20]
scores = ["all", "at 20", "1..40", "passes 99", "balanced at 20"]
[[rows]]
model = "lstm"
label = "L"
tasks = ["parity", "regex:(ab)*"]
settings = { state = 8, lr = 1e-3, weight_decay = "none" }
grid = { batch = [16, 32] }
score = "all"
"""


def _small_specs() -> tuple[str, ...]:
    """Return the experiments of the package that are not longer than an input may be."""
    paths = (files("sdssm.experiments.specs").joinpath(f"{name}.toml") for name in list_experiments())
    texts = (path.read_text(encoding="utf-8") for path in paths)
    return tuple(text for text in texts if len(text) <= MOST_BYTES)


#: The words of each language, separated by spaces.
_REGEX_WORDS = "( ) * + ? | [ ] [^ {2,4} {3} {2,} . \\ - {99} () [a-c]"
_DOT_WORDS = (
    'digraph { } -> [label= ] " output= symbol= name= shape=doublecircle start=true subgraph strict node edge < > '
    "/* */ // # :n shape=point -- \\ +"
)
_JSON_WORDS = (
    '"table" "start" "outputs" "states" "symbols" "accepting" "transitions" null true 1e9 -1 NaN [[ ]] { } : , '
    "9223372036854775808 \\u0000 \\ud800"
)
_ATT_WORDS = "0 1 a @0@ <eps> @_SPACE_@ @_TAB_@ inf 1e-400 0.0 \u00b2 \ufeff"
_TOML_WORDS = (
    "[[rows]] [evaluate] [timing] [table] [[claims]] name title kind seeds tasks model settings grid score scores "
    "lengths nan inf true 1979-05-27 ''' { } -1 1e400 0x7f state lr batch "
    '""" "timing" "claims" "sd-ssm" "lstm" "a5" "auto" "within" "covering"'
)
_SWEEP_WORDS = ".. = , :log :linear none inf nan 1e308 -1 lr state batch true [ ]"

_REGEX_SEEDS = (":(ab)*", "[a-z]:a.*[^b-d]{2,4}", ":(a|b|c)*ac?", ":\\*+()", ":[]|a", "[01]:0*(10*10*)*", ":a{3}b{2,}")
_SWEEP_SEEDS = (
    "lr=1e-5..1e-2\nstate=8,16",
    "layers=1..3\nlr=1e-4..1:linear",
    "lr_schedule=none,cosine",
    "betas=[0.9,0.99]",
)

TARGETS = {
    name: Target(name, read, tuple(seeds), (*words.split(), *separators))
    for name, read, seeds, words, separators in (
        ("regex", _read_regex, _REGEX_SEEDS, _REGEX_WORDS, ()),
        ("dot", _read_machine_by(from_dot, to_dot), [*map(to_dot, _MACHINES), *_EXTRA_DOT], _DOT_WORDS, ()),
        ("json", _read_machine_by(from_json, to_json), [*map(to_json, _MACHINES), *_EXTRA_JSON], _JSON_WORDS, ()),
        ("att", _read_att, [*map(to_att, _MACHINES), *_EXTRA_ATT], _ATT_WORDS, ("\t", "\n", "\r\n")),
        ("toml", _read_spec, [_SPEC, *_small_specs()], _TOML_WORDS, ("\n",)),
        ("sweep", _read_sweep, _SWEEP_SEEDS, _SWEEP_WORDS, ("\n",)),
    )
}
