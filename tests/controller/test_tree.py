"""Jobs on several switches: all of them or none, read back as admitted, and sums come out at every leaf."""

from __future__ import annotations

import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given

from controller import (
    BadJob,
    Branch,
    Deployment,
    Downlink,
    Fleet,
    Member,
    NoSuchJob,
    ProgramBundle,
    ProgramMismatch,
    Region,
    SwitchSession,
    TreeAdmission,
    TreePosition,
    Uplink,
)
from controller.errors import NotPrimary, OutOfMemory, Unreachable
from controller.switches.layout import lay_out
from tests.controller import single
from tests.controller.conftest import SHORT_TURN_S, over_p4runtime, start
from tests.controller.fabric import Fabric
from tests.controller.trees import TREES, as_admitted, switch, trees, worker

# ---------------------------------------------------------------------------
# Trees to the jobs of their switches, without a switch.


ABOVE = Uplink(99, "02:00:00:00:fb:01", "10.0.255.2")


def link(port: int, child: Branch) -> Downlink:
    return Downlink(port, child, 50)


def leaf(name: str, *ranks: int, transit: bool = False) -> Branch:
    return Branch(name, tuple(worker(r, r) for r in ranks), transit=transit)


def up_to(node: int, *, bitmap: int, fan_in: int) -> Uplink:
    return Uplink(50, "02:00:00:00:00:fe", "10.0.0.254", 42592, node, bitmap, fan_in)


def child(port: int, bitmap: int, below: range, ranks: range) -> Member:
    return Member(None, port, "02:00:00:00:00:fe", "10.0.0.254", 42592, bitmap, below, ranks)


RACKS = Branch("spine", links=(link(1, leaf("left", 0, 1)), link(2, leaf("right", 3, 2))))


def test_two_racks() -> None:
    jobs = lay_out(Deployment(RACKS, 8), max_members=32)
    assert list(jobs) == ["spine", "left", "right"]
    assert jobs["spine"].members == (
        child(1, 0b01, range(1, 2), range(0, 2)),
        child(2, 0b10, range(2, 3), range(2, 4)),
    )
    assert jobs["spine"].place == TreePosition(0, None, 0b11)
    assert jobs["left"].members == (replace(worker(0, 0), bitmap=1), replace(worker(1, 1), bitmap=2))
    assert jobs["left"].place == TreePosition(1, up_to(0, bitmap=0b01, fan_in=2), 0b11)
    # bits follow ranks, not the order of the description
    assert jobs["right"].members == (replace(worker(2, 2), bitmap=1), replace(worker(3, 3), bitmap=2))
    assert jobs["right"].place == TreePosition(2, up_to(0, bitmap=0b10, fan_in=2), 0b11)


def test_only_the_root_hangs_on_the_fallback_server() -> None:
    root = replace(RACKS, region=Region(5, 10))
    jobs = lay_out(Deployment(root, mode="shared", window=4, preempt=True, fallback=ABOVE), max_members=32)
    assert [job.fallback for job in jobs.values()] == [ABOVE, None, None]
    assert [job.region for job in jobs.values()] == [Region(5, 10), None, None]
    assert {(job.preempt, job.window, job.mode) for job in jobs.values()} == {(True, 4, "shared")}


BESIDE = Member(0, 99, "02:00:00:00:00:09", "10.0.0.9", 42593)


def test_with_a_worker_beside_the_fallback_server_the_root_is_there() -> None:
    spine = Branch("spine", (worker(1, 1),), (link(2, leaf("right", 3, 2)),))
    asked = Deployment(spine, mode="shared", window=4, fallback=ABOVE, beside=BESIDE)
    jobs = lay_out(asked, max_members=32)
    above = replace(ABOVE, node=0, bitmap=0b10, fan_in=2)
    assert jobs["spine"].place == TreePosition(1, above, 0b11)
    assert jobs["spine"].fallback is None
    assert jobs["right"].place == TreePosition(2, up_to(1, bitmap=0b10, fan_in=2), 0b11)
    admitted = replace(as_admitted(jobs), beside=replace(BESIDE, bitmap=1))
    assert admitted.tree == {0: [0, -1], 1: [1, -2], 2: [2, 3]}
    assert admitted.whole
    assert admitted.server == above
    assert not replace(admitted, beside=None).whole  # as it is read from the switches


