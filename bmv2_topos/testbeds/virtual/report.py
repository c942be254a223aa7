"""Report of a run of the virtual testbed, as data and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

CLAIMED = ("aggregated", "completed", "flushed", "preempted", "reclaimed")
"""Outcomes of a contribution that a slot took in."""
PASSED_OVER = ("collided", "bypassed")
"""Outcomes of a contribution that went on to the fallback server by itself."""

Fate = Literal["done", "removed", "refused"]

Directed = tuple[str, str]
"""A direction of a link: from one node to another."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predictions of the policies that decided on jobs, by water-filling."""

    rate_bps: Mapping[str, float]
    """Rate of each job's gradients while it communicates, by name; jobs on one server are left out."""
    iteration_s: Mapping[str, float]
    """Time of an iteration of each job at that rate."""
    link_bytes: Mapping[Directed, int]
    """Frames on each link over the whole run, if all is summed where it should be, and nothing is lost."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Slots of all switches that hold part of a sum and wait for the rest, at one moment."""

    time_s: float
    slots: Mapping[str, int]
    """By job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """Report of one job."""

    name: str
    workers: int
    start_s: float
    jct_s: float | None
    """From its start to its last sum; None: it was removed or refused."""
    iteration_s: tuple[float, ...]
    """From the end of one iteration (the last rank has its last sum) to the next one's."""
    sent_packets: int
    """By its workers, resends included."""
    resent_packets: int
    outcomes: Mapping[str, int]
    """Packets by what became of them, over all switches."""
    fallback_bytes: int
    """Frames to and from its fallback server."""
    fallback: Mapping[str, int]
    """The fallback server's counters."""
    checked_elements: int
    """Elements of results that were compared with the exact sum, and equal: an unequal one ends the run."""
    restarts: int = 0
    left_s: float = 0.0
    """Time at which it was done, removed or refused."""
    refused: str | None = None
    """The controller's reason for the switches' refusal; None: they accepted the job."""

    @property
    def fate(self) -> Fate:
        """Fate of the job."""
        if self.refused is not None:
            return "refused"
        return "removed" if self.jct_s is None else "done"

    @property
    def iterations(self) -> int:
        """Number of iterations that it finished."""
        return len(self.iteration_s)

    @property
    def mean_iteration_s(self) -> float:
        """Mean time of an iteration."""
        return statistics.fmean(self.iteration_s) if self.iteration_s else 0.0

    @property
    def aggregated_share(self) -> float:
        """Part of the contributions that a switch added to a slot; the others went on alone."""
        return _aggregated_share([self])

    @property
    def evictions(self) -> int:
        """Partial sums of this job that had to leave their slot for another's packet."""
        return self.outcomes.get("evicted", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReport:
    """Report of one flow of ordinary traffic."""

    source: str
    target: str
    packet_bytes: int
    sent_packets: int
    arrived_packets: int
    """The others were lost, dropped, or are under way at the end of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole run. Two are equal if all events in virtual time were the same."""

    setup: Mapping[str, Any]
    jobs: tuple[JobReport, ...]
    duration_s: float
    """Virtual time until the last job ended."""
    occupancy: tuple[Occupancy, ...]
    slots: int
    """All slots of all switches that aggregate."""
    dropped_packets: int
    """Packets that found a queue of a switch full."""
    lost_packets: int
    """Packets lost by the links."""
    flows: tuple[FlowReport, ...] = ()
    host_bytes: int = 0
    """Frames that passed the links of hosts, both ways, fallback servers' included."""
    trunk_bytes: int = 0
    """Frames that passed the links between switches, both ways."""
    link_bytes: Mapping[Directed, int] = field(default_factory=dict)
    """Frames on each link, by sender and receiver."""
    packet_hops: int = 0
    """Packets that passed a link, each counted at each."""
    switches: tuple[str, ...] = ()
    """Their names, in the order of the topology."""
    foreseen: Prediction | None = None
    """Predictions of the policies, if any decided."""
    wall_s: float = field(default=0.0, compare=False)
    """Real time of the simulation."""

    @property
    def mean_jct_s(self) -> float:
        """Mean job completion time of the jobs that ended."""
        times = [job.jct_s for job in self.jobs if job.jct_s is not None]
        return statistics.fmean(times) if times else 0.0

    @property
    def aggregated_share(self) -> float:
        """Part of the contributions of all jobs that a switch added to a slot."""
        return _aggregated_share(self.jobs)

    def mean_occupancy(self, job: JobReport) -> float:
        """Return the average number of slots that a job held while it ran; 0 without samples of it."""
        held = [
            sample.slots.get(job.name, 0)
            for sample in self.occupancy
            if job.start_s <= sample.time_s <= job.left_s
        ]
        return statistics.fmean(held) if held else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of JSON, with the values of the properties."""
        plain = asdict(self)
        plain["link_bytes"] = _listed(self.link_bytes)
        if self.foreseen is not None:
            plain["foreseen"]["link_bytes"] = _listed(self.foreseen.link_bytes)
        for job, fields in zip(self.jobs, plain["jobs"], strict=True):
            fields["fate"] = job.fate
            fields["iterations"] = job.iterations
            fields["mean_iteration_s"] = job.mean_iteration_s
            fields["aggregated_share"] = job.aggregated_share
            fields["evictions"] = job.evictions
        plain["mean_jct_s"] = self.mean_jct_s
        return plain


def _aggregated_share(jobs: Iterable[JobReport]) -> float:
    outcomes = [job.outcomes for job in jobs]
    inside = sum(each.get(name, 0) for each in outcomes for name in CLAIMED)
    outside = sum(each.get(name, 0) for each in outcomes for name in PASSED_OVER)
    return inside / (inside + outside) if inside + outside else 0.0


def _listed(link_bytes: Mapping[Directed, int]) -> list[dict[str, Any]]:
    return [{"from": source, "to": target, "bytes": count} for (source, target), count in link_bytes.items()]
