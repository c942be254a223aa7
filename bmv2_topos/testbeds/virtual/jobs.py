"""A job of the testbed over all of its admissions: its request, its workers, and its counters."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from bmv2_topos.testbeds.virtual.admission import SlotRequest, VirtualFleet
from bmv2_topos.testbeds.virtual.interfaces import Interfaces
from bmv2_topos.testbeds.virtual.placement import Placement, Ports, check_placement
from bmv2_topos.testbeds.virtual.recorder import Recorder
from bmv2_topos.testbeds.virtual.report import JobReport
from bmv2_topos.testbeds.virtual.server import PolledServer, endpoints
from bmv2_topos.testbeds.virtual.settings import (
    DEFAULT_WINDOW,
    FAST_BPS,
    Stalled,
    TestbedError,
    VirtualSettings,
)
from bmv2_topos.testbeds.virtual.worker import (
    CheckedCongestion,
    ExactGradients,
    RankAgreement,
    Training,
    TrainingWorker,
)
from bmv2_topos.trace import TracedJob
from bmv2_topos.trace.explain import End
from controller import ControllerError, Region, TreeAdmission
from controller.vocabulary import BadSpec, Job, Topology
from controller.vocabulary.errors import plural
from hostlib import wire
from hostlib.core.congestion import SPREAD, Congestion
from hostlib.core.state import NEVER, CoreSettings
from hostlib.core.state import Counter as Count
from hostlib.core.window import Kernel, Window
from hostlib.errors import ConfigError
from hostlib.fallback.config import FallbackJob
from hostlib.windows import find, is_outside
from hostlib.wire.encodings import why_no_room
from hostlib.wire.tree import Tree

SCALE_BITS = 20


@dataclass(kw_only=True)
class RunningJob:
    """One job of a run. It can be admitted again after `withdraw`; times are nanoseconds."""

    entry: Job
    id: int
    placement: Placement
    request: SlotRequest
    ports: Ports
    settings: VirtualSettings
    topology: Topology
    interfaces: Interfaces
    fleet: VirtualFleet
    kernel: Kernel
    starts_ns: int
    """Time of the job's next admission."""
    recorder: Recorder | None = None
    workers: list[TrainingWorker] = field(default_factory=list)
    server: PolledServer | None = None
    """The job's fallback server, which stays when the job is withdrawn."""
    ends_ns: list[int] = field(default_factory=list)
    """For each iteration: time at which all ranks had finished it."""
    restarts: int = 0
    gone: bool = False
    """True once the job is done, removed or refused: it will not be admitted again."""
    removed: bool = False
    refused: str | None = None
    """Reason why the switches refused the job; None: they have not refused it."""
    _gone_ns: int = 0
    _gradients: ExactGradients | None = None
    _outcomes: Counter[str] = field(default_factory=Counter)
    _packets: Counter[Count] = field(default_factory=Counter)
    _compared: int = 0

    def admit(self, now: int) -> None:
        """Admit the job, and start its workers at the first iteration that some rank has not done.

        Raises a ControllerError if the switches cannot take the job, unless `settings.report_refusals`.
        """
        try:
            admitted = self.fleet.place(self.id, replace(self.request, ports=self.ports))
        except ControllerError as error:
            if not self.settings.report_refusals:
                raise
            self.refused = str(error)
            self.leave(now)
            return
        tree, epoch = Tree.of(admitted.tree), admitted.epoch
        host = self.request.placement.server
        if host is not None:
            if self.server is None:
                socket = self.interfaces.open(host, self.ports.server)
                self.server = PolledServer(socket, self.topology, self.settings)
            self.server.add_job(FallbackJob(self.id, epoch, tree, window=self.request.window))
        rule = RankAgreement()
        self.workers = [self._worker(rank, now, epoch, tree, rule) for rank in range(self.entry.workers)]

    @property
    def admitted(self) -> TreeAdmission | None:
        """The job's present admission to its switches; None: it is not admitted."""
        return self.fleet.jobs.get(self.id)

    @property
    def regions(self) -> dict[str, Region]:
        """Slots that the job uses or is moving to, by switch; switches that only forward are left out."""
        admissions = self.admitted.switches if self.admitted else {}
        return {switch: on.region for switch, on in admissions.items() if not on.transit}

    @property
    def gradients(self) -> ExactGradients:
        """Contributions of the job's ranks: made at first use, and dropped at the job's end."""
        if self._gradients is None:
            self._gradients = ExactGradients(
                self.entry.workers,
                self.entry.tensors,
                numbers=self.entry.numbers,
                scale_bits=SCALE_BITS,
                seed=self.settings.seed * 1000 + self.id,
            )
        return self._gradients

    def withdraw(self) -> None:
        """Remove the job from hosts and switches, and keep its counters."""
        for worker in self.workers:
            self._packets.update({count: worker.window.count(count) for count in (Count.SENT, Count.RESENT)})
            self._compared += worker.compared
        self.workers = []
        if self.admitted is not None:
            for counts in self.fleet.counters(self.admitted).values():
                self._outcomes.update(counts)
            self.fleet.withdraw(self.id)
            if self.server is not None:
                self.server.remove_job(self.id)

    def end_iterations(self, now: int) -> None:
        """Record the iterations that all ranks have done by now; after the last one, end the job."""
        if not self.workers:
            return
        done = min(worker.training.done for worker in self.workers)
        self.ends_ns += [now] * (done - len(self.ends_ns))
        if done == self.entry.iterations:
            self.leave(now)

    def leave(self, now: int) -> None:
        """Withdraw the job permanently."""
        self.withdraw()
        self.gone = True
        self._gone_ns = now
        self._gradients = None

    def report(self) -> JobReport:
        """Return the report of the job, after its end."""
        start = round(self.entry.arrival_s * 1e9)
        ends = [start, *self.ends_ns]
        finished = len(self.ends_ns) == self.entry.iterations
        server = self.server
        return JobReport(
            name=self.entry.name,
            workers=self.entry.workers,
            start_s=self.entry.arrival_s,
            jct_s=(self.ends_ns[-1] - start) * 1e-9 if finished else None,
            iteration_s=tuple((b - a) * 1e-9 for a, b in itertools.pairwise(ends)),
            sent_packets=self._packets.total(),
            resent_packets=self._packets[Count.RESENT],
            outcomes=dict(self._outcomes),
            fallback_bytes=server.received_bytes + server.sent_bytes if server else 0,
            fallback=dict(server.counts()[self.id]) if server else {},
            checked_elements=self._compared,
            restarts=self.restarts,
            left_s=self._gone_ns * 1e-9,
            refused=self.refused,
        )

    def _worker(self, rank: int, now: int, epoch: int, tree: Tree, rule: RankAgreement) -> TrainingWorker:
        entry, settings = self.entry, self.settings
        socket = self.interfaces.open(self.placement.workers[rank], self.ports.workers[rank])
        core = CoreSettings(
            self.id,
            rank,
            entry.workers,
            2 * self.request.window,
            settings.lanes,
            endpoints(self.topology, socket.host, socket.port),
            rto=settings.rto,
            tree=tree,
            epoch=epoch,
            window=self.request.window,
            fallback=settings.shares,
            spread=_spread(settings),
            salted=settings.offers.salted and settings.rehashes,
            numbers=entry.numbers,
            scale_bits=SCALE_BITS,
        )
        window = Window(core, self.kernel, self._congestion(rule))
        compute_s = entry.compute_s
        if entry.straggler is not None and entry.straggler.rank == rank:
            compute_s = entry.straggler.compute_s
        training = Training(
            layers=len(entry.tensors),
            iterations=entry.iterations,
            compute_ns=round(compute_s * 1e9),
            jitter=entry.jitter,
            random=random.Random(f"{settings.seed}/{self.id}/{rank}/{self.restarts}"),
            done=len(self.ends_ns),
        )
        priority = settings.prioritize if entry.priority is None else entry.priority
        if settings.offers.salted:
            priority = 0  # the field holds a salt instead, the same on all ranks
        worker = TrainingWorker(socket, window, training, self.gradients, priority, now)
        if self.recorder is not None:
            worker.on_sum = self.recorder.sums.append
        return worker

    def facts(self) -> TracedJob:
        """Return the job as input of `explain`, with the places where its packets are captured."""
        host = self.request.placement.server
        port: End | None = None
        if host is not None:
            switch = self.topology.rack_of[host]
            port = switch, self.topology.port_to(switch, host)
        workers: tuple[End, ...] = tuple((worker, None) for worker in self.placement.workers)
        server = None if host is None else (host, None)
        return TracedJob(self.id, self.entry.name, workers, server, port, round(self.entry.arrival_s * 1e9))

    def _congestion(self, rule: RankAgreement) -> Congestion:
        name = self.entry.congestion
        made = find(name).make()
        return CheckedCongestion(made, rule, may_bypass=self.settings.shares) if is_outside(name) else made


