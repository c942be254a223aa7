"""Groups of a job's ranks, as in ``torch.distributed.new_group``: each is admitted like a job of its own.

A rank requests a group at the job's rendezvous (`hostlib.meet.rendezvous`) while the job runs. Each group has
its own slots, switch ports and rendezvous, so that groups need not wait for each other. It is served as any
job whose workers another launcher starts, until all of its ranks have left it, or the job ends. But the core
does not schedule it: the group needs no GPUs, and a policy that made it wait for GPUs would wait for its job,
whose ranks wait for the group.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final

from controller import ControllerError
from controller.errors import BadSpec, OutOfMemory
from hostlib.launch.launcher import Rendezvous
from hostlib.meet import GroupRequest
from ina.errors import AddressTaken, BadRun, ProcessFailed
from ina.run.fabric_network import FabricJob, FabricNetwork
from ina.run.launch.job_run import LOOK_S, ONE_PORT_EACH, Attendance, met
from ina.run.switches.admission import reserved
from ina.run.switches.switch_process import EmbeddedSwitch

_log = logging.getLogger(__name__)

SHARE: Final = 4
"""A group gets at most a `SHARE`-th of its job's number of exclusive slots (or `LEAST_SLOTS`, if that is
more). So there can be slots for several groups."""
LEAST_SLOTS: Final = 64
"""Minimum number of exclusive slots of a group. If fewer are free, the group is not admitted."""
LARGEST_S: Final = 1.0
"""Maximum time, in s, for which a group waits for the slots of groups that are ending, before it takes fewer
slots than it could get."""
LEAVING_S: Final = 10.0
"""Maximum time, in s, for which a group that finds no free slots waits for another group to end. It waits
only if some ranks have left that other group already."""
MOST: Final = 256
"""Maximum number of groups at the same time; a switch has no ports for more."""


class Groups:
    """Admits and serves the groups of one job, each in a thread, until `close` is called."""

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
        self._rendezvous = rendezvous
        self._listen = listen
        self._names = (f"{job.spec.name}.{number}" for number in itertools.count(1))
        self._over = threading.Event()
        self._threads = ThreadPoolExecutor(MOST, thread_name_prefix="group")
        rendezvous.on_group(lambda request: self._threads.submit(self._serve, request))

    def close(self) -> None:
        """Admit no more groups, and end the existing groups."""
        self._rendezvous.on_group(None)
        self._over.set()
        self._threads.shutdown()

    def _serve(self, request: GroupRequest) -> None:
        """Admit a group, and serve it until its ranks have left; or tell the ranks why it is refused."""
        try:
            with contextlib.ExitStack() as stack:
                group = self._admitted(request, self._hosts(request, stack))
                self._job.groups.append(group)
                stack.callback(self._job.leave_group, group)  # last: until then others wait for its slots
                stack.callback(self._network.leave, group)
                rendezvous = stack.enter_context(met(group, self._listen))
                group.cancelled, group.ranks = self._over, request.ranks
                group.attendance = Attendance(
                    partial(self._rendezvous.answer, request), partial(self._look, request, rendezvous)
                )
                group.result = group.run(rendezvous)
        except (BadRun, BadSpec, ControllerError, ProcessFailed, AddressTaken) as error:
            self._rendezvous.answer(request, str(error))
        except Exception as error:  # otherwise these ranks would wait for an answer
            _log.exception("a group of ranks could not be served")
            self._rendezvous.answer(request, repr(error))

    def _look(self, request: GroupRequest, rendezvous: Rendezvous) -> bool:
        """Tell a group which of its ranks have ended before they joined it. Return False."""
        gone = self._rendezvous.gone
        for place, rank in enumerate(request.ranks):
            if rank in gone:
                rendezvous.ended(place, 1, gone[rank])
        return False

    def _hosts(self, request: GroupRequest, stack: contextlib.ExitStack) -> tuple[str, ...]:
        """Reserve a second host for each rank, at the same switch; `stack` ends the reservation.

        Return (): the switch's controller chooses ports. Raises BadRun if there can be no second host.
        """
        fabric = self._job.fabric
        attached = fabric.spec.attached
        if self._job.spec.places or (attached and attached.machines):
            raise BadRun(ONE_PORT_EACH)
        if fabric.topology is None:
            return ()
        own = [isinstance(each, EmbeddedSwitch) for each in fabric.processes.values()]
        if not own or not all(own):
            raise BadRun(ONE_PORT_EACH)
        hosts = [self._job.host(rank) for rank in request.ranks]
        return tuple(reserved(fabric, len(hosts), stack, hosts))

    def _admitted(self, request: GroupRequest, hosts: tuple[str, ...]) -> FabricJob:
        """Admit a group to the switches; while there are no free slots, wait for groups that are ending.

        If slots are exclusive, try the numbers of `slots_to_try` in turn, until the switches have a free
        region of that number of slots; while groups are ending, only the largest for `LARGEST_S`. Raises
        OutOfMemory after `LEAVING_S`, or at once if no group ends.
        """
        parent, shared = self._job.spec, self._job.offers.shared
        job = replace(parent.job, name=next(self._names), workers=len(request.ranks))
        spec = replace(parent, job=job, machines=(), hierarchical=False, log=None, places=hosts)
        sizes = [job.slots] if shared else slots_to_try(2 * self._job.tree.window)
        began_s = time.monotonic()
        while True:
            waited_s = time.monotonic() - began_s
            leaving = any(each.rendezvous and each.rendezvous.leaving for each in [*self._job.groups])
            for slots in sizes[:1] if leaving and waited_s < LARGEST_S else sizes:
                try:
                    return self._network.enter(replace(spec, job=replace(job, slots=slots)))
                except OutOfMemory as error:
                    full = error
            if not leaving or waited_s > LEAVING_S or self._over.wait(LOOK_S):
                raise full


def slots_to_try(of_job: int) -> list[int]:
    """Return the numbers of exclusive slots to try for a group, largest first.

    The largest is a `SHARE`-th of `of_job`, the number of exclusive slots of the group's job. Each next
    number is half of the one before; none is smaller than `LEAST_SLOTS`.
    """
    slots = max(LEAST_SLOTS, of_job // SHARE)
    sizes = (slots // LEAST_SLOTS).bit_length()  # as many as are not below `LEAST_SLOTS`
    return [slots >> halvings for halvings in range(sizes)]
