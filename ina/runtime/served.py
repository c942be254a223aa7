"""A job of this process on the switches of a fabric: admitted, leased, met, counted, and removed."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from controller import ControllerError, NoSuchJob
from hostlib.launch.launcher import Rendezvous, WorkerExit
from ina.runtime.admission import admitted
from ina.runtime.fabric import SwitchFabric
from ina.runtime.launch import Admitted
from ina.runtime.lease import Renewal, registration, renewed
from ina.runtime.spec import JobResult, LaunchSpec

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedJob:
    """A job that this process has had admitted, and the point where its ranks meet."""

    fabric: SwitchFabric
    job: Admitted
    rendezvous: Rendezvous
    renewal: Renewal

    @property
    def server_port(self) -> str | None:
        """The fallback server's switch port; None if the job has no fallback server."""
        fallback = self.fabric.fallback
        return f"{self.fabric.root}/{fallback.port}" if fallback else None

    def host(self, rank: int) -> str | None:
        """Return the host of the topology that a rank is on; None where the controller chooses ports."""
        topology = self.fabric.topology
        if topology is None:
            return None
        switch, member = self.job.worker(rank)
        if member is self.job.tree.beside:
            return self.fabric.hosts.machine(member)
        assert member.port is not None
        return topology.ports[switch][member.port].other(switch)

    def counted(self, result: JobResult) -> JobResult:
        """Return a result with what switches and fallback server counted; call it before the job is removed.

        Raises ControllerError if the switches of a job that did not fail cannot be asked.
        """
        fabric, tree, renewal, failure = self.fabric, self.job.tree, self.renewal, result.failure
        switches: dict[str, dict[str, int]] = {}
        fallback: dict[str, float] = {}
        try:
            if fabric.switch_ended() is None and fabric.silent is None:
                switches = fabric.counters(tree)
                fallback = fabric.fallback.statistics(tree.job) if fabric.fallback else {}
        except NoSuchJob as error:
            renewal.lost = renewal.lost or renewal.why(error)
        except ControllerError as error:
            if failure is None:
                raise
            _log.warning("cannot read the switch's counters: %s", error)
        if renewal.lost and not result.interrupted:
            # Workers only notice that nobody answers.
            failure = WorkerExit(-1, 1, renewal.lost)
        elif failure and fabric.silent:
            failure = replace(failure, reason=f"{failure.reason}; {fabric.silent}")
        counters: dict[str, int] = {}
        for found in switches.values():
            for name, number in found.items():
                counters[name] = counters.get(name, 0) + number
        return replace(result, failure=failure, counters=counters, switches=switches, fallback=fallback)


@contextlib.contextmanager
def served(
    fabric: SwitchFabric,
    spec: LaunchSpec,
    cancelled: threading.Event,
    *,
    listen: str | None = None,
    beside: Sequence[str | None] = (),
) -> Iterator[ServedJob]:
    """Admit a job to the switches while the context lasts; nothing of it stays there.

    Args:
        fabric: The switches.
        spec: The job.
        cancelled: Once set, nothing is waited for.
        listen: Address of this machine at which the ranks meet; None: one that only this machine reaches.
        beside: See `admitted`.

    Raises:
        ControllerError: a switch refused the job.
        ProcessFailed: the fallback server did not start.
        AddressTaken: another process has the address of a host.
        BadRun: nobody can listen at `listen`, or the machines are not the job's.
    """
    registered = registration(fabric, spec)
    with admitted(fabric, spec, registered, cancelled, beside=beside) as tree:
        job = Admitted(fabric.hosts, spec, tree, fabric.offers, fabric.paced)
        with (
            job.rendezvous(listen) as rendezvous,
            renewed(fabric, tree, registered, rendezvous.reports, rendezvous.fault) as renewal,
        ):
            yield ServedJob(fabric, job, rendezvous, renewal)
