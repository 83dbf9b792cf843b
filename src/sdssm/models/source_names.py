"""The classes and functions that a Python file or module defines, to suggest one of them."""

from __future__ import annotations

import ast
import inspect
from os.path import isfile
from pathlib import Path
from typing import Any


def names_in_file(file: Path) -> list[str]:
    """Return the public classes and functions of a Python file, which is not run; empty if it cannot be read."""
    try:
        statements = ast.parse(file.read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError):
        return []
    kinds = (ast.ClassDef, ast.FunctionDef)
    return [item.name for item in statements if isinstance(item, kinds) and not item.name.startswith("_")]


def names_in(owner: Any) -> list[str]:
    """Return the public classes and functions that a module or class defines; all public names if there are none.

    >>> import graphlib
    >>> names_in(graphlib)
    ['CycleError', 'TopologicalSorter']
    """
    public = {name: value for name, value in vars(owner).items() if not name.startswith("_")}
    package = getattr(owner, "__name__", "").partition(".")[0]
    own = [
        name
        for name, value in public.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.partition(".")[0] == package
    ]
    return own or list(public)


def suggest_path_of_file(text: str) -> str | None:
    """Return what to write in place of the name of a Python file without a class; None if it is not such a name.

    >>> suggest_path_of_file("lstm") is None
    True
    """
    file = Path(text) if text.endswith(".py") else Path(f"{text}.py")
    if not isfile(file):  # noqa: PTH113  # Path.is_file raises an error for a name that is too long
        return f"write {text}:Name, with the name of the class" if text.endswith(".py") else None
    names = names_in_file(file)
    if not names:
        return f"{file} defines no class or function"
    return f"write {text}:{names[0]}" + (f"; it also defines {', '.join(names[1:])}" if names[1:] else "")
