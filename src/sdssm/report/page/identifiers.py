"""Identifiers of tasks, trainings and runs in a page: stable, and safe in URLs and in HTML attributes."""

from __future__ import annotations

import re
from hashlib import sha256

#: Characters of the readable part, and of the hash after it.
READABLE, HASHED = 40, 8


def make_identifier(readable: str, *unique: str) -> str:
    """Return an identifier of lower-case letters, digits and dashes that depends on all the texts.

    The same texts always give the same identifier, so that a link into a page works after the page was written again.

    >>> make_identifier("runs/a5/seed-0", "runs/a5/seed-0")
    'runs-a5-seed-0-f528a8f4'
    """
    words = re.sub(r"[^a-z0-9]+", "-", readable[-200:].lower()).strip("-")[-READABLE:].strip("-")
    digest = sha256("\\0".join(unique).encode("utf-8", "surrogatepass")).hexdigest()[:HASHED]
    return f"{words}-{digest}" if words else f"x-{digest}"
