"""Metrics of ended jobs: dictionaries of numbers, whose keys end with the SI unit (``time_s``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ina.launch.spec import JobResult, Reports

Metrics = Mapping[str, float]


def summed_bytes(reports: Reports) -> float:
    """Return the number of bytes that the rank with the largest contribution has contributed to sums."""
    return max((report.get("elements", 0.0) for report in reports.values()), default=0.0) * 4


def goodput_bps(reports: Reports) -> float:
    """Return the goodput in bits per second: summed bits, divided by the time spent in collectives.

    Each of these two values is the largest of all ranks. The goodput is 0 before the first collective.
    """
    busy = max((report.get("time_s", 0.0) for report in reports.values()), default=0.0)
    return summed_bytes(reports) * 8 / busy if busy else 0.0


def metrics(result: JobResult) -> dict[str, float]:
    """Return the metrics of a job by name; names end with the SI unit, such as ``time_s``."""
    reports = list(result.reports.values())

    def total(name: str) -> float:
        return sum(report.get(name, 0.0) for report in reports)

    busy = max((report.get("time_s", 0.0) for report in reports), default=0.0)
    numbers = {
        "time_s": result.time_s,
        "allreduces": max((report.get("collectives", 0.0) for report in reports), default=0.0),
        "summed_bytes": summed_bytes(result.reports),
        "allreduce_time_s": busy,
        "goodput_bps": goodput_bps(result.reports),
        "sent_packets": total("packets_sent"),
        "resent_packets": total("packets_resent"),
    }
    numbers |= {f"switch_{name}_packets": value for name, value in result.counters.items()}
    numbers |= {f"fallback_{name}": value for name, value in result.fallback.items()}
    return numbers


def total(jobs: Iterable[Metrics]) -> dict[str, float]:
    """Return the sum over all jobs of each metric that is a count; leave out times and rates."""
    sums: dict[str, float] = {}
    for numbers in jobs:
        for key, value in numbers.items():
            if not key.endswith(("_s", "_bps")):
                sums[key] = sums.get(key, 0.0) + value
    return sums


def by_switch(jobs: Iterable[JobResult]) -> dict[str, Metrics]:
    """Return, by switch, the metrics that count packets by outcome, summed over all jobs."""
    counts: dict[str, Counter[str]] = {}
    for job in jobs:
        for switch, outcomes in job.switches.items():
            packets = {f"{name}_packets": number for name, number in outcomes.items()}
            counts.setdefault(switch, Counter()).update(packets)
    return dict(sorted(counts.items()))


def refusals(refused: Mapping[str, int]) -> dict[str, float]:
    """Convert the numbers of refused packets, by reason, to metrics. Refused packets belonged to no job."""
    return {f"refused_{name}_packets": float(value) for name, value in refused.items()}
