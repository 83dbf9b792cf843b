"""The report page: names and values of hostile files stay text, however the page is parsed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tests.campaign.attack import Attack, Trial
from tests.campaign.hostile_folders import remove_checksums
from tests.campaign.sandbox import find_fault, run_sdssm
from tests.campaign.templates import FINISHED, RESULTS, make_templates

MARK = "pwned"
PAYLOADS = (
    f"<script>{MARK}()</script>",
    f"</script><script>{MARK}()</script>",
    f'"><img src=x onerror={MARK}()>',
    f"'><svg/onload={MARK}()>",
    f"<!--<script>{MARK}()",
    f"]]><{MARK}>",
    f"</title><{MARK}>",
    f"</SCRIPT ><{MARK}>",
    f"&lt;{MARK}&gt;&#60;{MARK}>",
    f"javascript:{MARK}()",
    f"{{{{ {MARK} }}}}{{% raw %}}",
    f"\u2028{MARK}\u2029\x00<{MARK}>",
    f"${{{MARK}()}}`",
    f"<{MARK} " + "a" * 3000,
)
#: Elements that a page may have, and whose number does not depend on names.
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "div", "main", "h1", "h2", "noscript", "p", "table", "caption",
    "thead", "tbody", "tr", "th", "td", "ul", "li", "script",
}  # fmt: skip
FILES = (
    "config.json",
    "status.json",
    "events.jsonl",
    "evaluation.json",
    "certificate.json",
    "extraction.json",
    "horizon.json",
)
PAGES = (("report", "runs", "results", "-o", "page.html"), ("playground", "runs", "-o", "page.html"))


class PageParser(HTMLParser):
    """Collects the elements, attributes and scripts of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "script":
            self.scripts.append((dict(attrs).get("type") or "", ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = kind, text + data


def find_markup(text: str, script: str) -> str | None:
    """Return what in a page is markup that no template has, or None. `script` is the program of the page."""
    parser = PageParser()
    parser.feed(text)
    parser.close()
    strange = set(parser.elements) - ALLOWED
    if strange:
        return f"the page has the element {min(strange)}"
    for tag, name, value in parser.attributes:
        if name.startswith("on") or name in ("src", "href", "srcdoc", "action", "formaction"):
            return f"the page has {tag} {name}={value[:50]!r}"
    programs = [content for kind, content in parser.scripts if kind != "application/json"]
    if programs != [script]:
        return f"the page has {len(programs)} scripts, or another one than it should"
    for kind, content in parser.scripts:
        if kind == "application/json":
            if "<" in content or "\u2028" in content:
                return "the data of the page has a character that could end it"
            json.loads(content)
    return None


@cache
def page_script(name: str) -> str:
    """Return the program of an undamaged page."""
    with TemporaryDirectory() as folder:
        make_templates().copy(Path(folder), "runs/parity", RESULTS)
        arguments = next(words for words in PAGES if words[0] == name)
        outcome = run_sdssm(arguments, Path(folder))
        if outcome.code != 0:
            raise RuntimeError(f"no page: {outcome.crash or outcome.err}")
        parser = PageParser()
        parser.feed((Path(folder) / "page.html").read_text())
    return next(content for kind, content in parser.scripts if kind != "application/json")


def plant(random: Random, value: Any, payload: str, chance: float) -> Any:
    """Return JSON with the payload in some of its texts, and as some of its keys."""
    if isinstance(value, dict):
        return {
            (payload if random.random() < chance / 5 else key): plant(random, item, payload, chance)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [plant(random, item, payload, chance) for item in value[:200]]
    if isinstance(value, str):
        return payload if random.random() < chance else value
    return payload if random.random() < chance / 10 else value


def attack_page(random: Random, folder: Path) -> Iterator[Trial]:
    """Plant markup in files and names of folders, write the page, and parse it."""
    make_templates().copy(folder, "runs/parity", RESULTS)
    payload, run = random.choice(PAYLOADS), folder / FINISHED
    remove_checksums(run)
    chance = random.choice((0.02, 0.1, 0.5))
    places = [run / name for name in random.sample(FILES, 3)] + [folder / RESULTS / "results.json"]
    for path in places:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        path.write_text("".join(json.dumps(plant(random, json.loads(line), payload, chance)) + "\n" for line in lines))
    if random.random() < 0.5:  # machines and tasks have names too
        config = json.loads((run.parent / "seed-1" / "config.json").read_text())
        machine = {"table": [[0, 1], [1, 0]], "states": [payload, "b"], "symbols": [payload, "1"]}
        config |= {"task": payload, "machines": [json.dumps(machine), None]}
        (run.parent / "seed-1" / "config.json").write_text(json.dumps(config))
        remove_checksums(run.parent / "seed-1")
    safe = re.sub(r"[/\x00]", "", payload)[:80]
    run.rename(run.parent / safe)
    arguments = random.choice(PAGES)
    outcome = run_sdssm((*arguments, "--title", payload.replace("\x00", "")), folder)
    page, fault = folder / "page.html", find_fault(outcome)
    if fault is None and outcome.code == 0:
        fault = find_markup(page.read_text(encoding="utf-8"), page_script(arguments[0]))
    kind = f"{arguments[0]}, {'page' if outcome.code == 0 else 'refused'}"
    yield Trial(kind=kind, problem=None if fault is None else f"{payload[:60]!r}: {fault}")


ATTACKS = (
    Attack(
        name="report-page",
        subject="markup in names and values of all files: it stays text on the page",
        attempt=attack_page,
        share=1.0,
    ),
)
