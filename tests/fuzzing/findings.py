"""Inputs that broke a rule: one file for each kind of error and place in the code."""

from __future__ import annotations

import hashlib
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzzing.targets import BrokenRuleError, Target, limited_memory


@dataclass
class Findings:
    """Checks inputs of a target, and stores those that break a rule in a folder; the shortest of each kind."""

    target: Target
    folder: Path
    tried: int = 0
    shortest: dict[str, int] = field(default_factory=dict)

    def try_input(self, data: bytes) -> None:
        """Check an input; store it, and print a line, if it breaks a rule in a new way or is shorter."""
        self.tried += 1
        try:
            with limited_memory():
                self.target.check(data)
        except Exception as error:  # whatever a reader may raise
            self._store(data, error)

    def _store(self, data: bytes, error: Exception) -> None:
        place = describe_place(error)
        if len(data) >= self.shortest.get(place, sys.maxsize):
            return
        self.shortest[place] = len(data)
        self.folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(place.encode()).hexdigest()[:8]
        (self.folder / f"{self.target.name}-{digest}").write_bytes(data)
        sys.stderr.write(f"{self.target.name}-{digest}: {place}: {str(error)[:200]!r} for {data[:200]!r}\n")
        sys.stderr.flush()


def describe_place(error: Exception) -> str:
    """Return the class of an error and the innermost line of the package that raised it."""
    if isinstance(error, BrokenRuleError):
        return f"BrokenRuleError, {str(error).partition(':')[0]}, {'took' if ' took ' in str(error) else 'wrong'}"
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if "sdssm" in frame.filename), frames[-1])
    return f"{type(error).__name__} in {Path(frame.filename).name}, {frame.name}, line {frame.lineno}"
