"""Malformed texts for every parser: an SdssmError or a result, quickly and in little memory."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from sdssm.errors import SdssmError
from tests.campaign.attack import Attack, Trial
from tests.campaign.corpus_files import read_corpus
from tests.campaign.mutation import mutate_text
from tests.campaign.sandbox import MEMORY, address_space, cpu_allowance, describe_crash
from tests.campaign.templates import SPEC

#: Inputs of one attempt.
INPUTS = 25
#: Seconds of processor time after which an input is given up.
GIVE_UP = 6.0
TASKS = ("a5", "s5:32:0", "z3*d5", "random:10x2:0", "prefix:4x2", "dyck3", "a5:all", "c2xc4", "tomita4", "d30")
REGEXES = ("(ab)*", "(a|b|c)*ac*", "[a-c]+b?", "a{2,5}(b|c)", "!(ab)", ".*a.", "(a&b)|c*", "~(a)", r"\d[^x]*")
VALUES = ("state=8", "lr=1e-4", "checkpoint_every=none", "batch=128", "attraction=0.5", "readout=mlp", "steps=1,2")
RANGES = ("lr=1e-5..1e-2", "state=4..64", "batch=1..8")


@cache
def valid_texts(kind: str) -> tuple[str, ...]:
    """Return valid inputs of a parser, with those of the corpus."""
    from sdssm.automata import Machine
    from sdssm.automata.att import to_att
    from sdssm.automata.dot import to_dot
    from sdssm.automata.formats import to_json
    from sdssm.automata.library import get_machine

    machines = [get_machine(name) for name in ("parity", "regex:(ab)*", "cycle")]
    machines.append(
        Machine(table=[[1, 0], [0, 1]], outputs=[0, 1], states=["a b", "<x>"], symbols=['"', "→"]),
    )
    data = Path(__file__).parents[1] / "data"
    texts: dict[str, tuple[str, ...]] = {
        "json": (
            *map(to_json, machines),
            '{"p": {"a": "q"}, "q": {"a": "p"}, "accepting": ["p"]}',
            '{"table": [[0, 1], [1, 0]], "outputs": [[0, 1], [1, 0]]}',
            '{"p": {"a": ["q", "x"]}, "q": {"a": ["p", "y"]}}',
        ),
        "dot": tuple(map(to_dot, machines)),
        "att": (
            to_att(machines[1]),
            *(path.read_text() for path in sorted((data / "mlregtest").glob("04*.att"))[:4]),
        ),
        "toml": (SPEC, (data / "written-by-0.1.0" / "experiment.toml").read_text()),
        "task": (*TASKS, *(f"regex:{text}" for text in REGEXES)),
        "regex": REGEXES,
        "setting": VALUES,
        "range": RANGES,
    }
    return texts[kind] + read_corpus(kind)


def read_setting(text: str) -> Any:
    """Parse a value as `--set` does, and check it against the settings."""
    from sdssm.cli.options import parse_value, split_assignment
    from sdssm.runs.schema import Settings

    name, value = split_assignment(text)
    return Settings().replace_values({name: parse_value(value or "")})


def read_range(text: str) -> Any:
    from sdssm.experiments.specs.search_space import Range

    name, _, value = text.partition("=")
    return Range.parse(name, value, whole=name != "lr")


@cache
def parsers() -> dict[str, Callable[[str], Any]]:
    """Return the parser of each kind of text."""
    from sdssm.automata.att import from_att
    from sdssm.automata.dot import from_dot
    from sdssm.automata.formats import from_json
    from sdssm.automata.regex import regex_machine
    from sdssm.experiments.specs.parsing import parse_spec
    from sdssm.tasks import get_task

    return {
        "json": lambda text: (from_json(text), from_json(text, sink=True)),
        "dot": lambda text: from_dot(text, sink=True),
        "att": from_att,
        "toml": lambda text: parse_spec(text, source="spec.toml"),
        "task": get_task,
        "regex": regex_machine,
        "setting": read_setting,
        "range": read_range,
    }


class GaveUpError(BaseException):
    """The parser took too long. Not an Exception, so that no parser catches it."""


@contextmanager
def bounded() -> Iterator[None]:
    """Bound memory and processor time of the block; both bounds are lifted afterwards."""

    def give_up(*_: object) -> None:
        raise GaveUpError

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGVTALRM, give_up)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + MEMORY, hard))
    signal.setitimer(signal.ITIMER_VIRTUAL, GIVE_UP)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def find_problem(parse: Callable[[str], Any], text: str) -> str | None:
    """Parse a text; return what is wrong about how the parser took it, or None."""
    start = time.process_time()
    try:
        with bounded():
            parse(text)
    except SdssmError:
        problem = None  # how the command line prints it is checked with the commands
    except GaveUpError:
        problem = f"no result after {GIVE_UP:.0f} s of processor time"
    except BaseException as error:  # what no caller expects
        problem = describe_crash(error)
    else:
        problem = None
    seconds = time.process_time() - start
    if problem is None and seconds > cpu_allowance():
        problem = f"it took {seconds:.1f} s of processor time"
    return None if problem is None else f"{problem} for {text[:80]!r}{'...' if len(text) > 80 else ''}"


def attack_parsers(random: Random, folder: Path) -> Iterator[Trial]:
    """Give one parser mutations of valid texts."""
    kind = random.choice(list(parsers()))
    parse, texts = parsers()[kind], valid_texts(kind)
    for number in range(INPUTS):
        text = random.choice(texts)
        if number:  # the first is as it is in the corpus
            text = mutate_text(random, text, texts)
        yield Trial(kind=f"{kind} text", problem=find_problem(parse, text))


ATTACKS = (
    Attack(
        name="malformed-texts",
        subject="mutated machines, expressions, experiments and settings through every parser",
        attempt=attack_parsers,
        share=1.0,
        patience=180.0,
    ),
)
