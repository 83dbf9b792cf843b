"""Each attack can fail: with a planted defect it reports a failure."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

import sdssm.exact
from sdssm.checksums import JsonChecksum, add_tensor_checksum, check_tensors
from sdssm.errors import SdssmError
from tests.campaign import (
    bit_flips,
    certificates,
    concurrency,
    corruption,
    forked_kills,
    full_disk,
    hostile_folders,
    malformed_texts,
    process_kills,
    report_page,
    studio_requests,
    trust,
)
from tests.campaign.attack import Trial
from tests.campaign.sandbox import Outcome, find_fault, run_isolated
from tests.campaign.templates import FINISHED, TRAIN

CLEAN = Outcome(code=0, out="fine\n")
REFUSED = Outcome(code=2, err="sdssm: batch must be at least 1, got 0; pass --batch 128\n")


# -- the sandbox -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(crash="ValueError: x"),
        Outcome(code=1, err="Traceback (most recent call last):\n"),
        Outcome(code=0, out="\x1b[2J"),
        Outcome(code=2, err="sdssm: " + "x" * 300),
        Outcome(code=2, err="sdssm: one\nsdssm: two\n"),
        Outcome(code=2, err=""),
        Outcome(code=70),
        Outcome(code=2, err=REFUSED.err, cpu_seconds=6.0),
    ],
)
def test_a_command_that_breaks_the_rules_is_a_fault(outcome: Outcome) -> None:
    assert find_fault(outcome) is not None


def test_success_and_refusals_in_one_line_are_no_faults() -> None:
    assert find_fault(CLEAN) is None and find_fault(REFUSED) is None
    assert find_fault(replace(REFUSED, err="sdssm: warning: old\n" + REFUSED.err)) is None


def _raise() -> None:
    raise KeyError("x")


def _allocate() -> int:
    return len(bytearray(4 << 30))


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (_raise, "KeyError"),
        (_allocate, "MemoryError"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (lambda: os._exit(3), "exit code 3"),
        (signal.pause, "did not end"),
    ],
)
def test_every_end_of_an_isolated_call_is_noticed(function: Callable[[], Any], found: str) -> None:
    outcome = run_isolated(function, wall_limit=0.5 if function is signal.pause else 20.0)
    assert found in (outcome.crash or "")


# -- the attacks -------------------------------------------------------------------------------------------------------


def problems(trials: Iterator[Trial]) -> list[str]:
    return [trial.problem for trial in trials if trial.problem is not None]


def test_a_false_certificate_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(certificates, "TRAINED", ())
    monkeypatch.setattr(certificates, "COMPILED", ("parity",))
    monkeypatch.setattr(certificates, "PERTURBATIONS", {"scale": _break_model})
    monkeypatch.setattr(Random, "random", lambda self: 0.9)  # a compiled model
    assert not problems(certificates.attack_certificate(Random(0), tmp_path))
    real = sdssm.exact.certify

    def boast(*args: Any, **kwargs: Any) -> Any:
        return replace(real(*args, **kwargs), horizon=5, float_horizon=5)

    monkeypatch.setattr(sdssm.exact, "certify", boast)
    assert "is misclassified" in problems(certificates.attack_certificate(Random(0), tmp_path))[0]


def _break_model(random: Random, model: Any) -> str:
    model.readout.weight.mul_(-1)
    return "negated readout"


def test_a_parser_that_crashes_or_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> None:
        raise SdssmError("no")

    def hang(text: str) -> None:
        while True:
            pass

    monkeypatch.setattr(malformed_texts, "GIVE_UP", 0.2)
    assert malformed_texts.find_problem(len, "x") is None
    assert malformed_texts.find_problem(refuse, "x") is None
    assert "ValueError" in (malformed_texts.find_problem(int, "x") or "")
    assert "no result" in (malformed_texts.find_problem(hang, "x") or "")
    assert "MemoryError" in (malformed_texts.find_problem(lambda text: bytearray(4 << 30), "x") or "")


@pytest.fixture
def baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Outcome(code=0, out="accuracy 50.0\n", value=b"weights")
    monkeypatch.setattr(corruption, "undamaged_outcome", lambda name: before)


@pytest.mark.parametrize(
    ("name", "damage", "outcome"),
    [
        ("runs", "bit flip", Outcome(code=0, out="accuracy 51.0\n", value=b"weights")),
        ("load", "bit flip", Outcome(code=0, out="accuracy 50.0\n", value=b"other weights")),
        ("continue", "bit flip", Outcome(code=0, out="config.json is damaged\n", value=b"other weights")),
        ("verify", "bit flip", Outcome(code=0, out="all intact\n", value=b"weights")),
        ("runs", "deleted", Outcome(code=0, out="accuracy 49.0\n", value=b"weights")),
        ("runs", "bit flip", Outcome(code=2, err="sdssm: something is wrong\n")),
        ("load", "bit flip", Outcome(crash="KeyError: x")),
    ],
)
@pytest.mark.usefixtures("baseline")
def test_damage_that_goes_unnoticed_is_found(name: str, damage: str, outcome: Outcome) -> None:
    assert corruption.judge(name, "runs/parity/seed-0/config.json", damage, outcome) is not None


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("runs", Outcome(code=0, out="accuracy 50.0\n", value=b"weights")),
        ("runs", Outcome(code=2, err="sdssm: config.json is damaged: the checksum does not match\n")),
        ("load", Outcome(crash="RunError: runs/parity/seed-0/config.json is damaged")),
        ("verify", Outcome(code=1, out="config.json  damaged\n", value=None)),
    ],
)
@pytest.mark.usefixtures("baseline")
def test_damage_that_is_named_or_harmless_holds(name: str, outcome: Outcome) -> None:
    assert corruption.judge(name, "runs/parity/seed-0/config.json", "bit flip", outcome) is None


def test_a_flipped_bit_that_no_command_names_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    named, silent = Outcome(code=1, out="status.json  damaged\n"), Outcome(code=0, out="all files are intact\n")
    monkeypatch.setattr(bit_flips, "call_captured", lambda arguments: named)
    assert bit_flips.find_silence("status.json") is None
    monkeypatch.setattr(bit_flips, "call_captured", lambda arguments: silent)
    assert "does not name" in (bit_flips.find_silence("status.json") or "")


def test_without_checksums_flipped_bits_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The attack on a real run: it holds, and fails as soon as checksums are not compared."""

    class Trained:
        def copy(self, folder: Path, *parts: str) -> Path:
            sdssm.train(
                "parity",
                settings={"state": 8, "batch": 16, "steps": 20},
                out=folder / Path(FINISHED).parent,
                seeds=1,
                progress=False,
            )
            return folder

    monkeypatch.setattr(bit_flips, "make_templates", Trained)
    monkeypatch.setattr(bit_flips, "FILES", ("status.json",))
    monkeypatch.setattr(bit_flips, "OTHER_FILES", {})
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert not problems(bit_flips.attack_bits(Random(0), tmp_path / "a"))
    monkeypatch.setattr(JsonChecksum, "_matches", lambda *args: True)
    assert problems(bit_flips.attack_bits(Random(0), tmp_path / "b"))


