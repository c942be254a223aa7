"""Explanations of a placed job's rate, in words and numbers."""

from __future__ import annotations

import math
from dataclasses import replace

from controller.policies.placement.flows import (
    NONE,
    FlowState,
    directions,
    fan_in,
    speed,
    steady_state,
    tree_of,
)
from controller.vocabulary import Job, Topology
from controller.vocabulary.errors import plural


def explain(state: FlowState, job: Job) -> list[str]:
    """Return sentences about a job: its servers, its rate, the limit of the rate, and how to raise it."""
    count = len(job.hosts)
    racks = dict.fromkeys(state.topology.rack_of[host] for host in job.hosts)
    lines = [
        f"{plural(job.workers, 'worker')} on {plural(count, 'server')} in {plural(len(racks), 'rack')}:"
        f" {', '.join(job.hosts[:12])}"
        + (" …" if count > 12 else "")
        + (f"; packets without a slot are summed on {job.fallback}." if job.fallback else ".")
    ]
    rate_bps = state.rate_bps(job)
    if count == 1:
        return [*lines, "The job stays on one server: it sends no gradients, and no link limits its rate."]
    tree = tree_of(state.topology, job)
    fan_ins = fan_in(state.topology, job, tree)
    sums = ", ".join(f"{name} ({plural(fan_ins[name], 'flow')})" for name in sorted(tree.aggregators))
    lines.append(
        f"Its gradients are summed at {sums}; the tree's root is {tree.root}."
        if job.aggregate and sums
        else "No switch sums the job."
    )
    part = speed(job, rate_bps)
    if not math.isfinite(rate_bps):
        return [*lines, f"Nothing limits its rate; its GPUs compute {part:.1%} of the time."]
    lines.append(
        f"Its gradients are summed at {rate_bps / 1e9:.4g} Gb/s: an iteration takes"
        f" {job.iteration_at_s(rate_bps) * 1e3:.4g} ms, and its GPUs compute {part:.1%} of the time."
    )
    return [*lines, *_bound(state, job, rate_bps)]


def _bound(state: FlowState, job: Job, rate_bps: float) -> list[str]:
    """Return sentences that name the link that limits a job, and other jobs on this link.

    They also say how much the job would gain if the link had 10 % more capacity.
    """
    number = int(state.steady.bound_by[state.jobs.index(job)])
    if number == NONE:
        return []
    others = [other.name for other in state.jobs if other is not job and number in _links(state, other)]
    shared = f", with {', '.join(others[:8])}" if others else ", alone"
    lines = [f"{state.resource(number).capitalize()} limits the job{shared}."]
    for name in sorted(tree_of(state.topology, job).aggregators if job.aggregate else ()):
        level = float(state.steady.spilled_at_bps[state.topology.number_of[name]])
        if level < rate_bps:
            lines.append(
                f"Above {level / 1e9:.4g} Gb/s per job, {name} has no free slots: the excess passes unsummed."
            )
    better = steady_state(_faster(state.topology, number // 2), state.jobs).rate_bps(job)
    gain_s = (job.iteration_at_s(rate_bps) - job.iteration_at_s(better)) * job.iterations
    lines.append(
        f"10 % more capacity of this link would bring {(better - rate_bps) / 1e9:+.3g} Gb/s, and end the job"
        f" {gain_s:.4g} s earlier."
    )
    return lines


def _links(state: FlowState, job: Job) -> set[int]:
    if len(job.hosts) < 2:
        return set()
    tree = tree_of(state.topology, job)
    pairs = [(host, state.topology.rack_of[host]) for host in job.hosts] + list(tree.parents.items())
    if job.fallback and state.topology.rack_of[job.fallback] == tree.root:
        pairs.append((tree.root, job.fallback))
    return {end for pair in pairs for end in directions(state.topology, *pair)}


def _faster(topology: Topology, number: int) -> Topology:
    """Return the cluster with a 10 % higher rate of the link at position `number` of its links."""
    links = list(topology.links)
    links[number] = links[number].faster(1.1)
    return replace(topology, links=tuple(links))
