"""Coverage-guided fuzzing without further packages: mutate inputs, and keep those that reach new lines.

Several times slower than atheris, since Python traces every line; but it needs nothing.
"""

from __future__ import annotations

import random
import sys
import time
from types import FrameType
from typing import Any

from tests.fuzzing.findings import Findings
from tests.fuzzing.targets import MOST_BYTES


class LineTracer:
    """Records the pairs of lines of the package that were executed one after the other."""

    def __init__(self) -> None:
        self.pairs: set[tuple[str, int, int]] = set()
        self._last = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Follow calls into the package only; the signature is that of `sys.settrace`."""
        if event == "call":
            return self.trace if self._follows(frame.f_code.co_filename) else None
        if event == "line":
            self.pairs.add((frame.f_code.co_filename, self._last, frame.f_lineno))
            self._last = frame.f_lineno
        return self.trace

    @staticmethod
    def _follows(file: str) -> bool:
        return "sdssm" in file or "fuzzing" in file


def fuzz_here(findings: Findings, seconds: float, seed: int, *, most_findings: int = 100) -> int:
    """Fuzz for some seconds, or until there are enough findings; return how many inputs reached new lines."""
    generator = random.Random(seed)
    corpus = [text.encode() for text in findings.target.seeds]
    words = [word.encode() for word in findings.target.words]
    seen: set[tuple[str, int, int]] = set()
    pending = list(corpus)
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(findings.shortest) < most_findings:
        data = pending.pop() if pending else mutate(generator, corpus, words)
        tracer = LineTracer()
        sys.settrace(tracer.trace)
        try:
            findings.try_input(data)
        finally:
            sys.settrace(None)
        if not tracer.pairs <= seen:
            seen |= tracer.pairs
            corpus.append(data)
    return len(corpus)


def mutate(generator: random.Random, corpus: list[bytes], words: list[bytes]) -> bytes:
    """Return an input of the corpus with a few changes.

    >>> mutate(random.Random(0), [b"(ab)*"], [b"|"]) != b""
    True
    """
    data = bytearray(generator.choice(corpus))
    for _ in range(generator.choice((1, 1, 2, 4, 8))):
        first, last = sorted(generator.randrange(len(data) + 1) for _ in range(2))
        kind = generator.randrange(5)
        if kind == 0:  # a byte
            data[first : first + 1] = bytes([generator.randrange(256)])
        elif kind == 1:  # a word
            data[first:first] = generator.choice(words)
        elif kind == 2:  # remove a part
            del data[first : min(last, first + 16)]
        elif kind == 3:  # repeat a part
            data[last:last] = data[first:last] * generator.choice((1, 1, 2, 20))
        else:  # a part of another input
            other = generator.choice(corpus)
            start = generator.randrange(len(other) + 1)
            data[first:last] = other[start : start + 40]
        del data[MOST_BYTES:]
    return bytes(data)
