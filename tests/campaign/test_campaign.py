"""A campaign counts what its attacks report, survives them, and says how to repeat a failure."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.campaign import malformed_texts, sandbox
from tests.campaign.__main__ import choose_attacks, parse_options
from tests.campaign.attack import Attack, Trial
from tests.campaign.corpus_files import CORPUS, read_commands, read_corpus
from tests.campaign.runner import Campaign, make_attempt
from tests.campaign.tally import Tally


def fail_at_random(random: Random, folder: Path) -> Iterator[Trial]:
    assert not list(folder.iterdir())
    number = random.randrange(4)
    yield Trial(kind="number", problem=f"it is {number}" if number == 0 else None)
    yield Trial(kind="never", skipped="not possible here")


def die(random: Random, folder: Path) -> Iterator[Trial]:
    yield Trial(kind="before")
    os._exit(9)


def hang(random: Random, folder: Path) -> Iterator[Trial]:
    signal.pause()
    yield Trial(kind="after")


def crash(random: Random, folder: Path) -> Iterator[Trial]:
    yield Trial(kind="before")
    raise KeyError("a fault of the attack")


def test_a_campaign_counts_repeats_and_survives_its_attacks(tmp_path: Path) -> None:
    attacks = [
        Attack(name="numbers", subject="", attempt=fail_at_random),
        Attack(name="dies", subject="", attempt=die, isolated=True),
        Attack(name="hangs", subject="", attempt=hang, patience=0.2),
        Attack(name="crashes", subject="", attempt=crash, isolated=True),
    ]
    tally = Campaign(attacks, seed=5, seconds=0.5, workers=4, folder=tmp_path).run()
    assert tally.tried["numbers", "number"] > 4 and not tally.tried["numbers", "never"]
    failures = {failure.attack for failure in tally.failures}
    assert failures == {"numbers", "dies", "hangs", "crashes"}
    assert not tally.held["dies", "before"] and not tally.held["crashes", "before"]  # neither was seen to end
    failure = next(failure for failure in tally.failures if failure.attack == "numbers")
    repeated = make_attempt(attacks[0], failure.seed, failure.trial, tmp_path)
    assert repeated[0].problem == failure.problem
    rows = {(attack, kind): counts for attack, kind, *counts in tally.rows()}
    assert all(tried == held + failed for tried, held, failed in rows.values())
    assert re.search(r"numbers\s+number\s+\d+", tally.table()) and "| failed |" in tally.markdown("title")
    assert "--only numbers --seed 5 --trial" in failure.describe() and "not checked" in tally.list_skipped()[0]
    assert not list(tmp_path.iterdir())


def test_a_skipped_trial_is_neither_held_nor_failed() -> None:
    tally = Tally(0)
    tally.add("x", 0, [Trial(kind="k", skipped="no mount")])
    assert not tally.tried and not tally.failures
    with pytest.raises(ValueError, match="skipped"):
        Trial(kind="k", problem="x", skipped="y")


def test_options_name_attacks_and_trials(capsys: pytest.CaptureFixture[str]) -> None:
    assert [attack.name for attack in choose_attacks(parse_options(["--only", "certificates"]))] == ["certificates"]
    with pytest.raises(SystemExit, match="there is no attack"):
        choose_attacks(parse_options(["--only", "nothing"]))
    with pytest.raises(SystemExit):
        parse_options(["--trial", "3"])
    assert "--trial needs --seed" in capsys.readouterr().err
    assert all(attack.name and attack.subject for attack in choose_attacks(parse_options([])))


def test_the_corpus_is_readable() -> None:
    kinds = {path.suffix for path in CORPUS.iterdir()}
    assert kinds <= {".argv", ".config", *(f".{kind}" for kind in malformed_texts.parsers())}
    assert len(read_commands()) >= 10 and all(isinstance(json.loads(text), dict) for text in read_corpus("config"))
    assert sandbox.cpu_allowance() >= sandbox.CPU_SECONDS


@pytest.mark.parametrize("kind", list(malformed_texts.parsers()))
def test_texts_that_broke_a_parser_are_refused_or_read(kind: str) -> None:
    """Such as an experiment nested so deeply that the TOML reader exhausts the stack."""
    parse = malformed_texts.parsers()[kind]
    assert [problem for text in read_corpus(kind) if (problem := malformed_texts.find_problem(parse, text))] == []
