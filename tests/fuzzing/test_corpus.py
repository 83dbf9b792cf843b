"""Past findings of the fuzzers stay fixed, and the fuzzers notice planted faults."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sdssm.automata import get_machine
from sdssm.errors import FormatError
from tests.fuzzing import targets
from tests.fuzzing.coverage_fuzzer import fuzz_here
from tests.fuzzing.findings import Findings
from tests.fuzzing.targets import TARGETS, BrokenRuleError, Target, without_imports

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_past_findings_break_no_rule(path: Path) -> None:
    with without_imports():
        TARGETS[path.name.partition("-")[0]].check(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_the_fuzzers_start_from_valid_inputs(name: str) -> None:
    with without_imports():
        for text in TARGETS[name].seeds:
            TARGETS[name].read(text)


def fail_after_a_branch(text: str) -> None:
    """A reader that fails only on inputs that pass two branches, which coverage finds one by one."""
    if not text.startswith("a"):
        raise FormatError("must start with a")
    if text[1:2] == "b":
        raise KeyError(text)


def test_a_planted_error_is_found_and_stored(tmp_path: Path) -> None:
    target = Target("planted", fail_after_a_branch, ("x",), ("a", "b"))
    findings = Findings(target, tmp_path / "findings")
    fuzz_here(findings, seconds=5, seed=0, most_findings=1)
    (stored,) = (tmp_path / "findings").iterdir()
    assert stored.read_bytes().startswith(b"ab")


def test_a_slow_reader_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(text: str) -> None:
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass

    monkeypatch.setattr(targets, "MOST_SECONDS", 0.01)
    with pytest.raises(BrokenRuleError, match="took"):
        Target("slow", wait, (), ()).check(b"x")


def test_a_wrong_machine_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "get_machine", lambda name: get_machine(name.replace("+", "*")))
    TARGETS["regex"].check(b":a*b")
    with pytest.raises(BrokenRuleError, match="differ"):
        TARGETS["regex"].check(b":a+b")
