"""Metrics of jobs that ran: flat, with SI units in the keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ina.launch.spec import JobResult, Reports

Metrics = Mapping[str, float]


def summed_bytes(reports: Reports) -> float:
    """Return the number of bytes that each rank contributed to sums (the largest number of all ranks)."""
    return max((report.get("elements", 0.0) for report in reports.values()), default=0.0) * 4


def goodput_bps(reports: Reports) -> float:
    """Return the summed bits per second of time spent in allreduces; 0 before the first allreduce."""
    busy = max((report.get("time_s", 0.0) for report in reports.values()), default=0.0)
    return summed_bytes(reports) * 8 / busy if busy else 0.0


def metrics(result: JobResult) -> dict[str, float]:
    """Return the metrics of a job, flat, with SI units in the keys."""
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
    """Return the sums over jobs of all additive metrics: counts, not rates and times."""
    sums: dict[str, float] = {}
    for numbers in jobs:
        for key, value in numbers.items():
            if not key.endswith(("_s", "_bps")):
                sums[key] = sums.get(key, 0.0) + value
    return sums


def by_switch(jobs: Iterable[JobResult]) -> dict[str, Metrics]:
    """Return the number of packets of all jobs, by switch and outcome."""
    counts: dict[str, dict[str, float]] = {}
    for job in jobs:
        for switch, outcomes in job.switches.items():
            of = counts.setdefault(switch, {})
            for name, number in outcomes.items():
                key = f"{name}_packets"
                of[key] = of.get(key, 0) + number
    return dict(sorted(counts.items()))


def refusals(refused: Mapping[str, int]) -> dict[str, float]:
    """Return, as metrics, the numbers of refused packets, which belonged to no job, by reason."""
    return {f"refused_{name}_packets": float(value) for name, value in refused.items()}
