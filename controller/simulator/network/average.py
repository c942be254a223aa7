"""Average rates of jobs that compute and communicate in turns; overlaps in time are random.

While a job sends, every other job on the same resource also sends with a probability: the fraction of time
for which that job sends. The sending job gets the rate that water-filling gives it beside the others: an
equal share, or what they leave if they are limited elsewhere. Its rate determines how long it sends; this is
iterated until rates are stable. Where memory is full, the same fraction of each job's packets is summed; all
other packets go up unsummed, as separate flows.

Complexity: O(rounds · nodes), however many jobs there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.policies.placement.flows import Floats, Ints, JobFlows
from controller.vocabulary import Job

# ---------------------------------------------------------------------------
# The phases of a training iteration: computing, and the tensors that are summed, one after the other.
#
# Tensors become ready back to front during the last `overlap` of the computing, at equal distances, and are
# summed in that order. The next iteration begins when all are summed. After a tensor's last bit it takes
# `latency_s` until its sum is everywhere.


@dataclass(frozen=True, slots=True)
class Phases:
    """One iteration of a job.

    The job computes for `compute_s` seconds. It sends its tensors in order. Tensor i is ready `ready_s[i]`
    seconds after the start of the iteration, and has `bits[i]` bits. The sum of a tensor is complete
    `latency_s` seconds after the tensor's transmission.
    """

    compute_s: float
    ready_s: tuple[float, ...]
    bits: tuple[float, ...]
    latency_s: float = 0.0

    @property
    def total_bits(self) -> float:
        """Bits of all tensors."""
        return sum(self.bits)

    def iteration_s(self, rate_bps: float) -> float:
        """Return the seconds of an iteration whose tensors are all summed at this rate (bits per second).

        >>> Phases(2.0, (1.0, 2.0), (10.0, 10.0)).iteration_s(5.0)
        5.0
        """
        now_s = 0.0
        for ready_s, bits in zip(self.ready_s, self.bits, strict=True):
            now_s = max(now_s, ready_s) + bits / rate_bps + self.latency_s
        return max(now_s, self.compute_s)


def phases_of(job: Job, *, latency_s: float = 0.0, announced_bits: float = 0.0, most: int = 8) -> Phases:
    """Return the phases of a job's iteration.

    Args:
        job: The job.
        latency_s: Seconds from a tensor's last bit until its sum is everywhere.
        announced_bits: Number of bits sent in addition to each tensor; at most the tensor's own number.
        most: Maximum number of tensors; layers are merged if there are more.

    >>> from controller.vocabulary import Job
    >>> job = Job(name="a", workers=2, layers_bytes=(1, 2, 3), compute_s=1.0, overlap=0.5)
    >>> phases_of(job).ready_s
    (0.5, 0.75, 1.0)
    """
    layers = job.layers_bytes[::-1]
    first_s = (1 - job.overlap) * job.compute_s
    step_s = job.overlap * job.compute_s / max(1, len(layers) - 1)
    ends = _merged(layers, most)
    starts = [0, *ends[:-1]]
    sizes = [8.0 * sum(layers[start:end]) for start, end in zip(starts, ends, strict=True)]
    return Phases(
        job.compute_s + job.skew_s,
        tuple(first_s + (end - 1) * step_s + job.skew_s for end in ends),
        tuple(bits + min(bits, announced_bits) for bits in sizes),
        latency_s,
    )


def _merged(layers: Sequence[int], most: int) -> list[int]:
    """Merge layers into at most `most` tensors of about equal size; return each one's last layer, from 1."""
    if len(layers) <= most:
        return list(range(1, len(layers) + 1))
    whole, so_far = sum(layers), 0
    ends: list[int] = []
    for number, count in enumerate(layers, 1):
        so_far += count
        if so_far * most >= whole * (len(ends) + 1):
            ends.append(number)
    return ends


# ---------------------------------------------------------------------------
# Collisions in a shared region: consecutive packets also collide with runs of other jobs' packets.
#
# A job's packets in flight take consecutive slots, from a random position. Jobs whose runs of slots overlap
# keep colliding, even if the region has as many slots as all need: only the slots that runs at random
# positions cover are used. If there is room for `APART` times as much, overlapping runs separate, because
# the job whose packets find no slot falls behind.


APART = 2.0

TOO_LONG = 2.0
"""Limit of the model: slots that a job needs at the rate of its servers' links, as a multiple of its pool's
slots. If a job above this limit shares a pool with other jobs, most packets find no slot. The model does not
include the effects of fallback servers, time-outs and windows in this case. Compared with a simulation of
packets, the times of jobs are then from 63 % too short to 44 % too long."""


