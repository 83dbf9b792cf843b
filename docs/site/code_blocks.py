"""Languages of indented blocks of code, so that the site colours them.

Pages indent their examples, which doctest and every reader of Markdown understand; a fence with a language is what
the site needs.
"""

from __future__ import annotations

import re
from textwrap import dedent

#: A block of lines indented by four, between empty lines, after a line of text that is not part of a list.
BLOCK = re.compile(r"(?<=\n\n)((?: {4}.*\n)(?: {4}.*\n|\n(?= {4}))*)")
LANGUAGES = {">>> ": "pycon", "sdssm ": "sh", "make ": "sh", "pip ": "sh", "python ": "sh", "echo ": "sh"}


def name_languages(markdown: str) -> str:
    r"""Return a page whose indented examples in Python and in the shell are fenced blocks.

    >>> name_languages("Text:\n\n    >>> 1\n    1\n\nMore.\n")
    'Text:\n\n```pycon\n>>> 1\n1\n```\n\nMore.\n'
    """
    return BLOCK.sub(_fence, markdown)


def _fence(match: re.Match[str]) -> str:
    before = match.string[: match.start()].rstrip("\n").rpartition("\n")[2]
    if re.match(r"\s|[-*] |\d+\. |```", before):  # a list, whose text is indented too, or inside of a block
        return match[0]
    parts: list[tuple[str | None, str]] = []
    for piece in re.split(r"\n\n(?=\S)", dedent(match[1]).rstrip("\n")):
        language = next((name for start, name in LANGUAGES.items() if piece.startswith(start)), None)
        if parts and language in (None, parts[-1][0]):
            parts[-1] = (parts[-1][0], f"{parts[-1][1]}\n\n{piece}")
        else:
            parts.append((language, piece))
    if parts[0][0] is None:
        return match[0]
    return "\n".join(f"```{language}\n{code}\n```\n" for language, code in parts)
