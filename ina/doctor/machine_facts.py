"""A program that ``ina doctor`` runs on each machine: prints facts about the machine as JSON.

Its arguments are the IP address and the UDP port of the machine's workers.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from hostlib.io.interfaces import Interface, interfaces
from hostlib.version import version

RECEIVE_LIMIT = Path("/proc/sys/net/core/rmem_max")
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Properties of a machine on which jobs depend."""

    version: str
    time_s: float
    """Time on the machine's clock, in seconds since 1970."""
    interfaces: tuple[Interface, ...]
    port_taken: str
    """Why the workers' UDP port cannot be used; "": the port can be used."""
    receive_bytes: int | None
    """Maximum size of a socket's receive buffer, in bytes; None: not known."""
    open_files: int
    """Maximum number of files that a process may have open."""
    shared_bytes: int
    """Free bytes of shared memory (/dev/shm)."""
    sealing: bool
    """Whether the package cryptography is installed, which encrypts messages between machines."""

    @classmethod
    def here(cls, ip: str, udp_port: int) -> Self:
        """Return the facts of this machine; its workers use this IP address and UDP port."""
        try:
            receive_bytes = int(RECEIVE_LIMIT.read_text())
        except (OSError, ValueError):
            receive_bytes = None
        try:
            space = os.statvfs(SHARED_MEMORY)
            shared_bytes = space.f_bavail * space.f_frsize
        except OSError:
            shared_bytes = 0
        return cls(
            version(),
            time.time(),
            interfaces(),
            _taken(ip, udp_port),
            receive_bytes,
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            shared_bytes,
            importlib.util.find_spec("cryptography") is not None,
        )


def _taken(ip: str, udp_port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((ip, udp_port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(asdict(MachineFacts.here(sys.argv[1], int(sys.argv[2])))))
