"""Explanations of one job's result on a cluster's network, in words and numbers."""

from __future__ import annotations

import math

from controller.core.reasons import slots_text
from controller.policies.memory.policy import MemoryDivision, MemoryProblem
from controller.policies.memory.policy import explain as explain_memory
from controller.policies.memory.regions import SlotStatus
from controller.policies.placement.flows import steady_state
from controller.policies.placement.policy import explain as explain_placement
from controller.simulator.engine import EndedJob
from controller.simulator.network.run import NetworkLog, NetworkResult
from controller.vocabulary import Job


def explain(simulated: NetworkResult, name: str) -> list[str]:
    """Return sentences about a job of a simulation with a log."""
    log = simulated.log
    assert log is not None, "`simulated` has no log: simulate with `keep_log`"
    ended = next(each for each in simulated.result.jobs if each.spec.name == name)
    lines = [*_times(ended), *_deadline(simulated, ended)]
    placed = [(at_s, job) for at_s, other, job in log.places if other == name]
    for at_s, job in placed[:1]:
        lines.append(f"At {at_s:.6g} s it was placed on {', '.join(dict.fromkeys(job.servers))}.")
    if len(placed) > 1:
        lines.append(f"It was placed {len(placed)} times, because its scheduler stopped or moved it.")
    if placed and len(placed[0][1].hosts) < 2:
        return [*lines, "The job stays on one server: it sends no gradients, and no link limits its rate."]
    return [*lines, *_network(log, simulated, name)]


def _times(ended: EndedJob) -> list[str]:
    slower = ended.slowdown
    return [
        f"{ended.spec.name} arrived at {ended.spec.arrival_s:.6g} s, first ran at {ended.start_s:.6g} s,"
        f" waited {ended.waited_s:.6g} s in all, and {'was done' if ended.completed else 'was ended'} at"
        f" {ended.finish_s:.6g} s.",
        f"From arrival to end that is {ended.jct_s:.6g} s: {slower:.3g} times the {ended.alone_s:.6g} s that"
        " it takes alone with the fastest links.",
    ]


def _deadline(simulated: NetworkResult, ended: EndedJob) -> list[str]:
    due_s = simulated.jobs[ended.spec.name].due_s
    if due_s is None:
        return []
    if not ended.completed:
        return [f"It was ended because its deadline, at {due_s:.6g} s, could not be met any more."]
    fate = "missed" if simulated.misses(ended) else "met"
    return [
        f"It is due at {due_s:.6g} s: {fate} by {abs(due_s - ended.finish_s):.6g} s. The slots that it needs"
        f" were computed with a reserve of {simulated.margin:.0%} of the time left."
    ]


def _network(log: NetworkLog, simulated: NetworkResult, name: str) -> list[str]:
    rates = [levels[name] for _, levels in log.levels if name in levels]
    finite = [rate for rate in rates if math.isfinite(rate)]
    lines = []
    if finite:
        lines.append(
            "While the job sent, its gradients were summed at"
            f" {min(finite) / 1e9:.4g} to {max(finite) / 1e9:.4g} Gb/s,"
            f" as other jobs started and ended ({len(finite)} times)."
        )
    divisions = [each for each in log.memory if name in each[2].regions]
    if not divisions:
        return lines
    at_s, problem, division = divisions[0]
    granted = sum(each[2].standing[name] is SlotStatus.GRANTED for each in divisions)
    lines.append(
        f"Memory was divided {len(divisions)} times while the job ran; {granted} times it was granted slots"
        f" of its own. The first time, at {at_s:.6g} s:"
    )
    return [*lines, *_at(simulated, problem, division, name)]


def _at(simulated: NetworkResult, problem: MemoryProblem, division: MemoryDivision, name: str) -> list[str]:
    job: Job = next(each for each in problem.jobs if each.name == name)
    state = steady_state(simulated.topology, problem.jobs)
    beside = explain_placement(state, job)[1:]
    why = f"The job's slots: {slots_text(problem, division, name)}."
    return [*beside, why, *explain_memory(problem, division, job)]
