"""The daemon: one loop that takes events in, asks the core, and carries out what is to be.

What it holds of each run (`Hold`) is written down before the first effect and forgotten after the last. An
effect that fails is tried again, later and later; what a run waits for is its job's `reason`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from controller.core import (
    Cancelled,
    Core,
    Ended,
    Event,
    Interrupted,
    Log,
    Over,
    Progressed,
    Retried,
    Rules,
    ServerBack,
    ServerGone,
    Submitted,
    SwitchBack,
    SwitchGone,
    Tick,
)
from controller.core.compose import networked
from controller.core.events import event_of
from controller.core.events import plain as plain_event
from controller.core.submissions import submission_of
from controller.errors import BadSpec, ControllerError
from controller.policies.by_kind import AllocationSettings
from controller.switches.fleet import Report
from controller.switches.model import INA_UDP_PORT, Registration
from controller.switches.tree import TreeAdmission
from controller.vocabulary import Job, Topology
from ina.runtime.errors import RunError
from ina.service import network, plain
from ina.service.clock import Clock
from ina.service.errors import Conflict, RunnerGone, StoreError, Unknown
from ina.service.executor import Executor
from ina.service.fallback import FallbackServers
from ina.service.faults import fault_point
from ina.service.network import Network
from ina.service.records import Audit, Difference, JobRecord, Said, State
from ina.service.runner import JobOrder, RunOrder, log_file
from ina.service.service import (
    ClusterState,
    Decision,
    Explanation,
    ServerState,
    Share,
    SwitchState,
)
from ina.service.steps import Held, Resize, Stage, Start, Step, Stop, steps
from ina.service.store import Store

LOOK_S = 0.25
"""Interval at which runs are looked at."""
CHECK_S = 2.0
"""Interval at which switches are compared with what they should hold."""
GONE_S = 3.0
"""Time for which a switch may not answer until its jobs get other trees: less than workers wait for it."""
PROGRESS_S = 5.0
"""Least time between two reports of a job's progress that are written down."""
BACK_OFF_S = (0.5, 15.0)
"""Time until an effect that failed is tried again: at first, and at most."""
LOST_RUNS = 3
"""Times that a job's runner may be lost before the job counts as failed."""
SHARING = 4
"""Jobs that may take turns on a GPU."""

_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Policies:
    """Who decides: scheduler, and placement, routing and memory.

    Attributes:
        scheduler: Name of the scheduling policy.
        allocation: The others, and how they are asked.
        interval_s: Interval at which the scheduler is asked; 0: whenever something happens.
        retries: How often a job that fails goes back to the queue.
    """

    scheduler: str = "fifo"
    allocation: AllocationSettings = field(default_factory=AllocationSettings)
    interval_s: float = 0.0
    retries: int = 0

    def core(self, cluster: Topology) -> Core:
        """Return a fresh core. Raises BadSpec for names that nobody has."""
        made = networked(cluster, self.scheduler, self.allocation)
        return Core(
            made.servers,
            replace(made.setup, interval_s=self.interval_s),
            allocation=made.allocation,
            rules=Rules(reported=True, sharing=SHARING, retries=self.retries),
            log=Log(),
        )

    @property
    def names(self) -> dict[str, str]:
        """The policies by kind."""
        return {"scheduler": self.scheduler, **self.allocation.names}