def test_a_worker_beside_needs_a_fallback_server_and_a_switch_that_sums() -> None:
    with pytest.raises(BadJob, match="beside the fallback server, but the job has no such server"):
        lay_out(Deployment(leaf("s", 1), mode="shared", window=4, beside=BESIDE), max_members=32)
    passing = Deployment(leaf("s", 1, transit=True), mode="shared", window=4, fallback=ABOVE, beside=BESIDE)
    with pytest.raises(BadJob, match="'s' only forwards"):
        lay_out(passing, max_members=32)


def test_what_hangs_on_a_transit_switch_counts_as_hanging_above_it() -> None:
    """Two transit switches in a row; below the second one a worker and a switch that aggregates."""
    low = Branch("low", (worker(2, 2),), (link(3, leaf("leaf", 3, 4)),), transit=True)
    high = Branch("high", (worker(1, 1),), (link(4, low),), transit=True)
    root = Branch("root", (worker(0, 0),), (link(5, high), link(6, leaf("other", 5))))
    jobs = lay_out(Deployment(root, 8), max_members=32)
    assert [m.bitmap for m in jobs["root"].members] == [0b00001, 0b01110, 0b10000]
    assert [m.bitmap for m in jobs["high"].members] == [0b00010, 0b01100]
    assert [m.bitmap for m in jobs["low"].members] == [0b00100, 0b01000]
    assert jobs["high"].place == TreePosition(0, up_to(0, bitmap=0, fan_in=5), 0b11111, transit=True)
    assert jobs["low"].place == jobs["high"].place
    assert jobs["leaf"].place == TreePosition(1, up_to(0, bitmap=0b01000, fan_in=5), 0b11111)
    assert jobs["other"].place == TreePosition(2, up_to(0, bitmap=0b10000, fan_in=5), 0b11111)
    assert as_admitted(jobs).tree == {0: [0, 1, 2, -1, -2], 1: [3, 4], 2: [5]}
    assert [m.ranks for m in jobs["root"].members[1:]] == [range(1, 5), range(5, 6)]
    assert jobs["high"].members[1].ranks == range(2, 5)
    assert jobs["low"].members[1].ranks == range(3, 5)


def test_the_ranks_behind_a_switch_are_within_a_range_that_may_have_others() -> None:
    root = Branch("root", (worker(2, 2),), (link(3, leaf("a", 0, 4)), link(4, leaf("b", 1, 3))))
    members = lay_out(Deployment(root, 8), max_members=32)["root"].members
    assert [m.ranks for m in members[1:]] == [range(5), range(1, 4)]


@given(trees())
def test_any_tree_is_whole_and_says_who_hangs_on_whom(root: Branch) -> None:
    jobs = lay_out(Deployment(root, 8), max_members=3**6)
    admitted = as_admitted(jobs)
    assert admitted.whole
    assert admitted.tree == logical(root)
    for name in jobs:
        rest = {n: a for n, a in admitted.switches.items() if n != name and not a.transit}
        if rest and not jobs[name].place.transit:
            assert not TreeAdmission(rest).whole


def logical(root: Branch) -> dict[int, list[int]]:
    """The logical tree, straight from its definition."""
    found: dict[int, list[int]] = {}
    ids = iter(range(1000))

    def children(switch: Branch) -> list[int]:
        result = sorted(m.rank for m in switch.members if m.rank is not None)
        for below in switch.links:
            result += children(below.child) if below.child.transit else [-node(below.child)]
        return result

    def node(switch: Branch) -> int:
        id = next(ids)
        found[id] = children(switch)
        return id

    node(root)
    return found


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (Branch("s"), r"switch 's': the job has no members"),
        (Branch("s", links=(link(1, leaf("t")),)), r"switch 't': the job has no members"),
        (Branch("s", (worker(0, 0),), (link(1, leaf("t", transit=True)),)), r"switch '[st]'"),
        (Branch("s", links=(link(1, leaf("t", 0)), link(2, leaf("t", 1)))), r"switch 't' is in the tree"),
        (
            Branch("s", links=(link(1, leaf("t", 0)), link(1, leaf("u", 1)))),
            r"switch 's': port 1 has two",
        ),
        (
            Branch("s", links=(Downlink(1, leaf("t", 0), 0),)),
            r"switch 't': port 0 has a member and is the uplink",
        ),
        (Branch("s", links=(link(1, leaf("t", 0)), link(2, leaf("u", 0)))), r"ranks are \[0, 0\]"),
        (
            Branch("s", (child(0, 1, range(0), range(0)),)),
            r"switch 's': a member has no rank; want workers as members, switches as links",
        ),
        (leaf("s", 0, transit=True), r"switch 's': the root of a job must aggregate"),
        (leaf("s", *range(33)), r"switch 's': the job has 33 members; one switch sums up to 32"),
        (
            Branch("s", links=tuple(link(i, leaf(f"t{i}", 2 * i, 2 * i + 1)) for i in range(33))),
            r"switch 's': the job has 33 members",
        ),
        (
            Branch("s", (worker(0, 0),), (link(1, leaf("t", *range(1, 33), transit=True)),)),
            r"switch 's': the job has 33 members",
        ),
    ],
)
def test_a_tree_that_cannot_be_is_refused_with_the_switch(root: Branch, message: str) -> None:
    with pytest.raises(BadJob, match=message):
        lay_out(Deployment(root, 8), max_members=32)


