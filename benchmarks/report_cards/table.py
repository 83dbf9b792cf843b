"""The table of the report cards of all models: results/report-cards/README.md from cards.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report_cards.card_values import section_data, values_by_length
from benchmarks.report_cards.lessons import describe_lessons, list_unmeasured
from sdssm.formatting import format_percent

#: The lengths at which the table shows the accuracy.
LENGTHS = (40, 100, 500, 5_000, 50_000)
WHAT = {
    "a5": "the alternating group A5: 60 states and labels, the smallest group that is not solvable",
    "parity": "the number of ones modulo 2: the smallest group",
    "set-reset": "`a` sets the label, `b` resets it, `c` keeps it: two states and no group in them",
}
NOTES = """\
Accuracies are in percent, on 512 random strings of each length (128 where strings are long and the model is slow). The
first two rows of a table are what a guess and the best constant answer have. An accuracy near 0 % means that the states
have overflowed: an output that is not a number counts as misclassified.

- "99 % to" and "90 % to": the longest length at which the accuracy is at least that, at every shorter measured length
  too. A plus means that no longer strings were measured.
- Shortest misclassified: found by search, not sampled. "=" means that no shorter one exists.
- Automaton: from the states of a model that has some, and learned from its labels by L* otherwise.
- Forecast: the length at which the accuracy should fall below 90 %, if it does, from states at training lengths, and
  where it does. [The page on forecasts](../../docs/explanation/forecast.md) says how often a forecast is off.
- Speed: one model called from Python, a training batch of 128 strings of length 40 forward and backward, and one string
  symbol by symbol. `sdssm train` replays CUDA graphs of many models at once and is much faster on a GPU.
- [The reference of the report card](../../docs/reference/report-card.md) describes how each of them is measured.
"""


def write_table(folder: Path) -> None:
    """Write README.md beside cards.json."""
    data = json.loads((folder / "cards.json").read_text())
    cards: Mapping[str, Mapping[str, Any]] = data["cards"]
    packages = ", ".join(f"{name} {data['versions'][name]}" for name in ("torch", "triton") if name in data["versions"])
    lengths = sorted({card["train_length"] for card in cards.values()})
    seeds = ", ".join(str(seed) for seed in sorted({card["seed"] for card in cards.values()}))
    lines = [
        "# Report cards of all models",
        "",
        f"Every model of the catalogue with its default settings and seed {seeds}, trained on strings up to length",
        f"{lengths[-1]} by `{data['command']}` on {data['device']} ({packages}).",
        "Training is short: the number of steps is in the table, and a model that fails here may learn the task with",
        "more, or with another seed. Speeds are of that device, and so is all that is not listed at the end.",
        "",
        *describe_lessons(data),
        NOTES,
    ]
    for task in data["tasks"]:
        rows = [card for name, card in cards.items() if name.startswith(f"{task}/")]
        if rows:
            lines += [*_section(task, data["tasks"][task], rows), ""]
    lines += list_unmeasured(data)
    (folder / "README.md").write_text("\n".join(lines).rstrip() + "\n")


def _section(task: str, name: str, cards: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the heading and the tables of a task."""
    constant: dict[int, float] = {}
    for card in cards:
        constant |= values_by_length(card, "best_constant")
    baselines = [
        ["chance", "", *[f"{cards[0]['chance']:.2f}"] * len(LENGTHS), "", ""],
        ["best constant answer", "", *(f"{constant[n]:.2f}" if n in constant else "-" for n in LENGTHS), "", ""],
    ]
    headers = ["model", "steps", *(f"at {length:,}" for length in LENGTHS), "99 % to", "90 % to"]
    accuracy = [[*_first(card), *_accuracies(card), _longest(card, 99), _longest(card, 90)] for card in cards]
    others = [
        [
            card["model"],
            _misclassified(card),
            _summary(card, "automaton"),
            _summary(card, "forecast"),
            _summary(card, "laws"),
            *_costs(card),
        ]
        for card in cards
    ]
    more = ["model", "shortest misclassified", "automaton", "forecast and measured", "laws", "parameters"]
    more += ["training, tokens/s", "generation, tokens/s"]
    return [
        f"## {name if task == 'set-reset' else task}",
        "",
        f"{WHAT[task][0].upper()}{WHAT[task][1:]}.",
        "",
        *_table(headers, [*baselines, *accuracy], right=len(headers) - 1),
        "",
        *_sampled_tables(cards),
        *_table(more, others),
    ]


def _sampled_tables(cards: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table for the balanced and one for the covering accuracy, as far as cards have them."""
    lines: list[str] = []
    for measure, level in (("balanced", "chance"), ("covering", "best constant answer")):
        if not any(section_data(card, "accuracy").get(measure) for card in cards):
            continue  # cards of older versions
        headers = ["model", *(f"{measure} at {length:,}" for length in LENGTHS)]
        constants: dict[int, float] = {}
        for card in cards:
            constants |= values_by_length(card, "best_constant", measure)
        rows = [[card["model"], *_format_shares(values_by_length(card, "accuracy", measure))] for card in cards]
        lines += [*_table(headers, [[level, *_format_shares(constants)], *rows], right=len(LENGTHS)), ""]
    return lines


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: int = 0) -> list[str]:
    marks = ["---"] * (len(headers) - right) + ["---:"] * right
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (headers, marks, *rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


def _summary(card: Mapping[str, Any], section: str) -> str:
    entry = card["sections"].get(section)
    if entry is None:
        return "not measured"
    return entry["summary"] if entry["data"] is not None else f"not measured: {entry['reason']}"


def _first(card: Mapping[str, Any]) -> list[str]:
    return [card["model"], f"{card['steps']:,}"]


def _accuracies(card: Mapping[str, Any]) -> list[str]:
    return _format_shares(values_by_length(card, "accuracy"))


def _format_shares(known: Mapping[int, float]) -> list[str]:
    return [format_percent(known.get(length)) for length in LENGTHS]


def _longest(card: Mapping[str, Any], level: int) -> str:
    data = section_data(card, "accuracy")
    longest = data.get(f"longest_{level}")
    if longest is None:
        return "-"
    return f"{longest:,}" + ("+" if longest == data["lengths"][-1] else "")


def _misclassified(card: Mapping[str, Any]) -> str:
    data = section_data(card, "misclassified")
    if not data:
        return _summary(card, "misclassified")
    if data["length"] is None:
        searched = data["all_strings_up_to"]
        return "none found" if searched is None else f"none found; all strings to length {searched} read"
    return f"length {'= ' if data['is_shortest'] else ''}{data['length']:,}"


def _costs(card: Mapping[str, Any]) -> list[str]:
    data = section_data(card, "costs")
    if not data:
        return ["-", "-", "-"]
    rates = (data["training_tokens"], data["generation_tokens"])
    return [f"{data['parameters']:,}", *("-" if rate is None else f"{float(f'{rate:.3g}'):,.0f}" for rate in rates)]
