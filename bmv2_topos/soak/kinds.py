"""Coverage of a campaign: kinds of schedules, faults, outcomes and repairs that a long one must have seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from bmv2_topos.soak.schedule import Schedule
from bmv2_topos.soak.strangers import KINDS as _STRANGERS
from controller.switches.model import OUTCOMES
from hostlib.wire.quantize import ENCODINGS

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "kind": (
        *("program shared", "program exclusive", "one switch", "2 levels", "3 levels", "transit switches"),
        *("one job", "2 jobs", "3 jobs", "may preempt", "stragglers", "a rank dies", "a rank disagrees"),
        *("allreduce", "reduce", "reduce-scatter", "all-gather", "broadcast"),
        *("int32", *(f"float32, {numbers}" for numbers in ENCODINGS)),
        *("values too large", "non-finite values", "PSNs wrapped", "switch clock wrapped"),
        *("bare announcements", "congestion fixed", "congestion aimd", "congestion a2tp"),
    ),
    "event": (
        *("job restarted", "fallback server restarted", "region changed", "switch congested", "link cut"),
        *(f"stranger: {kind}" for kind in _STRANGERS),
    ),
    "link": ("lost", "lost in a cut", "duplicated", "held back", "corrupted", "damaged"),
    "switch": tuple(OUTCOMES),
    "worker": (
        *("sent", "resent", "results", "statuses", "stale", "reminders", "answers", "repairs"),
        *("bypassed", "marked", "collided", "wrong_epoch", "bad_lanes"),
        *("raised PeerTimeout", "raised RanksDisagree"),
    ),
    "server": (
        *("merged", "overlaps", "late", "results", "answers", "repairs", "replays", "statuses", "reminders"),
        *("expired", "forgotten", "unasked", "stale", "no_room", "unknown_job", "wrong_epoch"),
        "disagreements",
    ),
    "recovery": ("under way before it", "begun in the calm"),
}
"""Names by group, as `run_schedule` counts them: "group: name"."""


def missing(counts: Mapping[str, int]) -> list[str]:
    """Return the kinds of events that never happened, as ``group: name``."""
    return [
        f"{group}: {name}"
        for group, names in KINDS.items()
        for name in names
        if not counts.get(f"{group}: {name}")
    ]


def traits(schedule: Schedule) -> Counter[str]:
    """Return the traits of the schedule, as counts by name."""
    bed = schedule.bed
    told = Counter(
        {
            f"program {bed.program}",
            f"{bed.levels} levels" if bed.levels > 1 else "one switch",
            f"{len(schedule.jobs)} jobs" if len(schedule.jobs) > 1 else "one job",
        }
    )
    if not all(switch.aggregates for switch in bed.topology.switches):
        told["transit switches"] = 1
    for job in schedule.jobs:
        told[f"congestion {job.congestion}"] += 1
        told["may preempt"] += job.preempt
        told["bare announcements"] += job.bare
        if job.defector is not None:
            told["a rank dies" if job.defector.dies else "a rank disagrees"] += 1
        for collective in job.collectives:
            told[collective.name] += 1
            told["int32" if collective.dtype == "int32" else f"float32, {job.numbers}"] += 1
            told["stragglers"] += max(collective.waits_us) > 1000
            told["values too large"] += collective.large
            told["non-finite values"] += collective.nonfinite
    return Counter({f"kind: {name}": value for name, value in told.items() if value})
