"""Checks of counters after a schedule: impossible values, and totals that must match the packets sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from bmv2_topos.soak.network import KINDS as _STRANGERS
from bmv2_topos.soak.network import SoakNetwork
from bmv2_topos.soak.schedule import SoakSchedule
from controller.switches.model import OUTCOMES
from hostlib.wire.encodings import ENCODINGS

# ---------------------------------------------------------------------------
# Coverage: kinds of schedules, faults, outcomes and repairs that a long campaign must have seen.


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
    "recovery": ("begun during faults", "begun after faults"),
}
"""Kinds of events that a long campaign must see, by group; `run_schedule` counts them as "group: name"."""


def missing(counts: Mapping[str, int]) -> list[str]:
    """Return the kinds of events that never happened, as ``group: name``."""
    return [
        f"{group}: {name}"
        for group, names in KINDS.items()
        for name in names
        if not counts.get(f"{group}: {name}")
    ]


def traits(schedule: SoakSchedule) -> Counter[str]:
    """Return the traits of a schedule (program, size, kinds of jobs), as counts by ``kind: name``."""
    testbed = schedule.testbed
    counts = Counter(
        {
            f"program {testbed.program}",
            f"{testbed.levels} levels" if testbed.levels > 1 else "one switch",
            f"{len(schedule.jobs)} jobs" if len(schedule.jobs) > 1 else "one job",
        }
    )
    if not all(switch.aggregates for switch in testbed.topology.switches):
        counts["transit switches"] = 1
    for job in schedule.jobs:
        counts[f"congestion {job.congestion}"] += 1
        counts["may preempt"] += job.preempt
        counts["bare announcements"] += job.bare
        if job.defector is not None:
            counts["a rank dies" if job.defector.dies else "a rank disagrees"] += 1
        for collective in job.collectives:
            counts[collective.name] += 1
            counts["int32" if collective.dtype == "int32" else f"float32, {job.numbers}"] += 1
            counts["stragglers"] += max(collective.waits_us) > 1000
            counts["values too large"] += collective.large
            counts["non-finite values"] += collective.nonfinite
    return Counter({f"kind: {name}": value for name, value in counts.items() if value})


_BESIDE = frozenset({"overflow", "disagree", "evicted", "no_uplink"})
"""Outcomes that are counted in addition to another outcome of the same packet."""
_REFUSALS = frozenset(
    {
        *("truncated", "bad_checksum", "bad_version", "bad_kind", "bad_lanes", "bad_length"),
        *("unknown_job", "wrong_port", "wrong_rank", "wrong_fan_in", "wrong_epoch", "wrong_direction"),
    }
)
_OF_RESTARTS = frozenset({"unknown_job", "wrong_epoch", "no_uplink"})
_SHARED_ONLY = frozenset({"collided", "bypassed", "preempted", "reclaimed", "evicted", "flushed", "pulled"})
_AT_TRANSIT = frozenset({"passed_up", "passed_down"}) | _REFUSALS | _BESIDE
_WORKER_NEVER = (
    *("bad_length", "foreign", "bad_version", "bad_kind", "wrong_job", "wrong_tag", "bad_bitmap"),
)
_OF_DISAGREEMENT = frozenset({"wrong_tag", "disagreements"})
_SERVER_NEVER = (
    *("bad_length", "foreign", "bad_version", "bad_kind", "bad_lanes", "wrong_node", "foreign_bits"),
    *("wrong_fan_in", "disagreements"),
)


class ImpossibleOutcome(Exception):
    """A counter shows an impossible value."""


def check_outcomes(
    schedule: SoakSchedule,
    network: SoakNetwork,
    outcomes: Mapping[str, Counter[str]],
    refused: Mapping[str, Counter[str]],
    *,
    restarted: bool,
) -> None:
    """Compare the switches' counters with the packets that were sent.

    Args:
        schedule: The schedule.
        network: The network, after the schedule.
        outcomes: Packets that the switches counted, by switch and outcome.
        refused: Forged packets that were sent, by switch and expected outcome.
        restarted: Whether a job was removed during the schedule.

    Raises:
        ImpossibleOutcome: counters and packets do not agree.
    """
    disagree = _disagree(schedule)
    transit = {switch.name for switch in schedule.testbed.topology.switches if not switch.aggregates}
    for switch, found in outcomes.items():
        where = f"switch {switch}"
        counted = sum(value for name, value in found.items() if name not in _BESIDE)
        # the copies that free slots of a program for Tofino are counted too
        released = found["passed_down"] if schedule.testbed.tofino else 0
        if not 0 <= counted - network.switches[switch].arrived <= released:
            raise ImpossibleOutcome(
                f"{where}: {network.switches[switch].arrived} packets arrived, but the switch counted the"
                f" outcomes of {counted} packets: {dict(found)}"
            )
        expected = Counter(refused.get(switch, ()))
        expected["bad_checksum"] += network.switches[switch].damaged
        for name in _REFUSALS:
            # the exclusive program for Tofino counts statuses from above as unknown_job
            slack = name in _OF_RESTARTS if restarted else schedule.testbed.tofino and name == "unknown_job"
            if found[name] < expected[name] or (found[name] > expected[name] and not slack):
                raise ImpossibleOutcome(f"{where}: {name} is {found[name]}, must be {expected[name]}")
        never = set() if disagree else {"disagree"}
        never |= set() if restarted else {"no_uplink"}
        never |= {"stale"} if schedule.testbed.program == "shared" else _SHARED_ONLY
        if switch in transit:
            never |= set(OUTCOMES) - _AT_TRANSIT
        # a program for Tofino frees a slot a little after its sum has left: meanwhile any job may take it
        if not schedule.testbed.tofino and not any(job.preempt for job in schedule.jobs):
            never.add("preempted")
        for name in sorted(never):
            if found[name]:
                raise ImpossibleOutcome(f"{where}: {name} is {found[name]}, must be 0")
        taken = found["preempted"] + found["reclaimed"]
        if (
            not schedule.testbed.tofino
            and not found["evicted"] <= taken <= found["evicted"] + found["no_uplink"]
        ):
            raise ImpossibleOutcome(
                f"{where}: {taken} slots were taken over, but {found['evicted']} sums were evicted"
            )


def _disagree(schedule: SoakSchedule) -> bool:
    return any(job.defector is not None and not job.defector.dies for job in schedule.jobs)


def check_hosts(schedule: SoakSchedule, workers: Counter[str], servers: Counter[str]) -> None:
    """Check that workers and fallback servers accepted all packets that switches passed on to them.

    Raises:
        ImpossibleOutcome: a counter of refused packets is not 0, or workers got more results than they sent
            packets.
    """
    for what, counts, names in (("workers", workers, _WORKER_NEVER), ("servers", servers, _SERVER_NEVER)):
        for name in names:
            if counts[name] and not (name in _OF_DISAGREEMENT and _disagree(schedule)):
                raise ImpossibleOutcome(f"{what}: {name} is {counts[name]}, must be 0")
    if workers["sent"] < workers["results"]:
        raise ImpossibleOutcome(
            f"workers received {workers['results']} results, but sent only {workers['sent']} packets"
        )
