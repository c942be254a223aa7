"""Explanations of a job's slots, in words and numbers."""

from __future__ import annotations

import math

from controller.memory.demand import Demand, rate_of, slot_time_s, slots_for
from controller.memory.policy import Answer, Question, Standing
from controller.vocabulary import Job, Region, Switch
from controller.vocabulary.words import plural


def explain(question: Question, answer: Answer, job: Job) -> list[str]:
    """Return sentences: the demand, each switch's slots and what limits them, the gain of one more slot."""
    lines = []
    if job.name in answer.demands:
        lines += _demand(question, answer.demands[job.name], job)
    if not question.switches[job.name]:
        why = "aggregate is off" if not job.aggregate else "it stays on one server, or no switch sums"
        return [*lines, f"It uses no switch memory: {why}."]
    if answer.standing[job.name] is Standing.ENDED:
        return [*lines, "It is ended: the most that memory could do is not enough."]
    for name, region in answer.regions[job.name].items():
        lines += _at_switch(question, answer, job, question.topology.switch[name], region)
    return lines


def _demand(question: Question, need: Demand, job: Job) -> list[str]:
    """Describe the slots that the deadline needs."""
    begin_s = max(question.now_s, job.arrival_s)
    hidden_s = job.overlap * job.compute_s if question.reading == "measured" else 0.0
    beside = f" ({hidden_s * 1e3:.4g} ms beside communication)" if hidden_s else ""
    lines = [
        f"Due at {job.due_s:g} s: {job.iterations} iterations are left from {begin_s:g} s on, so"
        f" {need.round_s * 1e3:.4g} ms each; computing takes {job.compute_s * 1e3:.4g} ms of it"
        f"{beside}, and"
        f" {max(0.0, need.communication_s) * 1e3:.4g} ms are left for {job.model_bytes / 1e6:.4g} MB of"
        f" gradients (reading: {question.reading})."
    ]
    if not math.isfinite(need.rate_bps):
        lines.append(f"Computing alone takes too long: the earliest end is {need.estimate_s:.6g} s.")
    elif not need.feasible:
        lines.append(
            f"That is {need.rate_bps / 1e9:.4g} Gb/s, more than its slowest link's"
            f" {need.link_bps / 1e9:.4g} Gb/s: the earliest end is {need.estimate_s:.6g} s."
        )
    else:
        lines.append(f"That is {need.rate_bps / 1e9:.4g} Gb/s.")
    return lines


def _at_switch(question: Question, answer: Answer, job: Job, switch: Switch, region: Region) -> list[str]:
    time_s = slot_time_s(job, switch, question.reading)
    held = "a round trip" if job.hold_s is None or question.reading == "article" else "as measured"
    rate_bps = rate_of(job, switch, region.size, question.reading)
    begin = (
        f"{switch.name}: {region.size} of {plural(switch.slots, 'slot')}"
        + (f", {region.offset} to {region.end - 1}" if region.size else "")
        + f" ({answer.standing[job.name]}). A slot carries {switch.payload_bytes} bytes in"
        f" {time_s * 1e6:.4g} µs, {held}: {rate_bps / 1e9:.4g} Gb/s in all."
    )
    lines = [begin]
    need = answer.demands.get(job.name)
    if answer.standing[job.name] is Standing.SHARED:
        sharers = [n for n, on in answer.regions.items() if on.get(switch.name) == region]
        lines.append(f"{switch.name}: {len(sharers)} jobs share these slots: {', '.join(sharers[:8])}.")
        if need is not None and need.feasible:
            wanted = slots_for(job, switch, need.rate_bps, question.reading)
            granted = sum(
                on[switch.name].size
                for n, on in answer.regions.items()
                if switch.name in on and answer.standing[n] is Standing.GRANTED
            )
            lines.append(
                f"{switch.name}: its deadline needs {wanted} slots; more urgent jobs have {granted}, and"
                f" {switch.slots - granted} are left."
            )
    return [*lines, _one_more(question, job, switch, region)]


def _one_more(question: Question, job: Job, switch: Switch, region: Region) -> str:
    link_bps = question.link_bps(job)
    now_bps, more_bps = (
        min(link_bps, rate_of(job, switch, size, question.reading)) for size in (region.size, region.size + 1)
    )
    if more_bps <= now_bps:
        full = now_bps >= link_bps
        why = f"its slowest link has {link_bps / 1e9:.4g} Gb/s" if full else "its window would not grow"
        return f"{switch.name}: one more slot would bring nothing: {why}."
    gain_s = (job.iteration_at_s(now_bps) - job.iteration_at_s(more_bps)) * job.iterations
    if not math.isfinite(gain_s):
        return f"{switch.name}: one slot would let it sum {more_bps / 1e9:.4g} Gb/s here."
    return (
        f"{switch.name}: one more slot would carry {(more_bps - now_bps) / 1e6:.4g} Mb/s more, and end the"
        f" job {gain_s:.4g} s earlier, if slots alone bound it."
    )
