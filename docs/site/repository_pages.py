"""Pages of the site that are files of the repository outside of docs/: results, examples, changelog.

They keep their place in the repository, so that links between files work there and on the site: `to_page` says under
which address the site has a file, and `rewrite_links` changes the links of a page accordingly.
"""

from __future__ import annotations

import ast
import os
import re
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
#: Files of the repository that are pages of the site; patterns relative to the root.
PAGES = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/RESULTS.md",
    "results/**/*.md",
)
#: Files that pages may link to and that the site has as they are.
FILES = {".svg", ".png", ".csv", ".txt", ".html"}
#: The target of a link or a picture in Markdown, or of an attribute in HTML.
LINK = re.compile(r"""(\]\(|\b(?:src|href)=")([^)"#\s]+)""")


@cache
def repository_pages() -> tuple[str, ...]:
    """Return the paths of the files outside of docs/ that are pages of the site."""
    return tuple(sorted(path.relative_to(ROOT).as_posix() for pattern in PAGES for path in ROOT.glob(pattern)))


def example_scripts() -> list[Path]:
    """Return the scripts in examples/."""
    return sorted((ROOT / "examples").glob("*.py"))


def all_pages() -> list[str]:
    """Return the pages of the site whose sources are outside of docs/."""
    return [*repository_pages(), *(f"examples/{script.stem}.md" for script in example_scripts())]


def to_page(path: str) -> str | None:
    """Return where the site has a file of the repository, or None if it does not have it.

    >>> to_page("docs/how-to/export.md"), to_page("results/README.md"), to_page("examples/demo.py"), to_page("Makefile")
    ('how-to/export.md', 'results/README.md', 'examples/demo.md', None)
    """
    parts = PurePosixPath(path).parts
    if path == "README.md":
        return "index.md"
    if parts[:1] == ("docs",):
        return "/".join(parts[1:])
    if parts[:1] == ("examples",):
        return path.removesuffix(".py") + ".md" if path.endswith(".py") else "examples/index.md"
    is_shown = path in repository_pages() or (parts[:1] == ("results",) and Path(path).suffix in FILES)
    return path if is_shown else None


def to_repository(page: str) -> str:
    """Return the file of the repository that a page of the site shows."""
    if page in repository_pages():
        return page
    script = page.removesuffix(".md") + ".py"
    return script if page.startswith("examples/") and (ROOT / script).exists() else f"docs/{page}"


def rewrite_links(markdown: str, page: str) -> str:
    """Return the text of a page with links that are valid on the site; a strict build reports those that it lacks."""
    folder = PurePosixPath(to_repository(page)).parent

    def rewrite(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target or target.startswith(("mailto:", "data:", "/")):
            return match[0]
        found = to_page(os.path.normpath(folder / target))
        return match[0] if found is None else match[1] + os.path.relpath(found, PurePosixPath(page).parent)

    return LINK.sub(rewrite, markdown)


def example_page(script: Path) -> str:
    """Return a page with the docstring of a script and its code."""
    return f"# {script.name}\n\n{_docstring(script)}\n\n```python\n{script.read_text()}```\n"


def examples_index() -> str:
    """Return a page that lists the scripts with the first sentence of their docstrings."""
    rows = [
        f"| [{script.name}]({script.stem}.md) | {_docstring(script).partition(chr(10))[0]} |"
        for script in example_scripts()
    ]
    head = "# Examples\n\nShort scripts in `examples/`; `pip install 'sdssm[examples]'` installs what they need.\n\n"
    return head + "\n".join(["| script | what it shows |", "|---|---|", *rows]) + "\n"


def _docstring(script: Path) -> str:
    return ast.get_docstring(ast.parse(script.read_text())) or script.stem


def results_plots(page: str) -> str:
    """Return the pictures of a folder of results, for the page with its table."""
    folder = (ROOT / page).parent
    if folder.parent != ROOT / "results" or not page.endswith("table.md"):
        return ""
    curves = sorted(path.name for path in folder.glob("curves*.svg"))
    pictures = "\n\n".join(
        f"![Accuracy against length, {name[6:-4].strip('-') or folder.name}]({name})" for name in curves
    )
    return f"\n\n## Accuracy against length\n\n{pictures}\n" if pictures else ""
