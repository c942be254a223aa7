"""The namespaces of this machine: their list, their processes, entering and removing them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

from bmv2_topos.testbeds.netns.errors import MissingRequirement, NeedsRoot, StepFailed

T = TypeVar("T")
Identity = tuple[int, int]
"""Device and inode of a namespace's file."""

FOLDER = Path("/run/netns")
GRACE_S = 1.0
"""Time between SIGTERM and SIGKILL for processes of a testbed that is taken down."""
END_S = 5.0

_CLONE_NEWNET = 0x40000000
_TICK_S = 0.01


def check_here() -> None:
    """Raise MissingRequirement if this machine or user cannot have network namespaces."""
    alternative = "the runners virtual and loopback need no namespaces"
    if os.geteuid() != 0:  # first: the tools may be on root's PATH alone
        raise NeedsRoot(f"network namespaces need root ({alternative})")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise MissingRequirement(
                f"no {tool!r} command on PATH: install iproute2 (apt-get install iproute2); {alternative}"
            )


@cache
def lacks_netem() -> str:
    """Return the error of ``tc`` if this kernel lacks netem (delay and loss of packets); else "".

    Netem is tried in a temporary namespace, because the kernel may load the module only on use. Raises
    MissingRequirement if this machine or user cannot have namespaces.
    """
    check_here()
    name = f"ina-netem-{os.getpid()}"
    try:
        for command in (
            ("ip", "netns", "add", name),
            ("tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"),
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"{' '.join(command[:2])}: {done.stderr.strip() or done.returncode}"
        return ""
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def existing(prefix: str) -> list[str]:
    """Return the names of the namespaces that begin with this prefix."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(path.name for path in FOLDER.iterdir() if path.name.startswith(prefix))
    return []


def inside(namespace: str, call: Callable[[], T]) -> T:
    """Run `call` in a namespace and return its result; sockets that `call` makes stay there.

    Only a separate thread enters the namespace. Raises OSError if the thread cannot enter.
    """

    def enter() -> T:
        with (FOLDER / namespace).open() as handle:
            if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(FOLDER / namespace))
        return call()

    with ThreadPoolExecutor(1) as threads:  # only that thread changes its namespace, and ends
        return threads.submit(enter).result()


def remove(namespaces: Collection[str]) -> None:
    """End every process in these namespaces, and delete them. Raises StepFailed.

    Also ends processes that start in the namespaces while this function runs.
    """
    with contextlib.ExitStack() as kept:  # keeps inode numbers from reuse until all processes have ended
        for name in namespaces:
            if (FOLDER / name).exists():
                kept.enter_context((FOLDER / name).open())
        present = {_identity(FOLDER / name) for name in namespaces if (FOLDER / name).exists()}
        networks = present - {_identity("/proc/self/ns/net")}
        _end_all(networks)
        for name in namespaces:
            done = subprocess.run(["ip", "netns", "delete", name], capture_output=True, text=True)
            if done.returncode and (FOLDER / name).exists():
                raise StepFailed(f"ip netns delete {name}: {done.stderr.strip()}")
        _end_all(networks)


def processes(networks: Collection[Identity]) -> Iterator[int]:
    """Yield the ids of processes whose network namespace is one of these."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended
                if _identity(f"/proc/{entry.name}/ns/net") in networks:
                    yield int(entry.name)


def _identity(path: str | Path) -> Identity:
    found = Path(path).stat()
    return found.st_dev, found.st_ino


def _end_all(networks: Collection[Identity]) -> None:
    for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, END_S)):
        deadline = time.monotonic() + patience_s
        signalled: set[int] = set()
        while running := set(processes(networks)):
            for process in running - signalled:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
            signalled = running
            if time.monotonic() > deadline:
                break
            time.sleep(_TICK_S)
        if not running:
            return
    raise StepFailed(f"process {min(running)} does not end, and keeps its namespace")
