"""Join the ranks of a process group to a job of the switch."""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

import torch.distributed as dist

import hostlib
from hostlib.collectives.communicator import Communicator
from hostlib.config import JobConfig
from hostlib.errors import ConfigError, RendezvousError
from hostlib.launch.machines import RankArrival, here, meet
from hostlib.settings import Settings

SEVERAL: Final = "several machines"


def join(store: dist.Store, rank: int, size: int, timeout: timedelta, settings: Settings) -> Communicator:
    """Join the job of ``INA_JOB``, or one that rank 0 admits; or use the job of `hostlib.init`.

    Args:
        store: The group's store.
        rank: This rank.
        size: Number of ranks.
        timeout: Longest time that ranks wait for each other in a collective.
        settings: The user's settings.

    Raises:
        ConfigError: the job has other ranks than the group, or a setting that several machines need is
            missing.
        RendezvousError: the job could not be joined.
    """
    if not hostlib.is_initialized():
        if config := JobConfig.from_environment():
            _check(config.rank, config.size, rank, size)
            hostlib.init(_patient(config, timeout))
        else:
            _join_admitted(_StoreChannel(store, rank, size), rank, size, timeout, settings)
    communicator = hostlib.current()
    _check(communicator.rank, communicator.size, rank, size)
    return communicator


