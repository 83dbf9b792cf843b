"""What other commands found about a run: certificate.json, extraction.json and horizon.json of its folder."""

from __future__ import annotations

from collections.abc import Sequence

from sdssm.automata import Machine
from sdssm.automata.mappings import machine_from_mapping
from sdssm.errors import RunError, SdssmError
from sdssm.formatting import format_symbols
from sdssm.report.page.json_fields import LONGEST_TEXT, JsonFields, clip_text, round_number, round_percent
from sdssm.report.page.page_types import Certified, ExtractionSummary, HorizonSummary

#: Symbols of a string that are shown.
MOST_SYMBOLS = 60


def read_certificate(fields: JsonFields, symbols: Sequence[str]) -> Certified:
    """Return what certificate.json proves; `symbols` are the names of the task's symbols."""
    if "horizon" not in fields.data or "float_horizon" not in fields.data:  # null is every length
        raise RunError(f"{fields.where}: horizon or float_horizon is missing")
    misclassified = fields.fields("misclassified")
    return {
        "exact": fields.whole("horizon"),
        "float32": fields.whole("float_horizon"),
        "reason": fields.text("reason") or "",
        "misclassified": None if misclassified is None else _format_string(misclassified, "string", symbols),
        "misclassified_symbols": None if misclassified is None else misclassified.wholes("string"),
    }


def read_horizon(fields: JsonFields) -> HorizonSummary:
    """Return what horizon.json measured."""
    fields.require("longest", "max_length", "readings")
    readings = [reading for reading in fields.objects("readings") if reading.number("accuracy") is not None]
    for reading in readings:
        reading.require("length")
    return {
        "longest": fields.whole("longest") or 0,
        "max_length": fields.whole("max_length") or 0,
        "reached": fields.flag("reached") or False,
        "predicted": fields.number("predicted"),
        "lengths": [reading.whole("length") or 0 for reading in readings],
        "accuracy": [round_percent(reading.number("accuracy")) or 0 for reading in readings],
        "distance": [round_number(reading.number("spread"), 5) for reading in readings],
    }


def read_extraction(fields: JsonFields, symbols: Sequence[str]) -> ExtractionSummary:
    """Return what extraction.json says about the automaton."""
    return {
        "n_states": read_extracted_machine(fields).n_states,
        "equals_task": fields.flag("equals_task"),
        "faithful": fields.flag("faithful") or False,
        "difference": _format_string(fields, "difference", symbols),
        "note": fields.text("note"),
    }


def read_extracted_machine(fields: JsonFields) -> Machine:
    """Return the automaton of extraction.json."""
    machine = fields.fields("machine")
    if machine is None:
        raise RunError(f"{fields.where}: machine is missing")
    try:
        return machine_from_mapping(machine.data)
    except SdssmError as error:
        raise RunError(f"{fields.where}: {error}") from None


def _format_string(fields: JsonFields, name: str, symbols: Sequence[str]) -> str | None:
    """Return a string of symbols as text; None if there is none."""
    if fields.data.get(name) is None:
        return None
    tokens = fields.wholes(name)
    if any(token >= len(symbols) for token in tokens):
        raise RunError(f"{fields.where}: {name} has symbols that the task does not have")
    return clip_text(format_symbols([symbols[token] for token in tokens], MOST_SYMBOLS), LONGEST_TEXT)
