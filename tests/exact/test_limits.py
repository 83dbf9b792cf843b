"""Progress, time limits and sizes: long computations say how far they are, stop in time, and claim nothing more."""

from __future__ import annotations

import json
import sys
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
from tests.exact.test_certify import noisy_model


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


# -- time limits -------------------------------------------------------------------------------------------------------


@cache
def subject(kind: str) -> tuple[Classifier, Task, Certificate]:
    """Return a model, its task, and its complete certificate."""
    task = get_task("z20" if kind == "integers" else "d4")
    model = compiled(task) if kind == "integers" else noisy_model(task.machine, 0.001)
    if kind == "misclassified":
        task = Task(name="other", machine=Machine(table=task.machine.table, outputs=[0, 1, 2, 3, 4, 5, 7, 6]))
    return model, task, certify_machine(model, task, strings=1_000, search=0, longest=300)


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
        stopped = certify_machine(model, task, strings=1_000, search=0, longest=300, watch=watch)
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


def test_a_stopped_extraction_is_no_final_result() -> None:
    source, options = load_source(compiled("a5")), ExtractionOptions(lengths=(5, 500), strings=64)
    complete = extract_machine(source, None, None, options, Watch())
    assert complete.faithful and not complete.stopped
    states = []
    for looks in (5, 80, 120, 200):
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
