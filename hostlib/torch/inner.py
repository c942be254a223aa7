"""The inner groups of gloo: each lives until the process ends, and serves the next group of the same ranks.

In torch 2.13 a group of gloo waits for its threads as it goes, and DDP's reducer, where it holds the group
last, lets go of it without releasing the interpreter's lock. A thread that wants that lock then never ends.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

Place = tuple[tuple[int, ...], int, int, timedelta]
"""What groups that may serve for each other have in common: their ranks in the default group (none: it is
that group), this rank in them, their size, and their time-out."""


@dataclass(slots=True)
class Inner:
    """A group of gloo."""

    gloo: dist.ProcessGroupGloo
    identity: str
    """The same at all its ranks, and of no other group."""
    calls: int = 0
    """Collectives that this rank has called; they count in gloo."""
    spoiled: bool = False
    """A call has failed, which ends its connections, or this rank has sent or received: what another rank has
    not received would come to the next group."""


_free: dict[Place, dict[str, Inner]] = {}
"""Groups that are not in use, by what their ranks must have in common: identity and calls."""


def take(store: dist.Store, place: Place) -> Inner:
    """Return a group of gloo: a free one that all ranks have, or else a new one.

    Args:
        store: A store of these ranks, without keys of earlier groups.
        place: Where it belongs.
    """
    _, rank, size, timeout = place
    free = _free.get(place, {})
    store.set(f"free/{rank}", " ".join(free))
    every = [{*store.get(f"free/{other}").decode().split()} for other in range(size)]
    if common := set.intersection(*every):
        return free.pop(min(common))
    if rank == 0:
        store.set("identity", secrets.token_hex(16))
    gloo = _group(store, rank, size, timeout)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(gloo))  # a variable of this module would go at exit
    return Inner(gloo, store.get("identity").decode())


def _group(store: dist.Store, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroupGloo:
    """Return a new group of gloo: on several machines, at the address that leads to the first of them.

    By itself gloo takes the address of this machine's name, which often leads nowhere, or to itself alone.
    """
    address = "" if "GLOO_SOCKET_IFNAME" in os.environ else _address_towards(os.environ.get("MASTER_ADDR"))
    if not address:
        return dist.ProcessGroupGloo(store, rank, size, timeout)
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timeout
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
    return dist.ProcessGroupGloo(store, rank, size, options)


def _address_towards(first: str | None) -> str:
    """Return the address of this machine that leads to another one; "": it is this machine, or unknown."""
    if not first:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((first, 1))  # sends nothing
        except OSError:  # gloo says more
            return ""
        address = str(probe.getsockname()[0])
    return "" if address.startswith("127.") else address


def give_back(inner: Inner, place: Place) -> None:
    """Let the next group at the same place use one, unless it is spoiled."""
    if inner.spoiled:
        inner.gloo.shutdown()
    else:
        _free.setdefault(place, {})[f"{inner.identity}:{inner.calls}"] = inner
