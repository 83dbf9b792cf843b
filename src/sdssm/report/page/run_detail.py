"""The heavy parts of a run: curves, events, matrices, states, the extracted automaton, and the weights to play with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from sdssm.automata import Machine
from sdssm.errors import RunError, SdssmError, first_line
from sdssm.models.settings import WEIGHTS_FILE
from sdssm.report.page.findings import read_extracted_machine
from sdssm.report.page.json_fields import LONGEST_TEXT, JsonFields, clip_text, round_number, round_percent
from sdssm.report.page.length_choice import choose_lengths_shown, choose_positions
from sdssm.report.page.machine_data import fits_page, make_machine_data
from sdssm.report.page.matrix_data import make_matrix_data
from sdssm.report.page.page_types import (
    AccuracyValues,
    EventValues,
    MachineData,
    MatrixData,
    MeasureValues,
    Numbers,
    PlayerData,
    RunCurves,
    RunDetail,
    StateCloud,
)
from sdssm.report.page.player_data import make_player_data
from sdssm.report.page.player_models import why_not_playable
from sdssm.report.page.run_data import PageRun
from sdssm.report.page.state_cloud import make_state_cloud
from sdssm.report.page.stored_evaluation import MeasuredValues
from sdssm.report.page.symbol_matrices import compute_symbol_matrices, is_single_sd_ssm
from sdssm.report.page.weight_files import Tensors, read_tensors
from sdssm.runs.disk import read_json
from sdssm.runs.events import LogLines, read_log
from sdssm.runs.own_files import EVENTS_FILE, EXTRACTION_FILE, STATES_FILE
from sdssm.runs.status import describe_log_gap

#: The parts of a detail in the order in which they are added to a page; those of `LIGHT_PARTS` together.
LIGHT_PARTS = ("evaluation", "events", "extracted")
HEAVY_PARTS = ("player", "matrices", "states")
#: Lengths of a curve, and steps of a training, that are shown.
MOST_LENGTHS, MOST_EVENTS = 1_000, 400


class DetailReader:
    """Reads the heavy parts of one run, each when it is asked for."""

    def __init__(self, run: PageRun) -> None:
        self.run = run
        self.missing: dict[str, str] = {}  #: why a part is None, by its name
        self._parts: dict[str, Any] = {}

    def read(self, part: str) -> Any:
        """Return a part, or None; then `missing` says why."""
        if part not in self._parts:
            readers: Mapping[str, Callable[[], Any]] = {
                "evaluation": self._read_evaluation,
                "events": self._read_events,
                "extracted": self._read_extracted,
                "player": self._read_player,
                "matrices": self._read_matrices,
                "states": self._read_states,
            }
            try:
                self._parts[part] = readers[part]()
            except SdssmError as error:
                self.missing[part] = clip_text(first_line(error), LONGEST_TEXT)
                self._parts[part] = None
        return self._parts[part]

    def may_have(self, part: str) -> bool:
        """Return whether the run may have a part, without reading what is large."""
        config, data = self.run.config, self.run.data
        if part == "evaluation":
            return data["max_length"] is not None
        if config is None or self.run.path is None:
            return False
        if part == "extracted":
            return data["extraction"] is not None
        if part == "states":
            return (self.run.path / STATES_FILE).exists()
        if part == "matrices":
            return is_single_sd_ssm(config.model)
        return part != "player" or why_not_playable(config.model) is None

    def read_all(self) -> RunDetail:
        """Return all parts."""
        return {
            "id": self.run.data["id"],
            "evaluation": self.read("evaluation"),
            "events": self.read("events"),
            "matrices": self.read("matrices"),
            "states": self.read("states"),
            "extracted": self.read("extracted"),
            "player": self.read("player"),
            "missing": self.missing,
        }

    # -- light parts -------------------------------------------------------------------------------------------------

    def _read_evaluation(self) -> RunCurves:
        run = self.run
        accuracy = run.measured("accuracy")
        stored = run.evaluation or run.listed
        if accuracy is None or stored is None:
            raise RunError(f"not evaluated; {self._command('evaluate')}")
        shown = choose_lengths_shown(accuracy.lengths, MOST_LENGTHS)
        values: AccuracyValues = {
            "lengths": shown,
            "value": _values_at(accuracy, shown),
            "low": _values_at(run.measured("low"), shown),
            "high": _values_at(run.measured("high"), shown),
        }
        return {
            "strings": stored.strings,
            "accuracy": values,
            "balanced": _measure_values(run.measured("balanced")),
            "covering": _measure_values(run.measured("covering")),
        }

    def _read_events(self) -> EventValues:
        log = read_log(self._folder / EVENTS_FILE)
        if log.damaged:
            self.run.data["problems"].append(f"line {log.damaged[0]} of {EVENTS_FILE} is not an event; ignored")
        elif gap := self._describe_log_gap(log):
            self.run.data["problems"].append(f"{EVENTS_FILE} is damaged: {gap}")
        events = [
            (step, _number(event.get("loss")), _number(event.get("accuracy")))
            for event in log.events
            if isinstance(step := event.get("step"), int) and not isinstance(step, bool) and 0 <= step < 2**53
        ]
        events = [event for event in events if event[1:] != (None, None)]
        if not events:
            raise RunError(f"there is no step in {EVENTS_FILE} yet")
        kept = [events[place] for place in choose_positions(len(events), MOST_EVENTS)]
        return {
            "step": [step for step, _, _ in kept],
            "loss": [None if loss is None else float(f"{loss:.4g}") for _, loss, _ in kept],
            "accuracy": [round_percent(accuracy) for _, _, accuracy in kept],
        }

    def _describe_log_gap(self, log: LogLines) -> str | None:
        """Return in words what the log of an ended run lacks, or None."""
        data, config = self.run.data, self.run.config
        if config is None:
            return None
        every = config.train.log_every
        return describe_log_gap(log, status=data["status"], step=data["step"], steps=data["steps"], log_every=every)

    def _read_extracted(self) -> MachineData:
        if self.run.data["extraction"] is None:
            raise RunError(f"not extracted; {self._command('extract')}")
        return make_machine_data(self._extracted_machine, "extracted")

    @cached_property
    def _extracted_machine(self) -> Machine:
        fields = JsonFields(read_json(self._folder / EXTRACTION_FILE), EXTRACTION_FILE)
        return read_extracted_machine(fields)

    # -- heavy parts -------------------------------------------------------------------------------------------------

    @cached_property
    def _weights(self) -> Tensors:
        path = self._folder / WEIGHTS_FILE
        if not path.exists():
            raise RunError(f"there is no {WEIGHTS_FILE}: it is written when the training ends")
        weights = read_tensors(path)
        if not all(np.isfinite(value).all() for value in weights.values()):
            raise RunError(f"{WEIGHTS_FILE} is damaged: it holds NaN or infinite values")
        return weights

    def _read_matrices(self) -> MatrixData:
        config = self.run.config
        if config is None or not is_single_sd_ssm(config.model):
            raise RunError("only an SD-SSM with one layer has a matrix for each symbol")
        return make_matrix_data(compute_symbol_matrices(config.model, self._weights, config.n_symbols))

    def _read_states(self) -> StateCloud:
        path = self._folder / STATES_FILE
        if not path.exists():
            raise RunError(f"states are not stored; {self._command('evaluate')} --overwrite")
        return make_state_cloud(read_tensors(path), self.run.task.machine.n_states)

    def _read_player(self) -> PlayerData:
        config, data = self.run.config, self.run.data
        if config is None:
            raise RunError("its run folder is not part of this page, only its results are")
        reason = why_not_playable(config.model)
        if reason is None and not fits_page(self.run.task.machine):
            reason = f"its automaton has {self.run.task.machine.n_states:,} states, too many for a page"
        if reason is not None:
            raise RunError(reason)
        extracted = None if data["extraction"] is None else self._extracted_machine
        return make_player_data(config, self._weights, extracted=extracted, certified=data["certified"])

    # -- helpers -----------------------------------------------------------------------------------------------------

    @property
    def _folder(self) -> Path:
        if self.run.path is None:
            raise RunError("its run folder is not part of this page, only its results are")
        return self.run.path

    def _command(self, name: str) -> str:
        return f"sdssm {name} {quote(str(self._folder))}"


def _values_at(measured: MeasuredValues | None, lengths: list[int]) -> Numbers:
    known = {} if measured is None else dict(zip(measured.lengths, measured.values, strict=True))
    return [round_percent(known.get(length)) for length in lengths]


def _measure_values(measured: MeasuredValues | None) -> MeasureValues | None:
    if measured is None:
        return None
    lengths = list(measured.lengths)
    return {"lengths": lengths, "value": _values_at(measured, lengths)}


def _number(value: Any) -> float | None:
    """Return a number of an event; None if it is something else."""
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    return round_number(value, 9) if is_number and abs(value) < 1e300 else None
