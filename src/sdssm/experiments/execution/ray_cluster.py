"""Connecting to a Ray cluster or starting one on this machine, with quick and short error messages."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from sdssm.errors import SdssmError, first_line, format_value
from sdssm.extras import import_extra
from sdssm.models.sent_models import packages_to_send

#: Seconds allowed for a TCP connection, for joining the cluster, and for the child process that tries it.
CONNECT_SECONDS, JOIN_SECONDS, PROBE_SECONDS = 4, 6, 30
#: Bytes for Ray's object store on a cluster that is started here. Results are files, so objects are small.
OBJECT_STORE_BYTES = 100 * 2**20
#: Ray retries for minutes, prints much, and may end the process: so a child process tries to join first.
PROBE = """
import signal, sys, ray
if hasattr(signal, "alarm"):
    signal.alarm(int(sys.argv[2]))  # ends the process even if it hangs
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
except Exception as error:
    print(" ".join(str(error).split()))
    sys.exit(3)
"""


class ClusterError(SdssmError):
    """A Ray cluster that cannot be joined, or that failed."""


def ray_module() -> Any:
    """Import Ray, and turn off the messages of its nodes in the output of this process."""
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # every line; read when Ray is imported
    return import_extra("ray", "--engine ray")


def join(address: str | None) -> bool:
    """Connect this process to a Ray cluster, and return whether it was not connected before.

    The cluster is at `address`, else at RAY_ADDRESS; without both a new one is started on this machine.
    """
    ray = ray_module()
    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS") or None
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    # Workers import the sdssm package of this process, whichever version is installed on their node, and the models of
    # others that are not installed.
    options["runtime_env"] = {"py_modules": [str(Path(__file__).parents[2]), *packages_to_send()]}
    if address is None or address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options |= {"address": "local", "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    else:
        check_address(address)
        options["address"] = address
    try:
        ray.init(**options)
    except Exception as error:  # Ray raises many types
        raise ClusterError(
            f"cannot join the Ray cluster at {format_value(address or 'local')}: {first_line(error)}"
        ) from None
    return True


def check_address(address: str) -> None:
    """Raise `ClusterError` if no Ray cluster can be joined at an address.

    >>> try:
    ...     check_address("nowhere")
    ... except ClusterError as error:
    ...     print(error)
    the address 'nowhere' is not HOST:PORT, such as 10.0.0.1:6379, or auto
    """
    if address != "auto":
        match = re.fullmatch(r"\[?([^\s/]+?)\]?:(\d{1,5})", address)
        if match is None or not 0 < int(match[2]) < 2**16:
            raise ClusterError(f"the address {format_value(address)} is not HOST:PORT, such as 10.0.0.1:6379, or auto")
        try:
            socket.create_connection((match[1], int(match[2])), timeout=CONNECT_SECONDS).close()
        except (OSError, UnicodeError) as error:
            reason = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or "no host"
            raise _unreachable(address, reason.lower()) from None
    try:
        probe = subprocess.run(  # noqa: S603  # own code; the address is an argument of it, and no shell reads it
            [sys.executable, "-c", PROBE, address, str(JOIN_SECONDS)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROBE_SECONDS,
        )
        failed, reason = probe.returncode != 0, "".join(probe.stdout.strip().splitlines()[:1])
        if "AuthToken" in probe.stderr or "AuthToken" in probe.stdout:  # Ray prints it and keeps retrying
            raise ClusterError(
                f"the Ray cluster at {format_value(address)} requires a token, and this process has none; "
                "set it as described in Ray's documentation on token authentication"
            )
    except subprocess.TimeoutExpired:
        failed, reason = True, ""
    if failed:
        raise _unreachable(address, reason or "the server there does not answer as Ray does")


def _unreachable(address: str, reason: str) -> ClusterError:
    if address == "auto" and "mismatch" not in reason:
        return ClusterError("no Ray cluster runs on this machine to join by auto; omit --address to start one")
    return ClusterError(
        f"cannot reach a Ray cluster at {format_value(address)}: {reason}; "
        "give the address that ray start --head printed"
    )
