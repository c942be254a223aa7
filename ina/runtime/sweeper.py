"""Sweeps the switches of a cluster file: jobs that nobody holds any more leave them.

A job's holder, such as ``ina admit``, is on the machine of its first rank, and may die with it. Then nobody
might look at its lease before the next job comes. So the fallback server's machine, which is there all the
time, does.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Final, Self

from controller import ControllerError, Fleet, connect
from controller.vocabulary import Topology
from ina.runtime.cluster_fabric import address_of
from ina.runtime.fabric import SWEEP_S

_log = logging.getLogger(__name__)

CLOSE_S: Final = 2.0
"""Longest wait for a switch that is being asked; the threads end with the process."""
LONGEST_S: Final = 60.0
"""Longest time until a switch that does not answer is asked again."""


class Sweeper:
    """A thread that looks at the leases on all switches of a cluster; a context manager that ends it."""

    def __init__(self, topology: Topology) -> None:
        """Begin. Switches without an address in the file are left out."""
        self._addresses = {
            switch: address_of(topology, switch)
            for switch in topology.switch
            if topology.switch[switch].p4runtime
        }
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._sweep, args=each, name=f"sweep {each[0]}", daemon=True)
            for each in self._addresses.items()
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End it."""
        self._over.set()
        for thread in self._threads:
            thread.join(CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sweep(self, switch: str, address: str) -> None:
        """Sweep one switch; ask one that does not answer, or runs another program, ever more rarely."""
        pause_s = SWEEP_S
        while not self._over.is_set():
            try:
                with contextlib.closing(connect(address)) as controller:
                    fleet = Fleet({switch: controller})
                    while True:
                        _sweep_once(switch, fleet)
                        pause_s = SWEEP_S
                        if self._over.wait(SWEEP_S):
                            return
            except ControllerError as error:
                level = logging.WARNING if pause_s == SWEEP_S else logging.DEBUG
                _log.log(level, "cannot look for jobs without a holder on switch %s: %s", switch, error)
            pause_s = min(2 * pause_s, LONGEST_S)
            self._over.wait(pause_s)


def _sweep_once(switch: str, fleet: Fleet) -> None:
    for job in fleet.sweep()[switch]:
        registration = job.registration
        who = f" of {registration.holder}" if registration is not None and registration.holder else ""
        _log.warning("job %d%s had no holder any more; removed from switch %s", job.job, who, switch)
