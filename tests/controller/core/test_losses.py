"""Servers that go and come back under every policy: nobody is on one that is gone, and nothing breaks."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks import replicas
from controller.core import (
    Cancelled,
    Core,
    Desired,
    Ended,
    Interrupted,
    Log,
    Rules,
    ServerBack,
    ServerGone,
    Submitted,
    Tick,
)
from controller.core.events import event_of, plain
from controller.errors import BadSpec
from controller.policies import registry
from controller.policies.family import SimulationConfig
from controller.policies.registry import family, known
from controller.policies.scheduling import Submission
from controller.simulator.generate import generate
from controller.simulator.runs import make
from controller.vocabulary import Cluster, Server
from tests import effort
from tests.controller.core.driver import Driver, StopRun
from tests.controller.core.machine import Room

SERVERS = Cluster(
    tuple(Server(f"n{at}", 4, kind="k80" if at % 2 else "v100", cpus=12, memory_gb=250) for at in range(4))
)
SLOW = ("lucid:online", "synergy:")
"""Policies that solve or train for long at each decision; one of Synergy stands for all."""
POLICIES = [name for name in registry.known() if not name.startswith(SLOW)] + ["synergy:srtf+tune"]
RULES = Rules(reported=True, sharing=4, retries=1)


def core_of(policy: str) -> Core:
    return Core(SERVERS, registry.make(policy, SimulationConfig(SERVERS)), rules=RULES, log=Log())


def jobs_for(policy: str, seed: int) -> list[Submission]:
    kind = registry.family(policy)
    three = registry.find_family(kind).three_stages
    specs = generate(8, SERVERS, load=2.0, seed=seed, three_stages=three)
    return [
        each for each in registry.complete_jobs(specs, kind, SimulationConfig(SERVERS)) if each.gpus <= 8
    ]  # Lucid's profiler has servers of its own


class Servers:
    """Follows what is down, and checks every desired state against it."""

    def __init__(self, room: Room) -> None:
        self.room = room

    def check(self, desired: Desired) -> None:
        down: set[str] = set()
        for event in self.room.events:
            if isinstance(event, ServerGone):
                down.add(event.server)
            elif isinstance(event, ServerBack):
                down.discard(event.server)
        core = self.room.core
        for name, place in desired.places.items():
            assert not down & {*place.servers}, f"{name} runs on {place.servers} while {down} are gone"
        groups = {group.gpus: group for group in core.running.groups}
        for run in desired.runs:
            assert len({*run.gpus}) == len(run.gpus)
            for other in desired.runs:
                if other is not run and other.gpus != run.gpus and {*run.gpus} & {*other.gpus}:
                    allowed = {job.spec.name for job in groups[run.gpus].neighbours}
                    assert {*other.jobs} <= allowed, f"{run} and {other} have the same GPU"


@settings(deadline=None, max_examples=effort.cases(40))
@given(st.sampled_from(POLICIES), st.integers(0, 10_000))
@example("sharing:antman", 2)  # made its books while n0 was gone, for fewer GPUs than there are
@example("sharing:sharing", 0)
@example("sharing:no-sharing", 2)
@example("themis", 1)  # told of jobs that had not arrived, it took the logarithm of less than 0
def test_no_policy_minds_servers_that_go_and_come_back(policy: str, seed: int) -> None:
    room = Room(core_of(policy), (), seed, servers=[each.name for each in SERVERS.servers], mishaps=2.0)
    room.check = Servers(room).check
    room.tell(ServerGone(0.0, "n0"))
    specs = jobs_for(policy, seed)
    for spec in specs:
        room.tell(Submitted(0.0, spec))
    room.tell(Tick(0.0))
    room.wanted.append(room.core.desired())
    room.check(room.wanted[-1])
    room.tell(ServerBack(0.0, "n0"))
    room.run()
    again = core_of(policy)
    wanted = []
    for event in json.loads(json.dumps([plain(event) for event in room.events], allow_nan=False)):
        again.handle(event_of(event))
        if event_of(event) == Tick(again.now_s):
            wanted.append(again.desired())
    assert wanted == room.wanted


@settings(deadline=None, max_examples=effort.cases(40))
@given(st.sampled_from(POLICIES), st.integers(0, 10_000), st.sampled_from([0.0, 2.0]))
@example("sharing:antman", 23, 0.0)  # two such jobs on the same GPUs waited for each other for good
def test_no_policy_stops_a_job_that_cannot_be_started_again(policy: str, seed: int, mishaps: float) -> None:
    """Every other job is one; they share no GPUs, and wait again only if something happened to them."""
    specs = [replace(each, once=at % 2 == 0) for at, each in enumerate(jobs_for(policy, seed))]
    once = {each.name for each in specs if each.once}
    room = Room(
        core_of(policy),
        [Submitted(each.arrival_s, each) for each in specs],
        seed,
        servers=[each.name for each in SERVERS.servers],
        mishaps=mishaps,
    )
    servers, seen, numbers = Servers(room), [0], dict[str, int]()

    def check(desired: Desired) -> None:
        servers.check(desired)
        news = room.events[seen[0] :]
        seen[0] = len(room.events)
        hit = {each.job for each in news if isinstance(each, Ended | Interrupted | Cancelled)}
        lost = any(isinstance(each, ServerGone) for each in news)
        runs = {name: run for run in desired.runs for name in run.jobs if name in once}
        for name, number in numbers.items():
            assert lost or name in hit or runs[name].number == number
        numbers.clear()
        numbers.update({name: run.number for name, run in runs.items()})
        for run in runs.values():
            assert not any(other is not run and {*run.gpus} & {*other.gpus} for other in desired.runs)
            assert len(run.jobs) == 1

    room.check = check
    room.run()
    assert {each.job.spec.name for each in room.core.finished_jobs} == {each.name for each in specs}


@pytest.mark.parametrize("policy", ["weave-s", "themis", "muri-s", "sharing:sharing"])
def test_a_policy_is_not_asked_while_all_servers_are_gone(policy: str) -> None:
    core = core_of(policy)
    (spec, *_) = jobs_for(policy, 1)
    core.handle(Submitted(0.0, spec))
    for server in SERVERS.servers:
        core.handle(ServerGone(0.0, server.name))
    core.handle(Tick(0.0))
    assert (core.decisions, core.desired().waiting) == (0, (spec.name,))
    core.handle(ServerBack(1.0, "n0"))
    for at, server in enumerate(SERVERS.servers[1:], start=2):
        core.handle(ServerBack(float(at), server.name))
    now_s = 10.0
    while not core.desired().runs:
        core.handle(Tick(now_s))
        now_s = max(now_s + 1.0, core.next_s if core.next_s < 1e9 else 0.0)
        assert now_s < 1e6
    core.handle(Ended(now_s, spec.name))
    assert [each.outcome for each in core.finished_jobs] == ["completed"]


def test_a_job_that_fits_the_whole_cluster_may_come_while_a_server_is_gone() -> None:
    core = core_of("sharing:fifo")
    core.handle(ServerGone(0.0, "n3"))
    core.handle(Submitted(0.0, Submission("wide", 0.0, 16, 10)))
    core.handle(Tick(0.0))
    assert core.desired().waiting == ("wide",)
    with pytest.raises(BadSpec, match="17 GPUs"):
        core.admit(Submission("wider", 0.0, 17, 10))


# ---------------------------------------------------------------------------
# Real jobs may come to their end while they are being stopped; then a policy believes that they wait.


NEVER_STOP = {"fifo", "fifo-backfill", "sjf", "qssf", "benchmarks.replicas.muri:antman"}


def spec(name: str, duration_s: float, gpus: int) -> Submission:
    return Submission(name, 0.0, gpus, duration_s, stages_s=(0.3, 0.3, 0.4), estimate_s=duration_s)


def stopped_by(live: Driver, now_s: float) -> tuple[set[str], float]:
    """Let time pass until a decision stops jobs; return these, and when that was."""
    while now_s < 1e5:
        now_s = max(now_s + 1.0, live.next_s if math.isfinite(live.next_s) else 0.0)
        stops = [action for action in live.decide(now_s) if isinstance(action, StopRun)]
        waiting = {name for stop in stops for name in stop.run.jobs} - {
            name for run in live.runs for name in run.jobs
        }
        if waiting:
            return waiting, now_s
    raise AssertionError("nothing was ever stopped")


PLAIN = [name for name in known() if not family(name)]
PLAIN += map(replicas.full_name, replicas.known("muri-replica"))


@pytest.mark.parametrize("name", [name for name in PLAIN if name not in NEVER_STOP])
def test_a_job_that_ends_while_it_is_being_stopped_is_over(name: str) -> None:
    cluster = Cluster.uniform(1, 2)
    chosen = make(name, SimulationConfig(cluster))
    live = Driver(cluster, chosen.policy, chosen.speed)
    live.submit(spec("long", 1000.0, 2), 0.0)
    live.decide(0.0)
    for number in range(8):
        live.submit(spec(f"short{number}", 10.0 + number, 1), 1.0)
    stopped, now_s = stopped_by(live, 0.0)
    for job in stopped:
        live.ended(job, now_s + 0.5)
    live.submit(spec("late", 5.0, 1), now_s + 1.0)
    now_s += 1.0
    while live.jobs:
        live.decide(now_s)
        assert not stopped & {job for run in live.runs for job in run.jobs}
        for run in live.runs[:1]:
            live.ended(run.jobs[0], now_s + 1.0)
        now_s = max(now_s + 2.0, live.next_s if math.isfinite(live.next_s) else 0.0)
    assert len(live.ended_jobs) == 10