def crowded(parts: Floats, flows: JobFlows) -> Ints:
    """Return, ascending, the numbers of the jobs that share a pool in which a job is above `TOO_LONG`.

    `parts` is the result of `run_lengths`.
    """
    summing = np.flatnonzero(flows.pool >= 0)
    pool, pools = flows.pool[summing], len(flows.pool_bps)
    long = np.bincount(pool, parts[summing] > TOO_LONG, pools) > 0
    here = long & (np.bincount(pool, minlength=pools) > 1)
    return np.unique(flows.job[summing[here[pool]]])


def run_lengths(flows: JobFlows) -> Floats:
    """Return, for each node, the number of slots that its job needs, divided by the slots of its pool.

    A job needs enough slots for the rate of its servers' links. The result is 0 for nodes without a pool.
    """
    fastest = np.full(flows.jobs, np.inf)
    sends = flows.source > 0
    np.minimum.at(fastest, flows.job[sends], flows.link_bps[flows.link[sends]])
    summing = flows.pool >= 0
    bits = np.append(flows.pool_bps, 0.0)[np.where(summing, flows.pool, -1)]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = fastest[flows.job] * flows.held / bits
    return np.where(summing & (bits > 0), part, 0.0)


# ---------------------------------------------------------------------------
# Links that several jobs fill: part of their packets are retransmissions.
#
# The queue of such a link holds the windows of all senders, so the round-trip time grows beyond its
# previous value; a worker counts late packets as lost, and retransmits them. The amount depends on the
# transport's time-outs, and has to be measured.


LEAST = 0.8
"""Minimum fraction of a link's rate that is left for packets other than retransmissions. Retransmissions
are limited even if many jobs fill a link, because time-outs grow with round-trip times."""


def link_rates(flows: JobFlows, resent: float) -> Floats:
    """Return the rate of each link that retransmissions leave to other packets, bits per second.

    Each job on a link after the first reduces this rate by the fraction `resent`, down to the fraction
    `LEAST`. O(nodes log nodes).
    """
    if not resent:
        return flows.link_bps
    ends = np.concatenate([flows.link, flows.back])
    pairs = np.unique(np.stack([ends, np.tile(flows.job, 2)]), axis=1)
    links = len(flows.link_bps)
    jobs = np.bincount(pairs[0][pairs[0] >= 0], minlength=links)
    return flows.link_bps * np.maximum(1 - resent * np.maximum(jobs - 1, 0), LEAST)


# ---------------------------------------------------------------------------
# The rates of all jobs.


ROUNDS = 24
_CLOSE = 1e-3


@dataclass(frozen=True)
class Work:
    """The work of an iteration of each job, as arrays over the jobs.

    An iteration begins with `before_s` seconds of computing. Then the job sends `bits` bits. This takes
    `bits` divided by the job's rate, plus `latency_s` seconds. While the job sends, it computes for another
    `beside_s` seconds.
    """

    before_s: Floats
    beside_s: Floats
    latency_s: Floats
    bits: Floats

    def iteration_s(self, rate_bps: Floats) -> Floats:
        """Return the seconds per iteration of each job at these rates."""
        with np.errstate(divide="ignore"):
            sends_s: Floats = self.bits / rate_bps + self.latency_s
        return self.before_s + np.maximum(self.beside_s, sends_s)

    def sending(self, rate_bps: Floats) -> Floats:
        """Return the fraction of time that each job sends at these rates."""
        with np.errstate(divide="ignore", invalid="ignore"):
            part = self.bits / rate_bps / self.iteration_s(rate_bps)
        return np.where(rate_bps > 0, np.nan_to_num(part, nan=1.0), 1.0)

    def sent_bps(self, rate_bps: Floats) -> Floats:
        """Return each job's mean rate over sending and computing, bits per second; always finite."""
        return self.bits / self.iteration_s(rate_bps)


def average(flows: JobFlows, work: Work, runs: Floats) -> Floats:
    """Return the rate of each job while the job sends, bits per second; infinite if the job uses no resource.

    `runs` is the result of `run_lengths` for `flows`.
    """
    return _MeanField(flows, runs).solve(work)


