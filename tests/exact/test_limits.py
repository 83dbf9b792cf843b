"""Progress, time limits and sizes: long computations say how far they are, stop in time, and claim nothing more."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from sdssm.automata import Machine, get_machine, write_machine
from sdssm.cli import main
from sdssm.exact import Certificate, certify, extract, horizon, snap
from sdssm.exact.certification.certifier import certify_machine
from sdssm.exact.compilation import check_emulation, default_check_length
from sdssm.exact.compilation import compile as compiled
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction.extractor import ExtractionOptions, extract_machine
from sdssm.exact.sources import load_source
from sdssm.exact.watch import Watch
from sdssm.models import Classifier
from sdssm.progress import ProgressEvent, TimeLimit
from sdssm.tasks import Task, get_task
from tests.exact.test_certify import IDENTITY, model_of, noisy_model, scaled


class CountingWatch(Watch):
    """A watch whose time is up when it has been looked at a number of times, whatever the speed of the machine.

    Looks count from the start of the named phase on.
    """

    def __init__(self, looks: int, phase: str = "") -> None:
        super().__init__("test", limit=TimeLimit(1.0))
        self.looks, self.phase, self.is_counting = looks, phase, not phase

    def start(self, phase: str, *, total: float | None = None, unit: str = "") -> None:
        super().start(phase, total=total, unit=unit)
        self.is_counting = self.is_counting or phase.startswith(self.phase)

    @property
    def is_over(self) -> bool:
        self.looks -= self.is_counting
        return self.looks < 0


#: Options of a short extraction.
OPTIONS = ExtractionOptions(method="states", lengths=(5, 500), strings=64, longest=None, max_states=1_024, seed=0)


# -- time limits -------------------------------------------------------------------------------------------------------


@cache
def subject(kind: str) -> tuple[Classifier, Task, Certificate]:
    """Return a model, its task, and its complete certificate."""
    task = get_task("z20" if kind == "integers" else "d4")
    model = compiled(task) if kind == "integers" else noisy_model(task.machine, 0.001)
    if kind == "misclassified":
        task = Task(name="other", machine=Machine(table=task.machine.table, outputs=[0, 1, 2, 3, 4, 5, 7, 6]))
    return model, task, certify_in_time(model, task, Watch())


def certify_in_time(model: Classifier, task: Task, watch: Watch, search: int = 0) -> Certificate:
    return certify_machine(model, task, strings=1_000, longest=300, search=search, seed=0, watch=watch)


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        ("integers", ""),
        ("bounds", "choose"),
        ("bounds", "check short"),
        ("bounds", "bound longer"),
        ("misclassified", "check short"),
    ],
)
def test_a_stopped_proof_claims_no_more_than_a_complete_one(kind: str, phase: str) -> None:
    model, task, complete = subject(kind)
    proved = set()
    for looks in (0, 3, 10, 40) if phase != "choose" else (0, 30):
        watch = CountingWatch(looks, phase)
        stopped = certify_in_time(model, task, watch)
        for part, whole in ((stopped.horizon, complete.horizon), (stopped.float_horizon, complete.float_horizon)):
            assert whole is None or (part is not None and 0 <= part <= whole)
        if stopped.stopped and stopped.horizon is not None:
            assert "stopped by the time limit after 1 s" in str(stopped)
            proved.add(stopped.horizon)
    if kind == "integers":
        assert proved == {0, 3, 10}  # one look for each length
    if (kind, phase) == ("bounds", "check short"):
        assert {3, 8} < proved  # strings that were checked before the time was up still count
    if (kind, phase) == ("bounds", "bound longer"):
        assert min(proved) == complete.exhaustive == 8


def test_a_proof_that_is_stopped_in_float32_says_so() -> None:
    """Before, the note said that rounding errors add up, and `stopped` was False."""
    model, task, complete = subject("bounds")
    assert complete.horizon is not None and not complete.stopped
    stopped = certify_in_time(model, task, CountingWatch(0, "bound longer strings (float32"))
    assert stopped.stopped and stopped.only_float_stopped and stopped.horizon == complete.horizon
    assert stopped.float_horizon == 8 and stopped.float_reason == "stopped by the time limit after 1 s"
    text = str(stopped)
    assert "In float32 less is proved: stopped by the time limit after 1 s." in text and "The proof was" not in text
    assert f"up to length {stopped.horizon:,} is proved" in text and "in exact arithmetic; up to length 8 in" in text
    assert stopped.to_records()[1]["reason"] == stopped.float_reason != stopped.to_records()[0]["reason"]


def test_no_bounds_in_float32_are_no_proof_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The states are whole numbers in exact arithmetic only, so that float32 needs bounds."""
    model, task = model_of(scaled(0.5), [1, 0], IDENTITY), get_task("parity")
    complete = certify_in_time(model, task, Watch())
    assert complete.float_horizon is not None and complete.float_horizon > 20
    assert "the states may overflow or underflow" in str(complete) and not complete.stopped
    for phase, proved in (("choose", 0), ("check short", 0), ("bound longer strings (float32", 8)):
        stopped = certify_in_time(model, task, CountingWatch(0, phase))
        assert stopped.horizon is None and stopped.stopped and stopped.only_float_stopped
        assert (stopped.float_horizon, stopped.float_reason) == (proved, "stopped by the time limit after 1 s")
        assert ("nothing is proved in float32" in str(stopped)) == (proved == 0)
        assert "Why: its states are whole numbers" in str(stopped)
    monkeypatch.setattr(sys.modules["sdssm.exact.certification.coordinates"], "MOST_ENTRIES", 1)
    large = certify_in_time(model, task, Watch())
    assert (large.horizon, large.float_horizon, large.stopped) == (None, 0, False)
    assert "In float32 less is proved: the model is too large for bounds on its rounding errors." in str(large)


