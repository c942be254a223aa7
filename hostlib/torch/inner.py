"""The inner groups of gloo: each lives until the process ends, and serves the next group of the same ranks.

In torch 2.13 a group of gloo waits for its threads as it goes, and DDP's reducer, where it holds the group
last, lets go of it without releasing the interpreter's lock. A thread that wants that lock then never ends.
"""

from __future__ import annotations

import ctypes
import secrets
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist


@dataclass(slots=True)
class Inner:
    """A group of gloo."""

    gloo: dist.ProcessGroupGloo
    identity: str
    """The same at all its ranks, and of no other group."""
    calls: int = 0
    """Collectives that this rank has called; they count in gloo."""


_free: dict[tuple[int, int, timedelta], Inner] = {}
"""Groups of all ranks that are not in use, by rank, size and time-out."""


def take(store: dist.Store, rank: int, size: int, timeout: timedelta, *, again: bool) -> Inner:
    """Return a group of gloo: a free one, if all ranks have the same one, or else a new one.

    Args:
        store: A store of these ranks, without keys of earlier groups.
        rank: This rank.
        size: Number of ranks.
        timeout: Of calls.
        again: Whether a free one may serve; the same on all ranks.
    """
    if again:
        free = _free.pop((rank, size, timeout), None)
        own = f"{free.identity} {free.calls}" if free else ""
        store.set(f"free/{rank}", own)
        every = {store.get(f"free/{other}").decode() for other in range(size)}
        if free and every == {own}:
            return free
    if rank == 0:
        store.set("identity", secrets.token_hex(16))
    gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(gloo))  # a variable of this module would go at exit
    return Inner(gloo, store.get("identity").decode())


def give_back(inner: Inner, rank: int, size: int, timeout: timedelta) -> None:
    """Let the next group of all ranks have it.

    Args:
        inner: The group; nothing has failed in it.
        rank: This rank.
        size: Number of ranks.
        timeout: Of calls.
    """
    _free[rank, size, timeout] = inner
