"""Start the browser once and say which one it is: `python -m tests.browser`, the last step of `make browser`."""

from __future__ import annotations

import sys

from tests.browser.chromium import NO_BROWSER, find_browser, started_browser

path = find_browser()
if path is None:
    sys.exit(NO_BROWSER)
with started_browser(path) as browser:
    sys.stdout.write(f"tests use Chromium {browser.version}, {path}\n")
