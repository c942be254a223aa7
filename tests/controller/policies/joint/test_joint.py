"""`joint`: GPUs, servers and trees in one decision."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from controller.core.allocation import Allocation
from controller.core.compose import network_policies
from controller.errors import BadSpec
from controller.policies.family import SimulationConfig
from controller.policies.joint import on_servers, rate_alone_bps, with_candidate_trees
from controller.policies.placement.flows import fan_in
from controller.policies.placement.netpack import worth
from controller.policies.placement.policy import PlacementProblem
from controller.policies.registry import SCHEDULER
from controller.policies.scheduling import Decision
from controller.policies.scheduling.errors import BadDecision
from controller.policies.settings import AllocationSettings
from controller.simulator.generate import generate
from controller.simulator.network.run import (
    NetworkLog,
    NetworkResult,
    NetworkSettings,
    NetworkTask,
    simulate_network,
)
from controller.simulator.runs import make
from controller.vocabulary import Cluster, Job, Topology, Tree, fabrics

FAST = fabrics.star(4, fabrics.Parts(gpus=2, rate_bps=100e9))
MIXED = replace(
    FAST,
    links=tuple(replace(link, rate_bps=10e9) if "h1" in (link.a, link.b) else link for link in FAST.links),
)
"""The first of four servers has a slow link."""
FAT = fabrics.fat_tree(4, 1)
RACKS = fabrics.leaf_spine(2, 2, 2, fabrics.Parts(gpus=2))


def job(name: str, workers: int, iterations: int = 100, **more: object) -> Job:
    """Return a job that sends for as long as it computes on links of 100 Gb/s."""
    made = Job(name=name, workers=workers, iterations=iterations, layers_bytes=(100_000_000,), compute_s=0.01)
    return replace(made, **more)  # type: ignore[arg-type]


def run(jobs: list[Job], topology: Topology, scheduler: str = "joint") -> NetworkResult:
    settings = NetworkSettings(placement=SCHEDULER, period_s=0.0)
    return simulate_network(NetworkTask(jobs, topology, scheduler, settings, keep_log=True, verify=True))


def places(found: NetworkResult) -> dict[str, list[tuple[str, ...]]]:
    """Return the servers that each job has had, one after the other."""
    assert isinstance(found.log, NetworkLog)
    had: dict[str, list[tuple[str, ...]]] = {}
    for _, name, placed in found.log.places:
        had.setdefault(name, []).append(placed.hosts)
    return had


def test_jobs_of_one_server_leave_fast_links_to_those_that_send() -> None:
    found = places(run([job("alone", 2), job("wide", 4)], MIXED))
    assert found["alone"] == [("h1",)]
    assert "h1" not in found["wide"][0]


def test_who_is_urgent_takes_the_fast_links_from_who_is_not() -> None:
    wide = job("wide", 4, 1000)  # on two of the three fast servers
    due = job("due", 4, 100, arrival_s=1.0, deadline_s=2.5)
    found = run([wide, due], MIXED)
    assert not found.missed
    assert "h1" not in places(found)["due"][0]
    blind = simulate_network(
        NetworkTask([wide, due], MIXED, "edf", NetworkSettings(placement="locality-fast-links", period_s=0.0))
    )
    assert [each.spec.name for each in blind.missed] == ["due"], "on the slow link that was left"


def test_a_job_moves_to_better_links_when_they_are_free_unless_that_costs_more() -> None:
    first, second = job("first", 4, 100), job("second", 4, 2000, arrival_s=0.5)
    had = places(run([first, second], MIXED))["second"]
    assert "h1" in had[0]
    assert "h1" not in had[-1]
    had = places(run([first, replace(second, restart_s=1e6)], MIXED))["second"]
    assert len(had) == 1


def test_a_job_moves_only_where_that_may_spare_it_several_starts() -> None:
    """On the slow link `second` takes five times as long as alone: a move spares it 45 s."""
    first, second = job("first", 4, 100), job("second", 4, 500, arrival_s=0.5)
    assert len(places(run([first, replace(second, restart_s=5.0)], MIXED))["second"]) == 2
    assert len(places(run([first, replace(second, restart_s=12.0)], MIXED))["second"]) == 1


def test_what_cannot_be_met_without_sums_takes_nothing_from_others() -> None:
    """Without sums each of three servers gets a third of the fallback server's link.

    A job that ends before the others arrive has been told right: deadlines can be given up.
    """
    plain = replace(FAST, switches=tuple(replace(each, slots=0) for each in FAST.switches))
    told = job("told", 1, 1)
    hopeless = job("hopeless", 6, 400, arrival_s=1.0, deadline_s=9.0)
    jobs = [told, hopeless, job("short", 6, 100, arrival_s=1.0)]
    ended = {each.spec.name: each.finish_s for each in run(jobs, plain).result.jobs}
    assert ended["short"] < ended["hopeless"]
    ended = {each.spec.name: each.finish_s for each in run(jobs, FAST).result.jobs}
    assert ended["hopeless"] <= 10.0


def test_a_job_is_told_to_be_as_fast_as_its_best_place_allows() -> None:
    wide = job("wide", 4)
    assert rate_alone_bps(FAST, wide, ["h1", "h1", "h2", "h2"]) == pytest.approx(100e9)
    plain = replace(FAST, switches=tuple(replace(each, slots=0) for each in FAST.switches))
    assert rate_alone_bps(plain, wide, ["h1", "h1", "h2", "h2"]) == pytest.approx(50e9)


def test_trees_avoid_the_switch_that_others_load() -> None:
    """Two jobs across racks: the second takes the other spine."""
    half = replace(RACKS, links=tuple(replace(link, rate_bps=100e9) for link in RACKS.links))
    across = [job(name, 2, compute_s=0.0001) for name in ("one", "two")]
    first = on_servers(PlacementProblem(half, (), random.Random(0)), across[0], ["h1", "h3"])
    problem = PlacementProblem(half, (first,), random.Random(0))
    options = with_candidate_trees(half, on_servers(problem, across[1], ["h2", "h4"]))
    best = max(options, key=lambda option: worth(problem, option, measured=True))
    assert first.tree is not None
    assert best.tree is not None
    spines = {"spine1", "spine2"}
    assert spines & {*first.tree.switches} != spines & {*best.tree.switches}


@pytest.mark.parametrize("topology", [RACKS, FAT, fabrics.leaf_spine(3, 3, 2)])
def test_every_tree_reaches_all_servers_and_sums_where_it_can(topology: Topology) -> None:
    problem = PlacementProblem(topology, (), random.Random(0))
    names = [server.name for server in topology.servers]
    for seed in range(20):
        servers = random.Random(seed).sample(names, 3)
        options = with_candidate_trees(topology, on_servers(problem, job("any", 3), servers))
        assert len(options) > 1 or topology is FAT
        for option in options:
            assert option.tree is not None
            total = fan_in(topology, option, option.tree)[option.tree.root]
            assert total >= 1
            for child, parent in option.tree.parents.items():
                assert parent in topology.neighbours[child]
            assert all(topology.rack_of[server] in option.tree.switches for server in servers)


def test_without_a_network_it_is_on_time() -> None:
    cluster = Cluster.uniform(2, 8)
    for seed in range(3):
        drawn = generate(60, cluster, load=1.5, seed=seed, longest_s=7200)
        jobs = [replace(each, restart_s=0.0) for each in drawn]
        found = [make(name, SimulationConfig(cluster)).run(jobs, cluster) for name in ("joint", "on-time")]
        ends = [{each.spec.name: each.finish_s for each in result.jobs} for result in found]
        assert ends[0] == ends[1]


def test_another_placement_beside_it_is_refused() -> None:
    with pytest.raises(BadSpec, match="chooses servers itself: placement is 'netpack', want 'scheduler'"):
        network_policies(FAST, "joint", AllocationSettings(placement="netpack"))


def test_a_place_that_the_cluster_does_not_have_is_refused() -> None:
    settings = AllocationSettings(placement=SCHEDULER)
    allocation: Allocation = network_policies(RACKS, "srsf", settings).allocation
    placed = job("a", 2).on(["h1", "h3"], None, Tree("leaf2", {"leaf1": "leaf2"}, frozenset()))
    with pytest.raises(BadDecision, match="'leaf1' has no link to its parent 'leaf2'"):
        allocation.check(Decision([], placed={"a": placed}))
