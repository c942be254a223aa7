"""Themis, simplified (NSDI'20): finish-time fairness by auctions of leases.

A job's finish-time fairness is rho = T_shared / T_ideal. T_shared is the job's time from submission to end in
the shared cluster. T_ideal is its time with a private fair share: 1/N of the cluster for N jobs. A job that
needs g GPUs and has a share of c GPUs runs at min(1, c/g) of its speed. In a fair cluster, rho is at most 1.

GPUs are leased. When leases end, or GPUs are free and jobs arrive, the free GPUs are auctioned:

1. Of all jobs without a lease, the fraction 1 - f with the worst rho may bid (large f: fair).
2. The auction maximises the product of the bidders' 1/rho, where winners get their GPUs for one lease (the
   paper's partial allocation). Jobs get all their GPUs or none, so this is a knapsack; it is filled by gain
   in log(1/rho) per GPU.
3. The remaining GPUs go to jobs that may not bid, the worst rho first, so that no usable GPU is idle.

As in the public simulators, three parts of Themis are left out: bids for fewer GPUs than a job needs;
placement in the bids (placement is consolidated for all jobs); and the hidden payments that make bids
truthful, because our bids are always true. All leases end at multiples of `lease_s`, so that an auction has
more than one GPU to offer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from controller.policies.scheduling.muri import place
from controller.policies.scheduling.placement import FreeGpuCounts
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.policies.scheduling.ranked import keep_until_repaid


class Themis:
    """Policy for finish-time fairness: `fairness` is f, `lease_s` the length of a lease.

    The defaults have not been checked against the paper.
    """

    name = "themis"

    def __init__(self, *, fairness: float = 0.8, lease_s: float = 1200.0) -> None:
        self._fairness = fairness
        self._lease_s = lease_s
        self._leased_until_s = 0.0

    def decide(self, view: View) -> Decision:
        """Return the groups of the jobs that hold leases, and of the jobs that win the auction."""
        if unchanged := keep_until_repaid(view):
            return unchanged
        now_s = view.now_s
        over = now_s >= self._leased_until_s
        if over:
            self._leased_until_s = (math.floor(now_s / self._lease_s) + 1) * self._lease_s
        holders = [] if over else [job for job in view.jobs.values() if job.group is not None]
        counts = FreeGpuCounts(view.cluster)
        for job in sorted(holders, key=lambda job: -job.spec.gpus):
            counts.allocate(job.spec.gpus)
        rest = [job for job in view.jobs.values() if over or job.group is None]
        winners = self._auction(rest, view, counts)
        drafts = [Group((job,), (), reason=f"rho {rho(job, view):.2f}") for job in (*holders, *winners)]
        groups = place(drafts, view)
        waits = len(groups) < len(view.jobs)
        return Decision(groups, self._leased_until_s if waits else None)

    def _auction(self, jobs: Iterable[JobState], view: View, counts: FreeGpuCounts) -> list[JobState]:
        worst_first = sorted(jobs, key=lambda job: (-rho(job, view), job.order))
        bidders = math.ceil(len(worst_first) * (1 - self._fairness))
        bids = sorted(
            worst_first[:bidders], key=lambda job: (-self._gain(job, view.now_s) / job.spec.gpus, job.order)
        )
        return counts.allocate_each((*bids, *worst_first[bidders:]), lambda job: job.spec.gpus)

    def _gain(self, job: JobState, now_s: float) -> float:
        """Return the logarithm of a ratio: rho without the lease, divided by rho with the lease."""
        with_s = _since_arrival_s(job, now_s) + job.remaining_s(now_s)
        return math.log1p(min(self._lease_s, job.remaining_s(now_s)) / with_s)


def rho(job: JobState, view: View) -> float:
    """Return the finish-time fairness rho of `job` if it runs alone on its GPUs from now on."""
    share = view.cluster.gpus / len(view.jobs)
    ideal_s = job.spec.iterations * job.alone_s * max(1.0, job.spec.gpus / share)
    return (_since_arrival_s(job, view.now_s) + job.remaining_s(view.now_s)) / ideal_s


def _since_arrival_s(job: JobState, now_s: float) -> float:
    """Return the time since a job's arrival, in seconds; 0 before its arrival."""
    return max(0.0, now_s - job.spec.arrival_s)
