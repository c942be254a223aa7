from __future__ import annotations

import math
from pathlib import Path

import networkx
import pytest

from bmv2_topos.draw import draw, job_links, positions
from bmv2_topos.graphs import from_networkx, to_networkx
from bmv2_topos.testbeds.virtual.placement import Placement, branches
from controller.vocabulary import CATALOG, BadSpec, Link, dumbbell, fat_tree, named, place, tree


@pytest.mark.parametrize("k", [2, 4, 6])
def test_a_fat_tree_has_its_published_numbers_and_full_bisection(k: int) -> None:
    topology = fat_tree(k)
    assert len(topology.servers) == k**3 // 4
    assert len(topology.switches) == 5 * k * k // 4
    assert {len(ports) for ports in topology.ports.values()} == {k}
    graph = networkx.Graph(to_networkx(topology))
    networkx.set_edge_attributes(graph, 1, "capacity")
    half = len(topology.servers) // 2
    for side, hosts in (("left", topology.servers[:half]), ("right", topology.servers[half:])):
        graph.add_edges_from((side, host.name, {"capacity": 1}) for host in hosts)
    assert networkx.maximum_flow_value(graph, "left", "right") == half


def test_a_dumbbell_has_one_link_that_all_across_share() -> None:
    topology = dumbbell(2, 1, servers=1, trunk=Link("a", "b", rate_bps=1e8))
    assert {host: topology.rack_of[host] for host in ("h1", "h3", "x1", "x2", "p1")} == {
        "h1": "s1",
        "h3": "s2",
        "x1": "s1",
        "x2": "s2",
        "p1": "s1",
    }
    (middle,) = (link for link in topology.links if {link.a, link.b} == {"s1", "s2"})
    assert middle.rate_bps == 1e8
    assert topology.servers_for("traffic") == ("x1", "x2")


@pytest.mark.parametrize("name", CATALOG)
def test_a_graph_of_networkx_says_all_of_it(name: str) -> None:
    topology = named(name, link=Link("a", "b", rate_bps=1e9, loss=0.01))
    assert from_networkx(to_networkx(topology)) == topology


def test_nodes_of_somebody_elses_graph_are_switches_unless_they_say_otherwise() -> None:
    graph = networkx.cycle_graph(4)
    graph.add_node("a", gpus=2)
    graph.nodes[3]["slots"] = 100
    graph.add_edge("a", 2, weight=7, rate_bps=1e9)
    topology = from_networkx(graph)
    assert topology.root == "0"
    assert topology.rack_of["a"] == "2"
    assert topology.ports["2"][3].rate_bps == 1e9
    assert (topology.server["a"].gpus, topology.switch["3"].slots, topology.switch["0"].slots) == (
        2,
        100,
        8192,
    )
    graph.add_node("b", gpus=0)
    with pytest.raises(BadSpec, match="server 'b' has 0 links"):
        from_networkx(graph)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fat-tre", r"did you mean 'fat-tree'\? \(a file's name ends in .toml, .json or .yaml\)"),
        ("single-switch:0", "topology 'single-switch:0': tree '0': every level needs children"),
        ("fat-tree:3", "topology 'fat-tree:3': fat tree of 3 ports per switch: want an even number"),
        ("fat-tree:", r"want fat-tree, or sizes as in fat-tree:4 \(k\)"),
        ("leaf-spine:2x4", r"or sizes as in leaf-spine:2x4x2 \(spines, leaves, hosts per leaf\)"),
        ("dumbbell:0x1", "0 hosts for workers and 1 for traffic on each side: want 1 or more"),
    ],
)
def test_what_is_not_in_the_catalog_is_refused_with_what_is(text: str, message: str) -> None:
    with pytest.raises(BadSpec, match=message):
        named(text)


def test_jobs_are_spread_over_racks_that_differ() -> None:
    topology = tree([2, 3])
    assert place(topology, [3, 3]) == [("h1", "h2", "h4"), ("h3", "h5", "h6")]
    with pytest.raises(BadSpec, match="3 workers: 2 of 6 hosts for workers are free"):
        place(topology, [4, 3])


@pytest.mark.parametrize("name", CATALOG)
def test_nodes_are_drawn_apart_and_hosts_below_their_switch(name: str) -> None:
    topology = named(name)
    at = positions(topology)
    assert len(at) == len(topology.servers) + len(topology.switches)
    assert all(math.dist(at[a], at[b]) > 0.5 for a in at for b in at if a < b)
    assert all(at[host][1] < at[topology.rack_of[host]][1] for host in topology.servers_for("worker"))


def test_the_tree_that_is_drawn_is_the_one_that_the_job_gets() -> None:
    topology = named("fat-tree:4")
    (hosts,) = place(topology, [5])
    admitted = branches(topology, Placement(hosts))
    links = {(link.child.name, switch.name) for switch in admitted.walk() for link in switch.links}
    links |= {(host, topology.rack_of[host]) for host in hosts}
    assert set(job_links(topology, hosts)) == links


def test_a_picture_shows_every_node_and_job(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    topology = named("two-racks:2")
    draw(topology, tmp_path / "a.svg", {"vision": ("h1", "h3")})
    text = (tmp_path / "a.svg").read_text()
    assert all(f">{name}<" in text for name in ("s1", "s2", "s3", "h4", "p1", "vision"))
