"""The same events give the same decisions: in a fresh core, as plain data, and in parts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core import (
    Core,
    Desired,
    Ended,
    Event,
    LinkBack,
    LinkGone,
    Log,
    Measured,
    Progressed,
    Rules,
    Submitted,
    Tick,
)
from controller.core.compose import network_policies, submission_of
from controller.core.events import event_of, plain
from controller.errors import BadSpec
from controller.policies import registry
from controller.policies.family import SimulationConfig
from controller.policies.settings import AllocationSettings
from controller.simulator.generate import generate
from controller.vocabulary import Cluster, Job, Tree, fabrics
from controller.vocabulary import Topology as Network
from tests import effort
from tests.controller.core.machine import Room

SERVERS = Cluster.uniform(3, 4)
PLAIN = [name for name in registry.known() if not registry.family(name)]
RULES = Rules(reported=True, sharing=4, retries=1)


def core_of(policy: str) -> Core:
    setup = registry.make(policy, SimulationConfig(SERVERS))
    return Core(SERVERS, setup, rules=RULES, log=Log())


def check_servers(desired: Desired) -> None:
    """No GPU is given twice but to jobs that share it, and every job of a run has a place."""
    assert {name for run in desired.runs for name in run.jobs} == desired.places.keys()
    assert not desired.places.keys() & {*desired.waiting}
    assert all(len({*run.gpus}) == len(run.gpus) for run in desired.runs)


def replayed(core: Core, events: Sequence[Event]) -> list[Desired]:
    """Handle the events; return what is wanted after each tick."""
    wanted = []
    for event in events:
        core.handle(event)
        if isinstance(event, Tick):
            wanted.append(core.desired())
    return wanted


def check_replays(room: Room, fresh: Callable[[], Core], cut: float) -> None:
    """Replay what the room's core was told: whole, as JSON, and a part before the rest."""
    assert room.core.log is not None
    once = fresh()
    stored = json.loads(json.dumps([plain(event) for event in room.events], allow_nan=False))
    events = [event_of(each) for each in stored]
    assert events == room.events
    assert replayed(once, events) == room.wanted
    assert once.log is not None
    assert once.log.entries == room.core.log.entries
    at = int(len(events) * cut)
    parts = fresh()
    first = replayed(parts, events[:at])
    at_the_cut = parts.desired()
    again = fresh()
    assert replayed(again, events[:at]) == first
    assert again.desired() == at_the_cut
    assert first + replayed(parts, events[at:]) == room.wanted
    assert parts.log is not None
    assert parts.log.entries == room.core.log.entries
    assert [(each.job.spec, each.outcome, each.reason) for each in parts.finished_jobs] == [
        (each.job.spec, each.outcome, each.reason) for each in room.core.finished_jobs
    ]


@pytest.mark.parametrize("policy", PLAIN)
def test_the_same_events_give_the_same_decisions(policy: str) -> None:
    specs = generate(15, SERVERS, load=2.0, seed=5)
    room = Room(core_of(policy), [Submitted(spec.arrival_s, spec) for spec in specs], 5, check=check_servers)
    room.run()
    check_replays(room, lambda: core_of(policy), 0.4)


@settings(deadline=None, max_examples=effort.cases(30))
@given(st.sampled_from(PLAIN), st.integers(0, 10_000), st.floats(0, 1))
def test_long_random_runs_with_losses_replay(policy: str, seed: int, cut: float) -> None:
    specs = generate(20, SERVERS, load=2.0, seed=seed)
    room = Room(
        core_of(policy),
        [Submitted(spec.arrival_s, spec) for spec in specs],
        seed,
        servers=[node.name for node in SERVERS.servers],
        mishaps=2.0,
        check=check_servers,
    )
    room.run()
    assert {each.job.spec.name for each in room.core.finished_jobs} == {spec.name for spec in specs}
    check_replays(room, lambda: core_of(policy), cut)


NETWORK = fabrics.leaf_spine(2, 2, 3, fabrics.Parts(gpus=4, slots=512))


def network_core(policy: str, given: AllocationSettings) -> Core:
    parts = network_policies(NETWORK, policy, given)
    return Core(parts.servers, parts.setup, allocation=parts.allocation, rules=RULES, log=Log())


def network_jobs(network: Network, seed: int, count: int) -> list[Submitted]:
    import random

    rng = random.Random(seed)
    found = []
    for number in range(count):
        arrival_s = rng.uniform(0, 40)
        job = Job(
            name=f"j{number}",
            workers=rng.randint(1, 10),
            layers_bytes=(rng.randint(1, 50) * 1_000_000,),
            iterations=rng.randint(50, 400),
            compute_s=0.05,
            arrival_s=arrival_s,
            deadline_s=rng.uniform(5, 200) if rng.random() < 0.4 else None,
        )
        once = rng.random() < 0.3
        found.append(Submitted(arrival_s, replace(submission_of(job, network), once=once), job))
    return found


