from __future__ import annotations

import pytest

from controller.vocabulary import BadSpec, Link, Server, Switch, Topology, leaf_spine, star, tree

S1, S2, H1, H2 = Switch("s1"), Switch("s2"), Server("h1"), Server("h2")


def test_a_tree_has_its_racks_and_numbers_ports_in_the_order_of_links() -> None:
    topology = tree([2, 4], servers=1)
    assert [switch.name for switch in topology.switches] == ["s1", "s2", "s3"]
    assert [topology.rack_of[f"h{n}"] for n in range(1, 9)] == ["s2"] * 4 + ["s3"] * 4
    assert topology.rack_of["p1"] == "s1"
    assert topology.parents["s3"] == "s1"
    assert topology.parents["s1"] is None
    assert [topology.port_to("s1", name) for name in ("s2", "s3", "p1")] == [1, 2, 3]
    assert [topology.port_to("s3", name) for name in ("s1", "h5", "h8")] == [1, 2, 5]


def test_hosts_have_addresses_of_their_own() -> None:
    topology = star(300)
    assert topology.mac("h1") == "02:00:00:00:00:01"
    assert topology.ip("h300") == "10.0.1.44"
    assert len({topology.ip(host.name) for host in topology.servers}) == 300


def test_links_between_switches_may_differ_and_levels_may_only_pass_on() -> None:
    topology = tree([2, 2, 1], link=Link("a", "b", loss=0.5), trunk=Link("a", "b", rate_bps=1e9), transit=[1])
    rates = {(link.a, link.b): (link.rate_bps, link.loss) for link in topology.links}
    assert rates["s1", "s2"] == (1e9, 0.0)
    assert rates["h1", "s4"] == (10e9, 0.5)
    assert [switch.aggregates for switch in topology.switches] == [True, False, False, True, True, True, True]


def test_every_leaf_is_linked_to_every_spine() -> None:
    topology = leaf_spine(2, 3, 4, servers=3)
    assert [topology.rack_of[f"h{n}"] for n in (1, 4, 5, 12)] == ["s3", "s3", "s4", "s5"]
    assert [topology.rack_of[f"p{n}"] for n in (1, 2, 3)] == ["s1", "s2", "s1"]
    assert all(topology.port_to(leaf, spine) for leaf in ("s3", "s4", "s5") for spine in ("s1", "s2"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Topology((), (), ()), "needs a switch"),
        (lambda: Topology((S1,), (Server("s1"),), ()), "two nodes are called 's1'"),
        (lambda: Topology((S1,), (H1,), (Link("h1", "s9"),)), "there is no node 's9'"),
        (lambda: Topology((S1,), (H1,), ()), "'h1' has 0 links"),
        (lambda: Topology((S1,), (H1, H2), (Link("h1", "h2"),)), "linked to a server"),
        (lambda: Topology((S1, S2), (), ()), "'s2' cannot be reached from 's1'"),
        (lambda: Topology((S1,), (H1,), (Link("h1", "s1"),), "h1"), "root 'h1' is not a switch"),
        (lambda: star(511).ports, "511 links, and 510 ports"),
        (lambda: Link("a", "a"), "both ends are the same"),
        (lambda: Link("a", "b", loss=1.5), "link a-b: loss is 1.5, must be a probability"),
        (lambda: Link("a", "b", queue_packets=0), "queue_packets is 0, must be 1 or more"),
        (lambda: tree([2, 0]), "every level needs children"),
        (lambda: leaf_spine(2, 0, 4), "2 spines, 0 leaves, 4 hosts: want one of each at least"),
    ],
)
def test_what_is_no_network_is_refused_with_what_would_be_right(make, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadSpec, match=message.replace("(", r"\(")):
        make()
