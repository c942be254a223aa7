"""Find the policies that suit given jobs on a given cluster: candidates, ranks, and the best one's limits.

A ranking by the jobs of a single file would depend on chance, so candidates are compared on several
variations of the jobs. The first variation is the file's jobs; in the other variations, the jobs have other
lengths and arrivals. All candidates are simulated with equal variations and equal information.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from controller.policies.settings import SIMPLEST, PolicyChoice, default_for
from controller.simulator.network.run import NetworkOutcome, NetworkSettings, NetworkTask
from controller.vocabulary import Job, Link, Topology

LENGTHS = (0.8, 1.25)
"""Range of the factor by which a variation changes a job's iterations."""
GAPS = (0.5, 1.5)
"""Range of the factor by which a variation changes the time between two arrivals."""
SLOWED = 1.05
"""A job counts as slowed down if its completion time is more than this many times that under the simplest
policies."""
GAIN = 0.03
"""Minimum gain, as a fraction of mean completion time, for which policies other than the default are
recommended."""


def choices(jobs: Sequence[Job], topology: Topology) -> list[PolicyChoice]:
    """Return the combinations of policies that can make a difference, the simplest first.

    Policies for deadlines are included if jobs have deadlines; policies that consider link rates, if the
    rates of servers' links differ; policies that divide memory, if switches have memory; and policies that
    choose paths, if there are several paths. The default (`default_for`) is always included: `joint` on at
    most `FEW_SERVERS` servers, else other policies, because `joint` takes too long. Replicas of published
    simulators are not included, because they have no network.
    """
    due = any(job.deadline_s is not None for job in jobs)
    rates = {link.rate_bps for link in topology.links if {link.a, link.b} & topology.server.keys()}
    memory = any(switch.aggregates for switch in topology.switches)
    meshed = len(topology.links) >= len(topology.switches) + len(topology.servers)
    kinds = (
        (SIMPLEST.scheduler, "srsf", "tiresias", *(["edf", "on-time"] if due else [])),
        (SIMPLEST.placement, "netpack", *(["locality-fast-links"] if len(rates) > 1 else [])),
        (
            SIMPLEST.memory,
            *(["static"] if memory else []),
            *(["deadline", "earliest"] if due and memory else []),
        ),
        (SIMPLEST.routing, *(["ecmp-everywhere", "grid"] if meshed else [])),
    )
    found = [PolicyChoice(*names) for names in itertools.product(*kinds)]
    usual = default_for(len(topology.servers))
    return found if usual in found else [*found, usual]


def variation(jobs: Sequence[Job], number: int) -> tuple[Job, ...]:
    """Return the jobs with other lengths and arrivals; number 0 changes nothing.

    The time between a job's arrival and its deadline does not change, nor does the order of the jobs.
    """
    if number == 0:
        return tuple(jobs)
    random = Random(f"variation {number}")
    changed: dict[str, Job] = {}
    before_s = now_s = 0.0
    for job in sorted(jobs, key=lambda each: each.arrival_s):
        now_s += (job.arrival_s - before_s) * random.uniform(*GAPS)
        before_s = job.arrival_s
        factor = random.uniform(*LENGTHS)
        changed[job.name] = replace(
            job,
            arrival_s=now_s,
            iterations=max(1, round(job.iterations * factor)),
            duration_s=None if job.duration_s is None else job.duration_s * factor,
        )
    return tuple(changed[job.name] for job in jobs)


