"""Trees to the jobs of their switches, without a switch."""

from dataclasses import replace

import pytest
from hypothesis import given

from controller.errors import BadJob
from controller.switches.layout import Branch, Deployment, Downlink, TreeAdmission, lay_out
from controller.switches.model import Member, Place, Uplink
from controller.vocabulary import Region
from tests.controller.trees import as_admitted, trees, worker

FALLBACK = Uplink(99, "02:00:00:00:fb:01", "10.0.255.2")


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
    assert jobs["spine"].place == Place(0, None, 0b11)
    assert jobs["left"].members == (replace(worker(0, 0), bitmap=1), replace(worker(1, 1), bitmap=2))
    assert jobs["left"].place == Place(1, up_to(0, bitmap=0b01, fan_in=2), 0b11)
    # bits follow ranks, not the order of the description
    assert jobs["right"].members == (replace(worker(2, 2), bitmap=1), replace(worker(3, 3), bitmap=2))
    assert jobs["right"].place == Place(2, up_to(0, bitmap=0b10, fan_in=2), 0b11)


def test_only_the_root_hangs_on_the_fallback_server() -> None:
    root = replace(RACKS, region=Region(5, 10))
    jobs = lay_out(Deployment(root, mode="shared", window=4, preempt=True, fallback=FALLBACK), max_members=32)
    assert [job.fallback for job in jobs.values()] == [FALLBACK, None, None]
    assert [job.region for job in jobs.values()] == [Region(5, 10), None, None]
    assert {(job.preempt, job.window, job.mode) for job in jobs.values()} == {(True, 4, "shared")}


BESIDE = Member(0, 99, "02:00:00:00:00:09", "10.0.0.9", 42593)


def test_with_a_worker_beside_the_fallback_server_the_root_is_there() -> None:
    spine = Branch("spine", (worker(1, 1),), (link(2, leaf("right", 3, 2)),))
    asked = Deployment(spine, mode="shared", window=4, fallback=FALLBACK, beside=BESIDE)
    jobs = lay_out(asked, max_members=32)
    above = replace(FALLBACK, node=0, bitmap=0b10, fan_in=2)
    assert jobs["spine"].place == Place(1, above, 0b11)
    assert jobs["spine"].fallback is None
    assert jobs["right"].place == Place(2, up_to(1, bitmap=0b10, fan_in=2), 0b11)
    admitted = replace(as_admitted(jobs), beside=replace(BESIDE, bitmap=1))
    assert admitted.tree == {0: [0, -1], 1: [1, -2], 2: [2, 3]}
    assert admitted.whole
    assert admitted.server == above
    assert not replace(admitted, beside=None).whole  # as it is read from the switches


def test_a_worker_beside_needs_a_fallback_server_and_a_switch_that_sums() -> None:
    with pytest.raises(BadJob, match="beside the fallback server, but the job has none"):
        lay_out(Deployment(leaf("s", 1), mode="shared", window=4, beside=BESIDE), max_members=32)
    passing = Deployment(
        leaf("s", 1, transit=True), mode="shared", window=4, fallback=FALLBACK, beside=BESIDE
    )
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
    assert jobs["high"].place == Place(0, up_to(0, bitmap=0, fan_in=5), 0b11111, transit=True)
    assert jobs["low"].place == jobs["high"].place
    assert jobs["leaf"].place == Place(1, up_to(0, bitmap=0b01000, fan_in=5), 0b11111)
    assert jobs["other"].place == Place(2, up_to(0, bitmap=0b10000, fan_in=5), 0b11111)
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
            r"switch 's': a member has no rank; a link attaches a lower switch",
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
