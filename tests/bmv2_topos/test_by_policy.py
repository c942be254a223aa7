"""Jobs that policies place, route and give memory, in packets: what is foreseen is what is carried."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bmv2_topos.harness.simulation import Simulation
from bmv2_topos.testbeds.virtual import Report, TestbedError
from controller.vocabulary import BadSpec, Job, Link, Server, Straggler, Topology, Tree, named
from controller.vocabulary.catalog import leaf_spine
from ina.cli.command import USAGE
from ina.cli.errors import verdict
from tests.bmv2_topos.beds import check_exact
from tests.bmv2_topos.test_sweeps import call

EXAMPLES = Path(__file__).parents[2] / "examples"


def job(name: str, workers: int = 6, **rest: object) -> Job:
    given = {"iterations": 2, "layers_bytes": (16384, 8192), "compute_s": 1e-4, **rest}
    return Job(name=name, workers=workers, **given)  # type: ignore[arg-type]


TWO = (job("first"), job("second", layers_bytes=(32768,)))


def run(
    jobs: tuple[Job, ...] = TWO, cluster: str | Topology = "leaf-spine:2x4x3", **options: object
) -> Report:
    given = {"placement": "netpack", **options}
    return Simulation(jobs=jobs, cluster=cluster, **given).run()  # type: ignore[arg-type]


def check_loads(report: Report) -> None:
    """Each direction of each link has carried what was foreseen, to the byte."""
    assert report.foreseen is not None
    carried = {ends: count for ends, count in report.link_bytes.items() if count}
    assert carried == report.foreseen.link_bytes


@pytest.mark.parametrize(
    ("cluster", "options"),
    [
        ("leaf-spine:2x4x3", {"placement": "netpack", "routing": "grid", "memory": "static"}),
        ("leaf-spine:2x4x3", {"placement": "random", "routing": "ecmp"}),
        ("leaf-spine:2x4x3", {"placement": "random", "transit": ("s3", "s4", "s5", "s6")}),
        ("fat-tree:4", {"placement": "locality", "routing": "tor-only", "memory": "deadline"}),
        ("fat-tree:4", {"placement": "random", "routing": "grid", "program": "exclusive"}),
        ("dumbbell:6x0", {"placement": "gpu-balance"}),
        (
            leaf_spine(2, 4, 3, link=Link("h", "s", rate_bps=0)),
            {"routing": "grid", "memory": "static"},
        ),  # unlimited
    ],
)
def test_links_carry_what_was_foreseen_and_sums_are_exact(
    cluster: str | Topology, options: dict[str, object]
) -> None:
    report = run(cluster=cluster, **options)
    check_exact(report, TWO)
    check_loads(report)


def test_jobs_have_different_roots_and_slots_of_their_own() -> None:
    prepared = Simulation(
        jobs=TWO, cluster="leaf-spine:2x4x3", placement="locality", routing="grid", memory="static"
    ).prepared()
    assert prepared.decided is not None
    first, second = prepared.decided.placements
    assert not set(first.workers) & set(second.workers)
    assert first.regions is not None
    assert second.regions is not None
    for switch in first.regions.keys() & second.regions.keys():
        one, other = first.regions[switch], second.regions[switch]
        assert one.end <= other.offset or other.end <= one.offset
    prepared.run()


def test_a_better_placement_is_better_by_packets_too() -> None:
    """Foreseen and found agree on which of two placements is better."""
    jobs = (job("first", 3, iterations=4, compute_s=1e-5), job("second", 3, iterations=4, compute_s=1e-5))
    slow = {"cluster": _slow_trunks(leaf_spine(2, 4, 3, servers=1)), "jobs": jobs, "slots": 4096}
    near, far = run(placement="locality", **slow), run(placement="gpu-balance", **slow)
    assert near.foreseen is not None
    assert far.foreseen is not None
    assert sum(near.foreseen.rate_bps.values()) > sum(far.foreseen.rate_bps.values())
    assert near.mean_jct_s < far.mean_jct_s


def _slow_trunks(topology: Topology) -> Topology:
    links = (
        replace(each, rate_bps=1e9) if each.a in topology.switch and each.b in topology.switch else each
        for each in topology.links
    )
    return replace(topology, links=tuple(links))


def test_slots_that_are_too_few_send_more_over_the_links_than_was_foreseen() -> None:
    apart = tuple(replace(each, jitter=0.5) for each in TWO)
    report = run(apart, slots=8, memory="static")
    check_exact(report, apart)
    assert report.foreseen is not None
    assert report.trunk_bytes > 1.2 * sum(
        count for ends, count in report.foreseen.link_bytes.items() if set(ends) <= set(report.switches)
    )


@pytest.mark.parametrize("transit", [("s1", "s2"), ("s1", "s2", "s3", "s4", "s5", "s6")])
def test_switches_may_be_unable_to_sum(transit: tuple[str, ...]) -> None:
    """The spines, or all: then the fallback server sums."""
    report = run(placement="random", transit=transit)
    check_exact(report, TWO)
    summed = report.aggregated_share
    assert summed == 0 if len(transit) == 6 else summed > 0.9


def test_a_fallback_server_beside_the_tree_is_reached_over_switches_that_do_not_sum() -> None:
    topology = leaf_spine(2, 4, 3, servers=1)
    blind = tuple(replace(each, slots=0) if each.name == "s6" else each for each in topology.switches)
    servers = ("h1", "h2", "h4", "h5")
    tree = Tree("s2", {"s3": "s2", "s4": "s2"}, frozenset({"s2", "s3", "s4"}))
    one = job("one", 4, servers=servers, fallback="h12", tree=tree, jitter=0.5)
    network = replace(topology, switches=blind)
    prepared = Simulation(jobs=(one,), cluster=network, placement="netpack", slots=8).prepared()
    assert prepared.decided is not None
    (placement,) = prepared.decided.placements
    assert placement.tree is not None
    assert placement.tree.root == "s6"
    assert placement.tree.parents["s2"] == "s6"
    report = prepared.run()
    check_exact(report, (one,))
    assert report.jobs[0].fallback_bytes > 0


def test_a_fallback_server_behind_a_switch_of_the_tree_is_refused() -> None:
    tree = Tree("s2", {"s3": "s2", "s4": "s2"}, frozenset({"s2", "s3", "s4"}))
    one = job("one", 4, servers=("h1", "h2", "h4", "h5"), fallback="h6", tree=tree)
    with pytest.raises(
        TestbedError, match="reach its fallback server 'h6' through 's4', a switch of its tree"
    ):
        run((one,), leaf_spine(2, 4, 3))


def test_workers_on_one_server_are_one_rank_and_a_job_on_one_server_sends_nothing() -> None:
    topology = leaf_spine(2, 2, 2, servers=1)
    servers = tuple(replace(each, gpus=4) if each.gpus else each for each in topology.servers)
    big = job("big", 8, straggler=Straggler(7, 3e-4), servers=("h1",) * 4 + ("h2",) * 4)
    small = job("small", 4, servers=("h3",) * 4)
    report = run((big, small), replace(topology, servers=servers))
    assert report.foreseen is not None
    assert {ends for ends, count in report.link_bytes.items() if count} == report.foreseen.link_bytes.keys()
    assert [found.workers for found in report.jobs] == [2, 4]
    assert report.jobs[0].jct_s is not None
    assert report.jobs[0].jct_s > 2 * 3e-4  # its straggler is a rank of its server
    assert (report.jobs[1].sent_packets, report.jobs[1].jct_s) == (0, pytest.approx(2 * 1e-4))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"cluster": "leaf-spine:2x2x3"},
            "job 'second' does not fit: the jobs need 12 GPUs at the same time, and .* 6",
        ),
        ({"placement": "nearest"}, "placement 'nearest': known are netpack"),
        ({"placement": "scheduler"}, "placement 'scheduler': there is no scheduler here"),
        ({"routing": "rip"}, "routing 'rip'"),
        ({"memory": "most"}, "memory 'most'"),
        ({"tree": "2x2"}, "--cluster and --tree are mutually exclusive"),
        (
            {"jobs": (job("one", deadline_s=1e-5),), "memory": "deadline"},
            "job 'one' cannot meet its deadline",
        ),
        ({"transit": ("s9",)}, "--transit s9: want names of switches: s1, s2"),
    ],
)
def test_what_cannot_be_decided_is_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises((BadSpec, TestbedError), match=complaint):
        run(**options)  # type: ignore[arg-type]


def test_policies_need_a_network() -> None:
    with pytest.raises(BadSpec, match="--routing grid needs a network: give --cluster FILE"):
        Simulation(jobs=TWO, routing="grid").run()


def test_the_command_prints_what_was_foreseen_beside_what_was_found() -> None:
    options = (EXAMPLES / "windows/jobs.toml", "--iterations", 1, "--cluster", "leaf-spine:2x4x4")
    shown = call(*options, "--placement", "netpack", "--routing", "grid").stdout
    assert "iteration, foreseen" in shown
    assert "all between switches" in shown
    found = json.loads(call(*options, "--placement", "netpack", "--json").stdout)
    assert found["setup"]["placement"] == "netpack"
    assert found["setup"]["routing"] == "shortest-path"
    assert all(link["bytes"] == link["foreseen_bytes"] > 0 for link in found["metrics"]["links"])
    refused = call(*options, "--placement", "nearest")
    assert refused.exception is not None
    assert verdict(refused.exception)[1] == USAGE


def test_a_topology_of_the_catalog_has_links_as_the_options_say() -> None:
    slow, fast = (run(cluster="leaf-spine:2x4x3", rate_bps=rate) for rate in (1e9, 10e9))
    assert slow.mean_jct_s > 2 * fast.mean_jct_s
    assert isinstance(named("leaf-spine:2x4x3").servers[0], Server)
