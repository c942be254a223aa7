"""Groups of a job's ranks, as in ``torch.distributed.new_group``: each is admitted like a job of its own.

A rank requests a group at the job's rendezvous (`hostlib.meet.rendezvous`) while the job runs. Each group has
its own slots, switch ports and rendezvous, so that groups need not wait for each other. A group ends when all
of its ranks have left it, or when the job ends.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller import ControllerError
from controller.errors import BadSpec, OutOfMemory
from hostlib.launch.launcher import Rendezvous
from hostlib.meet import GroupRequest
from ina.errors import AddressTaken, BadRun, ProcessFailed
from ina.launch.job_run import ONE_PORT_EACH
from ina.service.fabric_network import FabricJob, FabricNetwork
from ina.switches.switch_process import EmbeddedSwitch

_log = logging.getLogger(__name__)

SHARE: Final = 4
"""A group gets at most a `SHARE`-th of its job's number of exclusive slots (or `LEAST_SLOTS`, if that is
more). So there can be slots for several groups."""
LEAST_SLOTS: Final = 64
"""Minimum number of exclusive slots of a group. If fewer are free, the group is not admitted."""
LEAVING_S: Final = 10.0
"""Maximum time, in s, for which a group that finds no free slots waits for another group to end. It waits
only if some ranks have left that other group already."""
LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Group:
    """An admitted group: the request for it, and the rendezvous of its ranks."""

    request: GroupRequest
    rendezvous: Rendezvous
    stack: contextlib.ExitStack
    """Closing this stack removes the group from the switches, and closes its rendezvous."""


class Groups:
    """Admits and ends the groups of one job, in a thread, until `close` is called."""

    def __init__(
        self, network: FabricNetwork, job: FabricJob, rendezvous: Rendezvous, listen: str | None = None
    ) -> None:
        """Start to serve requests for groups at the rendezvous of a job.

        Args:
            network: Admits groups to the switches.
            job: The job.
            rendezvous: The job's rendezvous, at which its ranks request groups.
            listen: Address of this machine at which the groups' ranks meet; None: one that only this machine
                can reach.
        """
        self._network = network
        self._job = job
        self._spec = job.spec
        self._rendezvous = rendezvous
        self._listen = listen
        self._names = (f"{self._spec.job.name}.{number}" for number in itertools.count(1))
        self._requests: queue.SimpleQueue[GroupRequest | None] = queue.SimpleQueue()
        self._groups: list[_Group] = []
        self._thread = threading.Thread(target=self._serve, name="groups", daemon=True)
        self._thread.start()
        rendezvous.on_group(self._requests.put)

    def close(self) -> None:
        """Admit no more groups, and end the existing groups."""
        self._rendezvous.on_group(None)
        self._requests.put(None)
        self._thread.join()
        for group in self._groups:
            group.stack.close()

    def _serve(self) -> None:
        while True:
            try:
                request = self._requests.get(timeout=LOOK_S if self._groups else None)
            except queue.Empty:
                self._look()
                continue
            if request is None:
                return
            try:
                configs: Sequence[str] | str = self._admit_in_time(request)
            except (BadRun, BadSpec, ControllerError, ProcessFailed, AddressTaken) as error:
                configs = str(error)
            except Exception as error:  # otherwise these ranks and later ones would wait for an answer
                _log.exception("a group of ranks could not be admitted")
                configs = repr(error)
            self._rendezvous.answer(request, configs)

    def _look(self) -> None:
        """Tell the groups which ranks have ended and whether the job has failed; end groups without ranks."""
        gone, broken = self._rendezvous.gone, self._rendezvous.broken
        for group in [*self._groups]:
            for place, rank in enumerate(group.request.ranks):
                if rank in gone:
                    group.rendezvous.ended(place, 1, gone[rank])
            if broken:
                group.rendezvous.fault(broken)
            if group.rendezvous.finished:
                self._groups.remove(group)
                group.stack.close()

    def _admit_in_time(self, request: GroupRequest) -> list[str]:
        """Admit a group; if there are no free slots, wait up to `LEAVING_S` for groups that are ending.

        Return the configuration of each rank, as JSON. Raises an error if the group cannot be admitted.
        """
        until_s = time.monotonic() + LEAVING_S
        while True:
            self._look()
            try:
                return self._admit(request)
            except OutOfMemory:
                if time.monotonic() > until_s or not any(each.rendezvous.leaving for each in self._groups):
                    raise
            time.sleep(LOOK_S)

    def _admit(self, request: GroupRequest) -> list[str]:
        """Admit a group; return the configuration of each rank, as JSON.

        Raises an error if the group cannot be admitted.
        """
        with contextlib.ExitStack() as stack:
            held = self._entered(request)
            stack.callback(self._network.leave, held)
            held.rendezvous = rendezvous = stack.enter_context(held.meeting(self._listen))
            configs = [held.config(place, rendezvous) for place in range(len(request.ranks))]
            self._groups.append(_Group(request, rendezvous, stack.pop_all()))
            return configs

    def _entered(self, request: GroupRequest) -> FabricJob:
        """Admit a group to the switches.

        If slots are exclusive, try the numbers of `slots_to_try` in turn, until the switches
        have a free region of that number of slots.
        """
        fabric, parent = self._job.fabric, self._spec
        attached = fabric.spec.attached
        own = all(isinstance(each, EmbeddedSwitch) for each in fabric.processes.values())
        if parent.places or (attached and attached.machines) or not own:
            raise BadRun(ONE_PORT_EACH)
        job = replace(parent.job, name=next(self._names), workers=len(request.ranks))
        spec = replace(parent, job=job, machines=(), hierarchical=False, log=None)
        beside = [self._job.host(rank) for rank in request.ranks]
        sizes = [job.slots] if fabric.offers.shared else slots_to_try(2 * self._job.tree.window)
        for slots in sizes[:-1]:
            with contextlib.suppress(OutOfMemory):
                return self._network.enter(replace(spec, job=replace(job, slots=slots)), beside=beside)
        return self._network.enter(replace(spec, job=replace(job, slots=sizes[-1])), beside=beside)


def slots_to_try(of_job: int) -> list[int]:
    """Return the numbers of exclusive slots to try for a group, largest first.

    The largest is a `SHARE`-th of `of_job`, the number of exclusive slots of the group's job. Each next
    number is half of the one before; none is smaller than `LEAST_SLOTS`.
    """
    slots = max(LEAST_SLOTS, of_job // SHARE)
    sizes = [slots]
    while slots // 2 >= LEAST_SLOTS:
        slots //= 2
        sizes.append(slots)
    return sizes