@dataclass(slots=True)
class Hold:
    """What the daemon holds of a run.

    Attributes:
        held: The run, its places, and where it is in its life.
        admissions: What the switches should hold of each of its jobs that uses them.
        udp_ports: Where each job's servers take packets.
        before: Iterations that each job had done when the run was started.
    """

    held: Held
    admissions: dict[str, TreeAdmission] = field(default_factory=dict)
    udp_ports: dict[str, tuple[int, ...]] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return it as the store keeps it."""
        held = self.held
        return {
            "run": plain.of_run(held.run),
            "places": {name: plain.of_place(place) for name, place in held.places.items()},
            "stage": held.stage,
            "over": sorted(held.over),
            "admissions": {name: plain.of_admission(each) for name, each in self.admissions.items()},
            "udp_ports": {name: list(ports) for name, ports in self.udp_ports.items()},
            "before": self.before,
        }

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Hold:
        """Return the hold that `plain` gave this for."""
        places = {name: plain.place_of(place) for name, place in found["places"].items()}
        held = Held(plain.run_of(found["run"]), places, found["stage"], frozenset(found["over"]))
        return cls(
            held,
            {name: plain.admission_of(each) for name, each in found["admissions"].items()},
            {name: tuple(ports) for name, ports in found["udp_ports"].items()},
            found["before"],
        )

    def of_switches(self) -> dict[str, TreeAdmission]:
        """Return the admissions that switches should hold, by job: of those that have not ended."""
        return {
            name: admission
            for name, admission in self.admissions.items()
            if name not in self.held.over and self.held.places[name].tree is not None
        }


@dataclass(slots=True)
class _Trouble:
    """An effect that failed: why, and when to try again."""

    why: str
    again_s: float
    after_s: float


class Daemon:
    """The service behind `ina.service.service.Service`. Made and used in the thread of its event loop."""

    def __init__(
        self,
        store: Store,
        cluster: Topology,
        policies: Policies,
        *,
        testbed: str,
        switches: Network,
        executor: Executor,
        fallbacks: FallbackServers,
        clock: Clock,
        began_at: float,
    ) -> None:
        self._store = store
        self._topology = cluster
        self._policies = policies
        self._testbed = testbed
        self._network = switches
        self._executor = executor
        self._fallbacks = fallbacks
        self._clock = clock
        self._began_at = began_at
        self._core = policies.core(cluster)
        self._submitted: dict[str, Said] = {}
        self._keys: dict[tuple[str, str], list[str]] = {}
        self._drained: dict[str, str] = {}
        self._holds: dict[int, Hold] = {}
        self._troubles: dict[tuple[int, type[Step]], _Trouble] = {}
        """Effects that failed, by run and kind."""
        self._lost: dict[str, int] = {}
        self._told_s: dict[str, float] = {}
        self._latest: dict[str, float] = {}
        """Iterations that jobs have done by now; the core is told less often."""
        self._silent: dict[str, tuple[float, str]] = {}
        """Switches that do not answer: since when, and why."""
        self._down: dict[str, str] = {}
        """Those of them that the core was told are gone."""
        self._waits_of: dict[str, str] = {}
        self._waits_to = 0
        """Lines of the log that `_waits_of` knows."""
        self._over_of: dict[str, Over] = {}
        self._over_to = 0
        self._check_s = 0.0
        self._checking = False
        self._ready = "starting"
        self._wake = asyncio.Event()
        self._news = asyncio.Condition()
        self._effects: set[asyncio.Task[None]] = set()
        self._switch_thread = ThreadPoolExecutor(1, thread_name_prefix="switches")
        self._run_threads = ThreadPoolExecutor(16, thread_name_prefix="runs")

    # ------------------------------------------------------------------ its life

    def recover(self) -> None:
        """Take in what the store holds: replay the events, find the runs again.

        Raises StoreError, and BadSpec for events that cannot be of this cluster.
        """
        for row in self._store.events():
            self._take_in(row.body)
        self._holds = {number: Hold.of(body) for number, body in self._store.holds().items()}
        for number in self._executor.known():
            if number not in self._holds:  # it died before it had forgotten this one
                self._executor.stop(number)
                self._executor.forget(number)
        for hold in self._holds.values():
            if hold.held.stage == "preparing":  # what has been done by then is undone, and all done again
                hold.held = replace(hold.held, stage="stopping")

    async def run(self) -> None:
        """Serve until cancelled; what runs then runs on. Raises StoreError if nothing can be written."""
        self.recover()
        try:
            await self._check()
            self._ready = ""
            while True:
                self._look()
                self._decide()
                self._carry_out()
                await self._tell()
                await self._pause()
        finally:
            self._ready = "ending"
            for effect in self._effects:
                effect.cancel()
            self._switch_thread.shutdown(wait=True, cancel_futures=True)
            self._run_threads.shutdown(wait=True, cancel_futures=True)

    async def _pause(self) -> None:
        times_s = [self._core.next_s, self._check_s, *(t.again_s for t in self._troubles.values())]
        wait_s = min(LOOK_S if self._holds else CHECK_S, *(max(0.0, at_s - self.now_s) for at_s in times_s))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), max(wait_s, 0.005))
        self._wake.clear()

    def _take_in(self, body: Mapping[str, Any]) -> None:
        """Have the core know an event that is written down."""
        event = event_of(body["event"])
        if isinstance(event, Submitted):
            assert event.job is not None
            tenant, key = body.get("tenant", ""), body.get("key", "")
            said = Said(len(self._submitted) + 1, event.job, tenant, key)
            self._submitted[said.job.name] = said
            if key:
                self._keys.setdefault((tenant, key), []).append(said.job.name)
        elif isinstance(event, ServerGone | SwitchGone) and "drained" in body:
            self._drained[_node(event)] = event.reason
        elif isinstance(event, ServerBack | SwitchBack) and "drained" in body:
            self._drained.pop(_node(event), None)
        elif isinstance(event, Progressed) and event.done is not None:
            self._latest[event.job] = event.done
        elif isinstance(event, SwitchGone):
            self._down[event.switch] = event.reason
        elif isinstance(event, SwitchBack):
            self._down.pop(event.switch, None)
        self._core.handle(event)

    def _record(self, events: Sequence[Event], **beside: Any) -> None:
        """Write events down, and have the core know them. Raises StoreError; then nothing has happened."""
        bodies = [{"event": plain_event(event), **beside} for event in events]
        self._store.append([(event.at_s, body) for event, body in zip(events, bodies, strict=True)])
        fault_point("recorded")
        for body in bodies:
            self._take_in(body)
        self._wake.set()

    # ------------------------------------------------------------------ deciding

    @property
    def now_s(self) -> float:
        """Seconds since the service's first start."""
        return max(self._clock.now_s(), self._core.now_s)

    @property
    def began_at(self) -> float:
        """When that was, as Unix time."""
        return self._began_at

    @property
    def ready(self) -> str:
        """Why it does not serve yet; "": it does."""
        return self._ready

    @property
    def holds(self) -> frozenset[int]:
        """The runs of which something is held: workers, slots, fallback servers."""
        return frozenset(self._holds)

    def _decide(self) -> None:
        while self._core.next_s <= self.now_s:
            self._record([Tick(self.now_s)])

    def _carry_out(self) -> None:
        """Begin all that can be done now."""
        now_s = self.now_s
        held = {number: hold.held for number, hold in self._holds.items()}
        for step in steps(self._core.desired(), held):
            number = step.run.number if isinstance(step, Start) else step.number
            trouble = self._troubles.get((number, type(step)))
            if trouble is None or trouble.again_s <= now_s:
                self._begin(number, step)
        if not self._checking and now_s >= self._check_s:
            self._spawn(self._check())

    def _begin(self, number: int, step: Step) -> None:
        match step:
            case Start(run, places):
                ports = self._udp_ports(step)
                before = {name: self._latest.get(name, 0.0) for name in run.jobs}
                self._holds[number] = Hold(Held(run, places, busy=True), {}, ports, before)
                self._keep(number)
                self._spawn(self._effect(number, Start, self._start(number)))
            case Stop():
                self._set(number, stage="stopping", busy=True)
                self._keep(number)
                self._spawn(self._effect(number, Stop, self._stop(number)))
            case Resize(_, job, place):
                hold = self._holds[number]
                self._set(number, places={**hold.held.places, job: place})
                if job in hold.admissions:
                    hold.admissions[job] = network.with_regions(hold.admissions[job], place.regions)
                self._keep(number)
                self._check_s = 0.0

    def _udp_ports(self, step: Start) -> dict[str, tuple[int, ...]]:
        """Choose where each job's servers take packets: the lowest that no other job there uses."""
        used: dict[str, set[int]] = {}
        for hold in self._holds.values():
            for name, ports in hold.udp_ports.items():
                for host, port in zip(_hosts(hold.held.places[name].servers), ports, strict=True):
                    used.setdefault(host, set()).add(port)
        found = {}
        for name, place in step.places.items():
            chosen = []
            for host in _hosts(place.servers):
                taken = used.setdefault(host, set())
                port = next(p for p in range(INA_UDP_PORT + 1, 1 << 16) if p not in taken)
                taken.add(port)
                chosen.append(port)
            found[name] = tuple(chosen)
        return found

    # ------------------------------------------------------------------ effects

    def _spawn(self, effect: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(effect)
        self._effects.add(task)
        task.add_done_callback(self._effects.discard)

    async def _effect(self, number: int, kind: type[Step], effect: Coroutine[Any, Any, None]) -> None:
        """Carry out an effect of a run; note why it failed, and when to try again."""
        try:
            await effect
        except (ControllerError, RunError, RunnerGone, StoreError, OSError) as error:
            before = self._troubles.get((number, kind))
            after_s = min(2 * before.after_s, BACK_OFF_S[1]) if before else BACK_OFF_S[0]
            self._troubles[number, kind] = _Trouble(str(error), self.now_s + after_s, after_s)
            _log.warning("run %d: %s; trying again in %g s", number, error, after_s)
            self._check_s = 0.0  # it may be that a switch is gone
            if number in self._holds:
                self._set(number, busy=False)
        else:
            self._troubles.pop((number, kind), None)
        self._wake.set()

    async def _start(self, number: int) -> None:
        hold = self._holds[number]
        stage: Stage = "stopping"  # what has been done by then is undone, and all of it tried again
        try:
            await self._in_switch_thread(lambda: self._admit(hold))
            self._keep(number)
            fault_point("admitted")
            await self._serve_fallbacks()
            fault_point("served")
            order = self._order(hold)
            await self._in_run_thread(lambda: self._executor.start(order))
            fault_point("started")
            stage = "running"
        except BadSpec as error:
            self._record([Ended(self.now_s, name, str(error)) for name in hold.held.run.jobs])
        finally:
            self._set(number, stage=stage, busy=False)
            self._keep(number)

    def _admit(self, hold: Hold) -> None:
        for name, place in hold.held.places.items():
            job = self._submitted[name].job
            if place.tree is None:
                hold.admissions[name] = network.without_switch(self._topology, place)
            else:
                said = self._submitted[name]
                who = Registration(
                    "ina controller",
                    name=name,
                    user=said.tenant,
                    command=shlex.join(job.command or ()),
                    priority=job.priority,
                )
                hold.admissions[name] = self._network.admit(job, place, hold.udp_ports[name], who)
            fault_point("one admitted")

    async def _stop(self, number: int) -> None:
        hold = self._holds[number]
        await self._in_run_thread(lambda: self._executor.stop(number))
        fault_point("stopped")
        self._take_ends(number)
        self._set(number, over=frozenset(hold.held.run.jobs))  # nothing of it is to be on switches any more
        on_switches = [
            each for name, each in hold.admissions.items() if hold.held.places[name].tree is not None
        ]
        await self._in_switch_thread(lambda: self._remove(on_switches))
        fault_point("removed")
        del self._holds[number]
        await self._serve_fallbacks(hold)
        self._store.let_go(number)
        fault_point("let go")
        await self._in_run_thread(lambda: self._executor.forget(number))

    def _remove(self, admissions: Collection[TreeAdmission]) -> None:
        for admission in admissions:
            try:
                self._network.remove(admission)
            except ControllerError as error:
                _log.warning("job %d stays on a switch until it answers: %s", admission.job, error)

    async def _serve_fallbacks(self, *also: Hold) -> None:
        """Have fallback servers serve all jobs that have one, and no others."""
        wanted: dict[str, list[TreeAdmission]] = {}
        for hold in (*self._holds.values(), *also):
            for name, place in hold.held.places.items():
                if place.fallback is not None:
                    jobs = wanted.setdefault(place.fallback, [])
                    if hold not in also and (admission := hold.of_switches().get(name)) is not None:
                        jobs.append(admission)
        if wanted:
            await self._in_fallback_turn(lambda: self._fallbacks.serve(wanted))

    def _order(self, hold: Hold) -> RunOrder:
        run = hold.held.run
        jobs = []
        for name, offset in zip(run.jobs, run.offsets, strict=True):
            said = self._submitted[name]
            place = hold.held.places[name]
            hosts = _hosts(place.servers)
            machines = tuple(
                tuple(rank for rank, server in enumerate(place.servers) if server == host) for host in hosts
            )
            jobs.append(
                JobOrder(
                    name,
                    _command(said.job),
                    machines,
                    plain.of_admission(hold.admissions[name]),
                    offset,
                    str(self._logs(said)),
                    congestion=said.job.congestion,
                    numbers=said.job.numbers,
                    priority=said.job.priority,
                )
            )
        switch = any(place.tree is not None for place in hold.held.places.values())
        offers = self._network.offers
        return RunOrder(run.number, self._testbed, switch, offers.lanes, offers.salted, tuple(jobs))

    # ------------------------------------------------------------------ looking

    def _look(self) -> None:
        """See what has become of the runs."""
        for number, hold in list(self._holds.items()):
            if hold.held.stage != "running" or hold.held.busy:
                continue
            lives = self._executor.lives(number)
            self._take_ends(number)
            if not lives and hold.held.over != {*hold.held.run.jobs}:
                self._lose(number)

    def _take_ends(self, number: int) -> None:
        """Note which jobs of a run have ended, and how far the others are."""
        hold = self._holds[number]
        status = self._executor.status(number)
        if status is None:
            return
        now_s = self.now_s
        events: list[Event] = []
        ended = set(hold.held.over)
        for name in hold.held.run.jobs:
            if name in ended:
                continue
            if name in status.done:
                events += self._progress(hold, name, status.done[name], status.iteration_s.get(name))
            failure = status.ends.get(name, status.failure or None)
            if failure is None or name not in self._core.jobs:
                continue
            ended.add(name)
            if failure and status.blame not in (None, name):
                events.append(Interrupted(now_s, name, f"its group broke: {failure}"))
            else:
                events.append(Ended(now_s, name, failure))
        if events:
            self._record(events)
        if ended != hold.held.over:
            self._set(number, over=frozenset(ended))
            self._keep(number)
            self._check_s = 0.0

    def _progress(self, hold: Hold, name: str, done: int, iteration_s: float | None) -> list[Event]:
        now_s = self.now_s
        total = hold.before.get(name, 0.0) + done
        self._latest[name] = total
        if name not in self._core.jobs or now_s - self._told_s.get(name, -PROGRESS_S) < PROGRESS_S:
            return []
        self._told_s[name] = now_s
        return [Progressed(now_s, name, total, iteration_s)]

    def _lose(self, number: int) -> None:
        """Have the jobs of a run whose runner is gone go back to the queue, or count as failed."""
        hold = self._holds[number]
        why = self._executor.why_ended(number)
        events: list[Event] = []
        for name in hold.held.run.jobs:
            if name in hold.held.over or name not in self._core.jobs:
                continue
            self._lost[name] = self._lost.get(name, 0) + 1
            if self._lost[name] > LOST_RUNS:
                events.append(Ended(self.now_s, name, f"its runner ended {LOST_RUNS + 1} times: {why}"))
            else:
                events.append(Interrupted(self.now_s, name, f"its runner ended: {why}"))
        self._set(number, stage="stopping")
        if events:
            self._record(events)

    async def _check(self) -> None:
        """Compare the switches with what they should hold, and note which answer."""
        self._checking = True
        try:
            report = await self._in_switch_thread(self._reconcile)
        except ControllerError as error:
            _log.warning("comparing the switches: %s", error)
            self._check_s = self.now_s + CHECK_S
            return
        finally:
            self._checking = False
        for action in report.actions:
            _log.info("%s", action)
        now_s = self.now_s
        soon = report.waiting or report.left_out
        self._check_s = now_s + (LOOK_S if soon else CHECK_S)
        self._silent = {
            name: (self._silent.get(name, (now_s, why))[0], why) for name, why in report.left_out.items()
        }
        events: list[Event] = []
        for name in self._network.addresses:
            since_s, why = self._silent.get(name, (now_s, ""))
            if name not in self._down and why and now_s - since_s >= GONE_S:
                events.append(SwitchGone(now_s, name, why))
            elif name in self._down and not why:
                events.append(SwitchBack(now_s, name))
                if name in self._drained:
                    events.append(SwitchGone(now_s, name, self._drained[name]))
        if events:
            self._record(events)

    # These two run in the switches' thread, which alone admits: so nothing is admitted meanwhile.

    def _reconcile(self) -> Report:
        holds = list(self._holds.values())  # the loop may change it
        return self._network.reconcile([each for hold in holds for each in hold.of_switches().values()])

    def _audit(self) -> Audit:
        holds = list(self._holds.values())
        wanted = {name: each for hold in holds for name, each in hold.of_switches().items()}
        known = {each.job for hold in holds for each in hold.admissions.values()}
        leaving = known - {each.job for each in wanted.values()}
        return self._network.audit(wanted, leaving, self.now_s)

    # ------------------------------------------------------------------ what others ask for

    async def submit(self, jobs: Sequence[Job], *, tenant: str = "", key: str = "") -> list[JobRecord]:
        """Take jobs in, all or none. The same `key` of the same tenant again gives the same jobs."""
        if key and (known := self._keys.get((tenant, key))) is not None:
            if known != [job.name for job in jobs]:
                raise Conflict(f"key {key!r} was used for {', '.join(known)}")
            return self._records(known)
        now_s = self.now_s
        events: list[Event] = []
        names: set[str] = set()
        for job in jobs:
            if job.name in self._submitted or job.name in names:
                raise Conflict(f"there is a job {job.name!r} already; give another name")
            if job.command is None:
                raise BadSpec(f"job {job.name!r} has no command: say what its workers run")
            names.add(job.name)
            arrived = replace(job, arrival_s=now_s)
            spec = submission_of(arrived, self._topology)
            self._core.admit(spec)
            events.append(Submitted(now_s, spec, arrived))
        self._record(events, tenant=tenant, key=key)
        await self._tell()
        return self._records([job.name for job in jobs])

    async def cancel(self, name: str, *, by: str = "") -> JobRecord:
        """End a job, whether it runs or waits."""
        record = self.record(name)
        if record.over:
            raise Conflict(f"job {name!r} is over: {record.state}")
        self._record([Cancelled(self.now_s, name, f"by {by}" if by else "by its owner")])
        await self._tell()
        return self.record(name)

    async def retry(self, name: str) -> JobRecord:
        """Have a job that failed run again, from where it last saved."""
        record = self.record(name)
        if record.state != "failed":
            raise Conflict(f"job {name!r} is {record.state}; only one that has failed can be run again")
        self._record([Retried(self.now_s, name)])
        await self._tell()
        return self.record(name)

    async def drain(self, name: str, *, back: bool = False, by: str = "") -> None:
        """Have a server or switch be used by nobody; `back`: have it be used again."""
        is_server = name in self._topology.server
        if not is_server and name not in self._topology.switch:
            raise Unknown(f"the cluster has no server or switch {name!r}")
        if back and name not in self._drained:
            raise Conflict(f"{name!r} is not drained")
        now_s, why = self.now_s, f"drained by {by}" if by else "drained"
        event: Event
        if back:
            event = ServerBack(now_s, name) if is_server else SwitchBack(now_s, name)
        else:
            event = ServerGone(now_s, name, why) if is_server else SwitchGone(now_s, name, why)
        self._record([event], drained=True)
        if back and name in self._down:
            self._record([SwitchGone(now_s, name, self._down[name])])
        await self._tell()

    async def audit(self) -> Audit:
        """Compare what is intended with what switches and servers hold."""
        found = await self._in_switch_thread(self._audit)
        lost = [
            Difference(", ".join(_hosts(place.servers)), f"job {name} should run, and its runner is gone")
            for number, hold in self._holds.items()
            if hold.held.stage == "running" and not self._executor.lives(number)
            for name, place in hold.held.places.items()
            if name not in hold.held.over
        ]
        return replace(found, found=(*found.found, *lost))

    def records(self) -> list[JobRecord]:
        """Return all jobs, in order of submission."""
        return self._records(self._submitted)

    def record(self, name: str) -> JobRecord:
        """Return a job."""
        if name not in self._submitted:
            raise Unknown(f"there is no job {name!r}")
        return self._records([name])[0]

    def _records(self, names: Iterable[str]) -> list[JobRecord]:
        """Return these jobs. O(runs + jobs that are asked for), over all calls also O(lines of the log)."""
        over = self._over()
        held = {name: hold.held for hold in self._holds.values() for name in hold.held.run.jobs}
        waits, troubles = self._waits(), self._troubles_of_jobs()
        return [self._of(self._submitted[name], over, held, waits, troubles) for name in names]

    def _troubles_of_jobs(self) -> dict[str, str]:
        if not self._troubles:
            return {}
        return {
            name: each.why
            for run in self._core.desired().runs
            for (number, _), each in self._troubles.items()
            if number == run.number
            for name in run.jobs
        }

    def _waits(self) -> dict[str, str]:
        """Return what each job has last waited for. The log only grows: each line of it is read once."""
        assert self._core.log is not None
        entries = self._core.log.entries
        for number in range(self._waits_to, len(entries)):
            if entries[number].event in ("waits", "interrupted", "stopped", "retried"):
                self._waits_of.update(dict.fromkeys(entries[number].jobs, entries[number].text))
        self._waits_to = len(entries)
        return self._waits_of

    def _over(self) -> dict[str, Over]:
        """Return how each job ended that has, of one that ran again the latest end. The list only grows."""
        for number in range(self._over_to, len(self._core.over)):
            over = self._core.over[number]
            self._over_of[over.job.spec.name] = over
        self._over_to = len(self._core.over)
        return self._over_of

    def _of(
        self,
        said: Said,
        over: Mapping[str, Over],
        held: Mapping[str, Held],
        waits: Mapping[str, str],
        troubles: Mapping[str, str],
    ) -> JobRecord:
        name, now_s = said.job.name, self.now_s
        if name in self._core.refused:
            return JobRecord(submitted=said, state="refused", reason=self._core.refused[name])
        job = self._core.jobs.get(name)
        if job is None:
            ended = over[name]
            return JobRecord(
                submitted=said,
                state=ended.outcome,
                reason=ended.reason,
                started_s=ended.job.start_s,
                ended_s=ended.job.finish_s,
                done=float(ended.job.spec.iterations) if ended.outcome == "completed" else 0.0,
                left_s=0.0,
                starts=ended.job.starts,
            )
        has = held.get(name)
        state: State = "queued"
        if has is not None:
            state = {"preparing": "starting", "running": "running", "stopping": "stopping"}[has.stage]  # type: ignore[assignment]
        left_s = job.remaining_s(now_s) if job.group is not None else job.iterations_left(now_s) * job.alone_s
        due_s = said.job.due_s
        return JobRecord(
            submitted=said,
            state=state,
            reason=troubles.get(name)
            or ("" if state == "running" else waits.get(name, "waits for its turn")),
            place=has.places.get(name) if has is not None else None,
            run=has.run.number if has is not None else None,
            started_s=job.start_s,
            done=self._latest.get(name, 0.0),
            left_s=max(0.0, left_s),
            starts=job.starts,
            late=due_s is not None and now_s + left_s > due_s,
        )

    def explain(self, name: str) -> Explanation:
        """Say why a job stands as it does."""
        record = self.record(name)
        about = tuple(each for each in self.decisions() if name in each.entry.jobs)
        advice = [record.reason] if record.reason and not record.over else []
        if record.late:
            due_s = record.submitted.job.due_s
            assert due_s is not None
            assert record.left_s is not None
            late_s = self.now_s + record.left_s - due_s
            advice.append(f"it will miss its deadline by about {late_s:.1f} s")
        return Explanation(record, about, tuple(advice))

    @property
    def topology(self) -> Topology:
        """The switches, servers and links."""
        return self._topology

    def cluster(self) -> ClusterState:
        """Return the cluster as it is."""
        gpus = self._gpus_used()
        used: dict[str, list[str]] = {}
        shares: dict[str, list[Share]] = {}
        for hold in self._holds.values():
            for name, place in hold.held.places.items():
                for server in place.servers:
                    used.setdefault(server, []).append(name)
                for switch, region in place.regions.items():
                    if name not in hold.held.over:
                        shares.setdefault(switch, []).append(Share(name, region, place.standing))
        servers = tuple(
            ServerState(
                each.name,
                each.gpus,
                min(each.gpus, gpus[each.name]),
                tuple(dict.fromkeys(used.get(each.name, ()))),
                self._drained.get(each.name, ""),
            )
            for each in self._topology.servers
        )
        switches = tuple(
            SwitchState(
                each.name,
                self._network.addresses.get(each.name, ""),
                each.slots,
                tuple(shares.get(each.name, ())),
                self._drained.get(each.name, "") or self._down.get(each.name, ""),
            )
            for each in self._topology.switches
        )
        return ClusterState(self._topology, self._policies.names, servers, switches)

    def _gpus_used(self) -> Counter[str]:
        """Return the GPUs in use by server; jobs of a run take turns on theirs."""
        found: Counter[str] = Counter()
        for hold in self._holds.values():
            most: Counter[str] = Counter()
            for name, place in hold.held.places.items():
                gpus = self._submitted[name].job.gpus_per_worker
                most |= Counter({server: n * gpus for server, n in Counter(place.servers).items()})
            found += most
        return found

    def decisions(self, after: int = 0) -> Sequence[Decision]:
        """Return the lines of the log later than number `after`."""
        assert self._core.log is not None
        entries = self._core.log.entries
        return [
            Decision(number, entries[number - 1]) for number in range(max(after, 0) + 1, len(entries) + 1)
        ]

    async def watch(self, after: int = 0) -> AsyncIterator[Decision]:
        """Yield the lines of the log later than number `after`, and all to come."""
        while True:
            for decision in self.decisions(after):
                after = decision.number
                yield decision
            async with self._news:
                await self._news.wait_for(lambda: len(self.decisions(after)) > 0)  # noqa: B023

    def log(self, name: str, rank: int) -> Path:
        """Return the file with what a rank of a job has written."""
        record = self.record(name)
        if not 0 <= rank < record.submitted.job.workers:
            raise Unknown(f"job {name!r} has no rank {rank}; it has 0 to {record.submitted.job.workers - 1}")
        return log_file(self._logs(record.submitted), rank)

    # ------------------------------------------------------------------ small things

    def _logs(self, said: Said) -> Path:
        return self._store.folder / "logs" / str(said.number)

    def _set(self, number: int, **changes: Any) -> None:
        hold = self._holds[number]
        hold.held = replace(hold.held, **changes)

    def _keep(self, number: int) -> None:
        self._store.hold(number, self._holds[number].plain())
        fault_point("kept")

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _in_switch_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._switch_thread, call)

    async def _in_run_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._run_threads, call)

    async def _in_fallback_turn(self, call: Callable[[], T]) -> T:
        return await self._in_switch_thread(call)


def _hosts(servers: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(servers))


def _node(event: ServerGone | ServerBack | SwitchGone | SwitchBack) -> str:
    return event.server if isinstance(event, ServerGone | ServerBack) else event.switch


def _command(job: Job) -> tuple[str, ...]:
    assert job.command is not None
    folder = job.extra.get("folder")
    return job.command if folder is None else ("env", "-C", folder, *job.command)
