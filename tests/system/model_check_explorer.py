"""All that can happen in a network of parts: every order of delivery, every choice of what is lost."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bmv2_topos.soak.network import describe
from bmv2_topos.soak.programs import LANES
from bmv2_topos.soak.schedule import JobPlan, SoakTestbed
from bmv2_topos.soak.testbed import RunningTestbed, SwitchPool
from bmv2_topos.testbeds.virtual.placement import Placement
from bmv2_topos.testbeds.virtual.server import endpoints
from controller.vocabulary import Link, Mode, Region, Server, Switch, Topology
from hostlib import wire
from hostlib._native import NativeKernel
from hostlib.core.congestion import window_for
from hostlib.core.state import CoreSettings
from hostlib.core.window import Window
from hostlib.fallback.config import FallbackJob, FallbackSettings
from hostlib.wire.encodings import exponent_of
from hostlib.wire.tree import Tree
from tests.controller import single
from tests.system.model_check_parts import (
    CHANGE,
    FIRE,
    FORGET,
    PASS,
    Automaton,
    Packets,
    Part,
    ServerPart,
    SwitchPart,
    WorkerPart,
)
from tests.system.model_check_recovery import Recovery, recovery
from tests.twins.fallback_core import NumpyCore

# --------------------------------------------------------------------- all that can happen in a netwo


Message = tuple[int, int | None, bytes]
"""To which part, to which port of it, the bytes."""


class Budget(NamedTuple):
    """How many mishaps there may be."""

    losses: int = 0
    doubles: int = 0
    """Packets that arrive twice."""
    early: int = 0
    """Time-outs while packets are under way."""
    restarts: int = 0
    """Of the server."""
    changes: int = 0
    """Of a job's region at a switch."""


State = tuple[tuple[int, ...], tuple[int, ...], Budget]
"""The parts' states; the messages under way, sorted; what may still happen."""


class Verdict(NamedTuple):
    """What is to be said of a worker in some state."""

    outstanding: frozenset[tuple[int, int]]
    """Packets whose result it lacks: job and number."""
    exact: bool
    """If it lacks none, whether it has the sums; else true."""


@dataclass
class Explored:
    """What was found."""

    states: int = 0
    transitions: int = 0
    done: int = 0
    steps: int = 0
    """That the real parts made."""
    wrong: list[list[str]] = field(default_factory=list)
    """Ways to states in which a worker that is complete has not the sum."""
    hopeless: list[list[str]] = field(default_factory=list)
    """Ways to states from which no done state can be reached."""
    recovery: Recovery = field(default_factory=Recovery)
    """From the states in which nothing more may go wrong."""


