"""The lines of the sections whose measurements are also of use without a card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sdssm.checking.misclassified import MisclassifiedSearch


@dataclass(frozen=True)
class MisclassifiedSection:
    """The section on the shortest misclassified string."""

    search: MisclassifiedSearch

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values."""
        return self.search.to_json()

    def facts(self) -> dict[str, str]:
        """Return the lines of the card."""
        return {"result": self.search.describe(), "strings read": f"{self.search.strings:,}"}

    def summary(self) -> str:
        """Return the length of the string in one line."""
        search = self.search
        if search.length is None:
            return f"none found: {search.describe_search()}"
        return f"length {search.length:,}" + (", no shorter one exists" if search.is_shortest else "")
