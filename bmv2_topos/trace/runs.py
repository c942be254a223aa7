"""Jobs of real runs, as input of `explain`: the workers' ports, and the times of each rank's sums.

Both come from the log of the run (`hostlib.io.joblog`); times in the log and in captures use the same clock.
Every collective counts as an iteration, because a log does not show the iterations of the user's program.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bmv2_topos.trace.explain import End, Sum, TracedJob


class LogError(Exception):
    """A file is not a log of a run, or cannot be read; the message states which."""

    exit_code = 1


def read_run(path: Path) -> tuple[list[TracedJob], list[Sum]]:
    """Return the jobs of a log, and their sums. Raises LogError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise LogError(f"{path}: {why}") from error
    try:
        return run_records([json.loads(line) for line in lines])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogError(f"{path}: not the log of a run (ina run --log, ina topo run --log)") from error


def run_records(events: Sequence[Mapping[str, Any]]) -> tuple[list[TracedJob], list[Sum]]:
    """Return the jobs and their sums from the lines of a log."""
    sums = [_sum(event) for event in events if event["event"] == "collective" and not event["error"]]
    begins: dict[int, int] = {}
    for one in sums:
        begins[one.job] = min(one.begin_ns, begins.get(one.job, one.begin_ns))
    starts = (event for event in events if event["event"] == "start")
    return [_facts(event, begins.get(event["job"], 0)) for event in starts], sums


def _facts(event: Mapping[str, Any], start_ns: int) -> TracedJob:
    workers = tuple(map(_end, event["ports"]))
    server = None if event["server"] is None else _end(event["server"])
    name = event["name"] or f"job {event['job']}"
    return TracedJob(event["job"], name, workers, server, server, start_ns)


def _end(port: str) -> End:
    switch, _, number = port.rpartition("/")
    return switch, int(number)


def _sum(event: Mapping[str, Any]) -> Sum:
    end_ns = round(event["time"] * 1e9)
    begin_ns = end_ns - round(event["time_s"] * 1e9)
    return Sum(event["job"], event["number"], 0, event["rank"], begin_ns, begin_ns, end_ns)


def missing_captures(facts: Iterable[TracedJob], captured: Iterable[tuple[int, End]]) -> list[str]:
    """Return the workers' switch ports of which no packet of their job is captured.

    Args:
        facts: The jobs of a log.
        captured: The job and the place of each captured packet.

    Returns: A text ``job NUMBER at SWITCH/PORT`` for each.
    """
    seen = set(captured)
    return [
        f"job {job.job} at {end[0]}/{end[1]}"
        for job in facts
        for end in job.workers
        if (job.job, end) not in seen
    ]
