"""Leases of jobs: which have expired, as one observer sees it. No I/O, no clock.

The holder of a lease of 60 s rewrites its registration four times in 60 s, each time with a new count of
`renewals`. An observer watches this count. If the count has not changed for the length of the lease, the job
has no holder any more. The holder measures the time between renewals by its own clock, and the observer
measures the time without renewals by its own clock. So clocks of two machines are never compared, and no
clock has to show the right time. The time of day is not used, so setting it does no harm.

Between two looks, an observer counts at most a quarter of the lease, which is the time between two renewals.
The reason: if a machine is suspended, or a virtual machine or a container is paused, the holder and the
observer on it stop together. If the observer counted the whole pause, the lease would expire before the
holder could renew it. So an observer can use any clock that does not go back: it uses `time.monotonic`, which
on Linux stands still while the machine is suspended. A holder that checks whether its renewal was too late
uses a clock that counts the suspended time, too (`ina/run/fabric_network.py`), because observers on other
machines may have watched meanwhile.

A holder on the same machine that is known to have ended (`has_ended`) needs no watching.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from controller.switches import names
from controller.switches.model import Admission, Registration
from controller.switches.target import TableEntry

# ---------------------------------------------------------------------------
# Names of processes that hold a job or own a switch: other processes can tell whether a named process has
# ended.
#
# The owner of a switch is the only controller that decides which jobs without leases are there. It marks
# the switch by a row that no packet matches, with its description of itself as the row's metadata: any
# P4Runtime switch keeps that, and loses it with its jobs when it is started anew.


OWNER_MAC = 0x02_69_6E_61_00_01
"""A locally administered MAC address that no machine has: the row for it is the owner's mark."""
_DROPS = 511
"""The port number that means drop in v1model."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a switch.

    Attributes:
        id: Unique; it stays the same when the controller is started again.
        name: The owner's name, for people.
        process: Its process (`this_process`).
    """

    id: str
    name: str
    process: str = ""

    def mark(self) -> TableEntry:
        """Return the row that marks a switch as this owner's."""
        metadata = json.dumps({"ina_owner": asdict(self)}).encode()
        match = {names.BRIDGE_KEY: OWNER_MAC}
        return TableEntry(names.BRIDGE, match, names.FORWARD, {"port": _DROPS}, metadata=metadata)


def owner_of(mark: TableEntry) -> Owner | None:
    """Return the owner that wrote a mark; None: the mark names no owner."""
    try:
        match json.loads(mark.metadata):
            case {"ina_owner": {"id": str(id_), "name": str(name), "process": str(process)}}:
                return Owner(id_, name, process)
    except (ValueError, RecursionError):
        pass
    return None


def this_process() -> str:
    """Return a name of this process: the machine's boot id, its namespace, its process id; "" without /proc.

    Two process ids can be compared only if boot id and namespace (of process ids) are the same.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()} {os.getpid()}"
    except OSError:
        return ""


def has_ended(process: str) -> bool:
    """Return whether a process that `this_process` named is known to have ended; see `lives`."""
    return lives(process) is False


def lives(process: str) -> bool | None:
    """Return whether the process with this name of `this_process` runs; None if that is unknown here.

    It is unknown if the process is on another machine or in another namespace, or is from before the
    machine's last start. The result is also True if the process has ended and another process has its id.
    """
    place, _, number = process.rpartition(" ")
    if not place or place != this_process().rpartition(" ")[0] or not number.isdecimal():
        return None
    return is_running(int(number))


def is_running(number: int) -> bool:
    """Return whether a process with this id runs; a zombie, which has ended, does not."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # another user's process
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return True


RENEWALS_PER_LEASE = 4
"""Renewals within the length of a lease: one or two of these may fail."""


@dataclass(slots=True)
class _WatchedLease:
    """A job's registration, and for how long its count of renewals has been seen to stay the same."""

    registration: Registration
    for_s: float = 0.0
    renewed: bool = False
    ended: bool = False

    @property
    def length_s(self) -> float:
        """Length of the lease."""
        return self.registration.lease_s or 0.0

    @property
    def expired(self) -> bool:
        """Whether the lease has expired: the job has no holder any more."""
        return self.ended or self.for_s >= self.length_s


class LeaseWatch:
    """Watches the leases of the jobs of a switch, from the first `look` on.

    `has_ended` returns whether a holder's process (`Registration.process`) is known to have ended.
    """

    def __init__(self, has_ended: Callable[[str], bool] = lambda process: False) -> None:
        self._has_ended = has_ended
        self._watched: dict[tuple[int, int], _WatchedLease] = {}
        self._looked_s = 0.0

    def look(self, jobs: Iterable[Admission], now_s: float) -> None:
        """Record the jobs' leases as they are now; `now_s` is the time of a clock that does not go back."""
        since_s = now_s - self._looked_s
        self._looked_s = now_s
        before, self._watched = self._watched, {}
        for job in jobs:
            registration = job.registration
            if registration is None or registration.lease_s is None:
                continue
            lease = before.get((job.job, job.generation))
            if lease is None:
                lease = _WatchedLease(registration)
            elif lease.registration.renewals != registration.renewals:
                lease = _WatchedLease(registration, renewed=True)
            else:
                lease.for_s += min(since_s, registration.lease_s / RENEWALS_PER_LEASE)
            lease.ended = bool(registration.process) and self._has_ended(registration.process)
            self._watched[job.job, job.generation] = lease

    def has_expired(self, job: Admission) -> bool:
        """Return whether a job's lease was seen to expire, or its holder to have ended."""
        lease = self._watched.get((job.job, job.generation))
        return lease is not None and lease.expired

    def was_renewed(self, job: Admission) -> bool:
        """Return whether a job's lease was seen to be renewed, and not to expire since."""
        lease = self._watched.get((job.job, job.generation))
        return lease is not None and lease.renewed and not lease.expired

    def lease_wait_s(self) -> float | None:
        """Return the seconds until each lease has been renewed or has expired; None: each already has.

        Leases written by earlier versions, whose end is unknown, are left out.
        """
        open_ = [each for each in self._watched.values() if not each.renewed and not each.expired]
        return max((each.length_s - each.for_s for each in open_ if each.length_s < math.inf), default=None)