def test_weights_that_are_not_finite_get_the_checksum_that_belongs_to_them() -> None:
    data = add_tensor_checksum(save({"weight": torch.zeros(4)}), {"step": "3"})
    changed = corruption.replace_weights(Random(0), data, is_sealed=True)
    assert check_tensors(changed) == ({"step": "3"}, True)
    assert not load(changed)["weight"].isfinite().all()


@pytest.mark.parametrize(
    ("name", "before", "after", "is_same"),
    [
        ("a.json", b'{"x": 1e-05}', b'{"x": 1E-05}', True),
        ("a.json", b'{"x": 51.062656093907954}', b'{"x": 51.062656093907956}', True),
        ("a.json", b'{"x": 1}', b'{"x": 1.0}', False),
        ("a.json", b'{"x": 1}', b'{"x": ', False),
        ("a.jsonl", b'{"x": 1}\n{"x": 2}\n', b'{"x": 1}\n', False),
        ("a.safetensors", b"1", b"2", False),
    ],
)
def test_only_a_change_of_values_is_damage(name: str, before: bytes, after: bytes, is_same: bool) -> None:
    assert corruption.has_same_values(name, before, after) is is_same


def test_markup_in_a_page_is_found() -> None:
    page = '<html><body><p>{}</p><script type="application/json">{{"a": 1}}</script><script>go()</script></body></html>'
    assert report_page.find_markup(page.format("&lt;script&gt;"), "go()") is None
    for text in ("<script>pwned()</script>", "<img src=x>", "<p onclick=pwned()>", "<a href='javascript:x'>"):
        assert report_page.find_markup(page.format(text), "go()") is not None, text
    assert report_page.find_markup(page.format("x").replace('{"a": 1}', '{"a": "<"}'), "go()") is not None