FALLBACK = Uplink(39, "02:00:00:00:fb:01", "10.0.255.2", 4000)
SERVER = ("root", 39)


@pytest.fixture(params=["exclusive", "shared"])
def fabric(request: pytest.FixtureRequest, target: str) -> Fabric:
    found = request.getfixturevalue(f"{request.param}_fabric")
    assert isinstance(found, Fabric)
    return found


def deployment(fabric: Fabric, root: Branch) -> Deployment:
    if fabric.controllers["root"].info().mode == "exclusive":
        return Deployment(root, 8)
    return Deployment(root, 8, mode="shared", fallback=FALLBACK)


def places(admission: TreeAdmission) -> dict[int, tuple[str, int]]:
    """Where each rank is plugged in."""
    return {
        m.rank: (name, m.port)
        for name, a in admission.switches.items()
        for m in a.members
        if m.rank is not None and m.port is not None
    }


@pytest.mark.parametrize("which", TREES)
def test_a_tree_is_read_back_as_it_was_admitted(fabric: Fabric, which: str) -> None:
    admission = Fleet(fabric.controllers).admit(deployment(fabric, TREES[which]))
    controllers = fabric.connect()
    assert Fleet(controllers).read() == {admission.job: admission}
    assert admission.whole
    assert {a.epoch for a in admission.switches.values()} == {admission.epoch}
    assert admission.window == 4
    Fleet(controllers).remove(admission)
    assert Fleet(controllers).read() == {}
    for controller in controllers.values():
        controller.close()


def test_each_switch_has_its_own_region_and_transit_ones_none(shared_fabric: Fabric) -> None:
    a, c = switch("a", 0, 1, transit=True), switch("c", 2, 3)
    root = replace(switch("root", a, replace(c, region=Region(7, 0))), region=Region(100, 50))
    admission = Fleet(shared_fabric.controllers).admit(deployment(shared_fabric, root))
    regions = {name: on.region for name, on in admission.switches.items()}
    assert regions == {"root": Region(100, 50), "a": Region(0, 0), "c": Region(7, 0)}
    controllers = shared_fabric.controllers
    elsewhere = admission.at({"c": Region(0, 8192), "a": Region(0, 1)})
    assert Fleet(controllers).reconcile([elsewhere]).done
    found = Fleet(controllers).read()[admission.job].switches
    assert {name: on.change and on.change.region for name, on in found.items()} == {
        **dict.fromkeys(found),
        "c": Region(0, 8192),
    }, "a job has no slots where it passes through"
    Fleet(controllers).remove(admission)


# ---------------------------------------------------------------------- failures


def nothing_left(controllers: Mapping[str, SwitchSession]) -> bool:
    return all(controller.jobs() == {} for controller in controllers.values())


def test_a_switch_without_room_is_named(exclusive_fabric: Fabric) -> None:
    controllers = exclusive_fabric.controllers
    large = Fleet(controllers).admit(Deployment(switch("b", 0), 8192))
    with pytest.raises(OutOfMemory, match="switch 'b': 8 slots are asked for; 0 are free") as error:
        Fleet(controllers).admit(Deployment(TREES["two racks"], 8))
    assert (error.value.asked, error.value.free) == (8, 0)
    Fleet(controllers).remove(large)
    assert nothing_left(controllers)


