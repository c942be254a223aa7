"""Placement: NetPack against the exact optimum, what every policy must keep to, batches."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.errors import BadSpec
from controller.policies.placement import netpack
from controller.policies.placement.flows import steady_state
from controller.policies.placement.policy import (
    PlacementPolicy,
    PlacementProblem,
    efficiency,
    place,
    without_useless_sums,
)
from controller.policies.registry import PLACEMENTS
from controller.simulator.network import generate
from controller.vocabulary import Job, Topology, fabrics
from tests import effort
from tests.twins.best import best_placement

SMALL = fabrics.leaf_spine(2, 2, 3, fabrics.Parts(gpus=3, slots=256))
TINY = fabrics.leaf_spine(2, 2, 2, fabrics.Parts(gpus=2, slots=64, trunk_bps=40e9))


def jobs(count: int, seed: int, sizes: tuple[int, ...] = (2, 3, 4, 5)) -> list[Job]:
    rng = random.Random(seed)
    return [replace(job, workers=rng.choice(sizes)) for job in generate.generate(count, SMALL, seed=seed)]


@pytest.mark.parametrize("seed", range(8))
def test_netpack_is_within_five_percent_of_the_optimum_of_one_more_job(seed: int) -> None:
    *before, last = jobs(4, seed)
    running = place(SMALL, before, PLACEMENTS["optimus"], seed=seed).state.jobs
    best = place(SMALL, [last], PlacementPolicy(best_placement), running=running).state.value
    mine = place(SMALL, [last], PlacementPolicy(netpack.netpack), running=running).state.value
    assert mine >= 0.95 * best


def test_netpack_is_better_than_chance_and_balance() -> None:
    values = {
        name: sum(place(SMALL, jobs(5, seed), PLACEMENTS[name], seed=seed).state.value for seed in range(5))
        for name in ("netpack", "random", "gpu-balance")
    }
    assert values["netpack"] > 1.05 * max(values["random"], values["gpu-balance"])


def mixed(slow: set[str]) -> Topology:
    """Two racks of three servers with three GPUs, some of them with a tenth of the others' links."""
    links = tuple(replace(link, rate_bps=10e9) if slow & {link.a, link.b} else link for link in SMALL.links)
    found = replace(SMALL, links=links)
    assert sum(rate == 10e9 for rate in found.link_bps_of.values()) == len(slow)
    return found


@pytest.mark.parametrize("name", ["netpack", "locality-fast-links"])
def test_jobs_across_servers_get_the_fast_links_and_others_leave_them(name: str) -> None:
    """The value of a server was once the free part of its link, whatever the link's rate."""
    topology = mixed({"h1", "h2", "h4"})
    problem = PlacementProblem(topology, (), random.Random(0))
    one, wide, all_of = (replace(jobs(1, 0)[0], workers=count) for count in (2, 7, 12))
    assert set(PLACEMENTS[name].choose(problem, one) or ()) <= {"h1", "h2", "h4"}
    assert set(PLACEMENTS[name].choose(problem, wide) or ()) == {"h3", "h5", "h6"}
    assert len(PLACEMENTS[name].choose(problem, all_of) or ()) == 12


@settings(max_examples=effort.cases(40), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(PLACEMENTS)), st.integers(1, 6))
def test_no_gpu_is_given_twice_and_every_job_is_placed_or_waits(seed: int, name: str, count: int) -> None:
    batch = jobs(count, seed, (1, 2, 3, 4))
    placed = place(TINY, batch, PLACEMENTS[name], seed=seed)
    names = [*(job.name for job in placed.state.jobs), *placed.waiting]
    assert sorted(names) == sorted(job.name for job in batch)
    free = PlacementProblem(TINY, placed.state.jobs, random.Random(0)).free
    assert min(free.values()) >= 0
    assert all(len(job.servers) == job.workers for job in placed.state.jobs)
    for job in placed.state.jobs:
        assert job.fallback not in job.hosts
    left = sum(free.values())
    if name != "netpack":
        assert all(job.workers > left for job in batch if job.name in placed.waiting)


def test_a_batch_that_does_not_fit_fills_the_gpus() -> None:
    batch = [replace(job, workers=n) for job, n in zip(jobs(4, 1), (5, 4, 7, 3), strict=True)]
    placed = place(TINY, batch, PLACEMENTS["netpack"])  # 8 GPUs: 5 + 3
    assert placed.waiting == ("job2", "job3")


def test_a_batch_of_a_hundred_thousand_jobs_fills_the_gpus() -> None:
    batch = [
        Job(name=f"j{n}", workers=1 + n % 7, layers_bytes=(1,), iterations=1, compute_s=0.0)
        for n in range(100_000)
    ]
    placed = place(SMALL, batch, PLACEMENTS["netpack"])
    assert not any(PlacementProblem(SMALL, placed.state.jobs, random.Random(0)).free.values())
    assert len(placed.waiting) + len(placed.state.jobs) == len(batch)


def test_a_job_whose_memory_serves_others_better_is_not_summed() -> None:
    rack = fabrics.star(12, fabrics.Parts(gpus=1, slots=100))  # sums 10 Gb/s
    wide = Job(
        name="wide",
        workers=8,
        layers_bytes=(10**8,),
        compute_s=0.01,
        fallback="h12",
        servers=tuple(f"h{n}" for n in range(1, 9)),
        iterations=1,
    )
    pair = replace(wide, name="pair", workers=2, servers=("h9", "h10"), fallback="h11")
    assert efficiency(rack, wide) == 7
    assert efficiency(rack, pair) == 1
    after = without_useless_sums(rack, [wide, pair])
    assert [job.aggregate for job in after] == [True, False]
    assert steady_state(rack, after).value > steady_state(rack, [wide, pair]).value


def test_answers_of_policies_from_outside_are_looked_at() -> None:
    (job,) = jobs(1, 0, (4,))
    for servers, said in (
        (["h1"] * 4, "4 workers of 'job1' on 'h1', which has room for 3"),
        (["h1"], "places 1 worker of 'job1', which has 4"),
        (["h1", "h2", "h3", "h99"], "1 worker of 'job1' on 'h99', which has room for 0"),
    ):
        with pytest.raises(BadSpec, match=said):
            place(SMALL, [job], PlacementPolicy(lambda problem, job, servers=servers: servers))  # type: ignore[misc]
