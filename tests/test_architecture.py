"""ARCHITECTURE.md and CONTRIBUTING.md say what is true: packages, their imports, and the files they name."""

from __future__ import annotations

import re

from tests.test_package import ORDER, ROOT, SOURCE, top_level_imports

PICTURE = (ROOT / "ARCHITECTURE.md").read_text()
#: Modules below all packages; the picture leaves them out.
FOUNDATION = ORDER[: ORDER.index("automata")]


def package_imports() -> dict[str, set[str]]:
    """Return the packages that each package imports, without the foundation."""
    imports: dict[str, set[str]] = {name: set() for name in ORDER if name not in FOUNDATION}
    for name, others in imports.items():
        for path in (SOURCE / name).rglob("*.py"):
            others |= top_level_imports(path) & imports.keys() - {name}
    return imports


def indirect_imports(name: str, imports: dict[str, set[str]]) -> set[str]:
    """Return all packages that `name` imports, directly or through others."""
    return set().union(*({other} | indirect_imports(other, imports) for other in imports[name]))


def test_the_picture_shows_the_imports() -> None:
    imports = package_imports()
    arrows = {
        (other, name)
        for name, others in imports.items()
        for other in others
        if not any(other in indirect_imports(third, imports) for third in others - {other})
    }
    drawn = set(re.findall(r"^    (\w+) --> (\w+)$", PICTURE, re.MULTILINE))
    assert drawn == arrows


def test_every_package_has_a_row() -> None:
    rows = re.findall(r"^\| `(\w+)/` \|", PICTURE, re.MULTILINE)
    assert sorted(rows) == sorted(package_imports())


def test_the_files_named_on_the_pages_exist() -> None:
    """A path in backticks exists in the repository or below src/sdssm; links and pictures of the README exist."""
    missing = []
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        for path in re.findall(r"`([\w./-]+(?:/|\.py|\.md|\.toml|\.txt))`", (ROOT / page).read_text()):
            if path.startswith(("runs/a5", "dist/")):  # written by a command
                continue
            named_alone = "/" not in path and any(SOURCE.rglob(path))
            if not (named_alone or (ROOT / path).exists() or (SOURCE / path).exists()):
                missing.append(f"{page}: {path}")
    for target in re.findall(r'src="([^"]+)"|\]\(([^)#:]+)\)', (ROOT / "README.md").read_text()):
        path = "".join(target)
        if not (ROOT / path).exists():
            missing.append(f"README.md: {path}")
    assert not missing
