"""Runs an admitted job until all of its workers have ended.

Starts the workers, or serves workers that another launcher starts.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller import TreeAdmission
from controller.switches.model import Feature, Member, SwitchInfo
from hostlib import JobConfig, TransportConfig
from hostlib.launch.launcher import Output, Rendezvous, WorkerExit, torch_variables
from hostlib.wire.tree import Tree
from ina.errors import BadRun, WorkerFailed
from ina.run.launch.hosts import Hosts
from ina.run.launch.orders import ON_NO_SWITCH
from ina.run.launch.spec import JobResult, LaunchSpec, RankReports

_log = logging.getLogger(__name__)
LOOK_S = 0.1
ONE_PORT_EACH = "a group needs more switch ports, but each host of the job has only one, which the job uses"


@dataclass(slots=True, eq=False)
class JobEnd:
    """How a job ended, or why it could not be started.

    Attributes:
        spec: The job.
        result: The job's result; None: the job has not ended, or an error prevented a result.
        error: The error that prevented a result; None: none.
        at_s: Time of the job's end, in s on the monotonic clock.
    """

    spec: LaunchSpec
    result: JobResult | None = field(default=None, kw_only=True)
    error: BaseException | None = field(default=None, kw_only=True)
    at_s: float = field(default=0.0, kw_only=True)

    @property
    def interrupted(self) -> bool:
        """Whether the job's workers were ended by `cancel`."""
        return self.result is not None and self.result.interrupted

    def check(self) -> None:
        """Raise the error with which the job failed (`failure`), if it failed."""
        if failure := self.failure():
            raise failure

    def failure(self) -> BaseException | None:
        """Return the error with which the job failed: `error`, or WorkerFailed; None if it did not fail."""
        if self.error is not None:
            return self.error
        if self.result is not None and (failed := self.result.failure):
            return WorkerFailed(f"rank {failed.rank} {failed.reason}" if failed.rank >= 0 else failed.reason)
        return None

    def reports(self) -> RankReports:
        """Return the latest report of each rank; ranks that have not reported are missing."""
        return {}


@dataclass(frozen=True, slots=True)
class Attendance:
    """Callbacks for a job whose workers another launcher starts.

    Attributes:
        on_ready: Called with a list of the ranks' configurations, in the order of ranks.
        starter_left: Called several times per second until all ranks have joined. It returns whether the
            launcher has ended: the missing ranks will then never join, so the job fails.
    """

    on_ready: Callable[[Sequence[str]], None]
    starter_left: Callable[[], bool]