def test_a_search_for_a_misclassified_string_ends_in_time() -> None:
    model, task, complete = subject("bounds")
    stopped = certify_in_time(model, task, CountingWatch(2, "search"), search=1_000)
    assert stopped.searched == 128 and stopped.horizon == complete.horizon


def test_an_extraction_whose_comparison_is_stopped_is_not_faithful() -> None:
    """Before, a machine that was compared at the shortest length only counted as faithful."""
    source = load_source(compiled("d4"))
    for looks, phase, compared in (
        (0, "read the logits", ((5, 32),)),  # the time is up before the first length
        (0, "compare machine and model at length 20", ((5, 64),)),
        (1, "compare machine and model at length 20", ((5, 64),)),  # while its strings are read
        (2, "compare machine and model at length 20", ((5, 64), (20, 64))),
    ):
        watch = CountingWatch(looks, phase)
        stopped = extract_machine(source, None, None, OPTIONS._replace(lengths=(5, 20, 500)), watch)
        assert tuple((fidelity.length, fidelity.strings) for fidelity in stopped.fidelity) == compared
        assert stopped.stopped and not stopped.faithful and stopped.machine.n_states == 8
        length, strings = compared[-1]
        note = f"stopped by the time limit after 1 s: compared only up to length {length}, on {strings} strings"
        assert stopped.note == note and f"Note: {note}." in str(stopped)


def test_extraction_by_lstar_is_stopped_with_a_hypothesis() -> None:
    pytest.importorskip("aalpy")
    source, options = load_source(compiled("a5")), OPTIONS._replace(method="lstar")
    assert extract_machine(source, None, None, options, Watch()).faithful
    stopped = extract_machine(source, None, None, options, CountingWatch(1, "search strings"))
    assert stopped.stopped and not stopped.faithful and "the last hypothesis of L*" in str(stopped.note)


