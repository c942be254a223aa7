"""Report of a run of the virtual testbed, as data and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

CLAIMED = ("aggregated", "completed", "flushed", "preempted", "reclaimed")
"""Outcomes of contributions that were added to a slot."""
PASSED_OVER = ("collided", "bypassed")
"""Outcomes of contributions that went on to the fallback server without a slot."""

_COMPUTED = ("fate", "iterations", "mean_iteration_s", "aggregated_share", "evictions")
"""Properties of `JobReport` that JSON contains, too."""

Fate = Literal["done", "removed", "refused"]

Directed = tuple[str, str]
"""One direction of a link: the sending node and the receiving node."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predictions of the policies that decided on jobs, by water-filling."""

    rate_bps: Mapping[str, float]
    """Rate at which each job sends gradients while the job communicates, in bits/s, by the job's name. Jobs
    on a single server are left out."""
    iteration_s: Mapping[str, float]
    """Duration of an iteration of each job at the job's rate in `rate_bps`, in seconds, by the job's name."""
    link_bytes: Mapping[Directed, int]
    """Bytes of frames on each link over the whole run, if every packet gets its slot and none is lost."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Number of slots, over all switches, that hold an incomplete sum at one moment."""

    time_s: float
    slots: Mapping[str, int]
    """By job name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """Report of one job."""

    name: str
    workers: int
    start_s: float
    jct_s: float | None
    """Job completion time, in seconds, from the start to the last sum; None: the job was removed or
    refused."""
    iteration_s: tuple[float, ...]
    """Duration of each iteration, from the end of the previous one to its own end. An iteration ends when the
    last rank has its last sum."""
    sent_packets: int
    """Number of packets sent by the job's workers, resends included."""
    resent_packets: int
    outcomes: Mapping[str, int]
    """Number of packets by outcome, over all switches."""
    fallback_bytes: int
    """Bytes of frames to and from the job's fallback server."""
    fallback: Mapping[str, int]
    """The fallback server's counters."""
    checked_elements: int
    """Number of result elements found equal to the exact sum; an unequal element ends the run."""
    restarts: int = 0
    left_s: float = 0.0
    """Time at which the job was done, removed or refused."""
    refused: str | None = None
    """The controller's reason why the switches refused the job; None: they accepted it."""

    @property
    def fate(self) -> Fate:
        """How the job ended: done, removed or refused."""
        if self.refused is not None:
            return "refused"
        return "removed" if self.jct_s is None else "done"

    @property
    def iterations(self) -> int:
        """Number of iterations that the job finished."""
        return len(self.iteration_s)

    @property
    def mean_iteration_s(self) -> float:
        """Mean duration of an iteration, in seconds."""
        return statistics.fmean(self.iteration_s) if self.iteration_s else 0.0

    @property
    def aggregated_share(self) -> float:
        """Fraction of the job's contributions that switches added to slots; all other ones found no slot."""
        return _aggregated_share([self])

    @property
    def evictions(self) -> int:
        """Number of the job's partial sums that were evicted from their slot by another packet."""
        return self.outcomes.get("evicted", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReport:
    """Report of one flow of ordinary traffic."""

    source: str
    target: str
    packet_bytes: int
    sent_packets: int
    arrived_packets: int
    """Number of packets that arrived. The other packets were lost, dropped, or still in flight at the end of
    the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Report of a whole run. Two reports are equal if all events in virtual time were the same."""

    setup: Mapping[str, Any]
    jobs: tuple[JobReport, ...]
    duration_s: float
    """Virtual time until the last job ended."""
    occupancy: tuple[Occupancy, ...]
    slots: int
    """Number of slots of all aggregating switches together."""
    dropped_packets: int
    """Number of packets dropped because a queue was full."""
    lost_packets: int
    """Number of packets lost by the links."""
    flows: tuple[FlowReport, ...] = ()
    host_bytes: int = 0
    """Bytes of frames on the links of hosts, in both directions, including the fallback servers' hosts."""
    trunk_bytes: int = 0
    """Bytes of frames on the links between switches, in both directions."""
    link_bytes: Mapping[Directed, int] = field(default_factory=dict)
    """Bytes of frames on each link, by sender and receiver."""
    packet_hops: int = 0
    """Number of packets over links: each packet counts once for every link that it passed."""
    switches: tuple[str, ...] = ()
    """Names of the switches, in the topology's order."""
    foreseen: Prediction | None = None
    """Predictions of the policies; None: no policies decided on the jobs."""
    wall_s: float = field(default=0.0, compare=False)
    """Real time that the simulation took."""

    @property
    def mean_jct_s(self) -> float:
        """Mean job completion time of the jobs that ended."""
        times = [job.jct_s for job in self.jobs if job.jct_s is not None]
        return statistics.fmean(times) if times else 0.0

    @property
    def aggregated_share(self) -> float:
        """Fraction of all jobs' contributions that a switch added to a slot."""
        return _aggregated_share(self.jobs)

    def mean_occupancy(self, job: JobReport) -> float:
        """Return the mean number of slots that a job held while it ran; 0 if there are no samples."""
        held = [
            sample.slots.get(job.name, 0)
            for sample in self.occupancy
            if job.start_s <= sample.time_s <= job.left_s
        ]
        return statistics.fmean(held) if held else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the report as values for JSON, including the values of its properties."""
        plain = asdict(self)
        plain["link_bytes"] = _listed(self.link_bytes)
        if self.foreseen is not None:
            plain["foreseen"]["link_bytes"] = _listed(self.foreseen.link_bytes)
        for job, fields in zip(self.jobs, plain["jobs"], strict=True):
            fields |= {name: getattr(job, name) for name in _COMPUTED}
        plain["mean_jct_s"] = self.mean_jct_s
        return plain


def _aggregated_share(jobs: Iterable[JobReport]) -> float:
    outcomes = [job.outcomes for job in jobs]
    inside = sum(each.get(name, 0) for each in outcomes for name in CLAIMED)
    outside = sum(each.get(name, 0) for each in outcomes for name in PASSED_OVER)
    return inside / (inside + outside) if inside + outside else 0.0


def _listed(link_bytes: Mapping[Directed, int]) -> list[dict[str, Any]]:
    return [{"from": source, "to": target, "bytes": count} for (source, target), count in link_bytes.items()]
