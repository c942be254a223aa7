"""Checks of counters: values that they must never show, and sums that they have to give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from bmv2_topos.soak.network import BedNetwork
from bmv2_topos.soak.schedule import Schedule
from controller.switches.model import OUTCOMES

_BESIDE = frozenset({"overflow", "disagree", "evicted", "no_uplink"})
"""Counted beside another outcome of the same packet."""
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


class Impossible(Exception):
    """A counter shows something that cannot have happened."""


def check_outcomes(
    schedule: Schedule,
    network: BedNetwork,
    outcomes: Mapping[str, Counter[str]],
    refused: Mapping[str, Counter[str]],
    *,
    restarted: bool,
) -> None:
    """Compare the switches' counters with the packets that were sent.

    Args:
        schedule: The schedule.
        network: The network after it.
        outcomes: The counted packets by switch and outcome.
        refused: The forged packets by switch and outcome.
        restarted: A job was removed meanwhile.

    Raises:
        Impossible: they do not agree.
    """
    disagree = _disagree(schedule)
    transit = {switch.name for switch in schedule.bed.topology.switches if not switch.aggregates}
    for switch, found in outcomes.items():
        where = f"switch {switch}"
        counted = sum(value for name, value in found.items() if name not in _BESIDE)
        # the copies that free slots of a program for Tofino are counted too
        released = found["passed_down"] if schedule.bed.tofino else 0
        if not 0 <= counted - network.switches[switch].arrived <= released:
            raise Impossible(
                f"{where}: {network.switches[switch].arrived} packets, outcomes of {counted}: {dict(found)}"
            )
        expected = Counter(refused.get(switch, ()))
        expected["bad_checksum"] += network.switches[switch].damaged
        for name in _REFUSALS:
            # the exclusive program for Tofino knows no statuses from above
            slack = name in _OF_RESTARTS if restarted else schedule.bed.tofino and name == "unknown_job"
            if found[name] < expected[name] or (found[name] > expected[name] and not slack):
                raise Impossible(f"{where}: {name} is {found[name]}, must be {expected[name]}")
        never = set() if disagree else {"disagree"}
        never |= set() if restarted else {"no_uplink"}
        never |= {"stale"} if schedule.bed.program == "shared" else _SHARED_ONLY
        if switch in transit:
            never |= set(OUTCOMES) - _AT_TRANSIT
        # what leaves a slot of a program for Tofino frees it a little later: meanwhile anybody may take it
        if not schedule.bed.tofino and not any(job.preempt for job in schedule.jobs):
            never.add("preempted")
        for name in sorted(never):
            if found[name]:
                raise Impossible(f"{where}: {name} is {found[name]}, and cannot be")
        taken = found["preempted"] + found["reclaimed"]
        if not schedule.bed.tofino and not found["evicted"] <= taken <= found["evicted"] + found["no_uplink"]:
            raise Impossible(f"{where}: {taken} slots were taken, and {found['evicted']} sums evicted")


def _disagree(schedule: Schedule) -> bool:
    return any(job.defector is not None and not job.defector.dies for job in schedule.jobs)


def check_hosts(schedule: Schedule, workers: Counter[str], servers: Counter[str]) -> None:
    """Hold the counters of workers and fallback servers to what the switches let through.

    Raises:
        Impossible: they took something for wrong that a switch had passed on.
    """
    for what, counts, names in (("workers", workers, _WORKER_NEVER), ("servers", servers, _SERVER_NEVER)):
        for name in names:
            if counts[name] and not (name in _OF_DISAGREEMENT and _disagree(schedule)):
                raise Impossible(f"{what}: {name} is {counts[name]}, and cannot be")
    if workers["sent"] < workers["results"]:
        raise Impossible(f"workers: {workers['results']} results of {workers['sent']} packets")
