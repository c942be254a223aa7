"""Who holds a job, or owns a switch: named so that others can tell whether that process has ended.

The owner of a switch is the only controller that decides which jobs without leases are there. It marks the
switch by a row that no packet matches, with what it says of itself as the row's metadata: any P4Runtime
switch keeps that, and loses it with its jobs when it is started anew.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from controller.switches import names
from controller.switches.entries import TableEntry

OWNER_MAC = 0x02_69_6E_61_00_01
"""A locally administered address of no station: the row for it is the mark."""
_DROPS = 511
"""The port that is none."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a switch.

    Attributes:
        id: Stays the same when the controller is started again.
        name: Who that is, for people.
        process: Its process (`this_process`).
    """

    id: str
    name: str
    process: str = ""

    def mark(self) -> TableEntry:
        """Return the row that marks a switch as this owner's."""
        said = json.dumps({"ina_owner": asdict(self)}).encode()
        match = {names.BRIDGE_KEY: OWNER_MAC}
        return TableEntry(names.BRIDGE, match, names.FORWARD, {"port": _DROPS}, metadata=said)


def owner_of(mark: TableEntry) -> Owner | None:
    """Return who wrote a mark; None: it says nothing of an owner."""
    try:
        match json.loads(mark.metadata):
            case {"ina_owner": {"id": str(name), "name": str(said), "process": str(process)}}:
                return Owner(name, said, process)
    except (ValueError, RecursionError):
        pass
    return None


def this_process() -> str:
    """Name this process: the machine's start, the namespace of process ids, the process id; "" without /proc.

    Process ids mean the same only where the first two are the same.
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
    """Return whether a process that `this_process` named runs, or another one has its id by now.

    None if it cannot be known here: for processes of other machines, of other namespaces, and from before the
    machine was started.
    """
    place, _, number = process.rpartition(" ")
    if not place or place != this_process().rpartition(" ")[0] or not number.isdecimal():
        return None
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # it is another user's
    return True
