"""The documentation site: what is generated from the code, links, commands on the pages, notebooks."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from docs.site import code_blocks, command_line, repository_pages
from docs.site.settings_tables import settings_page
from sdssm.cli.options import parse_value
from sdssm.cli.parser import COMMANDS, make_parser
from sdssm.models.catalogue import MODELS, default_preset
from sdssm.runs.schema import Settings, resolve_settings, setting_names
from sdssm.settings import settings_to_dict

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
KINDS = ("tutorials", "how-to", "reference", "explanation", "gallery")
PAGES = sorted(DOCS.rglob("*.md"))
NOTEBOOKS = sorted((DOCS / "tutorials" / "notebooks").glob("*.ipynb"))
#: Markdown files of the repository with links.
LINKED = [
    ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
] + PAGES


def name_path(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_page_is_of_one_kind() -> None:
    top = {"index.md", "pypi.md"}
    assert not [page for page in PAGES if page.parent == DOCS and page.name not in top]
    assert {page.relative_to(DOCS).parts[0] for page in PAGES if page.parent != DOCS} <= set(KINDS)


# -- what is generated -------------------------------------------------------------------------------------------------


def test_the_reference_has_every_command_and_option() -> None:
    page = command_line.command_line_page()
    sections = dict(re.findall(r"^## sdssm (.*?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert [name for name in sections if " " not in name] == list(COMMANDS)
    for name in COMMANDS:
        parser = make_parser(name)
        for action in parser._actions[-1].choices[name]._actions:  # type: ignore[index]
            for option in action.option_strings:
                if option not in ("-h", "--help") and action.help != "==SUPPRESS==":
                    assert f"`{option}" in sections[name], (name, option)


def test_the_reference_escapes_markup() -> None:
    assert command_line.escape("a|b <x> [y] *z*") == r"a\|b &lt;x&gt; \[y\] \*z\*"


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_has_every_setting_of_a_model(name: str) -> None:
    settings = resolve_settings(name, default_preset(name), "")
    shown = set(re.findall(r"^\| `(\w+)` \|", settings_page(), re.MULTILINE))
    assert set(setting_names(settings)) <= shown


def test_the_reference_has_the_defaults() -> None:
    settings = Settings()
    page = settings_page()
    for title, part in (
        ("Training", settings.train),
        ("Model", settings.model),
        ("Layer of `sd-ssm`", settings.model.mixer),
    ):
        section = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^### |\Z)", page, re.MULTILINE | re.DOTALL)
        assert section is not None, title
        rows = dict(re.findall(r"^\| `(\w+)` \| (\S.*?) \|", section[1], re.MULTILINE))
        values = {name: value for name, value in settings_to_dict(part).items() if name in setting_names(settings)}
        assert {name: parse_value(default) for name, default in rows.items()} == values


def test_generated_parts_are_asked_for_by_name() -> None:
    marks = [mark for page in PAGES for mark in re.findall(r"<!-- generated: ([\w-]+) -->", page.read_text())]
    assert sorted(marks) == ["command-line", "settings"]


# -- links and commands ------------------------------------------------------------------------------------------------


def test_links_of_the_repository_become_links_of_the_site() -> None:
    text = "[a](../../results/README.md#b) ![c](../../results/overview/curves.svg) [d](../how-to/train.md) [e](https://x.y)"
    expected = (
        "[a](../results/README.md#b) ![c](../results/overview/curves.svg) [d](../how-to/train.md) [e](https://x.y)"
    )
    assert repository_pages.rewrite_links(text, "explanation/model.md") == expected
    assert (
        repository_pages.rewrite_links("[x](../docs/how-to/train.md)", "results/README.md") == "[x](../how-to/train.md)"
    )


@pytest.mark.parametrize("module", [repository_pages, code_blocks], ids=lambda module: module.__name__)
def test_examples_of_the_site_code(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted and not results.failed


def test_docstrings_get_the_form_that_the_site_needs() -> None:
    pytest.importorskip("griffe")
    results = doctest.testmod(importlib.import_module("docs.site.docstrings"))
    assert results.attempted and not results.failed


@pytest.mark.parametrize("page", LINKED, ids=name_path)
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^( {4}.*|```.*?^```)$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = [match[2] for match in repository_pages.LINK.finditer(text) if "://" not in match[2]]
    missing = [target for target in targets if not Path(os.path.normpath(page.parent / target)).exists()]
    assert not missing


def commands_of(page: Path) -> list[str]:
    """Return the commands of this package on a page, in blocks of code."""
    found = re.findall(r"^(?: {4}|)(sdssm .*)$", page.read_text(), re.MULTILINE)
    return [line for line in found if re.match(rf"sdssm ({'|'.join(COMMANDS)})\b", line)]


@pytest.mark.parametrize("page", [page for page in (ROOT / "README.md", *PAGES) if commands_of(page)], ids=name_path)
def test_commands_of_a_page_exist(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their arguments are parsed; nothing runs."""
    for line in commands_of(page):
        for command in re.split(r" && |; ", line.partition(" #")[0]):
            words = shlex.split(command)
            if words and words[0] == "sdssm":
                try:
                    make_parser(words[1]).parse_args(words[1:])
                except SystemExit:
                    pytest.fail(f"{command}: {capsys.readouterr().err}")


# -- notebooks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_path)
def test_notebooks_are_valid_and_say_nothing_of_a_machine(path: Path) -> None:
    notebook: dict[str, Any] = json.loads(path.read_text())
    assert notebook["nbformat"] == 4 and notebook["cells"][0]["cell_type"] == "markdown"
    assert set(notebook["metadata"]) == {"kernelspec"}
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("markdown", "code") and cell["id"]
        for output in cell.get("outputs", []):
            assert output["output_type"] != "error" and output.get("name") != "stderr"
    assert not re.search(r"/(?:home|root|tmp|work|Users|usr)/", path.read_text())
    assert path.stat().st_size < 200_000
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert any(cell["outputs"] for cell in code)  # stored by python -m docs.site.notebooks --write


def test_there_are_two_notebooks() -> None:
    assert len(NOTEBOOKS) >= 2


def test_the_site_is_not_tracked() -> None:
    ignored = subprocess.run(["git", "check-ignore", "site/index.html"], cwd=ROOT, capture_output=True, text=True)
    if "not a git repository" in ignored.stderr:
        pytest.skip("not a clone")
    assert ignored.returncode == 0