@over_p4runtime
def test_a_switch_that_is_gone_is_named(shared_fabric: Fabric, shared_bundle: ProgramBundle) -> None:
    running = start(shared_bundle)
    with SwitchSession(running.target()) as gone:
        assert gone.jobs() == {}
        running.close()
        with pytest.raises(Unreachable, match=r"switch 'b': the connection to the switch at .* ended"):
            Fleet({**shared_fabric.controllers, "b": gone}).admit(
                deployment(shared_fabric, TREES["two racks"])
            )
    assert nothing_left(shared_fabric.controllers)


def test_a_switch_that_another_controller_keeps_is_named(shared_fabric: Fabric) -> None:
    """It can be read but not written, so that the job is on other switches already."""
    holder = shared_fabric.running["b"].target()
    with (
        SwitchSession(shared_fabric.running["b"].target(), turn_timeout_s=SHORT_TURN_S) as waiting,
        holder.turn(timeout_s=10),
        pytest.raises(NotPrimary, match=r"switch 'b': another controller"),
    ):
        Fleet({**shared_fabric.controllers, "b": waiting}).admit(
            deployment(shared_fabric, TREES["two racks"])
        )
    holder.close()
    assert nothing_left(shared_fabric.controllers)


def test_a_switch_that_nobody_knows_is_named(shared_fabric: Fabric) -> None:
    with pytest.raises(BadJob, match="switch 'd' is unknown; known are a, b, c, root"):
        Fleet(shared_fabric.controllers).admit(deployment(shared_fabric, switch("root", switch("d", 0))))


def test_switches_with_different_programs_are_named(exclusive_fabric: Fabric, shared_fabric: Fabric) -> None:
    mixed = {**shared_fabric.controllers, "a": exclusive_fabric.controllers["a"]}
    with pytest.raises(
        ProgramMismatch, match=r"switch 'a': the job is shared, and the program of .* is for exclusive jobs"
    ):
        Fleet(mixed).admit(deployment(shared_fabric, TREES["two racks"]))
    assert nothing_left(mixed)


def test_what_is_gone_already_is_no_error_and_what_fails_is_named(shared_fabric: Fabric) -> None:
    controllers = shared_fabric.controllers
    admission = Fleet(controllers).admit(deployment(shared_fabric, TREES["two racks"]))
    single.remove(controllers["a"], admission.switches["a"])
    assert not Fleet(controllers).read()[admission.job].whole
    Fleet(controllers).remove(admission)
    with pytest.raises(NoSuchJob, match=f"switch 'root': .* has no job {admission.job}"):
        Fleet(controllers).remove(admission)


def test_ports_are_chosen_on_every_switch(shared_fabric: Fabric) -> None:
    def anywhere(tree: Branch) -> Branch:
        members = tuple(replace(m, port=None) for m in tree.members)
        return replace(
            tree, members=members, links=tuple(replace(k, child=anywhere(k.child)) for k in tree.links)
        )

    tree = Deployment(anywhere(TREES["two racks"]), 8, mode="shared", fallback=replace(FALLBACK, port=None))
    pools = {"root": range(1, 9), "a": range(9), "b": range(5, 9)}
    admission = Fleet(shared_fabric.controllers).admit(tree, ports=pools)
    assert places(admission) == {0: ("a", 1), 1: ("a", 2), 2: ("b", 5), 3: ("b", 6)}
    uplink = admission.switches["root"].uplink
    assert uplink is not None
    assert uplink.port == 3  # 1 and 2 lead to the racks
    Fleet(shared_fabric.controllers).remove(admission)


@over_p4runtime
def test_controllers_that_choose_the_same_identity_try_again(shared_fabric: Fabric) -> None:
    """Four controllers of the same switches, all with the same clock and the same random numbers."""
    groups = [
        {
            name: SwitchSession(each.target(), clock=lambda: 1.0, rng=random.Random(1))
            for name, each in shared_fabric.running.items()
        }
        for _ in range(4)
    ]

    def work(controllers: Mapping[str, SwitchSession]) -> TreeAdmission:
        return Fleet(controllers).admit(deployment(shared_fabric, TREES["two racks"]))

    with ThreadPoolExecutor(4) as pool:
        admitted = list(pool.map(work, groups))
    assert len({a.job for a in admitted}) == len({a.generation for a in admitted}) == 4
    assert Fleet(shared_fabric.controllers).read() == {a.job: a for a in admitted}
    for admission in admitted:
        assert admission.whole
        Fleet(shared_fabric.controllers).remove(admission)
    for controllers in groups:
        for controller in controllers.values():
            controller.close()
