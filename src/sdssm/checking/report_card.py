"""The report card of a model: what it can do, where it fails, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sdssm.checking.card_section import TITLES, CardSection
from sdssm.display import Displayed, ResultTable
from sdssm.errors import SettingsError, format_value
from sdssm.evaluation.sampled_accuracy import MEASURES
from sdssm.formatting import format_percent

#: The version of the JSON of a card.
FORMAT = 1
#: The accuracy, in percent, that `passes` asks for at the training lengths.
ENOUGH = 99.0
#: The sections that `passes` judges.
JUDGED = ("accuracy", "laws")


@dataclass(frozen=True, kw_only=True, repr=False)
class ReportCard(Displayed):
    """The report card of one model on one task.

    It prints as a table. `to_json` has all values, `to_markdown` is a page, and `card["accuracy"]` is a section.

    Attributes:
        model: the name of the model.
        task: the name of the task.
        description: the first line: model, task, and whether it was trained.
        weights: where the weights come from: "initial", "trained", "run", "saved" or "given".
        chance: the accuracy of answering uniformly at random, in percent.
        train_length: the longest strings of the training.
        n_symbols, n_classes: of the task.
        seed, steps, folder: of the training, if known.
        device: where the model was checked.
        seconds: how long it took, without training.
        sections: the sections, in the order of `TITLES`.
    """

    model: str
    task: str
    description: str
    weights: str
    chance: float
    train_length: int
    n_symbols: int
    n_classes: int
    seed: int | None
    steps: int | None
    folder: str | None
    device: str
    seconds: float
    sections: tuple[CardSection, ...]

    def __getitem__(self, name: str) -> CardSection:
        for section in self.sections:
            if section.name == name:
                return section
        raise SettingsError(f"the card has no section {format_value(name)}; it has {', '.join(self.names)}")

    @property
    def names(self) -> list[str]:
        """The names of the sections."""
        return [section.name for section in self.sections]

    def value(self, section: str, name: str) -> Any:
        """Return one value of a section, such as ("accuracy", "longest_99"); None if it was not measured."""
        known = next((item for item in self.sections if item.name == section), None)
        return None if known is None or known.data is None else known.data.get(name)

    @property
    def failed_laws(self) -> list[str]:
        """The laws that the model breaks."""
        laws = self.value("laws", "laws") or []
        return [law["name"] for law in laws if law["passed"] is False]

    @property
    def passes(self) -> bool:
        """Whether the model is good enough: see `shortcomings`."""
        return not self.shortcomings

    @property
    def shortcomings(self) -> list[str]:
        """Why the model does not pass: a broken law, an accuracy below 99 % at a training length, or one not measured.

        The accuracy is the plain or the balanced one, whichever is lower.
        Of these two sections, those that were asked for are judged; a card without both does not pass.
        """
        judged = [section for section in self.sections if section.name in JUDGED]
        if not judged:
            return ["neither the accuracy nor the laws were asked for"]
        reasons = [f"{section.title}: not measured, {section.reason}" for section in judged if not section.is_measured]
        if "accuracy" in self.names and self["accuracy"].is_measured:
            worst = self.value("accuracy", "worst_at_training_lengths")
            if worst is None:
                reasons.append("accuracy: no training length was measured")
            elif worst < ENOUGH:
                reasons.append(f"accuracy: {format_percent(worst)} % at a training length, below {ENOUGH:.0f} %")
        if self.failed_laws:
            reasons.append(f"broken laws: {', '.join(self.failed_laws)}")
        unchecked = self.value("laws", "unchecked")
        if unchecked:
            reasons.append(f"laws that were not checked, for lack of time: {', '.join(unchecked)}")
        return reasons

    def __repr__(self) -> str:
        longest = self.value("accuracy", "longest_99")
        reached = "at no length" if longest is None else f"to length {longest:,}"
        return f"<ReportCard: {self.description}; at least 99 % {reached}, chance {self.chance:.3g} %>"

    def to_table(self) -> ResultTable:
        """Return the table that is printed: a row for each line of the card."""
        rows = []
        for section in self.sections:
            for k, (name, text) in enumerate(section.lines.items()):
                rows.append([section.title if k == 0 else "", name, text])
        return ResultTable(["section", "line", "result"], rows, title=self.description)

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each measured length: the model, the length, and the accuracies there."""
        data = next((item.data for item in self.sections if item.name == "accuracy"), None)
        if data is None:
            return []
        names = {"lengths": "length", "accuracy": "accuracy", "low": "accuracy_low", "high": "accuracy_high"}
        names |= {"best_constant": "best_constant", "strings": "strings"}
        columns = {new: data[old] for old, new in names.items()}
        for name in MEASURES:  # cards of older versions have none of them
            sampled = data.get(name) or {"lengths": [], "accuracy": []}
            by_length = dict(zip(sampled["lengths"], sampled["accuracy"], strict=True))
            columns[name] = [by_length.get(length) for length in data["lengths"]]
        fixed = {"task": self.task, "model": self.model, "chance": self.chance, "train_length": self.train_length}
        return [{**fixed, **dict(zip(columns, values, strict=True))} for values in zip(*columns.values(), strict=True)]

    def to_markdown(self) -> str:
        """Return the card as a page of Markdown."""
        lines = [f"# Report card: {_escape(self.description)}", ""]
        for section in self.sections:
            lines += [f"## {section.title.capitalize()}", ""]
            if section.is_measured:
                lines += ["| | |", "|---|---|"]
                lines += [f"| {_escape(name)} | {_escape(text)} |" for name, text in section.facts.items()]
            else:
                lines.append(f"Not measured: {_escape(section.reason or '')}")
            lines.append("")
        lines.append(f"Measured on {self.device} in {self.seconds:.0f} s, without training.")
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values."""
        fields = {name: value for name, value in vars(self).items() if name != "sections"}
        sections = {section.name: section.to_json() for section in self.sections}
        return {"format": FORMAT, **fields, "seconds": round(self.seconds, 1), "sections": sections}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReportCard:
        """Return the card that `to_json` has written."""
        if data.get("format") != FORMAT:
            raise SettingsError(f"the format of the card is {format_value(data.get('format'))}; it must be {FORMAT}")
        fields = {name: value for name, value in data.items() if name not in ("format", "sections")}
        known = [name for name in TITLES if name in data["sections"]]
        sections = tuple(CardSection.from_json(name, data["sections"][name]) for name in known)
        return cls(**fields, sections=sections)

    def with_section(self, section: CardSection) -> ReportCard:
        """Return the card with a section replaced or added."""
        sections = {item.name: item for item in self.sections} | {section.name: section}
        ordered = tuple(sections[name] for name in TITLES if name in sections)
        return replace(self, sections=ordered)


def _escape(text: str) -> str:
    """Escape what would end a cell or start a tag in Markdown."""
    return text.replace("|", "\\|").replace("<", "&lt;")
