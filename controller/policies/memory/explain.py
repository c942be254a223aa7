"""Explanations of a job's slots, in words and numbers."""

from __future__ import annotations

import math

from controller.policies.memory.demand import rate_of, slot_time_s, slots_for
from controller.policies.memory.policy import MemoryDivision, MemoryProblem, SlotStatus
from controller.vocabulary import Job, Region, Switch
from controller.vocabulary.errors import plural


def explain(problem: MemoryProblem, division: MemoryDivision, job: Job) -> list[str]:
    """Return sentences about a job's slots at each switch, their rate, and the gain of one more slot.

    Why the job has these slots is explained in `controller.core.reasons`.
    """
    if not problem.switches[job.name]:
        why = (
            "aggregate is off" if not job.aggregate else "it has one server, or no switch sums its gradients"
        )
        return [f"The job uses no switch memory: {why}."]
    return [
        line
        for name, region in division.regions[job.name].items()
        for line in _at_switch(problem, division, job, problem.topology.switch[name], region)
    ]


def _at_switch(
    problem: MemoryProblem, division: MemoryDivision, job: Job, switch: Switch, region: Region
) -> list[str]:
    time_s = slot_time_s(job, switch, problem.reading)
    held = "a round trip" if job.hold_s is None or problem.reading == "article" else "as measured"
    rate_bps = rate_of(job, switch, region.size, problem.reading)
    begin = (
        f"{switch.name}: {region.size} of {plural(switch.slots, 'slot')}"
        + (f", {region.offset} to {region.end - 1}" if region.size else "")
        + f" ({division.standing[job.name]}). A slot carries {switch.payload_bytes} bytes in"
        f" {time_s * 1e6:.4g} µs, {held}: {rate_bps / 1e9:.4g} Gb/s in all."
    )
    lines = [begin]
    need = division.demands.get(job.name)
    if division.standing[job.name] is SlotStatus.SHARED:
        sharers = [n for n, on in division.regions.items() if on.get(switch.name) == region]
        lines.append(f"{switch.name}: {len(sharers)} jobs share these slots: {', '.join(sharers[:8])}.")
        if need is not None and need.feasible:
            wanted = slots_for(job, switch, need.rate_bps, problem.reading)
            granted = sum(
                on[switch.name].size
                for n, on in division.regions.items()
                if switch.name in on and division.standing[n] is SlotStatus.GRANTED
            )
            lines.append(
                f"{switch.name}: the job's deadline needs {wanted} slots; more urgent jobs have {granted},"
                f" and {switch.slots - granted} are left."
            )
    return [*lines, _one_more(problem, job, switch, region)]


def _one_more(problem: MemoryProblem, job: Job, switch: Switch, region: Region) -> str:
    link_bps = problem.link_bps(job)
    now_bps, more_bps = (
        min(link_bps, rate_of(job, switch, size, problem.reading)) for size in (region.size, region.size + 1)
    )
    if more_bps <= now_bps:
        full = now_bps >= link_bps
        why = f"its slowest link has {link_bps / 1e9:.4g} Gb/s" if full else "the job's window would not grow"
        return f"{switch.name}: one more slot would bring nothing: {why}."
    gain_s = (job.iteration_at_s(now_bps) - job.iteration_at_s(more_bps)) * job.iterations
    if not math.isfinite(gain_s):
        return f"{switch.name}: one slot would let the switch sum {more_bps / 1e9:.4g} Gb/s of the job."
    return (
        f"{switch.name}: one more slot would carry {(more_bps - now_bps) / 1e6:.4g} Mb/s more, and end the"
        f" job {gain_s:.4g} s earlier, if only slots limit its rate."
    )
