"""Mutations of valid inputs: small changes that leave most of the structure, so that they get past the first check."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

#: Pieces that often break parsers: numbers out of range, control characters, surrogates, markup, deep nesting.
HOSTILE_PIECES = (
    "0", "-1", "1e309", "nan", "inf", "1e-400", str(2**31), str(2**63), str(10**18), "9" * 5000,
    "0x10", "1_000", "٣",
    "\x00", "\x1b[2J", "\r", "\u2028", "\u202e", "\ud800", "\ufeff",
    "é", "🙂", "\t", "\n", "\\", "\\n", '"', "'", "`",
    "null", "true", "none", "[]", "{}", "[" * 2000, "{" * 300, "(" * 3000, "((a|b)*c)*" * 20, "*" * 50, "{1000000}",
    "%s",
    "../../etc/passwd", "/dev/zero", "<script>", "&amp;", "a" * 10_000, " ", "", ",", ":", ";", "=", "#", "//", "--",
    "*",
)  # fmt: skip


def mutate_text(random: Random, text: str, others: Sequence[str] = ()) -> str:
    """Return a text with one to four changes; some take a piece of another valid input."""
    for _ in range(random.choice((1, 1, 2, 4))):
        text = _change(random, text, others)
    return text


def _change(random: Random, text: str, others: Sequence[str]) -> str:
    start, end = sorted(random.randrange(len(text) + 1) for _ in range(2))
    if random.random() < 0.6:  # most changes are local
        end = min(end, start + random.randint(0, 4))
    choice = random.randrange(8)
    if choice == 0:
        return text[:start] + text[end:]
    if choice == 1:
        return text[:end] + text[start:end] * random.choice((1, 2, 50)) + text[end:]
    if choice in (2, 3):
        return text[:start] + random.choice(HOSTILE_PIECES) + text[end:]
    if choice == 4:
        return text[:start] + chr(random.choice((random.randrange(128), random.randrange(0x3000)))) + text[end:]
    if choice == 5 and others:
        other = random.choice(others)
        cut = random.randrange(len(other) + 1)
        return text[:start] + other[cut : cut + random.randint(1, 40)] + text[end:]
    if choice == 6:
        return text[:start] + text[start:end][::-1] + text[end:]
    return text[:start]


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """Return bytes with a few of them changed, removed or repeated."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 3))):
        if not changed:
            return bytes(changed)
        at, choice = random.randrange(len(changed)), random.randrange(4)
        if choice == 0:
            changed[at] ^= 1 << random.randrange(8)
        elif choice == 1:
            del changed[at : at + random.randint(1, 20)]
        elif choice == 2:
            changed[at:at] = changed[at : at + random.randint(1, 20)]
        else:
            changed[at:at] = random.randbytes(random.randint(1, 8))
    return bytes(changed)
