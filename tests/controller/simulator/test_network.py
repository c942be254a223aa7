"""Jobs on a cluster's network: what slows them, who has which slots and servers, and who is in time."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from controller.errors import BadSpec
from controller.policies.memory.policy import MemoryDivision, MemoryProblem
from controller.policies.memory.regions import SlotStatus
from controller.policies.placement.flows import flows_of
from controller.simulator.network.average import Phases, Work, average, phases_of, run_lengths
from controller.simulator.network.generate import generate
from controller.simulator.network.run import (
    GrantWatch,
    NetworkResult,
    NetworkSettings,
    NetworkTask,
    metrics_of,
    simulate_network,
)
from controller.vocabulary import Job, Topology, fabrics, shapes
from controller.vocabulary.files import read_topology

EXAMPLES = Path(__file__).parents[3] / "examples"

# Links carry 80 Gb/s of gradients: a header takes a fifth of each packet.
PARTS = fabrics.Parts(gpus=1, slots=8192)
SOON = 1e-3  # round trips of tensors, relatively
LATE = {"frame_bytes": 64, "window": 0}


def a_job(name: str, *servers: str, **more: object) -> Job:
    values = {"workers": len(servers), "layers_bytes": (10**9,), "iterations": 10, "compute_s": 0.1}
    return Job(name=name, servers=servers, **{**values, **more})  # type: ignore[arg-type]


def run(jobs: list[Job], topology: Topology, **settings: object) -> NetworkResult:
    chosen = NetworkSettings(**{"placement": "netpack", **LATE, **settings})  # type: ignore[arg-type]
    return simulate_network(NetworkTask(jobs, topology, "fifo-backfill", chosen, keep_log=True, verify=True))


def ends(found: NetworkResult) -> dict[str, float]:
    return {each.spec.name: each.finish_s for each in found.result.jobs}


def test_a_job_alone_takes_what_its_phases_say() -> None:
    found = run([a_job("a", "h1", "h2")], fabrics.star(3, PARTS))
    assert ends(found)["a"] == pytest.approx(10 * (0.1 + 0.1), rel=SOON)  # 8 Gbit at 80 Gb/s


def test_what_is_sent_again_on_a_common_link_takes_time() -> None:
    parts = fabrics.Parts(gpus=1, trunk_bps=100e9)
    topology = fabrics.leaf_spine(1, 2, 2, parts)
    two = [a_job(name, *servers, compute_s=0.0) for name, *servers in (("a", "h1", "h3"), ("b", "h2", "h4"))]
    found = run(two, topology, resent=0.1)
    assert ends(found)["a"] == pytest.approx(10 * 0.2 / 0.9, rel=SOON)
    alone = run(two[:1], topology, resent=0.1)
    assert ends(alone)["a"] == pytest.approx(10 * 0.1, rel=SOON)


def test_full_memory_lets_gradients_pass_unsummed() -> None:
    """Without slots the fallback server's link carries all four flows."""
    job = a_job("a", "h1", "h2", "h3", "h4", fallback="h5")
    ample = run([job], fabrics.star(5, PARTS))
    none = run([job], fabrics.star(5, replace(PARTS, slots=1)))
    assert ends(ample)["a"] == pytest.approx(2.0, rel=SOON)
    assert ends(none)["a"] == pytest.approx(10 * (0.1 + 4 * 0.1), rel=0.01)


def test_the_longer_a_slot_is_held_the_more_of_them_it_takes() -> None:
    topology = fabrics.star(3, replace(PARTS, slots=1024))
    quick = run([a_job("a", "h1", "h2", fallback="h3")], topology)
    slow = run([a_job("a", "h1", "h2", fallback="h3", hold_s=60e-6)], topology)
    summed_bps = 1024 * 256 * 8 / 60e-6
    rate_bps = summed_bps + 40e9  # above that both flows go to the fallback server, whose link has 80 Gb/s
    assert ends(quick)["a"] == pytest.approx(2.0, rel=SOON)
    assert ends(slow)["a"] == pytest.approx(10 * (0.1 + 8e9 / rate_bps), rel=SOON)