def task(
    choice: PolicyChoice, jobs: Sequence[Job], topology: Topology, number: int, around: NetworkSettings
) -> NetworkTask:
    """Return the simulation of a variation.

    Args:
        choice: The policies.
        jobs: The jobs of the file.
        topology: Servers, switches and links.
        number: Number of the variation.
        around: All other settings.
    """
    settings = replace(
        around, placement=choice.placement, memory=choice.memory, routing=choice.routing, seed=number
    )
    return NetworkTask(
        jobs=variation(jobs, number), topology=topology, scheduler=choice.scheduler, settings=settings
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of one simulation that are used to compare policies."""

    avg_jct_s: float
    missed: int
    deadlines: int
    jct_s: Mapping[str, float]
    """Completion times of the completed jobs, by name."""

    @classmethod
    def of(cls, outcome: NetworkOutcome) -> Figures:
        """Return the figures of an outcome."""
        done = {each.spec.name: each.jct_s for each in outcome.simulated.result.jobs if each.completed}
        found = outcome.metrics
        return cls(found.avg_jct_s, found.missed, found.deadlines, done)


@dataclass(frozen=True, slots=True)
class ChoiceSummary:
    """Results of a choice over all variations, compared with the simplest choice.

    Attributes:
        choice: The policies.
        avg_jct_s: Mean completion time of completed jobs, in seconds, averaged over the variations.
        missed: Number of missed deadlines, averaged over the variations.
        deadlines: Number of jobs with a deadline.
        change: Change of the mean completion time relative to the simplest choice, as a fraction, averaged
            over the variations.
        change_range: The smallest and the largest change in a variation.
        slowed: Fraction of jobs that are slowed down (see `SLOWED`), over all variations.
        worst: The job that is slowed down most, in any variation; "": no job is slowed down.
        worst_factor: The factor by which this job is slowed down.
    """

    choice: PolicyChoice
    avg_jct_s: float
    missed: float
    deadlines: int
    change: float
    change_range: tuple[float, float]
    slowed: float
    worst: str
    worst_factor: float

    @property
    def rank(self) -> tuple[float, float]:
        """The key that sorts the best choice first: missed deadlines, then mean completion time."""
        return self.missed, self.avg_jct_s


def summarize(choice: PolicyChoice, found: Sequence[Figures], simplest: Sequence[Figures]) -> ChoiceSummary:
    """Summarize a choice of policies.

    `found` has the figures of this choice, and `simplest` those of the simplest choice, both for the same
    variations of the jobs in the same order.
    """
    changes = [_ratio(own.avg_jct_s, other.avg_jct_s) - 1 for own, other in zip(found, simplest, strict=True)]
    factors = [
        (_ratio(seconds, other.jct_s[name]), name)
        for own, other in zip(found, simplest, strict=True)
        for name, seconds in own.jct_s.items()
        if name in other.jct_s
    ]
    slowed = [each for each in factors if each[0] > SLOWED]
    factor, worst = max(slowed, default=(1.0, ""))
    return ChoiceSummary(
        choice=choice,
        avg_jct_s=statistics.fmean(each.avg_jct_s for each in found),
        missed=statistics.fmean(each.missed for each in found),
        deadlines=found[0].deadlines,
        change=statistics.fmean(changes),
        change_range=(min(changes), max(changes)),
        slowed=len(slowed) / max(1, len(factors)),
        worst=worst,
        worst_factor=factor,
    )


def _ratio(value: float, base: float) -> float:
    return value / base if base > 0 else 1.0


def recommend(summaries: Sequence[ChoiceSummary], usual: PolicyChoice) -> ChoiceSummary:
    """Return the best choice's summary, or the default's (`usual`) if the best is not clearly better.

    The best choice is clearly better if it misses fewer deadlines, or lowers the mean completion time by more
    than the fraction `GAIN`.
    """
    best = min(summaries, key=lambda each: each.rank)
    other = next((each for each in summaries if each.choice == usual), best)
    clearly = best.missed < other.missed or best.avg_jct_s < other.avg_jct_s * (1 - GAIN)
    return best if clearly else other


# --------------------------------------------------------------------------- limits


def larger(topology: Topology) -> dict[str, Topology]:
    """Return copies of the topology, each with more of one resource, by a description of the change."""
    found = {"one more server": _with_server(topology)}
    if (faster := replace(topology, links=tuple(link.faster(2) for link in topology.links))) != topology:
        found["links twice as fast"] = faster
    if any(switch.aggregates for switch in topology.switches):
        found["twice as many slots"] = replace(
            topology,
            switches=tuple(replace(switch, slots=2 * switch.slots) for switch in topology.switches),
        )
    return found


def _with_server(topology: Topology) -> Topology:
    """Return the topology with one more server of the commonest kind at the switch with the fewest servers.

    Switches without servers are not considered.
    """
    workers = [server for server in topology.servers if server.gpus]
    (gpus, kind, vc), _ = Counter((each.gpus, each.kind, each.vc) for each in workers).most_common(1)[0]
    like = next(each for each in workers if (each.gpus, each.kind, each.vc) == (gpus, kind, vc))
    at = {
        server.name: link.other(server.name)
        for server in workers
        for link in topology.links
        if server.name in (link.a, link.b)
    }
    switch = min(Counter(at.values()).items(), key=lambda each: each[1])[0]
    link = next(link for link in topology.links if like.name in (link.a, link.b))
    taken = topology.server.keys() | topology.switch.keys()
    name = next(name for n in itertools.count(1) if (name := f"more-{n}") not in taken)
    return replace(
        topology,
        servers=(*topology.servers, replace(like, name=name, ip="", mac="", fallback_port=0)),
        links=(*topology.links, Link(switch, name, rate_bps=link.rate_bps, delay_s=link.delay_s)),
    )