def join_group(store: dist.Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> Communicator | str:
    """Admit some ranks of the default group's job as a job of their own, and join it.

    Args:
        store: The group's store.
        rank: This rank in the group.
        ranks: The group's ranks in the default group, in the order of their ranks in it.
        timeout: Longest time that ranks wait for each other in a collective.

    Returns:
        The communicator; or, at all ranks, the reason why there is none.

    Raises RendezvousError, on all ranks, if a rank has not called this within another rank's time-out.
    """
    key = _all_here(store, rank, ranks, timeout)
    if not hostlib.is_initialized() or hostlib.size() == 1:
        return "the default group has no job in the switch"
    communicator: Communicator | None = None
    why = ""
    try:
        communicator = hostlib.current().group(ranks, key, patience_s=timeout.total_seconds())
    except (RendezvousError, ConfigError) as error:
        why = str(error)
    store.set(f"joined/{rank}", why)
    every = [store.get(f"joined/{each}").decode() for each in range(len(ranks))]
    if refusal := next(filter(None, every), None):
        if communicator is not None:
            communicator.close()
        return why or refusal
    assert communicator is not None
    return communicator


def _all_here(store: dist.Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> str:
    """Wait for the other ranks of a group; return a text that is unique to this group.

    The first of two events decides for all ranks: the last rank arrives, or a rank's time-out expires. In the
    second case all ranks raise RendezvousError.
    """

    def decide(late: str, key: str = "") -> None:
        if store.add("deciders", 1) == 1:
            store.set("key", key)
            store.set("late", late)

    store.set(f"came/{rank}", "")
    if store.add("came", 1) == len(ranks):
        decide("", secrets.token_hex(16))
    else:
        try:
            store.wait(["late"], timeout)
        except RuntimeError:  # the same type as for a lost store, which the next call reports
            absent = [str(each) for place, each in enumerate(ranks) if not store.check([f"came/{place}"])]
            decide(
                f"rank {', '.join(absent)} did not make the group of ranks {', '.join(map(str, ranks))} "
                f"within {timeout.total_seconds():g} s, its time-out"
            )
    if late := store.get("late").decode():
        raise RendezvousError(late)
    return str(store.get("key").decode())


def _patient(config: JobConfig, timeout: timedelta) -> JobConfig:
    seconds = timeout.total_seconds()
    return replace(config, timeout_s=min(config.timeout_s, seconds), straggler_timeout_s=seconds)


def _check(rank: int, size: int, rank_here: int, size_here: int) -> None:
    if (rank, size) != (rank_here, size_here):
        raise ConfigError(
            f"the job's rank {rank} of {size} is rank {rank_here} of {size_here} in torch: both must be the "
            "same; let init_process_group take them from the environment"
        )


def _join_admitted(
    channel: _StoreChannel, rank: int, size: int, timeout: timedelta, settings: Settings
) -> None:
    """Join a job that rank 0 admits; the ranks are on one machine or on several."""
    own = RankArrival.here()
    arrivals = [RankArrival.from_text(text) for text in channel.gather(own.to_text())]
    several = len({each.machine for each in arrivals}) > 1
    key = channel.spread(SEVERAL if several else secrets.token_hex(16))
    if key == SEVERAL:
        listen = os.environ.get("MASTER_ADDR") or (settings.meeting and settings.meeting[0])
        config = meet(channel, rank, own, arrivals, listen, settings)
    else:
        config = here(rank, size, key, settings)
    hostlib.init(_patient(config, timeout))


class _StoreChannel:
    """A `hostlib.launch.machines.Channel` that uses torch's store."""

    is_open = True

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._spread = 0

    def gather(self, text: str) -> list[str]:
        """Store this rank's text; return all ranks' texts at the first rank, [] at other ranks."""
        self._store.set(f"machine/{self._rank}", text)
        ranks = range(0 if self._rank else self._size)
        return [self._store.get(f"machine/{rank}").decode() for rank in ranks]

    def spread(self, text: str) -> str:
        """Return the first rank's text."""
        self._spread += 1
        if self._rank == 0:
            self._store.set(f"meeting/{self._spread}", text)
        shared: str = self._store.get(f"meeting/{self._spread}").decode()
        return shared


class StoreTexts:
    """Texts in torch's store (`hostlib.collectives.watch.SharedTexts`); a lost store is never called.

    If a lost store were called, torch would print a stack trace before it raises an error. A store is lost
    when the process with the store ends, often the process of rank 0.
    """

    def __init__(self, store: dist.Store, parent: StoreTexts | None = None) -> None:
        """Use `store`.

        `parent` holds texts of a store in the same process, and shares its connection to that process; None:
        make a new connection.
        """
        self._store = store
        self._parent = parent
        self._end: socket.socket | None = parent._end if parent else _connection(store)
        if self._end and not parent:
            weakref.finalize(self, self._end.close)

    def under(self, prefix: str) -> StoreTexts:
        """Return the texts whose keys begin with `prefix`."""
        return StoreTexts(dist.PrefixStore(prefix, self._store), self)

    def set(self, key: str, value: str, /) -> None:
        """Store a text."""
        self._there().set(key, value)

    def get(self, key: str, /) -> bytes:
        """Return a stored text."""
        return bytes(self._there().get(key))

    def check(self, keys: list[str], /) -> bool:
        """Return whether texts are stored for all these keys."""
        return bool(self._there().check(keys))

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter, 0 at first, and return its value."""
        return int(self._there().add(key, amount))

    def _there(self) -> dist.Store:
        if self._end is None:
            return self._store
        try:
            self._end.recv(1)
        except BlockingIOError:  # open: it sends nothing unasked
            return self._store
        except OSError:
            pass
        raise RuntimeError("the process with torch's store has ended")


def _connection(store: dist.Store) -> socket.socket | None:
    """Return a connection to the process with a store; it closes when the process ends.

    Return None for a store without such a process: any store except `torch.distributed.TCPStore`.
    """
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if not isinstance(store, dist.TCPStore):
        return None
    end = socket.create_connection((store.host, store.port))
    end.setblocking(False)
    return end


Place = tuple[tuple[int, ...], int, int, timedelta]
"""Properties that a gloo group shares with the groups that it can replace: ranks in the default group (empty:
the default group itself), this rank in the group, size of the group, and time-out."""


@dataclass(slots=True)
class Inner:
    """A gloo group, which a later process group may reuse."""

    gloo: dist.ProcessGroupGloo
    identity: str
    """Text that is the same at all ranks of the group, and differs for every other group."""
    calls: int = 0
    """Number of collectives that this rank has called on the group: gloo numbers a group's collectives, so
    all ranks must have called equally many."""
    messages: set[object] = field(default_factory=set)
    """Sends and receives of this rank that have not been waited for: in a reused group they could match later
    sends and receives. A send ends when its receive is called."""
    failed: bool = False
    """True if a call has failed, which ends the group's connections."""


_free: dict[Place, dict[str, Inner]] = {}
"""Unused groups by `Place`, then by identity and number of calls. A group can be reused only if all ranks
have called the same number of collectives on it."""


def take(store: dist.Store, place: Place) -> Inner:
    """Return a gloo group: an unused one that all ranks have, or else a new one.

    Args:
        store: A store of these ranks, without keys of earlier groups.
        place: Properties of the group.
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
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(gloo))  # a module's variable is cleared at exit
    return Inner(gloo, store.get("identity").decode())


def _group(store: dist.Store, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroupGloo:
    """Return a new gloo group; on several machines, listen at the address on the route to the first machine.

    By default gloo uses the address of this machine's name, which other machines often cannot reach.
    """
    address = "" if "GLOO_SOCKET_IFNAME" in os.environ else _address_towards(os.environ.get("MASTER_ADDR"))
    if not address:
        return dist.ProcessGroupGloo(store, rank, size, timeout)
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timeout
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
    return dist.ProcessGroupGloo(store, rank, size, options)


def _address_towards(first: str | None) -> str:
    """Return this machine's address on the route to `first`; "" if unknown, or `first` is this machine."""
    if not first:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((first, 1))  # sends nothing
        except OSError:  # gloo's own error has more details
            return ""
        address = str(probe.getsockname()[0])
    return "" if address.startswith("127.") else address


def give_back(inner: Inner, place: Place) -> None:
    """Keep a gloo group for the next group with the same `Place`, unless a call failed or is under way."""
    if inner.failed or inner.messages:
        inner.gloo.shutdown()
    else:
        _free.setdefault(place, {})[f"{inner.identity}:{inner.calls}"] = inner
