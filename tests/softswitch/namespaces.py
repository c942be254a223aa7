"""Network namespaces for tests, one per host, each on a veth whose other end is left for the switch."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

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
    """A host: its namespace, the switch's end of its link, its addresses, its own end of the link."""

    name: str
    switch_interface: str
    ip: str
    ipv6: str
    mac: str
    interface: str

    def inside(self, call: Callable[[], T]) -> T:
        """Call in the namespace: sockets and threads that `call` makes live there."""

        def enter() -> T:
            with (Path("/var/run/netns") / self.name).open() as handle:
                if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"cannot enter namespace {self.name}")
            return call()

        with ThreadPoolExecutor(1) as threads:  # only that thread changes its namespace, and ends
            return threads.submit(enter).result()

    def socket(
        self, family: socket.AddressFamily, kind: socket.SocketKind, protocol: int = 0
    ) -> socket.socket:
        """A socket that lives in the namespace."""
        opened = self.inside(lambda: socket.socket(family, kind, protocol))
        opened.settimeout(600)
        return opened


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Namespace]]:
    """Hosts 1 to `count`: addresses 10.77.0.i, fd77::i and 02:00:00:00:00:0i, mtu 1500."""
    made = []
    try:
        for number in range(1, count + 1):
            name, ours = f"ina-{os.getpid()}-{number}", f"ina{os.getpid() % 100000}s{number}"
            theirs = f"ina{os.getpid() % 100000}h{number}"
            ip, ipv6, mac = f"10.77.0.{number}", f"fd77::{number}", f"02:00:00:00:00:{number:02x}"
            host = Namespace(name, ours, ip, ipv6, mac, theirs)
            _run("ip", "netns", "add", name)
            made.append(host)
            _run("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs)
            _run("ip", "link", "set", theirs, "netns", name, "address", host.mac)
            _run("ip", "link", "set", ours, "up")
            inside = ("ip", "-n", name)
            _run(*inside, "link", "set", "lo", "up")
            _run(*inside, "address", "add", f"{host.ip}/24", "dev", theirs)
            _run(*inside, "address", "add", f"{host.ipv6}/64", "dev", theirs, "nodad")
            _run(*inside, "link", "set", theirs, "up")
            anyone = "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range"
            _run("ip", "netns", "exec", name, "sh", "-c", anyone)  # or SOCK_DGRAM cannot ping
        yield made
    finally:
        for host in made:
            subprocess.run(["ip", "link", "delete", host.switch_interface], capture_output=True)
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True)
