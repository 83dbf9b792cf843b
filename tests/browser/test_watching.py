"""The fixture `page` notices what it must notice, so that no test in a browser passes by looking away."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.mark.parametrize(
    ("markup", "problem"),
    [
        ("<script>console.error('planted')</script>", "console error: planted"),
        ("<script>throw new Error('planted')</script>", "exception: planted"),
        ("<script>Promise.reject(new Error('planted'))</script>", "exception: planted"),
        ("<script>alert('planted')</script>", "dialog: planted"),
        ("<img src=https://example.org/planted.png>", "request: https://example.org/planted.png"),
        ("<script src=planted.js></script>", "request: file://"),
        ("<script>fetch('http://127.0.0.1:9/planted').catch(() => 0)</script>", "request: http://127.0.0.1:9/planted"),
    ],
)
def test_a_planted_problem_is_noticed(
    page: Page, problems: list[str], tmp_path: Path, markup: str, problem: str
) -> None:
    file = tmp_path / "page.html"
    file.write_text(f"<!doctype html><title>Planted</title>{markup}")
    page.goto(file.as_uri())
    page.wait_for_function("document.readyState === 'complete'")
    noticed = list(problems)
    problems.clear()
    assert any(line.startswith(problem) for line in noticed), noticed


class OnePage(BaseHTTPRequestHandler):
    """Answers every request with the same page, which asks for a picture."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>Local</title><link rel=icon href=data:,><img src=one.png>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name in the library)
        pass


def test_a_local_server_may_answer_its_own_page(page: Page) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), OnePage) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        response = page.goto(f"http://127.0.0.1:{server.server_port}/")
        assert response is not None and response.status == 200
        assert page.title() == "Local"
        server.shutdown()
