"""Choice of the jobs to sum in switches where memory is short (NetPack's last step).

The efficiency of a job is the number of flows that its sums save, per switch that spends memory on them.
Complexity: O(tries · events).

>>> from controller.vocabulary import fabrics
>>> job = Job(name="a", workers=3, layers_bytes=(1000,), servers=("h1", "h2", "h3"))
>>> efficiency(fabrics.star(4), job)
2.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from controller.policies.placement.flows import steady_state
from controller.policies.placement.trees import fan_in, tree_of
from controller.vocabulary import Job, Topology

TRIES = 16


def efficiency(topology: Topology, job: Job) -> float:
    """Return the number of flows that a job's sums save, per switch that spends memory on them."""
    tree = tree_of(topology, job)
    fan_ins = fan_in(topology, job, tree)
    saved = sum(fan_ins[name] - 1 for name in tree.aggregators)
    return saved / len(tree.aggregators) if tree.aggregators else 0.0


def without_useless_sums(topology: Topology, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs, without aggregation for those whose memory serves the others better.

    Tries the least efficient jobs at switches whose memory is full, at most `TRIES`; a job stays switched off
    if more GPUs compute then. Each try is one water-filling.
    """
    best = list(jobs)
    state = steady_state(topology, best)
    full = {
        switch.name
        for switch, level in zip(topology.switches, state.steady.spilled_at_bps, strict=True)
        if level < float("inf") and switch.aggregates
    }
    touched = [
        number
        for number, job in enumerate(best)
        if job.aggregate and len(job.hosts) > 1 and tree_of(topology, job).aggregators & full
    ]
    for number in sorted(touched, key=lambda number: efficiency(topology, best[number]))[:TRIES]:
        trial = [*best[:number], replace(best[number], aggregate=False), *best[number + 1 :]]
        after = steady_state(topology, trial)
        if after.value > state.value * (1 + 1e-9):
            best, state = trial, after
    return best
