"""What a testbed of namespaces would do, without doing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bmv2_topos import Host, Link, Switch, Topology, named, tree
from bmv2_topos.testbeds.netns import BadName, Program, planned
from bmv2_topos.testbeds.netns.embedded import switch_options
from bmv2_topos.testbeds.netns.forwarding import entries, next_port
from controller import names


def test_every_link_joins_the_interfaces_of_its_two_namespaces() -> None:
    topology = named("leaf-spine:2x2x1")
    text = [command.text for command in planned("lab", topology, Program())]
    assert text[0] == "ip netns add ina.lab.s1"
    assert (
        text.count("ip link add name s1-eth1 netns ina.lab.s1 type veth peer name s3-eth1 netns ina.lab.s3")
        == 1
    )
    assert sum(" type veth " in line for line in text) == len(topology.links)
    (host,) = (line for line in text if line.startswith("ip -n ina.lab.h2 "))
    assert "address add 10.0.0.2/16 dev h2-eth0" in host
    assert "neighbour replace 10.0.255.1 lladdr 02:00:00:00:ff:01 dev h2-eth0 nud permanent" in host


def test_hosts_hold_their_rate_and_switches_all_the_rest() -> None:
    link = Link("a", "b", rate_bps=1e9, delay_s=1e-3, queue_packets=100, loss=0.01)
    topology = tree([1, 1], link=link)
    rates = [
        " ".join(command.argv) for command in planned("lab", topology, Program()) if command.argv[0] == "tc"
    ]
    assert len(rates) == 2
    assert "dev h1-eth0 parent 1: classid 1:1 htb rate 1000000000bit" in rates[1]
    options = switch_options(topology, "s2", Program(seed=7), Path("/x"))
    out = "tx.loss=0.01,tx.delay=0.001,tx.rate=1000000000.0,tx.queue=100"
    assert [options[at + 1] for at, option in enumerate(options) if option == "--impair"] == [
        f"1:{out}",  # up: the other switch answers for what comes down
        f"2:rx.loss=0.01,rx.delay=0.001,{out}",
    ]
    assert options[options.index("--seed") + 1] == "8"


def test_a_free_link_has_no_faults() -> None:
    topology = tree([2], link=Link("a", "b", rate_bps=0))
    assert not any(command.argv[0] == "tc" for command in planned("lab", topology, Program()))
    assert "--impair" not in switch_options(topology, "s1", Program(), Path("/x"))


@pytest.mark.parametrize("name", ["fat-tree:4", "leaf-spine", "dumbbell"])
def test_every_host_reaches_every_other_from_everywhere(name: str) -> None:
    topology = named(name)
    for host in topology.hosts:
        for start in topology.ports:
            node, hops = start, 0
            while node != host.name:
                assert hops <= len(topology.ports)
                node, hops = topology.ports[node][next_port(topology, node, host.name)].other(node), hops + 1
        rows = [row for row in entries(topology, topology.root) if row.table == names.BRIDGE]
        assert len(rows) == len(topology.hosts)


@pytest.mark.parametrize("name", ["", "a.b", "-x", "a/b", "x" * 33])
def test_names_of_testbeds_are_short_and_plain(name: str) -> None:
    with pytest.raises(BadName, match="want 1 to 32 letters"):
        planned(name, named("single-switch"), Program())


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (
            "a-long-host-name",
            "its interface a-long-host-name-eth0 has 21 characters, and Linux takes 15; want a name",
        ),
        ("a b", "want letters, digits"),
        ("..", "want letters, digits"),
    ],
)
def test_names_of_nodes_have_room_in_names_of_interfaces(host: str, message: str) -> None:
    topology = Topology((Switch("s1"),), (Host(host),), (Link(host, "s1"),))
    with pytest.raises(BadName, match=message):
        planned("lab", topology, Program())
