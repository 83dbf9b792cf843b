"""Joining a Ray cluster, or starting one on this machine; whatever cannot be is told in one line, and soon."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from sdssm.errors import SdssmError, format_value
from sdssm.extras import import_extra

#: Seconds for a connection to the address, for joining the cluster there, and for a child that does both at most.
CONNECT, JOIN, MOST = 4, 6, 30
#: Bytes of memory for Ray's own objects on a cluster that we start: ours are small, results are files.
OBJECTS = 100 * 2**20
#: Ray tries for minutes, says a lot meanwhile, and may end the process: so a child tries first.
PROBE = """
import signal, sys, ray
if hasattr(signal, "alarm"):
    signal.alarm(int(sys.argv[2]))  # it ends there, whatever it waits for
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
except Exception as error:
    print(" ".join(str(error).split()))
    sys.exit(3)
"""


class ClusterError(SdssmError):
    """A cluster that cannot be joined, or cannot do what is asked."""


def ray_module() -> Any:
    """Ray, which otherwise prints what its nodes report among our own output; what is worth a line we say ourselves."""
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # every line; read when Ray is imported
    return import_extra("ray", "--engine ray")


def join(address: str | None) -> bool:
    """Connect this process to the cluster at an address, that of RAY_ADDRESS, or a new one here; whether it was not
    connected before."""
    ray = ray_module()
    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS") or None
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    # Workers import the sdssm of this process, whatever else is installed there.
    options["runtime_env"] = {"py_modules": [str(Path(__file__).parents[2])]}
    if address is None or address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it reports to nobody
        options |= {"address": "local", "include_dashboard": False, "object_store_memory": OBJECTS}
    else:
        check_address(address)
        options["address"] = address
    try:
        ray.init(**options)
    except Exception as error:  # of many kinds, none of them ours
        raise ClusterError(
            f"cannot join the Ray cluster at {format_value(address or 'local')}: {first_line(error)}"
        ) from None
    return True


def check_address(address: str) -> None:
    """Refuse an address that no cluster answers at.

    >>> check_address("nowhere")
    Traceback (most recent call last):
    sdssm.experiments.execution.ray_cluster.ClusterError: the address 'nowhere' is not HOST:PORT, as 10.0.0.1:6379, or auto
    """
    if address != "auto":
        found = re.fullmatch(r"\[?([^\s/]+?)\]?:(\d{1,5})", address)
        if found is None or not 0 < int(found[2]) < 2**16:
            raise ClusterError(f"the address {format_value(address)} is not HOST:PORT, as 10.0.0.1:6379, or auto")
        try:
            socket.create_connection((found[1], int(found[2])), timeout=CONNECT).close()
        except (OSError, UnicodeError) as error:
            reason = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or "no host"
            raise _unreachable(address, reason.lower()) from None
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE, address, str(JOIN)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=MOST,
        )
        failed, told = done.returncode != 0, first_line(done.stdout)
        if "AuthToken" in done.stderr or "AuthToken" in done.stdout:  # Ray says so while it goes on trying
            raise ClusterError(
                f"the Ray cluster at {format_value(address)} asks for a token, and this process shows none; "
                "give it that of the cluster as Ray's own page on token authentication says"
            )
    except subprocess.TimeoutExpired:
        failed, told = True, ""
    if failed:
        raise _unreachable(address, told or "what is there does not answer as Ray does")


def _unreachable(address: str, reason: str) -> ClusterError:
    if address == "auto" and "mismatch" not in reason:
        return ClusterError("no Ray cluster runs on this machine, so auto finds none; leave --address out to start one")
    return ClusterError(
        f"cannot reach a Ray cluster at {format_value(address)}: {reason}; "
        "give the address that ray start --head printed"
    )


def first_line(said: object, most: int = 200) -> str:
    """What an error, or a process, says first; Ray's say a lot. An error that says nothing has at least a name.

    >>> first_line(OSError("no route\\nTraceback ...")), first_line(KeyError()), first_line("")
    ('no route', 'KeyError', '')
    """
    lines = str(said).strip().splitlines() or [type(said).__name__ if isinstance(said, BaseException) else ""]
    return lines[0] if len(lines[0]) <= most else f"{lines[0][:most]}..."
