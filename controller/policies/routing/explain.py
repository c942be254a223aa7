"""Explanations of a job's tree, in words and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from controller.policies.placement.explain import explain as explain_rate
from controller.policies.placement.flows import fan_in
from controller.policies.routing.policy import RoutingProblem
from controller.vocabulary import Job, Tree


def explain(problem: RoutingProblem, trees: Mapping[str, Tree], job: Job) -> list[str]:
    """Return sentences about a job's tree, its rate, the rate's limit, and the rate on shortest paths."""
    if job.name not in trees:
        return [f"{job.name} stays on one server: it needs no tree."]
    tree = trees[job.name]
    fan_ins = fan_in(problem.topology, job, tree)
    near = f"to {job.fallback}" if job.fallback else "to all racks of the job"
    lines = [f"Root {tree.root}: of the switches that can sum, the nearest {near}."]
    for name, parent in tree.parents.items():
        able = problem.topology.switch[name].aggregates
        if name in tree.aggregators:
            does = f"sums {fan_ins[name]} flows"
        elif not able:
            does = f"has no slots and passes {fan_ins[name]} flows on"
        else:
            does = f"could sum, and passes {fan_ins[name]} flows on"
        lines.append(f"{name} {does}, to {parent}.")
    state = problem.evaluate(trees)
    placed = next(each for each in state.jobs if each.name == job.name)
    lines += explain_rate(state, placed)[2:]
    straight = problem.summing_everywhere(job, problem.grow(job, {}))
    if straight == tree:
        return [*lines, "The tree consists of shortest paths."]
    other = problem.evaluate({**trees, job.name: straight})
    rate_bps = other.rate_bps(replace(placed, tree=straight))
    rate = (
        f"the job's gradients would be summed at {rate_bps / 1e9:.4g} Gb/s"
        if math.isfinite(rate_bps)
        else "no link or switch would limit the job's rate"
    )
    return [*lines, f"On shortest paths to the same root {rate}."]
