"""The service's metrics, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import get_args

from ina.run.daemon import Daemon
from ina.run.records import State
from ina.run.views import covered
from softswitch import metric_family, metric_labels

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(service: Daemon, *, streams: int, answers: Mapping[int, int]) -> str:
    """Return the current values of all metrics, in the text format of Prometheus.

    `streams` is the number of open streams, and `answers` the number of answers so far by status code.
    """
    records, servers, switches = (
        service.reports.records(),
        service.reports.servers(),
        service.reports.switches(),
    )
    states = Counter(record.state for record in records)
    late = sum(record.late and not record.over for record in records)
    done_late = sum(record.late and record.state == "completed" for record in records)
    found_none = [(each.name, each.fallback_share) for each in records]
    gauges: list[tuple[str, str, dict[str, float]]] = [
        ("start_time_seconds", "When the service was first started.", {"": service.ledger.clock.began_at}),
        (
            "clock_seconds",
            "Seconds since the service was first started, on its own clock.",
            {"": service.ledger.now_s},
        ),
        ("ready", "Whether the service is ready: 1, or 0.", {"": float(not service.ready)}),
        ("jobs", "Jobs by state.", _by("state", ((state, states[state]) for state in get_args(State)))),
        ("jobs_late", "Unfinished jobs that are estimated to miss their deadlines.", {"": late}),
        ("jobs_completed_late", "Jobs completed after their deadlines.", {"": done_late}),
        (
            "job_fallback_ratio",
            "Part of a running job's recent packets that found no free slot.",
            _by("job", ((name, share) for name, share in found_none if share is not None)),
        ),
        ("server_gpus", "GPUs.", _by("server", ((each["name"], each["gpus"]) for each in servers))),
        (
            "server_gpus_used",
            "GPUs in use by jobs.",
            _by("server", ((each["name"], each["used"]) for each in servers)),
        ),
        (
            "server_usable",
            "Whether jobs may start on the server: 1, or 0.",
            _by("server", ((each["name"], float(not each["down"])) for each in servers)),
        ),
        (
            "switch_slots",
            "Aggregator slots.",
            _by("switch", ((each["name"], each["slots"]) for each in switches)),
        ),
        (
            "switch_slots_held",
            "Aggregator slots in use by jobs.",
            _by("switch", ((each["name"], covered(each["shares"])) for each in switches)),
        ),
        (
            "switch_up",
            "Whether jobs may use the switch: 1, or 0.",
            _by("switch", ((each["name"], float(not each["down"])) for each in switches)),
        ),
        ("http_streams", "Open streams of server-sent events.", {"": streams}),
    ]
    counters: list[tuple[str, str, dict[str, float]]] = [
        ("decisions_total", "Decisions by kind.", _by("event", service.ledger.log.counts.items())),
        ("http_responses_total", "Answers to requests by status code.", _by("code", sorted(answers.items()))),
    ]
    lines: list[str] = []
    for name, meaning, values in gauges:
        lines += metric_family(f"ina_controller_{name}", meaning, values, "gauge") if values else []
    for name, meaning, values in counters:
        lines += metric_family(f"ina_controller_{name}", meaning, values) if values else []
    return "\n".join(lines) + "\n"


def _by(label: str, values: Iterable[tuple[object, float]]) -> dict[str, float]:
    return {metric_labels(**{label: name}): value for name, value in values}
