"""`sdssm studio`: show the runs of a folder in a browser while they are trained."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.options import declare_command, whole_number_between
from sdssm.errors import RunWarning, StudioError
from sdssm.files import format_path
from sdssm.printable import make_printable
from sdssm.studio.addresses import DEFAULT_HOST, DEFAULT_PORT

if TYPE_CHECKING:
    from sdssm.cli.options import Commands

#: Seconds between two looks at whether Ctrl-C was pressed.
WAIT_SECONDS = 0.05


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "studio",
        summary="show runs in a browser while they train",
        description="Serve a page about the runs of a folder to a browser of this machine, until Ctrl-C. Curves grow "
        "and new runs appear while trainings write into the folder. The page reads only, unless --allow-actions is "
        "given.",
        examples=["sdssm studio", "sdssm studio runs/a5 --open", "sdssm studio --allow-actions --port 9000"],
    )
    add = parser.add_argument
    add("dir", metavar="DIR", nargs="?", type=Path, default=Path("runs"), help="folder of runs (default: %(default)s)")
    add(
        "--port",
        metavar="N",
        type=whole_number_between(0, 65_535),
        help=f"port to listen at; 0: any free one (default: the first free one from {DEFAULT_PORT} on)",
    )
    add("--host", default=DEFAULT_HOST, help="address to listen at (default: %(default)s, this machine alone)")
    add("--allow-remote", action="store_true", help="allow a --host that other machines reach: they can read the runs")
    add(
        "--allow-actions",
        action="store_true",
        help="let the page start sdssm evaluate, extract, certify and horizon on a run",
    )
    add("--open", action="store_true", help="open the page in the browser")
    parser.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> None:
    from sdssm.studio import RunsWatcher, StudioServer
    from sdssm.training.signals import stop_on_signal

    if options.dir.exists() and not options.dir.is_dir():
        raise StudioError(f"{format_path(options.dir)} is a file; pass the folder of runs that it is in")
    with (
        stop_on_signal() as is_stopped,
        StudioServer(
            RunsWatcher(options.dir),
            host=options.host,
            port=options.port,
            remote=options.allow_remote,
            allow_actions=options.allow_actions,
            report_error=lambda line: print(f"sdssm: {make_printable(line)}", file=sys.stderr, flush=True),
        ) as server,
    ):
        address = server.address
        if not address.is_local:
            more = ", and start commands on them" if options.allow_actions else ""
            text = f"every machine that reaches {address.host} can read the runs{more}; nothing is encrypted"
            warnings.warn(text, RunWarning, stacklevel=2)
        if not options.dir.exists():
            print(f"there is no folder {format_path(options.dir)} yet; its runs appear when a training creates it")
        print(f"{format_path(options.dir)} is shown at {address.url} until Ctrl-C", flush=True)
        if options.open:
            _open_browser(address.url)
        while not is_stopped():
            time.sleep(WAIT_SECONDS)
    print("stopped", flush=True)


def _open_browser(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        print("no browser was found; open the address yourself", flush=True)
