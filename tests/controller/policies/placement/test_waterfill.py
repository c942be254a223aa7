"""Water-filling against progressive filling in exact fractions, and its properties."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.placement.flows import (
    FlowNode,
    JobFlows,
    SteadyRates,
    flows_of,
    steady_state,
    tree_of,
    waterfill,
)
from controller.vocabulary import Job, Topology, fabrics
from tests import effort


def flow_out(flows: JobFlows, node: int, full: Collection[int]) -> Fraction:
    """Return what leaves a node at a rate of 1 while the memory of these pools is full."""
    if flows.pool[node] >= 0 and flows.pool[node] not in full:
        return Fraction(float(flows.kept[node]))
    below = (other for other in range(len(flows.job)) if flows.parent[other] == node)
    return sum((flow_out(flows, other, full) for other in below), Fraction(float(flows.source[node])))


def brute_force(flows: JobFlows) -> SteadyRates:
    """Fill progressively, with every load summed up anew at every event, in fractions."""
    links = len(flows.link_bps)
    capacity = [Fraction(float(c)) for c in (*flows.link_bps, *flows.pool_bps)]
    load = [Fraction(0)] * len(capacity)
    active, level = set(range(flows.jobs)), Fraction(0)
    rates, bound = [np.inf] * flows.jobs, [-1] * flows.jobs
    full: dict[int, float] = {}
    while active:
        slope = [Fraction(0)] * len(capacity)
        users: list[set[int]] = [set() for _ in capacity]
        for n, job in enumerate(map(int, flows.job)):
            if job not in active:
                continue
            flow = flow_out(flows, n, full)
            uses = [(flows.link[n], flow), (flows.back[n], min(flow, Fraction(1)))]
            if flows.pool[n] >= 0 and flows.pool[n] not in full:
                uses.append((links + flows.pool[n], Fraction(float(flows.held[n]))))
            for resource, amount in uses:
                if resource >= 0 and amount:
                    slope[resource] += amount
                    users[resource].add(job)
        steps = [(capacity[r] - load[r]) / slope[r] for r in range(len(capacity)) if slope[r]]
        steps += [Fraction(float(most)) - level for most in flows.limit_bps[list(active)] if most < np.inf]
        if not steps:
            break
        level += min(steps)
        load = [at + min(steps) * each for at, each in zip(load, slope, strict=True)]
        frozen = {job: -1 for job in active if flows.limit_bps[job] == level}
        reached = [r for r in range(len(capacity)) if slope[r] and load[r] == capacity[r]]
        if not frozen and reached[0] >= links:
            full[reached[0] - links] = float(level)
        elif not frozen:
            frozen = {job: r for r in reversed(reached) if r < links for job in users[r]}
        for job, resource in frozen.items():
            rates[job], bound[job] = float(level), resource
        active -= frozen.keys()
    spilled = [full.get(pool, np.inf) for pool in range(len(flows.pool_bps))]
    return SteadyRates(np.array(rates), np.array(bound), np.array(load, dtype=float), np.array(spilled))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Topology, list[Job]]:
    parts = fabrics.Parts(
        slots=draw(st.sampled_from([1, 64, 512])),
        trunk_bps=draw(st.sampled_from([10e9, 40e9, 100e9])),
        programmable=draw(st.sampled_from([0.0, 0.5, 1.0])),
        seed=draw(st.integers(0, 9)),
    )
    shape = draw(st.sampled_from(["star", "leaf", "fat"]))
    makers = {
        "star": lambda: fabrics.star(5, parts),
        "leaf": lambda: fabrics.leaf_spine(2, 3, 2, parts),
        "fat": lambda: fabrics.fat_tree(2, 2, parts),
    }
    topology = makers[shape]()
    names = [server.name for server in topology.servers]
    jobs = []
    for number in range(draw(st.integers(1, 6))):
        servers = draw(st.lists(st.sampled_from(names), min_size=2, max_size=4, unique=True))
        job = Job(
            name=f"j{number}",
            workers=len(servers),
            layers_bytes=(1000,),
            servers=tuple(servers),
            fallback=draw(st.none() | st.sampled_from(names)),
            aggregate=draw(st.integers(0, 3)) > 0,
            iterations=1,
            compute_s=0.0,
        )
        jobs.append(replace(job, tree=tree_of(topology, job)))
    return topology, jobs


HELD = st.lists(st.sampled_from([1.0, 0.5, 3.0]), min_size=1, max_size=5)
"""For how long nodes hold a slot."""


@settings(max_examples=effort.cases(150), deadline=None)
@given(clusters(), HELD, st.lists(st.sampled_from([0.0, 1e9, 7e9, np.inf]), max_size=8))
def test_rates_are_those_of_progressive_filling_in_fractions(
    case: tuple[Topology, list[Job]], held: list[float], limits: list[float]
) -> None:
    flows = flows_of(*case)
    limit_bps = np.resize(np.array(limits or [np.inf]), flows.jobs)
    flows = replace(flows, limit_bps=limit_bps, held=np.resize(held, len(flows.held)))
    found, expected = waterfill(flows), brute_force(flows)
    assert found.rate_bps == pytest.approx(expected.rate_bps, rel=1e-9)
    assert np.array_equal(found.bound_by, expected.bound_by)
    assert found.load_bps == pytest.approx(expected.load_bps, rel=1e-9)
    assert found.spilled_at_bps == pytest.approx(expected.spilled_at_bps, rel=1e-9)


@settings(max_examples=effort.cases(60), deadline=None)
@given(clusters())
def test_rates_are_max_min_fair_while_memory_suffices(case: tuple[Topology, list[Job]]) -> None:
    flows = flows_of(*case)
    flows = replace(flows, pool_bps=np.full(len(flows.pool_bps), np.inf))
    steady = waterfill(flows)
    flowing = np.array([flow_out(flows, node, ()) > 0 for node in range(len(flows.job))])
    for job, (rate, bound) in enumerate(zip(steady.rate_bps, steady.bound_by, strict=True)):
        assert steady.load_bps[bound] == pytest.approx(flows.link_bps[bound], rel=1e-9)
        there = ((flows.link == bound) | (flows.back == bound)) & flowing
        assert job in flows.job[there]
        assert rate >= max(steady.rate_bps[flows.job[there]]) * (1 - 1e-9), "nobody there has more"


@settings(max_examples=effort.cases(30), deadline=None)
@given(clusters())
def test_full_links_are_never_overfull_when_memory_spills(case: tuple[Topology, list[Job]]) -> None:
    flows = flows_of(*case)
    steady = waterfill(flows)
    assert np.all(steady.load_bps[: len(flows.link_bps)] <= flows.link_bps * (1 + 1e-9))


def test_what_a_full_switch_does_not_sum_takes_all_its_flows_to_the_server() -> None:
    rack = fabrics.star(5, fabrics.Parts(slots=125, rtt_s=20e-6))  # sums 12.8 Gb/s
    job = Job(
        name="a",
        workers=4,
        layers_bytes=(1000,),
        servers=("h1", "h2", "h3", "h4"),
        fallback="h5",
        iterations=1,
        compute_s=0.0,
    )
    spilling = steady_state(rack, [job])
    assert spilling.rate_bps(job) == pytest.approx(12.8e9 + 100e9 / 4), "the server's link takes four flows"
    assert spilling.resource(int(spilling.steady.bound_by[0])) == "the link s1 to h5"
    off = replace(job, aggregate=False)
    assert steady_state(rack, [off]).rate_bps(off) == pytest.approx(25e9)


def test_a_jobs_own_limit_leaves_the_rest_to_others() -> None:
    flows = JobFlows.of(
        jobs=2, link_bps=[10.0], nodes=[FlowNode(0, 0), FlowNode(1, 0)], limit_bps=[3.0, np.inf]
    )
    steady = waterfill(flows)
    assert steady.rate_bps == pytest.approx([3.0, 7.0])
    assert list(steady.bound_by) == [-1, 0]


def test_a_job_on_one_server_is_bound_by_nothing() -> None:
    rack = fabrics.star(2)
    job = Job(name="a", workers=2, layers_bytes=(10,), servers=("h1", "h1"), compute_s=0.1, iterations=1)
    state = steady_state(rack, [job])
    assert state.rate_bps(job) == np.inf
    assert state.value == 2.0