def test_members_of_a_group_pay_for_what_contention_adds() -> None:
    topology = fabrics.leaf_spine(1, 2, 2, fabrics.Parts(gpus=1, trunk_bps=10e9))
    stages = (0.0, 0.0, 0.1, 0.1)
    jobs = [
        Job(name=name, workers=4, layers_bytes=(10**9,), iterations=50, compute_s=0.1, stages_s=stages)
        for name in "ab"
    ]
    settings = NetworkSettings(**LATE)
    alone = simulate_network(NetworkTask(jobs[:1], topology, "muri-s", settings))
    both = simulate_network(NetworkTask(jobs, topology, "muri-s", settings))
    assert max(ends(both).values()) > max(ends(alone).values())
    assert all(each.completed for each in both.result.jobs)


@pytest.mark.parametrize("scheduler", ["fifo", "srsf", "las", "tiresias", "muri-s", "weave-s", "themis"])
def test_every_scheduler_runs_with_every_kind_of_policy(scheduler: str) -> None:
    topology = fabrics.leaf_spine(2, 2, 4, fabrics.Parts(gpus=2, slots=512))
    jobs = generate(7, topology, seed=2, gap_s=3.0, deadlines=0.5, slack=3.0)
    settings = NetworkSettings(placement="netpack", memory="deadline", routing="grid")
    found = simulate_network(NetworkTask(jobs, topology, scheduler, settings, verify=True))
    assert {each.spec.name for each in found.result.jobs} == {job.name for job in jobs}


def test_a_replica_with_a_clock_of_its_own_is_refused() -> None:
    jobs = generate(3, fabrics.star(2), seed=3)
    with pytest.raises(BadSpec, match="has no network"):
        simulate_network(
            NetworkTask(jobs, fabrics.star(2), "benchmarks.replicas.muri:srtf", NetworkSettings())
        )


@pytest.mark.parametrize("seed", range(4))
def test_no_slot_is_granted_twice_and_granted_jobs_are_in_time(seed: int) -> None:
    """Links have room for all, so that memory alone decides; each job has servers of its own."""
    rng = random.Random(seed)
    topology = fabrics.star(12, replace(PARTS, slots=rng.choice([300, 1000, 3000])))
    jobs = []
    for number in range(4):
        servers = [f"h{3 * number + place}" for place in (1, 2)]
        alone_s = 0.2 * 40
        due_s = rng.uniform(1.3, 3.0) * alone_s if number else None
        job = a_job(f"job{number}", *servers, iterations=40, deadline_s=due_s, fallback=f"h{3 * number + 3}")
        jobs.append(replace(job, hold_s=rng.choice([None, 30e-6])))
    found = run(jobs, topology, memory="deadline", period_s=0.5)
    assert found.log is not None
    granted = dict.fromkeys(found.jobs, True)
    for _, _, division in found.log.memory:
        spans = []
        for name, regions in division.regions.items():
            if division.standing[name] is SlotStatus.GRANTED:
                spans += [(region.offset, region.end) for region in regions.values()]
            else:
                granted[name] = False
        spans.sort()
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    missed = {each.spec.name for each in found.missed}
    assert not [name for name in missed if granted[name]]


def test_a_job_that_cannot_meet_its_deadline_is_ended() -> None:
    hopeless = a_job("late", "h1", "h2", iterations=100, deadline_s=5.0)
    found = run([hopeless, a_job("other", "h3", "h4")], fabrics.star(4, PARTS), memory="deadline")
    fates = {each.spec.name: each.completed for each in found.result.jobs}
    assert fates == {"late": False, "other": True}
    assert [each.spec.name for each in found.missed] == ["late"]


def test_on_average_no_link_carries_more_than_it_holds() -> None:
    topology = fabrics.leaf_spine(2, 3, 4, fabrics.Parts(gpus=2, trunk_bps=50e9, slots=256))
    rng = random.Random(1)
    names = [server.name for server in topology.servers]
    jobs = [a_job(f"j{n}", *rng.sample(names, 4), compute_s=rng.choice([0.0, 0.05])) for n in range(12)]
    phases = [phases_of(job) for job in jobs]
    work = Work(*map(_array, zip(*((p.ready_s[0], 0.0, 0.0, p.total_bits) for p in phases), strict=True)))
    flows = flows_of(topology, jobs)
    rates = average(flows, work, run_lengths(flows))
    part = work.sending(rates)
    out = dict.fromkeys(range(len(jobs)), 1.0)  # each server's own link carries one flow of its job
    for link in range(len(flows.link_bps)):
        here = {int(flows.job[n]) for n in range(len(flows.job)) if flows.link[n] == link and flows.source[n]}
        assert sum(part[j] * rates[j] * out[j] for j in here) <= flows.link_bps[link] * 1.02