@dataclass(slots=True, eq=False, kw_only=True)
class JobRun(JobEnd):
    """Runs the workers of an admitted job. `run` blocks; other threads may call the other methods.

    Attributes:
        hosts: The hosts on which the job's workers run.
        tree: The job's entries on each switch of its tree.
        offers: The features and sizes that the program of the switches offers to jobs.
        paced: Whether the workers' time-outs must follow the pace of results, because switches or links are
            slow.
        on_output: Called with the workers' output.
        attendance: Callbacks if another launcher starts the workers; None: this process starts them.
        cancelled: Set when the workers must end.
        exits: The workers that have ended.
        over: Set when the job has ended.
        rendezvous: The meeting point of the workers; None: they have not been started.
    """

    hosts: Hosts
    tree: TreeAdmission
    offers: SwitchInfo
    paced: bool = False
    on_output: Output = lambda rank, data, is_error: None
    attendance: Attendance | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    exits: Sequence[WorkerExit] = ()
    over: threading.Event = field(default_factory=threading.Event)
    rendezvous: Rendezvous | None = None
    _fault: str | None = None
    _fault_s: float = 0.0
    _granted: int = 0

    def config(self, rank: int, rendezvous: Rendezvous) -> str:
        """Return a worker's configuration as JSON. It is secret, because it contains the rendezvous' token.

        Raises ConfigError for an invalid configuration.
        """
        spec, admitted, offers = self.spec, self.tree, self.offers
        switch, member = self.worker(rank)
        tree = admitted.tree  # left out for one switch
        return JobConfig(
            job=admitted.job,
            epoch=admitted.epoch,
            rank=rank,
            size=spec.job.workers,
            tree=None if list(tree) == [0] else Tree.of(tree),
            lanes=offers.lanes,
            slots=2 * admitted.window,
            window=admitted.window,
            fallback=offers.shared,
            atp=offers.salted,
            bare=Feature.SHARDS not in offers.lacks,
            congestion=spec.job.congestion,
            numbers=spec.job.numbers,
            priority=spec.job.priority,
            timeout_s=spec.timeout_s,
            straggler_timeout_s=spec.straggler_timeout_s,
            rendezvous=rendezvous.address,
            token=rendezvous.token,
            paced=self.paced,
            log=spec.log,
            hosts=spec.machines if spec.hierarchical else None,
            transport=self._transport(switch, member),
        ).to_json()

    def meeting(self, host: str | None = None) -> Rendezvous:
        """Return a new rendezvous for the workers, which listens at the address `host` of this machine.

        If `host` is None, the rendezvous listens at an address that the host of rank 0 can reach. Raises
        BadRun if `host` is not an address of this machine.
        """
        if host is not None:
            try:
                return self._meeting(host)
            except OSError as error:
                raise BadRun(
                    f"cannot listen there: {error.strerror}", setting="listen", value=host
                ) from error
        return self.hosts.inside(self.worker(0)[1], self._meeting)

    def environment(self, rank: int, rendezvous: Rendezvous, store: tuple[str, int]) -> Mapping[str, str]:
        """Return the environment variables of a worker.

        `store` is the host and the port of the store of ``torch.distributed``.
        """
        found = {
            **self.spec.environment(),
            **torch_variables(rank, self.spec.job.workers, store),
            **self.hosts.environment(self.worker(rank)[1]),
        }
        if self.spec.places:
            ranks = next(ranks for ranks in self.spec.machines if rank in ranks)
            found |= {"LOCAL_RANK": str(ranks.index(rank)), "LOCAL_WORLD_SIZE": str(len(ranks))}
        return {**found, "INA_JOB": self.config(rank, rendezvous)}

    def ports(self) -> list[str]:
        """Return the workers' switch ports in the order of their ranks, as SWITCH/PORT."""
        return [f"{switch}/{member.port}" for _, (switch, member) in sorted(self._members().items())]

    def worker(self, rank: int) -> tuple[str, Member]:
        """Return the switch of a rank, and the member that sends the rank's packets to the switch."""
        members = self._members()
        if not self.spec.hierarchical:
            return members[rank]
        return members[next(worker for worker, ranks in enumerate(self.spec.machines) if rank in ranks)]

    def _transport(self, switch: str, member: Member) -> TransportConfig:
        if self.tree.job == ON_NO_SWITCH:
            return TransportConfig("none", "", "")
        transport = self.hosts.transport(switch, member)
        if member is self.tree.beside and (server := self.tree.server) is not None:
            return replace(transport, switch=f"{server.ip}:{server.udp_port}")
        return transport

    def _meeting(self, host: str) -> Rendezvous:
        spec, machines = self.spec, dict[int, str]()
        for worker, (_, member) in self._members().items():
            if name := self.hosts.machine(member):
                ranks = spec.machines[worker] if spec.hierarchical else (worker,)
                machines |= dict.fromkeys(ranks, name)
        return Rendezvous(job=self.tree.job, size=spec.job.workers, host=host, machines=machines)

    def _members(self) -> dict[int, tuple[str, Member]]:
        found = {
            member.rank: (name, member)
            for name, admission in self.tree.switches.items()
            for member in admission.members
            if member.rank is not None
        }
        if (beside := self.tree.beside) is not None and beside.rank is not None:
            found[beside.rank] = (next(iter(self.tree.switches)), beside)  # the uppermost
        return found

    def reports(self) -> RankReports:
        """Return the latest report of each rank; ranks that have not reported are missing."""
        return self.rendezvous.reports() if self.rendezvous else {}

    def fault(self, reason: str) -> None:
        """Tell the workers that the job cannot continue, and why; they then fail with this reason."""
        if self._fault is None:
            self._fault, self._fault_s = reason, time.monotonic()
        if (rendezvous := self.rendezvous) is not None:
            rendezvous.fault(self._fault)  # keeps it for workers that join later

    def grant(self, packets: int) -> None:
        """Set the maximum number of packets in flight of each worker; 0: only the window limits them."""
        self._granted = packets
        if (rendezvous := self.rendezvous) is not None:
            rendezvous.grant(packets)

    def cancel(self) -> None:
        """Request the end of the workers, and return at once."""
        self.cancelled.set()

    def run(self, rendezvous: Rendezvous) -> JobResult:
        """Run the workers until all have ended; return the job's result without the switches' counters.

        Raises LaunchError if the command cannot be run.
        """
        spec, hosts = self.spec, self.hosts
        self.rendezvous = rendezvous
        rendezvous.grant(self._granted)
        if self._fault is not None:
            rendezvous.fault(self._fault)
        if self.attendance is not None:
            return self._attend(rendezvous, self.attendance)
        with contextlib.ExitStack() as stack:
            store = stack.enter_context(hosts.prepared(self.worker(0)[1]))
            environments = [self.environment(rank, rendezvous, store) for rank in range(spec.job.workers)]
            started = time.monotonic()
            workers = hosts.start_workers(spec, environments, rendezvous, self.on_output)
            stack.callback(workers.kill)
            self.exits = workers.exits
            interrupted = False

            def tick() -> None:
                nonlocal interrupted
                if self.cancelled.is_set() and len(workers.exits) < spec.job.workers:
                    interrupted = True
                    workers.kill()

            failure = workers.wait(on_tick=tick)
            elapsed = max(exit_.at_s for exit_ in workers.exits) - started
            if (left := workers.left_running) and not interrupted:
                processes = f"{left:,} process" + "es" * (left != 1)
                _log.warning("the workers left %s running; ended now", processes)
            if self._fault is not None and (failure is None or failure.at_s > self._fault_s):
                failure = WorkerExit(-1, 1, self._fault)
            elif failure is not None and rendezvous.broken is not None and not rendezvous.complete:
                failure = WorkerExit(-1, 1, rendezvous.broken)  # a rank that has not joined
            return JobResult(failure, elapsed, rendezvous.reports(), interrupted=interrupted)

    def _attend(self, rendezvous: Rendezvous, attendance: Attendance) -> JobResult:
        """Pass the ranks' configurations to their launcher, and wait until the ranks have left."""
        started = time.monotonic()
        attendance.on_ready([self.config(rank, rendezvous) for rank in range(self.spec.job.workers)])
        failure: WorkerExit | None = None
        while not rendezvous.finished and not self.cancelled.wait(LOOK_S):
            if not rendezvous.complete and attendance.starter_left():
                break
            if failure is None and self._fault is not None:
                failure = WorkerExit(-1, 1, self._fault)
        if failure is None and not rendezvous.complete:
            failure = WorkerExit(-1, 1, "the launcher of the ranks ended before all ranks had joined")
        elif failure is None and (gone := rendezvous.gone):
            rank, reason = next(iter(gone.items()))
            failure = WorkerExit(rank, 1, f"rank {rank}: {reason}")
        elapsed_s = time.monotonic() - started
        return JobResult(failure, elapsed_s, rendezvous.reports(), interrupted=self.cancelled.is_set())


@contextlib.contextmanager
def met(job: JobRun, listen: str | None = None) -> Iterator[Rendezvous]:
    """Yield a rendezvous that accepts the ranks of a job, and close it at the end of the context.

    It refuses requests for groups of the job's ranks: a group would need switch ports of its own.
    """
    with job.meeting(listen) as rendezvous:
        rendezvous.on_group(lambda request: rendezvous.answer(request, ONE_PORT_EACH))
        yield rendezvous
