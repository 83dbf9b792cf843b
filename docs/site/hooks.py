"""Hooks of MkDocs: pages that are generated from the code, and pages that are files outside of docs/.

MkDocs calls the functions below by their names; mkdocs.yml lists this file. A comment `<!-- generated: NAME -->` in a
page is replaced by the text that `GENERATED` makes.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.site import repository_pages
from docs.site.code_blocks import name_languages
from docs.site.command_line import command_line_page
from docs.site.settings_tables import settings_page

GENERATED = {"command-line": command_line_page, "settings": settings_page}
DOCS = repository_pages.ROOT / "docs"
MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are files outside of docs/, and the files that they link to."""
    for page in repository_pages.repository_pages():
        path = repository_pages.ROOT / page
        text = path.read_text() + repository_pages.results_plots(page)
        files.append(File.generated(config, page, content=text))
        for match in repository_pages.LINK.finditer(text):
            _add_linked_file(files, config, page, match[2])
    for page in files.documentation_pages():
        for match in repository_pages.LINK.finditer(page.content_string if page.src_uri.endswith(".md") else ""):
            _add_linked_file(files, config, repository_pages.to_repository(page.src_uri), match[2])
    files.append(File.generated(config, "examples/index.md", content=repository_pages.examples_index()))
    for script in repository_pages.example_scripts():
        files.append(
            File.generated(config, f"examples/{script.stem}.md", content=repository_pages.example_page(script))
        )
    return files


def _add_linked_file(files: Files, config: MkDocsConfig, source: str, target: str) -> None:
    """Add a picture or a table outside of docs/ that a file of the repository links to."""
    path = (repository_pages.ROOT / PurePosixPath(source).parent / target).resolve()
    if not path.is_file() or not path.is_relative_to(repository_pages.ROOT / "results"):
        return
    name = path.relative_to(repository_pages.ROOT).as_posix()
    if path.suffix in repository_pages.FILES and files.get_file_from_path(name) is None:
        files.append(File.generated(config, name, abs_src_path=str(path)))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and make links between files of the repository links between pages."""
    filled = MARK.sub(lambda match: GENERATED[match[1]](), markdown)
    return name_languages(repository_pages.rewrite_links(filled, page.file.src_uri))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: a folder in mkdocs.yml, as in `how-to/`, stands for its pages that are not listed.

    A section without pages is left out.
    """
    nav = config.nav or []
    listed = set(re.findall(r"'([\w/.-]+\.(?:md|ipynb))'", str(nav)))
    completed = [_complete(entry, listed) for entry in nav]
    config.nav = [entry for entry in completed if not isinstance(entry, dict) or all(entry.values())]
    return config


def _complete(entry: Any, listed: set[str]) -> Any:
    if isinstance(entry, list):
        return [part for item in entry for part in _expand(item, listed)]
    return {name: _complete(part, listed) for name, part in entry.items()} if isinstance(entry, dict) else entry


def _expand(item: Any, listed: set[str]) -> list[Any]:
    """Return the entries that an item of a section stands for: the unlisted pages of a folder, or itself."""
    if not isinstance(item, str) or not item.endswith("/"):
        return [_complete(item, listed)]
    outside = [page for page in repository_pages.all_pages() if page.startswith(item)]
    inside = [path.relative_to(DOCS).as_posix() for path in (DOCS / item).glob("*.md")]
    pages = sorted({*outside, *inside} - listed, key=lambda page: (-page.count("/"), page))  # folders first
    return [{_results_title(page): page} if item == "results/" else page for page in pages]


def _results_title(page: str) -> str:
    """Return the name of a page of results in the navigation: that of its folder."""
    path = PurePosixPath(page)
    if path.parent.name == "results":
        return "Pending runs" if path.stem == "QUEUE" else path.stem
    return path.parent.name + (", ranking" if path.stem == "ranking" else "")
