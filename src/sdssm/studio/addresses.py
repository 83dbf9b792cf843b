"""The address that a studio is served at, and the names under which browsers may ask for it."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address

from sdssm.errors import StudioError, format_value

#: The address that is served by default: programs of this machine reach it, other machines do not.
DEFAULT_HOST = "127.0.0.1"
#: The port that is tried first, and how many are tried after it.
DEFAULT_PORT, MORE_PORTS = 8017, 20


@dataclass(frozen=True, kw_only=True)
class ServedAddress:
    """Where a studio listens. A host that other machines reach is an error unless `remote` is true.

    >>> ServedAddress(host="127.0.0.1", port=8017).url
    'http://127.0.0.1:8017/'
    >>> ServedAddress(host="0.0.0.0", port=8017)
    Traceback (most recent call last):
    sdssm.errors.StudioError: other machines reach the host 0.0.0.0; pass remote=True to let them read the runs
    """

    host: str
    port: int
    remote: bool = False

    def __post_init__(self) -> None:
        if not self.host or not self.host.isprintable() or "/" in self.host:
            raise StudioError(f"{format_value(self.host)} is not a host; leave it out, or pass 127.0.0.1")
        if not self.remote and not self.is_local:
            problem = f"other machines reach the host {self.host};"
            raise StudioError(
                f"{problem} pass remote=True to let them read the runs",
                shell=f"{problem} leave --host out, or add --allow-remote to let them read the runs",
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the host."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:  # a name, which may mean any machine
            return False

    @property
    def family(self) -> socket.AddressFamily:
        """The kind of socket: IPv6 if the host is an address with colons, else IPv4."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def url(self) -> str:
        """The address to open in a browser of this machine."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared with, not bound to
        host = everywhere.get(self.host, self.host)
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    def is_own_name(self, header: str) -> bool:
        """Return whether the value of a `Host` header names this server.

        A page of another site can let its own name point to 127.0.0.1 and then read answers as if they were its own
        (DNS rebinding); such a request carries that name. The port may differ, as it does behind `ssh -L`. A server
        for other machines also answers to addresses in numbers, which no other site can own, and to the name of this
        machine.

        >>> address = ServedAddress(host="127.0.0.1", port=8017)
        >>> [address.is_own_name(name) for name in ("127.0.0.1:8017", "localhost:9000", "example.org:8017", "")]
        [True, True, False, False]
        """
        match = re.fullmatch(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:\d{1,5})?", header.lower())
        if match is None:
            return False
        name = match[1].strip("[]")
        if name == "localhost" or name == self.host.lower():
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return self.remote and name == socket.gethostname().lower()
        return self.remote or address.is_loopback
