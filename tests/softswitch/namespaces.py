"""Network namespaces for tests, one per host, each on a veth whose other end is left for the switch."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CLONE_NEWNET = 0x40000000


def why_not() -> str:
    """The reason why namespaces cannot be used here; empty if they can."""
    if shutil.which("ip") is None:
        return "no 'ip' command"
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    name = f"ina-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    return "" if made.returncode == 0 else f"cannot make network namespaces: {made.stderr.strip()}"


@dataclass(frozen=True)
class Namespace:
    """A host: its namespace, the switch's end of its link, its addresses."""

    name: str
    switch_interface: str
    ip: str
    mac: str

    def socket(self, family: socket.AddressFamily, kind: socket.SocketKind, protocol: int = 0) -> socket.socket:
        """A socket that lives in the namespace."""
        made: list[socket.socket] = []

        def enter() -> None:
            handle = os.open(Path("/var/run/netns") / self.name, os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET) == 0:
                    made.append(socket.socket(family, kind, protocol))
            finally:
                os.close(handle)

        thread = threading.Thread(target=enter)  # only this thread changes its namespace, and ends
        thread.start()
        thread.join()
        made[0].settimeout(20)
        return made[0]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Namespace]]:
    """Hosts 1 to `count`: addresses 10.77.0.i and 02:00:00:00:00:0i, mtu 1500."""
    made = []
    try:
        for number in range(1, count + 1):
            name, ours = f"ina-{os.getpid()}-{number}", f"ina{os.getpid() % 100000}s{number}"
            theirs = f"ina{os.getpid() % 100000}h{number}"
            host = Namespace(name, ours, f"10.77.0.{number}", f"02:00:00:00:00:{number:02x}")
            _run("ip", "netns", "add", name)
            made.append(host)
            _run("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs)
            _run("ip", "link", "set", theirs, "netns", name, "address", host.mac)
            _run("ip", "link", "set", ours, "up")
            inside = ("ip", "-n", name)
            _run(*inside, "link", "set", "lo", "up")
            _run(*inside, "address", "add", f"{host.ip}/24", "dev", theirs)
            _run(*inside, "link", "set", theirs, "up")
        yield made
    finally:
        for host in made:
            subprocess.run(["ip", "link", "delete", host.switch_interface], capture_output=True)
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True)
