"""The service's figures for Prometheus, in its text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from ina.service.daemon import Daemon
from ina.service.records import State
from ina.service.views import covered, shares_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


def render(service: Daemon, *, streams: int, answers: Mapping[int, int]) -> str:
    """Return all figures as of now; `answers` are the answers given so far, by status code."""
    cluster, records = service.cluster(), service.records()
    states = Counter(record.state for record in records)
    late = sum(record.late and not record.over for record in records)
    done_late = sum(record.late and record.state == "completed" for record in records)
    lines = [
        *_family(
            "start_time_seconds", "gauge", "When the service was first started.", [({}, service.began_at)]
        ),
        *_family(
            "clock_seconds",
            "gauge",
            "Seconds since the service was first started, on its own clock.",
            [({}, service.now_s)],
        ),
        *_family("ready", "gauge", "Whether the service serves: 1, or 0.", [({}, float(not service.ready))]),
        *_family(
            "jobs",
            "gauge",
            "Jobs by state.",
            [({"state": state}, states[state]) for state in get_args(State)],
        ),
        *_family("jobs_late", "gauge", "Jobs that will miss their deadlines, by estimate.", [({}, late)]),
        *_family("jobs_completed_late", "gauge", "Jobs completed after their deadlines.", [({}, done_late)]),
        *_family(
            "job_fallback_ratio",
            "gauge",
            "Part of a running job's packets that found no slot lately.",
            [
                ({"job": each.name}, each.fallback_share)
                for each in records
                if each.fallback_share is not None
            ],
        ),
        *_family(
            "decisions_total",
            "counter",
            "Decisions by kind.",
            [({"event": kind}, n) for kind, n in service.counted().items()],
        ),
        *_family(
            "server_gpus", "gauge", "GPUs.", [({"server": each.name}, each.gpus) for each in cluster.servers]
        ),
        *_family(
            "server_gpus_used",
            "gauge",
            "GPUs in use by jobs.",
            [({"server": each.name}, each.used) for each in cluster.servers],
        ),
        *_family(
            "server_usable",
            "gauge",
            "Whether jobs may start on the server: 1, or 0.",
            [({"server": each.name}, float(not each.down)) for each in cluster.servers],
        ),
        *_family(
            "switch_slots",
            "gauge",
            "Aggregator slots.",
            [({"switch": each.name}, each.slots) for each in cluster.switches],
        ),
        *_family(
            "switch_slots_held",
            "gauge",
            "Aggregator slots in use by jobs.",
            [({"switch": each.name}, covered(shares_of(each))) for each in cluster.switches],
        ),
        *_family(
            "switch_up",
            "gauge",
            "Whether the switch is used: 1, or 0.",
            [({"switch": each.name}, float(not each.down)) for each in cluster.switches],
        ),
        *_family("http_streams", "gauge", "Streams of events that are open.", [({}, streams)]),
        *_family(
            "http_responses_total",
            "counter",
            "Answers to requests by status code.",
            [({"code": str(code)}, n) for code, n in sorted(answers.items())],
        ),
    ]
    return "\n".join(lines) + "\n"


def _family(
    name: str, kind: Literal["gauge", "counter"], meaning: str, values: Sequence[tuple[Labels, float]]
) -> list[str]:
    """Return the lines of one figure, none if it has no values."""
    if not values:
        return []
    full = f"ina_controller_{name}"
    return [
        f"# HELP {full} {meaning}",
        f"# TYPE {full} {kind}",
        *(f"{full}{_labels(labels)} {value:.15g}" for labels, value in values),
    ]


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