def request_of(
    entry: Job, placement: Placement, settings: VirtualSettings, topology: Topology, *, jobs: int
) -> SlotRequest:
    """Return a job's request for slots, to be sent to the controller.

    Args:
        entry: The job.
        placement: The job's hosts.
        settings: Settings of the simulation.
        topology: The network.
        jobs: Number of jobs, among which exclusive slots are divided equally.

    Raises TestbedError if the job cannot run.
    """
    try:
        find(entry.congestion).make()
    except ConfigError as error:
        raise TestbedError(f"job {entry.name!r}: {error}") from error
    if why := why_no_room(entry.numbers, entry.workers):
        raise TestbedError(f"job {entry.name!r}: {why}")
    if len(placement.workers) != entry.workers:
        raise TestbedError(f"job {entry.name!r}: {len(placement.workers)} hosts for {entry.workers} workers")
    if not settings.shares:
        placement = replace(placement, server=None)
    try:
        check_placement(topology, placement)
    except BadSpec as error:
        raise TestbedError(f"job {entry.name!r}: {error}") from error
    window = entry.window or DEFAULT_WINDOW
    max_age_us = round(settings.max_age_s * 1e6)
    if settings.shares:
        if placement.server is None:
            raise TestbedError(f"job {entry.name!r} needs a host for its fallback server, to share slots")
        region = None if entry.slots is None else Region(0, entry.slots)
        return SlotRequest(
            placement,
            window=_spread(settings) * window,
            preempt=entry.preempt and not settings.offers.salted,
            ageing=settings.ageing,
            region=region,
            max_age_us=max_age_us,
        )
    share = settings.slots // jobs if entry.slots is None else entry.slots
    slots = _power_of_two_up_to(min(share, 2 * window))
    if slots < 2:
        raise TestbedError(
            f"job {entry.name!r}: {share} private slots; a job of {settings.offers.title} needs 2 or more"
        )
    return SlotRequest(placement, slots=slots, window=slots // 2)


def slack_s(entry: Job, placement: Placement, settings: VirtualSettings, topology: Topology) -> float:
    """Return how many seconds longer a window takes on the job's slowest link than on a link of `FAST_BPS`.

    The job's links are its hosts' links and, whatever its tree, all links between switches.

    Args:
        entry: The job.
        placement: The job's hosts.
        settings: Settings of the simulation.
        topology: The network.

    Raises BadSpec for a link so slow that workers would give up before a window has passed it.
    """
    at: Counter[str] = Counter(placement.workers)
    hosts = {*at, placement.server}
    links = (link for link in topology.links if {link.a, link.b} <= {*hosts, *topology.switch})
    slowest = min((link.rate_bps for link in links if link.rate_bps), default=FAST_BPS)
    frame_bits = 8 * (wire.FRAME_PREFIX_BYTES + wire.INA_BYTES + 4 * settings.lanes)
    packets = (entry.window or DEFAULT_WINDOW) * max(at.values())
    window_s, most_s = packets * frame_bits / slowest, settings.patience_s / 2
    if window_s > most_s:
        raise BadSpec(
            f"job {entry.name!r}: a window of {plural(packets, 'packet')} takes {window_s:,.0f} s through a"
            f" link of {slowest:g} b/s; it must take at most {most_s:g} s. Check the rate, in bits per second"
            " (100 Gb/s is 100e9), or give a smaller window"
        )
    return max(0.0, packets * frame_bits * (1 / slowest - 1 / FAST_BPS))


def _spread(settings: VirtualSettings) -> int:
    return 1 if settings.offers.salted else SPREAD


def _power_of_two_up_to(number: int) -> int:
    return 1 << (number.bit_length() - 1) if number > 0 else 0


# ---------------------------------------------------------------------------
# Stall detection: all waiting workers have waited too long, and none computes.


class StallCheck:
    """Detects that all workers stall; checks the workers only when a stall could have lasted `patience_s`."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._due = 0

    def check(self, jobs: Iterable[RunningJob], now: int) -> None:
        """Raise Stalled if no worker has got a result for `patience_s`, and none is computing."""
        if now < self._due:
            return
        running = list(jobs)
        waited = _least_wait(running, now)
        if waited > self._patience_s * 1e9:
            waiting = describe_waiting(running)
            raise Stalled(f"at {now * 1e-9:.6f} s, no result for {self._patience_s:g} s: {waiting}")
        self._due = now + int(self._patience_s * 1e9) - waited


def _least_wait(jobs: Iterable[RunningJob], now: int) -> int:
    """Return the shortest of all workers' waiting times for a result, in ns; 0 if a worker computes."""
    waits = []
    for job in jobs:
        for worker in job.workers:
            if not worker.waits or worker.training.due != NEVER:
                return 0
            waits.append(worker.window.stalled_ns(now))
    return min(waits, default=0)


def describe_waiting(jobs: Iterable[RunningJob]) -> str:
    """Describe which ranks wait for which packets, and whose contributions are missing."""
    found = []
    for job in jobs:
        for worker in job.workers:
            if worker.waits:
                missing = worker.window.missing_ranks(since=0)
                without = f", without rank {', '.join(map(str, missing))}" if missing else ""
                psns = worker.window.outstanding()
                found.append(f"job {job.entry.name!r} rank {worker.rank} waits for {psns}{without}")
    return "; ".join(found) or "no worker waits for a sum"