@pytest.mark.parametrize(
    ("answer", "is_foreign"),
    [
        (None, False),
        (f"HTTP/1.0 200 OK\r\n\r\n{studio_requests.SECRET}".encode(), False),
        (b"HTTP/1.0 500 Oops\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: x\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\n\r\n", False),
        (b"HTTP/1.0 202 Accepted\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: x\r\n\r\n", False),
        (b"what?", False),
    ],
)
def test_a_bad_answer_of_the_studio_is_found(answer: bytes | None, is_foreign: bool) -> None:
    assert studio_requests.find_breach(answer, is_foreign) is not None


def test_lost_weights_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A training that is resumed to other weights, or leaves a partial file, fails."""
    model = tmp_path / forked_kills.RUN / "model.safetensors"
    model.parent.mkdir(parents=True)
    templates = type("Planted", (), {"trained": b"weights"})
    for module in (forked_kills, full_disk, concurrency):
        monkeypatch.setattr(module, "make_templates", lambda: templates)
    monkeypatch.setattr(forked_kills, "run_sdssm", lambda *args, **kwargs: CLEAN)
    model.write_bytes(b"weights")
    assert forked_kills.find_difference(tmp_path) is None
    assert full_disk.judge_training(CLEAN, tmp_path) is None
    pair = (TRAIN, TRAIN)
    monkeypatch.setattr(concurrency, "_finish", lambda started: [CLEAN])
    monkeypatch.setattr(concurrency, "_start", lambda arguments, folder: (0, 0))
    assert concurrency._judge("two trainers", pair, [CLEAN, REFUSED], tmp_path) is None
    assert "no training succeeded" in (concurrency._judge("two trainers", pair, [REFUSED, REFUSED], tmp_path) or "")
    model.write_bytes(b"other")
    assert "weights differ" in (forked_kills.find_difference(tmp_path) or "")
    assert "other weights" in (full_disk.judge_training(CLEAN, tmp_path) or "")
    assert "weights" in (concurrency._judge("two trainers", pair, [CLEAN, REFUSED], tmp_path) or "")


def test_a_write_outside_of_the_folder_and_an_import_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Planted:
        def copy(self, folder: Path, *parts: str) -> Path:
            run = folder / FINISHED
            run.mkdir(parents=True)
            for name in ("config.json", "status.json"):
                (run / name).write_text('{"model": {}, "task": "parity"}')
            return folder

    for module in (hostile_folders, trust):
        monkeypatch.setattr(module, "make_templates", Planted)
    monkeypatch.setattr(hostile_folders, "MAKERS", {"nothing": lambda random, run, outside: "nothing"})
    monkeypatch.setattr(trust, "run_isolated", lambda call, folder: CLEAN)
    monkeypatch.setattr(hostile_folders, "run_sdssm", lambda arguments, folder: CLEAN)
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
    assert not problems(hostile_folders.attack_folder(Random(0), tmp_path / "a"))

    def overwrite(arguments: Any, folder: Path) -> Outcome:
        (folder.parent / "outside" / "notes.json").write_text("mine")
        return CLEAN

    monkeypatch.setattr(hostile_folders, "run_sdssm", overwrite)
    assert "changed" in problems(hostile_folders.attack_folder(Random(0), tmp_path / "b"))[0]
    leak = Outcome(code=0, out=hostile_folders.SECRET)
    monkeypatch.setattr(hostile_folders, "run_sdssm", lambda arguments, folder: leak)
    assert "printed" in problems(hostile_folders.attack_folder(Random(0), tmp_path / "c"))[0]

    def import_canary(call: Any, folder: Path) -> Outcome:
        (folder / trust.CANARY).touch()
        return CLEAN

    monkeypatch.setattr(trust, "run_isolated", import_canary)
    monkeypatch.setattr(Random, "choice", lambda self, values: values[0])  # config.json
    assert "imported" in problems(trust.attack_trust(Random(0), tmp_path / "d"))[0]


def test_counts_of_others_become_trials() -> None:
    attempt = process_kills.count_trials("kills", lambda random, folder: (3, 1, ["lost"]))
    assert [trial.is_held for trial in attempt(Random(0), Path())] == [True, False, False]
    silent = process_kills.count_trials("kills", lambda random, folder: (2, 1, []))
    assert problems(iter(silent(Random(0), Path())))
