"""Measure the sections that are missing in the report cards of a campaign, from its stored weights."""

from __future__ import annotations

import argparse
import json
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.report_cards.files import write_cards
from sdssm.checking import ReportCard
from sdssm.checking.card_section import TITLES, CardSection
from sdssm.checking.checked_model import ModelRequest, find_checked_model
from sdssm.checking.checker import check_subject


def complete(arguments: argparse.Namespace) -> None:
    """Measure the sections that are missing in the cards of a folder, and write the results."""
    data = json.loads((arguments.complete / "cards.json").read_text())
    results = {name: ReportCard.from_json(card) for name, card in data["cards"].items()}
    description = {name: value for name, value in data.items() if name not in ("cards", "tasks")}
    # Which sections were measured here, and not in the campaign.
    completed = description.setdefault("completed", {})
    end = monotonic() + arguments.max_seconds
    with tempfile.TemporaryDirectory(prefix="cards-") as temporary:
        for path in sorted(arguments.complete.glob("runs-*.tar.gz")):
            with tarfile.open(path) as archive:
                archive.extractall(temporary, filter="data")
        for folder in sorted(path.parent for path in Path(temporary).rglob("config.json")):
            name = str(folder.relative_to(temporary))
            card = results.get(name)
            wanted = [
                section
                for section in arguments.sections or TITLES
                if arguments.again or card is None or not is_complete(card, section)
            ]
            if not wanted or monotonic() > end or not (arguments.models is None or folder.name in arguments.models):
                continue
            subject = replace(find_checked_model(folder, None, ModelRequest(device=arguments.device)), folder=None)
            known: tuple[CardSection, ...] = () if card is None else card.sections
            more = check_subject(subject, sections=wanted, known=known, max_seconds=arguments.card_seconds)
            results[name] = merge(more if card is None else card, more, completed.setdefault(name, {}))
            lines = "; ".join(f"{section.name}: {section.summary or section.reason}" for section in more.sections)
            print(f"{name}: {lines}", flush=True)
            write_cards(arguments.results, description, results)  # after each, since it may be interrupted
    write_cards(arguments.results, description, results)
    print(arguments.results)


def is_complete(card: ReportCard, section: str) -> bool:
    """Whether a section was measured, and all of it: of the laws, some may not have been checked for lack of time."""
    if section not in card.names or not card[section].is_measured:
        return False
    data: Mapping[str, Any] = card[section].data or {}
    return not data.get("unchecked")


def merge(card: ReportCard, more: ReportCard, devices: dict[str, str]) -> ReportCard:
    """Return a card with the sections that were measured later, and note their device."""
    for section in more.sections:
        if section.is_measured or section.name not in card.names:
            card = card.with_section(section)
            devices[section.name] = more.device
    return card
