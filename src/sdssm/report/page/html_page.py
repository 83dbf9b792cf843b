"""One self-contained HTML file: the data, the script and the style sheet of a page, without anything from a network."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from sdssm.errors import OutputError

ASSETS = Path(__file__).parent / "assets"
TEMPLATE = "page.html.jinja"
#: The kinds of pages, each with the identifier of its data and the script that shows it.
PageKind = Literal["report", "playground"]
#: What must not be inside a script or style element: it would end it.
CLOSING = re.compile(r"</(script|style)|<!--", re.IGNORECASE)
#: Characters that could end the element around JSON, or a line of a script, as JSON writes them instead.
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def render_page(
    kind: PageKind,
    title: str,
    data: Mapping[str, Any],
    details: Mapping[str, str] | None = None,
    *,
    live: bool = False,
    token: str | None = None,
) -> str:
    """Return the text of a page.

    Args:
        kind: which page it is: that of `sdssm report`, or that of `sdssm playground`.
        title: of the window.
        data: `ReportData` or `PlaygroundData` of web/src/data.ts.
        details: the JSON of the `RunDetail` of runs, by the identifier of the run, as `encode_json` returns it.
        live: whether a server sends the page, and the script may ask it for news.
        token: what the script must send with a request that starts a command; None: it may start none.
    """
    script, style = read_asset(f"{kind}.js"), read_asset(f"{kind}.css")
    text: str = _template().render(
        title=title,
        kind=kind,
        policy=make_policy(script, live=live),
        script=script,
        style=style,
        blocks={
            f"sdssm-{kind}": encode_json(data),
            **{f"sdssm-run-{name}": text for name, text in (details or {}).items()},
        },
        runs=data.get("runs", []),
        problems=data.get("problems", []),
        live=live,
        token=token,
    )
    return text.encode("utf-8", "replace").decode()  # the name of a folder may have lone surrogates


def encode_json(value: Any) -> str:
    """Encode a value as JSON that no text inside it can end: it has no `<`, `>` or `&`.

    >>> encode_json({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(ESCAPES)


def make_policy(script: str, *, live: bool = False) -> str:
    """Return the Content-Security-Policy of a page: it allows its one script, and nothing from elsewhere.

    Inline styles are allowed because the plotting libraries set style attributes and add style elements. They cannot
    load anything: images are allowed from data URLs only, and fonts from nowhere.
    """
    digest = b64encode(sha256(script.encode()).digest()).decode("ascii")
    rules = ["default-src 'none'", f"script-src 'sha256-{digest}'", "style-src 'unsafe-inline'", "img-src data:"]
    rules += ["connect-src 'self'"] if live else []
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


@cache
def read_asset(name: str) -> str:
    """Return the text of a script or style sheet of the package, as it is written into a page."""
    text = (ASSETS / name).read_text(encoding="utf-8")  # with line ends as a browser counts them for the policy
    match = CLOSING.search(text)
    if match is not None:
        raise OutputError(f"{name} contains {match[0]!r}, which would end it; build it again")
    return text


@cache
def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True).get_template(
        TEMPLATE
    )
