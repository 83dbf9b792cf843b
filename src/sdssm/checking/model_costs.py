"""What a model costs: the last section of a report card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sdssm.formatting import count_of
from sdssm.runs.events import to_json_value


@dataclass(frozen=True, kw_only=True)
class ModelCosts:
    """What a model costs.

    Attributes:
        parameters: the number of its parameters.
        parameter_bytes: their size.
        training_bytes: memory of one training step beyond parameters: on a GPU the peak, on a CPU the tensors that are
            kept for the gradient. None if it could not be measured.
        training_tokens: tokens a second in training, forward and backward of one batch; None if it cannot be trained.
        training_problem: why it cannot.
        train_length, batch: of that batch.
        state_numbers: numbers of the state of one string; None if the model has none.
        generation_tokens: tokens a second, one symbol of one string at a time; None if it could not be measured.
        generation_problem: why it could not.
        generation_tokens_side_by_side: the same for `side_by_side` strings together; None if that takes too long.
        prefix_length: the length of the prefix that is read again for each symbol; None for a recurrent model.
        device: where it was measured.
        threads: of the CPU; None on a GPU.
    """

    parameters: int
    parameter_bytes: int
    training_bytes: int | None
    training_tokens: float | None
    training_problem: str | None
    train_length: int
    batch: int
    state_numbers: int | None
    generation_tokens: float | None
    generation_problem: str | None
    generation_tokens_side_by_side: float | None
    side_by_side: int
    prefix_length: int | None
    device: str
    threads: int | None

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values."""
        data: dict[str, Any] = to_json_value(vars(self))
        return data

    def facts(self) -> dict[str, str]:
        """Return the lines of the card."""
        threads = "" if self.threads is None else f", {count_of(self.threads, 'thread')}"
        facts = {"parameters": f"{self.parameters:,} ({format_bytes(self.parameter_bytes)})"}
        batch = f"batch of {self.batch} strings of length {self.train_length:,}"
        if self.training_tokens is None:
            facts["training"] = f"not measured: {self.training_problem}"
        else:
            facts["training"] = f"{format_rate(self.training_tokens)} tokens/s, {batch}, forward and backward"
        if self.training_bytes is not None:
            kind = "kept for the gradient" if self.threads is not None else "at its peak"
            facts["memory in training"] = f"{format_bytes(self.training_bytes)} {kind}, {batch}"
        facts |= self._generation_facts()
        facts["measured on"] = f"{self.device}{threads}"
        return facts

    def _generation_facts(self) -> dict[str, str]:
        if self.generation_tokens is None:
            return {"generation": f"not measured: {self.generation_problem}"}
        single, several = format_rate(self.generation_tokens), ""
        if self.generation_tokens_side_by_side is not None:
            several = f"; {format_rate(self.generation_tokens_side_by_side)} with {self.side_by_side} strings"
        if self.prefix_length is None:
            return {
                "generation": f"{single} tokens/s step by step with its state{several}",
                "memory in generation": f"{self.state_numbers:,} numbers of state for each string, at any length",
            }
        return {
            "generation": f"{single} tokens/s at length {self.prefix_length:,}{several}; it has no state, so the whole "
            "prefix is read again for each token",
            "memory in generation": "the whole prefix: it has no state",
        }

    def summary(self) -> str:
        """Return parameters and speeds in one line."""
        speeds = {"training": self.training_tokens, "generation": self.generation_tokens}
        texts = [
            f"{name} not measured" if rate is None else f"{name} {format_rate(rate)} tokens/s"
            for name, rate in speeds.items()
        ]
        return f"{self.parameters:,} parameters; {', '.join(texts)}"


def format_bytes(size: float) -> str:
    """Format a size in memory.

    >>> format_bytes(512), format_bytes(20_480), format_bytes(3.2e6)
    ('512 B', '20 KiB', '3.1 MiB')
    """
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def format_rate(rate: float) -> str:
    """Format a number of tokens a second with two or three digits.

    >>> format_rate(123_456.0), format_rate(87.4)
    ('123,000', '87')
    """
    digits = 10 ** max(len(str(int(rate))) - 3, 0)
    return f"{round(rate / digits) * digits:,}"