@settings(deadline=None, max_examples=effort.cases(50))
@given(
    st.tuples(
        st.sampled_from(["fifo-backfill", "srsf", "muri-s", "edf", "las"]),
        st.sampled_from(["netpack", "gpu-balance", "scheduler", "random"]),
        st.sampled_from(["shortest-path", "ecmp", "grid"]),
    )
    | st.tuples(st.just("joint"), st.just("scheduler"), st.sampled_from(["shortest-path", "ecmp"])),
    st.sampled_from(["shared", "deadline", "static"]),
    st.integers(0, 10_000),
    st.floats(0, 1),
)
def test_runs_on_a_network_replay(policies: tuple[str, str, str], memory: str, seed: int, cut: float) -> None:
    """Jobs run through losses, in desired states that are possible."""
    policy, placement, routing = policies
    given = AllocationSettings(placement=placement, memory=memory, routing=routing, seed=seed, period_s=7.0)
    room = Room(
        network_core(policy, given),
        network_jobs(NETWORK, seed, 10),
        seed,
        servers=[server.name for server in NETWORK.servers],
        switches=[switch.name for switch in NETWORK.switches],
        links=[f"{link.a}-{link.b}" for link in NETWORK.links],
        mishaps=2.0,
    )
    room.check = lambda desired: check_network(desired, room.events)
    room.run()
    check_replays(room, lambda: network_core(policy, given), cut)


def check_network(desired: Desired, events: Sequence[Event]) -> None:
    """Trees reach all servers on links that are up, and regions lie in their switches."""
    check_servers(desired)
    cut: set[frozenset[str]] = set()
    for event in events:
        if isinstance(event, LinkGone):
            cut.add(frozenset({event.a, event.b}))
        elif isinstance(event, LinkBack):
            cut.discard(frozenset({event.a, event.b}))
    for place in desired.places.values():
        if place.tree is None:
            assert len({*place.servers}) == 1
            continue
        racks = {NETWORK.rack_of[server] for server in place.servers}
        assert racks <= {*place.tree.switches}
        used = [*place.tree.parents.items(), *((server, NETWORK.rack_of[server]) for server in place.servers)]
        assert not cut & {frozenset(link) for link in used}, "it uses a link that is cut"
        assert all(region.end <= NETWORK.switch[at].slots for at, region in place.regions.items())
        assert place.regions.keys() <= {*place.tree.switches}


def submitted(job: Job, at_s: float = 0.0) -> Submitted:
    return Submitted(at_s, submission_of(job, NETWORK), job)


def after(core: Core, *events: Event, tick_s: float | None = None) -> Desired:
    """Handle these events and a tick, by default at the time of the last; return what is wanted then."""
    for event in (*events, Tick(events[-1].at_s if tick_s is None else tick_s)):
        core.handle(event)
    return core.desired()


FAR = Job(name="a", workers=2, servers=("h1", "h4"), layers_bytes=(1_000_000,), iterations=100)


def test_a_job_gets_another_tree_when_a_link_of_its_own_is_cut() -> None:
    core = network_core("fifo", AllocationSettings(memory="shared"))
    before = after(core, submitted(FAR)).places["a"].tree
    assert before is not None
    child, parent = next(iter(before.parents.items()))
    other = after(core, LinkGone(1.0, parent, child, "port 1 of s1 is down")).places["a"].tree
    assert other is not None
    assert other != before
    assert {frozenset(link) for link in other.parents.items()}.isdisjoint({frozenset((child, parent))})
    again = after(core, LinkBack(2.0, child, parent)).places["a"].tree
    assert again == other, "a tree that stands is kept"


def test_a_job_whose_server_is_cut_off_waits_until_the_link_is_back() -> None:
    core = network_core("fifo", AllocationSettings(memory="shared"))
    rack = NETWORK.rack_of["h4"]
    after(core, submitted(FAR))
    assert after(core, LinkGone(1.0, "h4", rack, "cut")).places == {}
    assert core.log is not None
    (reason,) = [entry.text for entry in core.log.entries if entry.event == "interrupted"]
    assert reason.endswith("down: no path is left between its servers")
    assert after(core, LinkBack(2.0, rack, "h4")).places["a"].servers == ("h1", "h4")


def test_a_job_that_starts_as_another_ends_is_placed_where_its_owner_wants_it() -> None:
    """It gets the numbers of the GPUs that have become free, not the servers of the job that had them."""
    core = network_core("fifo", AllocationSettings(memory="shared"))
    for at_s, name, servers in ((0.0, "a", ("h1", "h2")), (1.0, "b", ("h3", "h4"))):
        if name == "b":
            core.handle(Ended(at_s, "a"))
        job = Job(name=name, workers=2, servers=servers, arrival_s=at_s)
        assert after(core, submitted(job, at_s)).places[name].servers == servers


