"""The web server of a studio: a thread for each request, bounds on all of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from errno import EACCES, EADDRINUSE, EADDRNOTAVAIL
from http.server import HTTPServer
from secrets import token_urlsafe
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Self

from sdssm.errors import StudioError
from sdssm.files import format_path
from sdssm.studio.actions import ActionQueue
from sdssm.studio.addresses import DEFAULT_PORT, MORE_PORTS, ServedAddress
from sdssm.studio.handler import StudioHandler
from sdssm.studio.page_reader import live_policy, render_live_page
from sdssm.studio.runs_watcher import RunsWatcher

#: Requests that are answered at the same time; further connections are closed.
MAX_CONNECTIONS = 64


class StudioServer(ThreadingMixIn, HTTPServer):
    """Serves a page about the runs of a folder until it is closed.

    Use it as a context manager: requests are answered in threads in the meantime. `address` has the port that was
    chosen. With `allow_actions` the page may start the commands of `ActionQueue`.

    Args:
        watcher: reads the runs.
        host: the address to listen at.
        port: the port; None takes the first free one from DEFAULT_PORT on, 0 any free one.
        remote: allow a host that other machines reach.
        allow_actions: answer requests that start commands.
        report_error: called with one line if a request fails through no fault of its sender.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self,
        watcher: RunsWatcher,
        *,
        host: str,
        port: int | None = None,
        remote: bool = False,
        allow_actions: bool = False,
        report_error: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.watcher = watcher
        self._report_error, self._last_error = report_error, ""
        self.token = token_urlsafe(32)
        self._free_places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        wanted = ServedAddress(host=host, port=port or 0, remote=remote)  # checks the host before it is looked up
        self.address_family = wanted.family
        ports = range(DEFAULT_PORT, DEFAULT_PORT + MORE_PORTS) if port is None else [port]
        self._listen(host, list(ports))
        self.address = ServedAddress(host=host, port=self.server_address[1], remote=remote)
        self.actions = ActionQueue() if allow_actions else None
        self.page = render_live_page(format_path(watcher.root), self.token if allow_actions else None)
        self.policy = live_policy()
        self._thread = threading.Thread(target=self.serve_forever, args=[0.1], name="studio", daemon=True)

    def _listen(self, host: str, ports: list[int]) -> None:
        """Listen at the first of these ports that is free."""
        for port in ports:
            try:
                super().__init__((host, port), StudioHandler)
            except OSError as error:
                if error.errno == EADDRINUSE and port != ports[-1]:
                    continue
                raise StudioError(_describe_failure(error, host, port)) from None
            return

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without the look-up of the host's name in HTTPServer, which may take seconds

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.actions is not None:
            self.actions.close()
        self.shutdown()
        self._thread.join()
        self.server_close()

    # -- threads -----------------------------------------------------------------------------------------------------

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free_places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free_places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.note_error("a connection failed")

    def note_error(self, line: str) -> None:
        """Report an error, once as long as no other one happens: the page asks again every few seconds."""
        if line != self._last_error:
            self._last_error = line
            self._report_error(line)


def _describe_failure(error: OSError, host: str, port: int) -> str:
    """Return in one line why a port cannot be used."""
    if error.errno == EADDRINUSE:
        return f"port {port} of {host} is in use; choose another one, or leave the port out"
    if error.errno == EACCES:
        return f"port {port} needs the rights of the system's administrator; choose one from 1024 on"
    if error.errno == EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"this machine has no address {host}; leave the host out, or pass 127.0.0.1"
    return f"cannot listen at port {port} of {host}: {error.strerror}"
