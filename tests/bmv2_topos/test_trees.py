"""A tree of switches per job: which trees there can be, and that jobs keep to theirs."""

from __future__ import annotations

import dataclasses

import pytest

from bmv2_topos.testbeds.virtual import (
    Placement,
    TestbedError,
    VirtualSettings,
    VirtualTestbed,
    shortest_tree,
)
from bmv2_topos.testbeds.virtual.placement import check_tree
from controller.switches import names
from controller.vocabulary import BadSpec, Link, Topology, Tree, float32_bytes, leaf_spine, tree
from tests.bmv2_topos.beds import SMALL, check_exact, job

NETWORK = leaf_spine(2, 3, 2, servers=2)
"""Spines s1 and s2 with p1 and p2; leaves s3, s4 and s5 with two hosts each."""


def packets(testbed: VirtualTestbed, switch: str) -> int:
    """Return how many packets to aggregate a switch met, whatever became of them."""
    return sum(cell[0] for cell in testbed.fabric.pipelines[switch].read_counters(names.OUTCOMES))


@pytest.mark.parametrize("network", [tree([2, 3, 2], servers=2), leaf_spine(3, 4, 2, servers=1)])
def test_the_default_tree_is_the_topologys(network: Topology) -> None:
    switches = {switch.name for switch in network.switches}
    found = shortest_tree(network)
    assert found.root == network.root
    above = {name: parent for name, parent in network.parents.items() if name in switches and parent}
    assert found.parents == above


def test_a_tree_may_have_another_root() -> None:
    assert shortest_tree(NETWORK, "s2").parents == NETWORK.towards("s2")
    with pytest.raises(BadSpec, match="the root 'h1' is not a switch"):
        shortest_tree(NETWORK, "h1")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Tree("h1", {}, frozenset()), "'h1' is in the tree and is not a switch"),
        (Tree("s1", {"s3": "s1", "h1": "s3"}, frozenset()), "'h1' is in the tree and is not a switch"),
        (Tree("s1", {"s2": "s1"}, frozenset()), "the tree needs a link s2-s1, and there is none"),
    ],
)
def test_what_is_no_tree_is_refused(broken: Tree, message: str) -> None:
    with pytest.raises(BadSpec, match=message):
        check_tree(NETWORK, broken)
    with pytest.raises(TestbedError, match=f"job 'a': {message}"):
        VirtualTestbed(NETWORK, [job(workers=1)], [Placement(("h1",), "p1", broken)], SMALL)


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (Placement(("h1", "h9"), "p1"), "there is no host 'h9'"),
        (Placement(("h1", "h2"), "s1"), "there is no host 's1'"),
        (
            Placement(("h1", "h3"), "p1", Tree("s1", {"s3": "s1"}, frozenset())),
            "rank 1 on h3 is at switch 's4', which is not in the tree",
        ),
        (
            Placement(("h1", "h3"), "p1", shortest_tree(NETWORK, "s2")),
            "the fallback server's host p1 is at switch 's1'; it must be linked to the root .* tree, 's2'",
        ),
        (
            Placement(("h1", "h2"), "h1", Tree("s3", {}, frozenset())),
            "host h1 has the fallback server and a worker of the same job",
        ),
    ],
)
def test_a_placement_that_cannot_work_is_refused(placement: Placement, message: str) -> None:
    with pytest.raises(TestbedError, match=f"job 'a': {message}"):
        VirtualTestbed(NETWORK, [job(workers=2)], [placement], SMALL)


@pytest.mark.parametrize("program", ["shared", "exclusive"])
def test_trees_by_different_spines_keep_jobs_off_each_others_switches(program: str) -> None:
    settings = dataclasses.replace(SMALL, program=program)  # type: ignore[arg-type]
    jobs = [job("one"), job("two", 2)]
    placements = [
        Placement(("h1", "h2", "h3", "h4"), "p1", shortest_tree(NETWORK, "s1")),
        Placement(("h5", "h6"), "p2", shortest_tree(NETWORK, "s2")),
    ]
    testbed = VirtualTestbed(NETWORK, jobs, placements, settings)
    report = testbed.run()
    check_exact(report, jobs)
    assert all(packets(testbed, switch) > 0 for switch in ("s1", "s2", "s3", "s4", "s5"))

    alone = VirtualTestbed(NETWORK, jobs[:1], placements[:1], settings)
    alone.run()
    assert [packets(alone, switch) for switch in ("s2", "s5")] == [0, 0]
    assert all(packets(alone, switch) > 0 for switch in ("s1", "s3", "s4"))


def test_a_detour_is_taken_and_takes_its_time() -> None:
    trunk = Link("a", "b", rate_bps=0, delay_s=10e-6)
    network = leaf_spine(2, 2, 1, servers=1, link=Link("a", "b", rate_bps=0, delay_s=1e-6), trunk=trunk)
    detour = Tree(
        "s1", {"s3": "s1", "s2": "s3", "s4": "s2"}, frozenset(network.switch)
    )  # h2 at s4 goes by s2 and s3
    of = job("a", 2, layers_bytes=float32_bytes((1,)), iterations=1, compute_s=0.0, numbers="fixed")
    settings = VirtualSettings(lanes=32, slots=64, coalesce_us=1)
    took = []
    for way in (None, detour):
        testbed = VirtualTestbed(network, [of], [Placement(("h1", "h2"), "p1", way)], settings)
        took += testbed.run().jobs[0].iteration_s
        assert (packets(testbed, "s2") > 0) is (way is detour)
    assert took[1] - took[0] == pytest.approx(2 * 2 * 10e-6, abs=2e-6)
