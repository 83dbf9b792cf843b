"""The modules beside a model's file: `import layers` in folder/model.py means folder/layers.py.

Python keeps one module of each name. If two files of different folders both import `layers`, the second would silently
get the code of the first, so it is refused.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from sdssm.errors import ModelError


def check_neighbours(file: Path) -> None:
    """Raise an error if a file imports a module beside it while another module of that name is loaded."""
    for name, neighbour in _imported_neighbours(file, {}).items():
        loaded = getattr(sys.modules.get(name), "__file__", None)
        if name in sys.modules and (loaded is None or Path(loaded).resolve() != neighbour):
            raise ModelError(
                f"{file} imports {name!r}, the file {neighbour}, but {loaded or 'a module of Python'} is loaded under "
                f"that name already; rename one of them, or use the two models in separate processes"
            )


def _imported_neighbours(file: Path, known: dict[str, Path]) -> dict[str, Path]:
    """Return the files beside a file that it imports, directly or through each other, by the name of their module."""
    for name in _imported_names(file) - set(known):
        candidates = (file.parent / f"{name}.py", file.parent / name / "__init__.py")
        neighbour = next((path for path in candidates if path.is_file()), None)
        if neighbour is not None:
            known[name] = neighbour.resolve()
            if neighbour.parent == file.parent:
                _imported_neighbours(neighbour, known)
    return known


def _imported_names(file: Path) -> set[str]:
    """Return the top-level names of the modules that a file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()  # importing it says what is wrong
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