def test_jobs_that_share_far_too_few_slots_are_named() -> None:
    """With 16 slots and windows of 64 packets, three jobs were off by up to 66 % beside packets."""
    few = fabrics.star(6, replace(PARTS, slots=16))
    held_s = 64 * 256 * 8 / 80e9
    jobs = [a_job(f"j{n}", f"h{2 * n + 1}", f"h{2 * n + 2}", hold_s=held_s) for n in range(3)]
    assert run(jobs, few).crowded == {"j0", "j1", "j2"}
    assert not run(jobs[:1], few).crowded  # alone it has all slots in turn
    assert not run(jobs, fabrics.star(6, replace(PARTS, slots=64))).crowded


def test_an_iteration_waits_for_its_tensors_and_their_sums() -> None:
    phases = Phases(2.0, (1.0, 2.0), (10.0, 10.0), latency_s=0.25)
    assert phases.iteration_s(10.0) == pytest.approx(3.5)


def test_workers_that_no_server_has_room_for_are_refused() -> None:
    job = Job(name="wide", workers=2, gpus_per_worker=3, layers_bytes=(1,), compute_s=1.0, iterations=1)
    with pytest.raises(BadSpec, match="no room for it"):
        simulate_network(
            NetworkTask([job], fabrics.star(3, fabrics.Parts(gpus=2)), "fifo", NetworkSettings())
        )


def _array(values: tuple[float, ...]) -> object:
    import numpy as np

    return np.array(values)


def test_earliest_deadline_first_is_told_of_deadlines() -> None:
    topology = read_topology(EXAMPLES / "cluster" / "racks.toml")
    common = {"workers": 32, "layers_bytes": shapes.layers_bytes("resnet50"), "compute_s": 0.04}
    jobs = [
        Job(name="first", iterations=2000, **common),
        Job(name="due", iterations=4000, deadline_s=215.0, **common),
    ]
    missed = {
        scheduler: [
            each.spec.name
            for each in simulate_network(NetworkTask(jobs, topology, scheduler, NetworkSettings())).missed
        ]
        for scheduler in ("edf", "srsf")
    }
    assert missed == {"edf": [], "srsf": ["due"]}
    alone = simulate_network(NetworkTask(jobs[1:], topology, "edf", NetworkSettings()))
    assert 200 < alone.result.jobs[0].finish_s < 206


def test_a_deadline_counts_from_the_jobs_own_arrival() -> None:
    topology = fabrics.star(2, fabrics.Parts(gpus=1))
    late = Job(name="late", workers=1, compute_s=1.0, iterations=10, arrival_s=100.0, deadline_s=11.0)
    found = simulate_network(NetworkTask([late], topology, "fifo-backfill", NetworkSettings()))
    assert not found.missed
    (ended,) = found.result.jobs
    assert ended.spec.deadline_s == 11.0
    assert late.due_s == 111.0 > ended.finish_s > late.deadline_s


def test_a_promise_is_a_grant_on_arrival_and_broken_by_losing_it() -> None:
    granted, shared, ended = SlotStatus.GRANTED, SlotStatus.SHARED, SlotStatus.ENDED
    promises, problem = GrantWatch(), MemoryProblem((), fabrics.star(2))
    for standing in (
        {"kept": granted, "lost": granted, "ended": granted, "later": shared},
        {"kept": granted, "lost": shared, "ended": ended, "later": granted},
        {"kept": granted, "lost": granted, "later": shared},
    ):
        promises.on_divided(0.0, problem, MemoryDivision({name: {} for name in standing}, standing))
    assert promises.lost == {"lost", "ended"}


def test_broken_promises_are_counted_among_the_missed_deadlines() -> None:
    cluster = fabrics.star(32, fabrics.Parts(gpus=1, slots=3000))
    jobs = generate(60, cluster, seed=3, gap_s=20.0, deadlines=0.6, slack=1.3)
    found = simulate_network(
        NetworkTask(jobs, cluster, "srsf", NetworkSettings(memory="deadline", placement="gpu-balance"))
    )
    metrics = metrics_of(found)
    missed = {each.spec.name for each in found.missed}
    assert metrics.broken == len(missed & found.lost)
    assert 0 < metrics.broken < metrics.missed
    shared = simulate_network(NetworkTask(jobs, cluster, "srsf", NetworkSettings(placement="gpu-balance")))
    assert metrics_of(shared).broken == 0