def test_a_link_that_the_cluster_does_not_have_is_refused() -> None:
    with pytest.raises(BadSpec, match="no link between 'h1' and 'h2'"):
        network_core("fifo", AllocationSettings()).handle(LinkGone(0.0, "h1", "h2"))


def far(**keys: object) -> Submitted:
    """Return the submission of a job of 125 MB an iteration between two racks."""
    return submitted(replace(FAR, layers_bytes=(125_000_000,), **keys))  # type: ignore[arg-type]


def test_a_job_that_is_too_late_ends_or_goes_on_as_its_owner_said() -> None:
    """125 MB take 0.01 s on a link of 100 Gb/s: 100 of them are not done in half a second."""
    core = network_core("fifo", AllocationSettings(memory="deadline"))
    after(core, far(deadline_s=0.5))
    assert [(each.job.spec.name, each.outcome) for each in core.finished_jobs] == [("a", "missed")]
    core = network_core("fifo", AllocationSettings(memory="deadline"))
    place = after(core, far(deadline_s=0.5, on_late="best-effort")).places["a"]
    assert core.finished_jobs == []
    assert place.standing is not None
    assert place.standing.value == "shared"
    assert core.log is not None
    (said,) = [entry.text for entry in core.log.entries if entry.event == "late"]
    assert said.startswith(
        "can no longer meet its deadline, 0.5 s after its arrival: even alone it would end 1"
    )


def test_memory_follows_what_is_measured_of_a_job() -> None:
    core = network_core("fifo", AllocationSettings(memory="deadline", period_s=10.0))
    wanted = after(core, far(deadline_s=100.0, compute_s=0.5))
    (before,) = {region.size for region in wanted.places["a"].regions.values()}
    wanted = after(core, Measured(1.0, "a", compute_s=0.1, model_bytes=12_500_000), tick_s=10.0)
    (now,) = {region.size for region in wanted.places["a"].regions.values()}
    assert now < before / 4, "a tenth of the bytes in more time for them"


def test_gpus_of_a_job_that_ends_as_the_last_link_comes_back_are_free() -> None:
    """Found by a random schedule: they counted as gone, and nobody was asked again."""
    core = network_core("fifo", AllocationSettings(memory="shared"))
    rack = NETWORK.rack_of["h1"]
    first, second = (Job(name=name, workers=20, layers_bytes=(1000,), iterations=100) for name in "ab")
    assert [*after(core, LinkGone(0.0, "h1", rack), submitted(first)).places] == ["a"]
    wanted = after(core, LinkBack(1.0, "h1", rack), Ended(1.0, "a"), submitted(second, 1.0))
    assert [*wanted.places] == ["b"]


def test_events_that_an_earlier_version_stored_are_read() -> None:
    job = {
        **{"name": "a", "workers": 2, "command": ["true"], "servers": ["h1", "h2"], "layers_bytes": [64, 32]},
        "tree": {"root": "s1", "parents": {"s2": "s1"}, "aggregators": ["s1", "s2"]},
        "extra": {"driver": True},
    }
    spec = {"name": "a", "arrival_s": 1, "gpus": 2, "iterations": 100, "stages_s": [0, 0, 1.5, 0]}
    found = event_of({"kind": "submitted", "at_s": 1, "spec": spec, "job": job})
    assert isinstance(found, Submitted)
    assert found.spec.stages_s == (0.0, 0.0, 1.5, 0.0)
    assert found.job is not None
    assert found.job.tree == Tree("s1", {"s2": "s1"}, frozenset({"s1", "s2"}))
    assert (found.job.servers, found.job.extra) == (("h1", "h2"), {"driver": True})
    assert event_of({"kind": "progressed", "at_s": 2.0, "job": "a", "iteration_s": "inf"}) == Progressed(
        2.0, "a", None, math.inf
    )


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"kind": "eaten", "at_s": 1.0}, "kind 'eaten': .*want one of submitted, .*server-gone, .*tick"),
        ({"at_s": 1.0}, "kind None: .*missing required field `kind`"),
        ({"kind": "ended", "at_s": 1.0}, "kind 'ended': .*missing required field `job`"),
        ({"kind": "ended", "at_s": 1.0, "job": 3}, r"Expected `str`, got `int` - at `\$.job`"),
        ({"kind": "tick", "at_s": 1.0, "joob": "a"}, "unknown field `joob`"),
    ],
)
def test_what_is_no_event_is_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(BadSpec, match=why):
        event_of(wrong)