@pytest.mark.parametrize("phase", ["explore", "compare", "check states that are whole numbers"])
def test_snap_saves_nothing_that_is_not_certified(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled("d4").save(tmp_path / "d4")
    use_watch(monkeypatch, "snapping", CountingWatch(2, phase))
    assert main(["snap", str(tmp_path / "d4"), "--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert "stopped by the time limit after 1 s" in captured.err and "more time with --max-seconds" in captured.err
    assert not captured.out and not (tmp_path / "out").exists()


def test_a_horizon_is_stopped_within_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, fresh strings of a length were all read, however long, and without any progress."""
    even = Machine(table=[[0, 1], [1, 0]], outputs=[1, 0])
    task = Task(name="even", machine=Machine(table=[[1, 0], [0, 1]]), valid=even)
    monkeypatch.setattr("sdssm.evaluation.correct_counts.MOST_NUMBERS", {"cpu": 128, "cuda": 128})
    use_watch(monkeypatch, "measurement.measured_horizon", CountingWatch(30, "read strings"))
    events: list[float] = []
    monkeypatch.setattr(CountingWatch, "update", lambda self, done: events.append(done))
    result = horizon(compiled(task), max_length=1_000, strings=4)
    assert result.method == "fresh strings" and result.stopped and 1 < result.lengths[-1] < 1_000
    assert any(sum(result.lengths) < done < sum(result.lengths) + 2 * result.lengths[-1] for done in events)
    assert events == sorted(events)
    use_watch(monkeypatch, "measurement.measured_horizon", CountingWatch(2, "read strings"))
    prefixes = horizon(compiled("parity"), max_length=100_000, strings=4)
    assert prefixes.stopped and prefixes.lengths[-1] >= 1_024  # two blocks are read


def use_watch(monkeypatch: pytest.MonkeyPatch, module: str, watch: Watch) -> None:
    """Let a function of the package use this watch."""
    monkeypatch.setattr(f"sdssm.exact.{module}.open_watch", lambda *arguments: nullcontext(watch))


def test_a_stopped_extraction_is_no_final_result() -> None:
    source, options = load_source(compiled("a5")), OPTIONS
    complete = extract_machine(source, None, None, options, Watch())
    assert complete.faithful and not complete.stopped
    states = []
    for looks in (1, 3, 5, 20, 80):
        try:
            stopped = extract_machine(source, None, None, options, CountingWatch(looks))
        except ExactError as error:
            assert "no machine is known by then" in str(error)
            continue
        if stopped.stopped:
            assert not stopped.faithful and stopped.note is not None and "not a final result" in stopped.note
            assert len(stopped.fidelity) == 1 and json.dumps(stopped.to_json())
            states.append(stopped.machine.n_states)
    assert states  # at least one of them stopped with a machine
    with pytest.raises(ExactError, match=r"no machine is known by then; pass a larger max_seconds"):
        extract(compiled("d4"), max_seconds=0)
    with pytest.raises(ExactError, match="stopped by the time limit"):
        snap(compiled("d4"), max_seconds=0)


def test_a_stopped_horizon_has_the_lengths_read_so_far() -> None:
    result = horizon(compiled("parity"), max_length=100_000, strings=4, max_seconds=0)
    assert result.stopped and 1 <= result.lengths[-1] < 100_000 and "Stopped by the time limit" in str(result)
    even = Machine(table=[[0, 1], [1, 0]], outputs=[1, 0])
    task = Task(name="even", machine=Machine(table=[[1, 0], [0, 1]]), valid=even)
    fresh = horizon(compiled(task), max_length=100, strings=4, max_seconds=0)
    assert fresh.stopped and len(fresh.readings) == 1


def test_time_limits_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled("d4").save(tmp_path / "d4")
    assert main(["certify", str(tmp_path / "d4"), "--max-seconds", "0"]) == 0
    out = capsys.readouterr().out
    assert "nothing is proved" in out and "The proof was stopped by the time limit after 0 s." in out
    assert main(["extract", str(tmp_path / "d4"), "--max-seconds", "0"]) == 2
    assert "give a larger --max-seconds" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["certify", str(tmp_path / "d4"), "--max-seconds", "-1"])
    assert "is not a number of seconds" in capsys.readouterr().err


# -- progress ----------------------------------------------------------------------------------------------------------


def test_every_long_computation_reports_its_progress(tmp_path: Path) -> None:
    events: list[ProgressEvent] = []
    compiled("d4", progress=events.append).save(tmp_path)
    compiled("d4", model="complex-diagonal", layers=2, progress=events.append)
    certify(noisy_model(get_machine("d4"), 0.001), get_machine("d4"), strings=2_000, progress=events.append)
    extract(tmp_path, lengths=[5], strings=16, progress=events.append)
    horizon(tmp_path, max_length=5_000, strings=4, progress=events.append)
    snap(tmp_path, progress=events.append)
    generator = torch.Generator().manual_seed(0)
    check_emulation(compiled("d4"), "d4", 10, generator=generator, progress=events.append)
    titles = {event.title for event in events}
    for title in (
        "compile d4: write the matrices",
        "compile d4: split the group",
        "certify the model: check short strings",
        "certify the model: bound longer strings (exact arithmetic)",
        "certify the model: search for a misclassified string",
        f"extract {tmp_path}: explore the states of the model",
        f"horizon {tmp_path}: read strings",
        f"snap {tmp_path}: check states that are whole numbers (float32 arithmetic)",
        "check d4: read random strings",
    ):
        assert title in titles, sorted(titles)
    short = [event for event in events if event.title.endswith("check short strings")]
    assert short[-1].done == short[-1].total  # so that the estimate is right


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_a_thousand_states_take_seconds(one_thread: None) -> None:
    """Before, the exact search multiplied whole matrices with one-hot states at each of a thousand lengths."""
    model = compiled("z1000")
    assert certify(model).float_horizon is None
    assert default_check_length(model, 4) == 2_500
    assert check_emulation(model, "z1000", 20, generator=torch.Generator().manual_seed(0)).drift == 0


def test_sizes_are_refused_at_once_with_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = np.stack([(np.arange(5_000) + 1) % 5_000, np.arange(5_000)], 1)
    machine = Machine(table=table, outputs=np.arange(5_000) % 4)
    write_machine(machine, tmp_path / "m.json")
    with pytest.raises(ExactError, match="its minimal form has 4 states, pass minimise=True"):
        compiled(machine)
    assert main(["compile", str(tmp_path / "m.json"), "--out", str(tmp_path / "m")]) == 2
    assert "its minimal form has 4 states, add --minimise" in capsys.readouterr().err
    assert main(["compile", str(tmp_path / "m.json"), "--out", str(tmp_path / "m"), "--minimise", "--length", "9"]) == 0
    assert "4 states, 2 symbols, 4 classes" in capsys.readouterr().out
    assert certify(compiled(machine, minimise=True)).horizon is None  # for the machine before it was minimised
    with pytest.raises(ExactError, match="no smaller machine has the same outputs"):
        compiled("z5000")
    wide = Machine(table=np.repeat(np.arange(4_000)[:, None], 40, axis=1))
    with pytest.raises(ExactError, match="need 2.4 GiB, and the limit is 2 GiB"):
        compiled(wide)


def test_a_proof_that_needs_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, machine = noisy_model(get_machine("d4"), 0.001), get_machine("d4")
    coordinates = sys.modules["sdssm.exact.certification.coordinates"]
    monkeypatch.setattr(coordinates, "MOST_BYTES", 1)
    with pytest.raises(ExactError, match="8 states and 2 symbols needs about .* GiB of memory"):
        certify(model, machine)
    monkeypatch.setattr(coordinates, "MOST_ENTRIES", 4)
    with pytest.raises(ExactError, match="8 entries that are not whole numbers; a proof is limited to 4"):
        certify(model, machine)
    monkeypatch.setattr(sys.modules["sdssm.exact.certification.linear_system"], "MOST_BYTES", 1)
    with pytest.raises(ExactError, match="2 matrices of 8 x 8 entries"):
        certify(model, machine)