class _MeanField:
    def __init__(self, flows: JobFlows, runs: Floats) -> None:
        self.flows = flows
        links, pools = len(flows.link_bps), len(flows.pool_bps)
        self.nowhere = links
        self.capacity = np.append(flows.link_bps, np.inf)
        self.up = np.where(flows.link >= 0, flows.link, links)
        self.down = np.where(flows.back >= 0, flows.back, links)
        self.summing = flows.pool >= 0
        self.pool = np.where(self.summing, flows.pool, 0)
        self.pools = max(1, pools)
        self.pool_bps = flows.pool_bps if pools else np.zeros(1)
        self.levels = _levels(flows.parent)
        self.parts = np.minimum(runs, 1.0)
        self.jobs = np.unique(flows.job)
        self.first = np.searchsorted(flows.job, self.jobs)

    def solve(self, work: Work) -> Floats:
        flows = self.flows
        rate = np.full(flows.jobs, np.inf)
        if not len(self.jobs):
            return rate
        ends = np.minimum(self.capacity[self.up], self.capacity[self.down])
        now = np.minimum(np.minimum.reduceat(ends, self.first), flows.limit_bps[self.jobs])
        for number in range(ROUNDS):
            rate[self.jobs] = now
            found = self._round(rate, work.sending(rate), work.sent_bps(rate))
            wanted = np.minimum(found, flows.limit_bps[self.jobs])
            step = np.sqrt(now * wanted) if number else wanted
            if np.allclose(step, now, rtol=_CLOSE, atol=0.0):
                break
            now = step
        rate[self.jobs] = now
        return rate

    def _round(self, rate: Floats, sending: Floats, sent_bps: Floats) -> Floats:
        job = self.flows.job
        own, part = rate[job], sending[job]
        ends = np.isfinite(own)  # else its mean is no product of rate and time
        mean = np.where(ends, part, 1.0), np.where(ends, own, sent_bps[job])
        out = self._out(own, part, *mean)
        back = np.minimum(out, 1.0)
        resources = np.concatenate([self.up, self.down])
        flow = np.concatenate([out, back])
        twice = np.concatenate([part, part])
        sent = np.tile(mean[0], 2) * flow * np.tile(mean[1], 2)
        size = self.nowhere + 1
        wish = np.bincount(resources, twice * flow, size)
        load = np.bincount(resources, sent, size)
        with np.errstate(divide="ignore", invalid="ignore"):
            capacity = self.capacity[resources]
            fair = capacity / (wish[resources] + (1 - twice) * flow)
            rest = (capacity - (load[resources] - sent)) / flow
        found = np.where(flow > 0, np.maximum(fair, rest), np.inf)
        best = np.minimum(found[: len(job)], found[len(job) :])
        most: Floats = np.minimum.reduceat(best, self.first)
        return most

    def _out(self, own: Floats, part: Floats, times: Floats, rates: Floats) -> Floats:
        """Return the flow that leaves each node, as a multiple of the rate of the node's job.

        The mean rate of each node's job is its element of `times` multiplied by its element of `rates`.
        """
        flows = self.flows
        spends = np.where(self.summing, own * flows.held, 0.0)
        used = np.bincount(self.pool, times * np.where(self.summing, rates * flows.held, 0.0), self.pools)
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = self._usable(part) * self.pool_bps[self.pool] / (used[self.pool] + (1 - part) * spends)
        summed = np.where(self.summing, np.minimum(1.0, np.nan_to_num(fits, nan=0.0, posinf=1.0)), 0.0)
        inflow, out = flows.source.copy(), np.zeros(len(own))
        for here in self.levels:
            out[here] = summed[here] * flows.kept[here] + (1 - summed[here]) * inflow[here]
            below = here[flows.parent[here] >= 0]
            np.add.at(inflow, flows.parent[below], out[below])
        return out

    def _usable(self, part: Floats) -> Floats:
        """Return, for each node, the expected fraction of its pool's slots in use while the node's job sends.

        The node's job and other jobs that send at that time use these slots. If the jobs do not collide, the
        fraction is 1. `part` is the fraction of time that each node's job sends.
        """
        mine, met = self.parts, part * self.parts
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.where(met < 1.0, np.log1p(-met), -50.0)
            free = np.exp(np.bincount(self.pool, log, self.pools)[self.pool] - log)
        beside = np.bincount(self.pool, met, self.pools)[self.pool] - met
        collide = (beside > 1e-9) & ((beside + mine) * APART > 1.0)
        return np.where(collide, 1.0 - (1.0 - mine) * free, 1.0)


def _levels(parent: Ints) -> list[Ints]:
    """Return the numbers of the nodes of each depth, the greatest depth first."""
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent
    while (inner := above >= 0).any():
        depth += inner
        above = np.where(inner, parent[above], -1)
    return [np.flatnonzero(depth == level) for level in range(int(depth.max(initial=0)), -1, -1)]
