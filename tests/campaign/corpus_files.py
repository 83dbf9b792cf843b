"""The corpus: inputs that once broke something, as plain files whose endings say what they are."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


@cache
def read_corpus(kind: str) -> tuple[str, ...]:
    """Return the texts of all files with this ending, in the order of their names."""
    return tuple(path.read_text(encoding="utf-8") for path in sorted(CORPUS.glob(f"*.{kind}")))


def read_commands() -> list[list[str]]:
    """Return the commands of the corpus; each file is a JSON list of arguments."""
    return [json.loads(text) for text in read_corpus("argv")]