class Explorer:
    """Explores what can happen to parts from their first states on."""

    def __init__(
        self,
        parts: dict[str, Automaton],
        workers: Sequence[str],
        server: str | None,
        changing: Sequence[str],
        sent: Packets,
    ) -> None:
        """`changing`: the switches whose rows may be written anew; `sent`: what was sent already."""
        self._names = list(parts)
        self._parts = list(parts.values())
        self._index = {name: number for number, name in enumerate(parts)}
        self._workers = [self._index[name] for name in workers]
        self._server = None if server is None else self._index[server]
        self._timed = [*self._workers] if self._server is None else [*self._workers, self._server]
        self._changing = [self._index[name] for name in changing]
        self._messages: list[Message] = []
        self._numbers: dict[Message, int] = {}
        self._verdicts: list[dict[int, Verdict]] = [{} for _ in parts]
        self._first = self._under_way((), sent)

    def explore(self, budget: Budget, *, most: int) -> Explored:
        """Visit every state that can be reached. Raises AssertionError beyond `most` of them."""
        first: State = (tuple(part.first for part in self._parts), self._first, budget)
        numbers = {first: 0}
        states = [first]
        came: list[tuple[int, str]] = [(-1, "")]
        before: list[list[int]] = [[]]
        found = Explored()
        done: list[int] = []
        at = 0
        while at < len(states):
            complete, exact = self._judge(states[at])
            if not exact:
                found.wrong.append(self._way(came, at))
            if complete and not states[at][1]:
                done.append(at)
            else:
                for action, after in self._actions(states[at]):
                    found.transitions += 1
                    number = numbers.setdefault(after, len(states))
                    if number == len(states):
                        assert number < most, f"more than {most} states"
                        states.append(after)
                        came.append((at, action))
                        before.append([])
                    before[number].append(at)
            at += 1
        found.states, found.done = len(states), len(done)
        found.steps = sum(part.steps for part in self._parts)
        hopeful = set(done)
        waiting = deque(done)
        while waiting:
            for earlier in before[waiting.popleft()]:
                if earlier not in hopeful:
                    hopeful.add(earlier)
                    waiting.append(earlier)
        if len(hopeful) < len(states):
            lost = next(number for number in range(len(states)) if number not in hopeful)
            found.hopeless.append(self._way(came, lost))
        else:
            calm = (state for state in states if not any(state[2]))
            found.recovery = recovery(calm, self)
        return found

    # ------------------------------------------------------------------ one thing at a time

    @property
    def timers(self) -> int:
        """How many parts have time-outs."""
        return len(self._timed)

    def fire(self, state: State, timer: int) -> State:
        """Let time go by in a state with nothing under way, until the time-out of a part is over."""
        parts, _, budget = state
        return self._step(self._pass(parts), (), budget, self._timed[timer], None, FIRE)

    def deliveries(self, state: State) -> Iterator[State]:
        """Yield what becomes of a state by the delivery of each of the packets under way."""
        parts, under_way, budget = state
        for _, rest, message in self._choices(under_way):
            yield self._step(parts, rest, budget, *message)

    def outstanding(self, state: State) -> frozenset[tuple[int, int]]:
        """Return the packets whose result some worker lacks: job and number."""
        return frozenset().union(*(self._verdict(worker, state).outstanding for worker in self._workers))

    def _actions(self, state: State) -> Iterator[tuple[str, State]]:
        parts, under_way, budget = state
        for number, rest, (to, port, packet) in self._choices(under_way):
            yield f"deliver {number}", self._step(parts, rest, budget, to, port, packet)
            if budget.losses:
                yield f"lose {number}", (parts, rest, budget._replace(losses=budget.losses - 1))
            if budget.doubles:
                spent = budget._replace(doubles=budget.doubles - 1)
                yield f"double {number}", self._step(parts, under_way, spent, to, port, packet)
        if not under_way:
            for timer, part in enumerate(self._timed):
                yield f"time-out of {self._names[part]}", self.fire(state, timer)
        elif budget.early:
            spent = budget._replace(early=budget.early - 1)
            for part in self._timed:
                after = self._step(parts, under_way, spent, part, None, FIRE)
                yield f"early time-out of {self._names[part]}", after
        if budget.restarts and self._server is not None:
            spent = budget._replace(restarts=budget.restarts - 1)
            yield "the server forgets", self._step(parts, under_way, spent, self._server, None, FORGET)
        if budget.changes:
            spent = budget._replace(changes=budget.changes - 1)
            for part in self._changing:
                after = self._step(parts, under_way, spent, part, None, CHANGE)
                yield f"other slots at {self._names[part]}", after

    def _choices(self, under_way: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...], Message]]:
        """Yield each message under way by its number, what is left without it, and the message."""
        for place, number in enumerate(under_way):
            if not place or under_way[place - 1] != number:
                yield number, under_way[:place] + under_way[place + 1 :], self._messages[number]

    def _step(
        self,
        parts: tuple[int, ...],
        under_way: tuple[int, ...],
        budget: Budget,
        to: int,
        port: int | None,
        packet: bytes,
    ) -> State:
        after, sent = self._parts[to].step(parts[to], port, packet)
        changed = (*parts[:to], after, *parts[to + 1 :])
        return changed, self._under_way(under_way, sent), budget

    def _pass(self, parts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(part.step(state, None, PASS)[0] for part, state in zip(self._parts, parts, strict=True))

    def _under_way(self, under_way: tuple[int, ...], sent: Packets) -> tuple[int, ...]:
        if not sent:
            return under_way
        new = []
        for name, port, packet in sent:
            message = self._index[name], port, packet
            number = self._numbers.setdefault(message, len(self._messages))
            if number == len(self._messages):
                self._messages.append(message)
            new.append(number)
        return tuple(sorted((*under_way, *new)))

    def _judge(self, state: State) -> tuple[bool, bool]:
        """Return whether all workers are complete, and whether those that are have the sum."""
        verdicts = [self._verdict(worker, state) for worker in self._workers]
        complete = not any(verdict.outstanding for verdict in verdicts)
        return complete, all(verdict.exact for verdict in verdicts)

    def _verdict(self, worker: int, state: State) -> Verdict:
        number = state[0][worker]
        verdict = self._verdicts[worker].get(number)
        if verdict is None:
            self._parts[worker].enter(number)
            part = self._parts[worker].part
            assert isinstance(part, WorkerPart)
            verdict = Verdict(part.outstanding, not part.complete or part.exact)
            self._verdicts[worker][number] = verdict
        return verdict

    def _way(self, came: list[tuple[int, str]], at: int) -> list[str]:
        """Return the actions that lead to a state, and what its messages are."""
        way: list[str] = []
        while at > 0:
            at, action = came[at]
            verb, _, number = action.rpartition(" ")
            if verb in ("deliver", "lose", "double"):
                to, _, packet = self._messages[int(number)]
                action = f"{verb} to {self._names[to]}: {describe(packet)}"
            way.append(action)
        return way[::-1]


# --------------------------------------------------------------------- small networks with jobs on th


MOST = 400_000
"""States. More would take too long, and mean that clocks have got into the states."""
ONE_SLOT = Region(0, 1)


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs on a chain of switches, of two workers each by default, and how many mishaps there may be."""

    psns: int
    """Packets that each job sums."""
    budget: Budget
    program: Mode = "shared"
    switches: tuple[str, ...] = ("s1",)
    """The root first; the fallback server is there."""
    places: tuple[str, ...] = ()
    """Switch of each worker of a job; empty: two, both at the last."""
    target: int = wire.TARGET_ALL
    """The rank that takes the sum; all others have to learn that it is complete."""
    jobs: tuple[tuple[int, bool], ...] = ((0, False),)
    """Of each its priority, and whether it may preempt."""
    in_flight: int = 2
    """Packets of a worker that may be without a result."""
    region: Region = ONE_SLOT
    """Of all jobs in shared mode; of the only one in exclusive mode."""
    other_region: Region = ONE_SLOT
    """What a change gives job 1 at a switch instead."""
    ages: bool = False
    """Slots are too old as soon as nothing is under way any more."""
    foreseen: tuple[int, ...] = ()
    """Values are float32: by how much the exponent of each packet was larger the last time; (): int32."""

    psns_under_way: int | None = None
    """Range of the PSNs that a worker may have under way; None: as `in_flight` has it."""
    memory: int = 100
    """Of the fallback server, in packets."""

    @property
    def window(self) -> int:
        """Range of the PSNs that a worker may have under way."""
        if self.psns_under_way is not None:
            return self.psns_under_way
        return self.in_flight if self.program == "exclusive" else window_for(self.in_flight)

    @property
    def racks(self) -> tuple[str, ...]:
        """The switch of each worker of a job."""
        return self.places or (self.switches[-1],) * 2

    @property
    def testbed(self) -> SoakTestbed:
        """The network."""
        shared = self.program == "shared"
        server = "p" if shared else None
        links = [Link(above, below) for above, below in itertools.pairwise(self.switches)]
        ranks = range(len(self.racks))
        hosts_of = [[f"h{job}.{rank}" for rank in ranks] for job in range(1, len(self.jobs) + 1)]
        placements = [Placement(tuple(hosts), server) for hosts in hosts_of]
        workers = [host for placement in placements for host in placement.workers]
        links += [
            Link(host, rack) for of_job in hosts_of for host, rack in zip(of_job, self.racks, strict=True)
        ]
        links += [Link("p", self.switches[0])] if shared else []
        hosts = tuple(map(Server, [*workers, "p"] if shared else workers))
        topology = Topology(tuple(map(Switch, self.switches)), hosts, tuple(links))
        slots = 0 if shared else self.region.size
        return SoakTestbed(0, self.program, topology, tuple(placements), {}, (slots,) * len(self.jobs))


def explore(case: Case, rack: SwitchPool) -> Explored:
    """Explore all that can happen in a case."""
    testbed = case.testbed
    with RunningTestbed(testbed, rack) as built:
        built.prepare({job: _plan(case, job) for job in range(1, len(case.jobs) + 1)})
        slots = range(max(case.region.end, case.other_region.end))
        parts: dict[str, Part] = {
            name: SwitchPart(built, name, slots, change=_change(case, built, name), ages=case.ages)
            for name in case.switches
        }
        sent: Packets = ()
        for job, placement in enumerate(testbed.placements, start=1):
            for host, worker in zip(placement.workers, _workers(case, built, job), strict=True):
                parts[host] = worker
                sent += worker.sent_first
        server = testbed.placements[0].server
        if server is not None:
            parts[server] = _server(case, built, server)
        automata = {name: Automaton(part) for name, part in parts.items()}
        workers = [host for placement in testbed.placements for host in placement.workers]
        return Explorer(automata, workers, server, case.switches, sent).explore(case.budget, most=MOST)


def _plan(case: Case, job: int) -> JobPlan:
    preempts = case.jobs[job - 1][1]
    region = case.region if case.program == "shared" else None
    age_us = 100_000
    return JobPlan(*(job, job << 16 | job, case.window, region, preempts, age_us), "fixed", "exponent", 0, ())


def _change(case: Case, built: RunningTestbed, switch: str) -> Callable[[], None]:
    """Return what gives job 1 other slots at a switch."""

    def change() -> None:
        admitted = built.fleet.jobs[1].switches[switch]
        single.move(built.fleet.controllers[switch], admitted, case.other_region)

    return change


def _workers(case: Case, built: RunningTestbed, job: int) -> list[WorkerPart]:
    admitted = built.fleet.jobs[job]
    length = (case.psns - 1) * LANES + 1
    ranks = len(case.racks)
    inputs = [np.arange(1, length + 1, dtype=np.int32) << 8 * rank + job for rank in range(ranks)]
    if case.foreseen:
        inputs = [values.astype(np.float32) for values in inputs]
    total = np.sum(inputs, axis=0, dtype=inputs[0].dtype)
    largest = np.maximum.reduceat(inputs[-1], range(0, length, LANES))
    before = bytes(exponent_of(largest[psn]) + more for psn, more in enumerate(case.foreseen))
    parts = []
    for rank, host in enumerate(built.testbed.placements[job - 1].workers):
        settings = CoreSettings(
            *(job, rank, ranks, 2 * case.window, LANES, endpoints(built.testbed.topology, host)),
            tree=Tree.of(admitted.tree),
            epoch=admitted.epoch,
            window=case.window,
            fallback=case.program == "shared",
        )
        switch, port, _ = built.host_ports[host]
        parts.append(
            WorkerPart(
                *(Window(settings, NativeKernel()), inputs[rank]),
                total if case.target in (rank, wire.TARGET_ALL) else np.zeros_like(total),
                *(switch, port),
                priority=case.jobs[job - 1][0],
                target=case.target,
                foreseen=before,
            )
        )
    return parts


def _server(case: Case, built: RunningTestbed, host: str) -> ServerPart:
    core = NumpyCore(FallbackSettings(LANES, endpoints(built.testbed.topology, host), case.memory))
    for job, admitted in built.fleet.jobs.items():
        core.add_job(FallbackJob(job, admitted.epoch, Tree.of(admitted.tree), window=case.window))
    switch, port, _ = built.host_ports[host]
    return ServerPart(core, switch, port)
