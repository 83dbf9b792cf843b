"""What the report cards of all models say together, and what of them was not measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.report_cards.card_values import section_data, values_by_length

Cards = Mapping[str, Mapping[str, Any]]
#: A model has learned a task if its accuracy at the longest training length is at least this many percent.
LEARNED = 99.0
#: Why a measurement of the accuracy ended that was not too short: the model failed, or strings were long enough.
ENOUGH = ("below", "as far")


def describe_lessons(data: Mapping[str, Any]) -> list[str]:
    """Return in a few sentences what the cards show; every number is counted from them."""
    cards: Cards = data["cards"]
    if any(len(_measured(cards, name)) < len(cards) for name in ("accuracy", "automaton", "misclassified")):
        return []
    learned = {name: card for name, card in cards.items() if _at(card, card["train_length"]) >= LEARNED}
    lines = ["What one learns from them:", ""]
    for task in data["tasks"]:
        own = [name for name in cards if name.startswith(f"{task}/")]
        able = [name for name in own if name in learned]
        lasting = [name for name in able if _failing(cards[name]) is None and _last(cards[name]) >= 50_000]
        stay = "stays" if len(lasting) == 1 else "stay"
        lines.append(
            f"- **{task}**: {len(able)} of {len(own)} models have at least {LEARNED:.0f} % at the longest training "
            f"length{_names(able) if len(able) <= 5 else ''}, and {len(lasting)} {stay} above 90 % to length "
            f"50,000{_names(lasting)}."
        )
    equivalent = [name for name in learned if section_data(cards[name], "automaton").get("is_equivalent")]
    failing = [name for name in equivalent if _failing(cards[name]) is not None]
    lines.append(
        f"- **The right automaton at training lengths promises little**: that of {len(equivalent)} of these "
        f"{len(learned)} runs is equivalent to the task's, and {len(failing)} of them fall below 90 % later."
    )
    short = [
        name
        for name, card in learned.items()
        if _at(card, card["train_length"]) == 100
        and (section_data(card, "misclassified").get("length") or 10**9) <= card["train_length"]
    ]
    lines += [
        f"- **Random strings hide errors**: {len(short)} runs classify all random strings of the longest training "
        f"length correctly and misclassify one that is not longer{_names(short, full=True)}.",
        "",
    ]
    return lines


def list_unmeasured(data: Mapping[str, Any]) -> list[str]:
    """Return what was not measured and why, and what was measured on another device than the rest."""
    cards: Cards = data["cards"]
    lines = ["## Not measured, or measured elsewhere", ""]
    for name, card in cards.items():
        for section, entry in card["sections"].items():
            if entry["data"] is None:
                lines.append(f"- {name}, {section}: {entry['reason']}.")
        accuracy = section_data(card, "accuracy")
        if accuracy and accuracy["stopped"] and not accuracy["stopped"].startswith(ENOUGH):
            lines.append(f"- {name}, accuracy beyond length {accuracy['lengths'][-1]:,}: {accuracy['stopped']}.")
    places: dict[tuple[str, str], list[str]] = {}
    for name, devices in data.get("completed", {}).items():
        for section, device in devices.items():
            places.setdefault((section, device), []).append(name)
    for (section, device), names in places.items():
        which = "all cards" if len(names) == len(cards) else ", ".join(names)
        lines.append(f"- Measured later on a {device}, from the stored weights: {section} of {which}.")
    return lines if len(lines) > 2 else []


def _measured(cards: Cards, section: str) -> list[str]:
    return [name for name, card in cards.items() if section in card["sections"]]


def _at(card: Mapping[str, Any], length: int) -> float:
    """Return the accuracy at a length, or the balanced accuracy if that is lower."""
    accuracy = values_by_length(card, "accuracy").get(length, 0.0)
    return min(accuracy, values_by_length(card, "accuracy", "balanced").get(length, accuracy))


def _last(card: Mapping[str, Any]) -> int:
    return int(section_data(card, "accuracy")["lengths"][-1])


def _failing(card: Mapping[str, Any]) -> float | None:
    length: float | None = section_data(card, "accuracy")["failing_length"]
    return length


def _names(names: Iterable[str], *, full: bool = False) -> str:
    """Return the models in brackets, with their tasks if `full`; nothing if there are none."""
    shown = [name if full else name.split("/")[1] for name in names]
    return f" ({', '.join(shown)})" if shown else ""
