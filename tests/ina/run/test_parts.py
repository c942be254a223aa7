"""Parts of the service, alone: next steps, the clock, what is kept, where packets go, who is waited for."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock

import pytest

from bmv2_topos.testbeds.netns.forwarding import entries, next_port
from controller.core import Desired, Place, Run
from controller.core.allocator import surviving
from controller.errors import OutOfMemory
from controller.policies.memory.regions import SlotStatus
from controller.switches.layout import TreeAdmission
from controller.switches.model import Admission, Member, RegionChange, Registration, Uplink
from controller.vocabulary import Job, Region, Tree
from controller.vocabulary.catalog import leaf_spine
from hostlib.meet import GroupRequest
from ina.errors import ProcessFailed
from ina.run.checks import FallbackJobs
from ina.run.clock import Clock
from ina.run.effects import Effects
from ina.run.fallback.process import FallbackServers
from ina.run.groups import Groups
from ina.run.launch.files import plain
from ina.run.launch.spec import LaunchSpec
from ina.run.live import FabricRuns
from ina.run.steps import HeldRun, Resize, Start, Stop, held_run, steps
from ina.run.store import Store
from tests.ina.run.test_policies import ledger_in

TREE = Tree("s1", {}, frozenset({"s1"}))
HERE = Place(("h1", "h2"), TREE, "h3", {"s1": Region(0, 64)})
RUN = Run(1, ("a",), (0, 1), (0,), places={"a": HERE})


def desired(*runs: Run) -> Desired:
    return Desired(0.0, runs)


BOTH = Run(1, ("a", "b"), (0, 1), (0, 1), places={"a": HERE, "b": HERE})
LEFT = Run(1, ("b",), (0, 1), (1,), places={"b": HERE})
BESIDE = Run(2, ("b",), (0, 1), (0,), places={"b": HERE})
STEPS: dict[str, tuple[list[Run], list[HeldRun], list[Start]]] = {
    "what is not held is started": ([RUN], [], [Start(RUN)]),
    "what is held is left alone": ([RUN], [HeldRun(RUN, "running")], []),
    "runs that share GPUs as decided do not wait": (
        [RUN, BESIDE],
        [HeldRun(RUN, "running")],
        [Start(BESIDE)],
    ),
    "a run that is busy is left alone": ([], [HeldRun(RUN, "preparing", busy=True)], []),
    "the group of a job that ended is left alone": ([LEFT], [HeldRun(BOTH, "running", frozenset("a"))], []),
}


@pytest.mark.parametrize(("wanted", "held", "expected"), STEPS.values(), ids=STEPS)
def test_steps(wanted: list[Run], held: list[HeldRun], expected: list[Start]) -> None:
    assert steps(desired(*wanted), {each.run.number: each for each in held}) == expected


def test_nobody_starts_on_gpus_that_somebody_is_still_to_leave() -> None:
    other = Run(2, ("b",), (1, 2), (0,), places={"b": HERE})
    held = {1: HeldRun(RUN, "running")}
    (stop,) = steps(desired(other), held)
    assert isinstance(stop, Stop)
    assert stop.number == 1
    assert steps(desired(other), {1: replace(held[1], stage="stopping", busy=True)}) == []
    assert steps(desired(other), {}) == [Start(other)]


def test_a_job_does_not_start_elsewhere_before_its_workers_have_ended() -> None:
    """Found by schedules: it ran twice at once if its start, or its end, took long as it got other GPUs."""
    moved = Run(2, ("a",), (2, 3), (0,), places={"a": replace(HERE, servers=("h4", "h5"))})
    starting = HeldRun(RUN, "preparing", busy=True)
    assert steps(desired(moved), {1: starting}) == []
    ended = replace(starting, stage="stopping", over=frozenset("a"))
    assert steps(desired(moved), {1: ended}) == [Start(moved)]


def test_a_stop_that_was_broken_off_goes_on() -> None:
    """Found by killing the daemon between the steps of a stop."""
    (stop,) = steps(desired(RUN), {1: HeldRun(RUN, "stopping")})
    assert isinstance(stop, Stop)


def test_other_slots_are_a_move_and_another_tree_a_stop() -> None:
    held = {1: HeldRun(RUN, "running")}
    for moved in (replace(HERE, regions={"s1": Region(64, 64)}), replace(HERE, in_flight=64)):
        assert steps(desired(replace(RUN, places={"a": moved})), held) == [Resize(1, "a", moved)]
    for rerouted in (replace(HERE, tree=Tree("s2", {}, frozenset({"s2"}))), replace(HERE, fallback="h4")):
        (stop,) = steps(desired(replace(RUN, places={"a": rerouted})), held)
        assert isinstance(stop, Stop)
        assert "another tree" in stop.why


def test_a_group_whose_member_is_cancelled_starts_again_without_it() -> None:
    """Found by cancelling one: its workers went on, for their run did."""
    assert steps(desired(LEFT), {1: HeldRun(BOTH, "running")}) == [
        Stop(1, "job 'a' is no longer scheduled to run")
    ]
    assert steps(desired(LEFT), {}) == [Start(LEFT)]


@pytest.mark.parametrize(
    ("wall_s", "begins_s"), [(1100.0, 100.0), (1_000_000.0, 999_000.0), (500.0, 90.0), (0.0, 90.0)]
)
def test_it_goes_on_after_a_restart_and_never_back(wall_s: float, begins_s: float) -> None:
    """It was started at 1000, and its last event was at 90; then the wall clock says this."""
    now = [5.0]
    clock = Clock(1000.0, 90.0, wall=lambda: wall_s, monotonic=lambda: now[0])
    assert clock.now_s() == begins_s
    behind = Clock(1000.0, 90.0, '{"boot": "it", "ahead_s": 1.0}', monotonic=lambda: now[0], boot="it")
    assert behind.now_s() == 90.0
    now[0] += 3.0
    assert clock.now_s() == begins_s + 3.0


@pytest.mark.parametrize("stepped_s", [-7200.0, 7200.0])
@pytest.mark.parametrize(("boot", "passed_s"), [("same", 60.0), ("another", 60.0)])
def test_the_wall_clock_is_stepped_while_it_is_off_and_while_it_runs(
    stepped_s: float, boot: str, passed_s: float
) -> None:
    """Two hours forward during one restart made all deadlines late for good."""
    wall, since_boot = [1000.0], [500.0]
    first = Clock(1000.0, 0.0, wall=lambda: wall[0], monotonic=lambda: since_boot[0], boot="same")
    wall[0], since_boot[0] = wall[0] + 30.0, since_boot[0] + 30.0
    assert first.stepped_s() == 0.0
    if boot == "another":  # what it was stepped by before the machine was started again is known
        wall[0] += stepped_s
        assert first.stepped_s() == stepped_s
        assert first.began_at == 1000.0 + stepped_s
        since_boot[0] = 3.0 - passed_s
    else:
        wall[0] += stepped_s
    kept, last_s = first.kept(), 30.0
    wall[0], since_boot[0] = wall[0] + passed_s, since_boot[0] + passed_s
    again = Clock(
        first.began_at, last_s, kept, wall=lambda: wall[0], monotonic=lambda: since_boot[0], boot=boot
    )
    assert again.now_s() == pytest.approx(90.0)
    again.stepped_s()
    assert again.began_at == pytest.approx(1000.0 + stepped_s)


def test_how_the_clock_stands_is_written_down_once_and_when_it_was_stepped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ledger_in(tmp_path) as ledger:
        wall = [0.0]
        ledger.clock = Clock(0.0, 0.0, wall=lambda: wall[0], monotonic=lambda: 0.0, boot="this")
        ledger.keep_time()
        assert ledger.store.fact("clock") == '{"boot": "this", "ahead_s": 0.0}'
        assert not caplog.text
        wall[0] = 7200.0
        ledger.keep_time()
        assert ledger.store.fact("began") == "7200.0"
        assert "stepped by +7200 s" in caplog.text


def test_a_held_run_comes_back_also_as_version_4_kept_it(tmp_path: Path) -> None:
    bare = Admission(
        job=7,
        counter_row=1,
        region=Region(0, 8),
        generation=9,
        group=1,
        members=(Member(0, 1, "02:00:00:00:00:01", "10.0.0.1", 42593),),
        fan_in=1,
        window=4,
        result_bitmap=1,
    )
    below = Member(None, 2, "02:00:00:00:00:02", "10.0.0.2", 42592, 6, range(1, 3), range(2, 9))
    full = Admission(
        job=7,
        counter_row=2,
        region=Region(8, 8),
        generation=9,
        group=2,
        members=(*bare.members, below),
        fan_in=3,
        window=4,
        uplink=Uplink(3, "02:00:00:00:00:03", "10.0.0.3"),
        node=1,
        result_bitmap=7,
        change=RegionChange(5, Region(16, 8)),
        registration=Registration("ina controller", name="a", user="me", command="true", priority=3),
    )
    beside = Member(1, 3, "02:00:00:00:00:03", "10.0.0.3", 42594)
    tree = Tree("s1", {"s2": "s1"}, frozenset({"s1", "s2"}))
    place = Place(("h1", "h2"), tree, "h3", {"s1": Region(8, 16)}, SlotStatus.GRANTED, 4)
    held = HeldRun(
        Run(3, ("a", "b"), (0, 5), (0, 2), "why", {"a": place, "b": Place(("h1",))}),
        "running",
        frozenset({"b"}),
        admissions={"a": TreeAdmission({"s1": bare, "s2": full}), "b": TreeAdmission({"s1": bare}, beside)},
        udp_ports={"a": (42593, 42594), "b": ()},
        before={"a": 2.0},
    )
    with Store(tmp_path) as store:
        store.hold({3: plain(held)})
        (kept,) = store.holds().values()
    assert held_run(kept) == held
    assert held_run({**kept, "places": kept["run"].pop("places")}) == held, "as version 4 kept it"


def test_what_version_3_kept_of_a_run_is_read() -> None:
    registration = {"holder": "ina controller", "process": "", "lease_s": None, "renewals": 0, "age_s": None}
    member = {"rank": 0, "port": 1, "mac": "02:00:00:00:00:01", "ip": "10.0.0.1", "udp_port": 42593}
    admission = {
        **{"job": 7, "counter_row": 1, "region": {"offset": 0, "size": 8}, "generation": 9, "group": 1},
        "members": [{**member, "bitmap": 1, "below": [0, 2]}],
        **{"fan_in": 1, "window": 4, "uplink": None, "result_bitmap": 1, "change": None},
        "registration": registration,
    }
    place = {
        "servers": ["h1", "h2"],
        "tree": ["s1", {"s2": "s1"}, ["s1"]],
        "fallback": "h3",
        "regions": {"s1": [8, 16]},
        "standing": "granted",
    }
    kept = {
        "run": {"number": 3, "jobs": ["a"], "gpus": [0], "offsets": [0], "reason": "why"},
        "places": {"a": place, "b": {**place, "tree": None, "regions": {}, "standing": None}},
        "stage": "running",
        "over": ["b"],
        "admissions": {"a": {"s1": admission, "": {**member, "bitmap": 2, "below": [0, 0]}}},
        "udp_ports": {"a": [42593]},
        "before": {"a": 2.0},
    }
    held = held_run(json.loads(json.dumps(kept)))
    tree = Tree("s1", {"s2": "s1"}, frozenset({"s1"}))
    assert held.run.places["a"] == Place(("h1", "h2"), tree, "h3", {"s1": Region(8, 16)}, SlotStatus.GRANTED)
    assert held.run.places["b"].tree is None
    assert held.over == {"b"}
    below = Member(0, 1, "02:00:00:00:00:01", "10.0.0.1", 42593, 1, range(2))
    assert held.admissions["a"].switches["s1"].members == (below,)
    assert held.admissions["a"].beside == Member(0, 1, "02:00:00:00:00:01", "10.0.0.1", 42593, 2)
    assert held.admissions["a"].switches["s1"].registration == Registration("ina controller")


BED = leaf_spine(2, 2, 1, servers=2)


def test_ordinary_traffic_takes_another_way_around_a_link_that_is_cut() -> None:
    assert next_port(BED, "s3", "h2") == BED.port_to("s3", "s1")
    up = surviving(BED, (), (), {("s1", "s4")})
    assert next_port(BED, "s3", "h2", up) == BED.port_to("s3", "s2")
    assert next_port(BED, "s1", "h2", up) == BED.port_to("s1", "s3")


def test_a_host_that_is_cut_off_keeps_the_row_that_it_has_when_all_is_up() -> None:
    assert entries(BED, "s4", surviving(BED, (), (), {("h2", "s4")})) == entries(BED, "s4")


def test_a_group_waits_for_one_whose_slots_are_being_freed() -> None:
    """Found by reading: it was refused if it asked after the other had ended, before its slots were free."""
    refused, network, rendezvous = threading.Event(), MagicMock(full=False), MagicMock()

    def enter(spec: LaunchSpec) -> MagicMock:
        if network.full:
            refused.set()
            raise OutOfMemory(64, 0, 0)
        network.full = True
        return MagicMock()  # which runs for no time, and then leaves

    def leave(group: MagicMock) -> None:
        network.full = not refused.wait(60)

    network.configure_mock(enter=enter, leave=leave)
    job = MagicMock(groups=[])
    job.configure_mock(spec=LaunchSpec(job=Job(name="a", workers=2)))  # not as the mock's own argument
    job.fabric.spec.attached = job.fabric.topology = None
    groups = Groups(network, job, rendezvous)
    asked = [groups._threads.submit(groups._serve, GroupRequest(key, (0, 1))) for key in ("one", "two")]
    assert [each.result(60) for each in asked] == [None, None]
    groups.close()
    rendezvous.answer.assert_not_called()


def test_a_run_that_gets_no_thread_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under ``ulimit -u``: it counted as running without end, and no message said why."""
    runs = FabricRuns(MagicMock(), MagicMock(takes_turns=False))
    start = AsyncMock(side_effect=lambda: runs.start(MagicMock(number=1, jobs=[])))
    effects = Effects(MagicMock(now_s=0.0, holds={}), "", *(MagicMock() for _ in range(6)))
    outcomes = [RuntimeError("can't start new thread"), None]
    monkeypatch.setattr(threading.Thread, "start", MagicMock(side_effect=outcomes))
    for troubles, known in (["can't start new thread"], []), ([], [1]):
        asyncio.run(effects._effect(1, Start, start))
        assert [each.why for each in effects.troubles.values()] == troubles
        assert runs.known() == known


def test_a_fallback_server_that_cannot_be_reached_says_nothing_about_another() -> None:
    """Found by reading: all jobs that failed meanwhile counted as those of a lost server, and ran again."""
    other = MagicMock(over=False, breaks=0, check=lambda: None)
    connect = MagicMock(side_effect=lambda _, server, __: other if server == "f2" else gone())
    gone = MagicMock(side_effect=ProcessFailed("f1 does not answer"))
    tree, places = MagicMock(beside=None, tree={}), [replace(HERE, fallback=at) for at in ("f1", "f2")]
    runs = [Run(at, ("a",), (at,), (0,), places={"a": place}) for at, place in enumerate(places)]
    holds = {run.number: HeldRun(run, "running", admissions={"a": tree}) for run in runs}
    ledger = MagicMock(holds=holds, now_s=100.0)
    blocking = MagicMock(fallbacks=AsyncMock(side_effect=lambda call: call()))
    jobs = FallbackJobs(ledger, FallbackServers(connect), blocking, None)
    for breaks, ill in ((0, False), (1, True)):
        ledger.now_s, other.breaks = ledger.now_s + 100.0, breaks
        asyncio.run(jobs.check())
        assert [bool(jobs.ill(place)) for place in places] == [True, ill]
