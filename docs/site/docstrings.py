"""An extension of griffe, which reads the docstrings for the site: it gives them the form that griffe expects.

The docstrings of the package are written for readers of the code: examples are doctests in the running text, which
Markdown would read as quotations, and parameters are often explained by a paragraph of lines `name: meaning`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from textwrap import indent
from typing import Any

import griffe

#: Lines from `>>>` to the next empty line.
DOCTEST = re.compile(r"^([ ]*)>>> .*?(?=^[ ]*$|\Z)", re.MULTILINE | re.DOTALL)


class PackageDocstrings(griffe.Extension):  # type: ignore[misc]  # griffe is not installed where mypy runs
    """Makes blocks of code of doctests, and sections of paragraphs that explain parameters or attributes."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        if obj.docstring is None:
            return
        text = obj.docstring.value
        if obj.is_module:  # the rest is a list of names for readers of the code, which the page has anyway
            text = text.partition("\n\n")[0]
        elif obj.is_function:
            text = mark_section(text, "Args", [parameter.name for parameter in obj.parameters])
        elif obj.is_class:
            text = mark_section(text, "Attributes", obj.members)
        obj.docstring.value = fence_doctests(text)


def fence_doctests(text: str) -> str:
    r"""Return a docstring with its doctests as fenced blocks.

    >>> fence_doctests("Add.\n\n>>> 1 + 1\n2\n")
    'Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n'
    """
    return DOCTEST.sub(lambda match: f"{match[1]}```pycon\n{match[0].rstrip()}\n{match[1]}```\n", text)


def mark_section(text: str, title: str, names: Collection[str]) -> str:
    r"""Return a docstring in which a paragraph that explains these names is a section.

    >>> print(mark_section("Add.\n\nx: a number\ny: another", "Args", ["x", "y"]))
    Add.
    <BLANKLINE>
    Args:
        x: a number
        y: another
    """
    paragraphs = text.split("\n\n")
    for index, paragraph in enumerate(paragraphs):
        starts = re.findall(r"^(\w+):(?= )", paragraph, re.MULTILINE)
        if paragraph.startswith(tuple(f"{name}: " for name in names)) and set(starts) <= set(names):
            paragraphs[index] = f"{title}:\n{indent(paragraph, '    ')}"
    return "\n\n".join(paragraphs)
