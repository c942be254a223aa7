"""``ina place``, ``ina route`` and ``ina alloc``: servers, aggregation trees and slots of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from controller.core import reasons
from controller.core.allocator import Allocator
from controller.policies.memory.policy import MemoryDivision as Division
from controller.policies.memory.policy import MemoryProblem, rate_of
from controller.policies.memory.policy import explain as explain_memory
from controller.policies.memory.regions import SlotStatus
from controller.policies.placement.flows import FlowState
from controller.policies.placement.policy import explain as explain_placement
from controller.policies.registry import MEMORIES, PLACEMENTS, ROUTINGS
from controller.policies.routing.policy import RoutingProblem
from controller.policies.routing.policy import explain as explain_route
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Job
from ina.cli.allocation import common
from ina.cli.command import (
    USAGE,
    Declared,
    Failure,
    Listing,
    Reply,
    Result,
    count,
    plural,
    rate,
    refuse,
    seconds,
)
from ina.cli.output import check_plots

MOST_NAMED = 10
"""Number of waiting jobs that are listed by name; further ones are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSettings(common.Drawing):
    """Options of 'ina place': jobs, and the policies that place them."""

    policy: Annotated[
        str,
        Declared(
            metavar="NAME,…",
            help=f"Place jobs by this policy: {', '.join(PLACEMENTS)}; or one of your own: path.py:NAME, or "
            "a name that an installed package offers. Compares several, separated by commas.",
        ),
    ] = "netpack"


def place(asked: PlaceSettings) -> Reply:
    """Place jobs on servers in one batch, and compute the resulting rates.

    Places jobs as the controller does when it starts all of them at once. Jobs that have servers in the file
    keep them and count as running. Rates are computed by water-filling: jobs share switch memory, and links,
    whose rates are reduced by the share of the packets' headers; gradients without a slot go to a fallback
    server.

    Examples:
        ina place --jobs examples/allocation/batch.yaml --cluster examples/allocation/fabric.toml

        ina place --policy locality,netpack --jobs batch.yaml --cluster fabric.toml

        ina place --jobs batch.yaml --cluster fabric.toml --write placed.json

        ina place --explain vision-2 --jobs batch.yaml --cluster fabric.toml
    """
    asked.check()
    names = common.policies(asked.policy)
    inputs = asked.load("place")
    placed = {
        name: common.decided(inputs, AllocationSettings(placement=name, seed=asked.seed), placed=False)
        for name in names
    }
    states = {name: allocator.state for name, allocator in placed.items()}
    waiting = {
        name: [job.name for job in inputs.jobs if job.name not in placed[name].placed] for name in names
    }
    last = states[names[-1]]
    asked.keep(last.jobs)
    if asked.plot is not None:
        from ina.cli.allocation.plots import draw_placement

        draw_placement(last, asked.plot)
    if asked.explain is not None:
        job = common.one_job(asked.explain, inputs.jobs)
        if job.name in waiting[names[-1]]:
            lines = [f"{job.name} waits: too few GPUs are left for it after the other jobs of the batch."]
        else:
            lines = explain_placement(last, common.one_job(job.name, last.jobs))
        return common.explained(lines, "place", names[-1], job.name)
    rows = [
        (name, f"{state.value:.2f}", len(state.jobs), len(waiting[name])) for name, state in states.items()
    ]
    parts: list[Listing | str] = [*_placed(last, waiting[names[-1]])] if len(placed) == 1 else []
    parts.append(Listing("placement", ["policy", "GPUs computing", "placed", "waiting"], rows))
    return Reply(
        replace(_place_result(states, waiting, asked.seed), unused_keys=asked.unused_keys("place")), parts
    )


def _placed(state: FlowState, waiting: Sequence[str]) -> Iterator[Listing | str]:
    rows = [_row(state, job, float(bps)) for job, bps in zip(state.jobs, state.steady.rate_bps, strict=True)]
    columns = ["job", "servers", "racks", "fallback", "summed", "rate", "iteration", "bound by"]
    yield Listing("jobs", columns, rows)
    if waiting:
        more = len(waiting) - MOST_NAMED
        names = ", ".join(waiting[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        yield f"too few GPUs are free for {plural(len(waiting), 'job')}: {names}"


def _row(state: FlowState, job: Job, bps: float) -> tuple[str, ...]:
    racks = {state.topology.rack_of[host] for host in job.hosts}
    bound = int(state.steady.bound_by[state.jobs.index(job)])
    return (
        job.name,
        str(len(job.hosts)),
        str(len(racks)),
        job.fallback or "-",
        "yes" if job.aggregate and job.tree and job.tree.aggregators else "no",
        "-" if len(job.hosts) < 2 else rate(bps),
        seconds(job.iteration_at_s(bps)),
        state.resource(bound),
    )


def _place_result(states: dict[str, FlowState], waiting: dict[str, list[str]], seed: int) -> Result:
    metrics = {f"{name}_gpus_computing": each.value for name, each in states.items()}
    metrics |= {f"{name}_waiting": len(names) for name, names in waiting.items()}
    state = states[list(states)[-1]]
    jobs = {
        job.name: {
            "servers": list(job.servers),
            "fallback": job.fallback,
            "aggregate": job.aggregate,
            "rate_bps": float(bps),
            "iteration_s": job.iteration_at_s(float(bps)),
            "bound_by": state.resource(int(bound)),
            "reason": reasons.place_text(job),
        }
        for job, bps, bound in zip(state.jobs, state.steady.rate_bps, state.steady.bound_by, strict=True)
    }
    return Result("place", {"policies": list(states), "seed": seed}, metrics, jobs)


# --------------------------------------------------------------------------- trees


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSettings(common.Drawing):
    """Options of 'ina route': placed jobs, and the policies that choose their trees."""

    policy: Annotated[
        str,
        Declared(
            metavar="NAME,…",
            help=f"Choose trees by this policy: {', '.join(ROUTINGS)}; or one of your own: path.py:NAME, "
            "or a name that an installed package offers. Compares several, separated by commas.",
        ),
    ] = "grid"
    draws: Annotated[
        int,
        Declared(
            min=1,
            max=10_000,
            help="Round the solution of policy grid to trees at random this many times, and keep the "
            "best trees.",
        ),
    ] = 8


def route(asked: RouteSettings) -> Reply:
    """Choose aggregation trees for placed jobs, and compute the resulting rates.

    Chooses trees as the controller does when it starts these jobs, and replaces the file's trees. The root
    of a job's tree is the aggregating switch nearest to the job's fallback server.

    Examples:
        ina place --jobs batch.yaml --cluster examples/allocation/fabric.toml --write placed.json

        ina route --jobs placed.json --cluster examples/allocation/fabric.toml

        ina route --policy tor-only,shortest-path,grid --jobs placed.json --cluster fabric.toml --plot
        tree.svg

        ina route --explain text-2 --jobs placed.json --cluster examples/allocation/fabric.toml
    """
    asked.check()
    names = common.policies(asked.policy)
    inputs = asked.load("route")
    states = {name: route_by(inputs, name, asked.draws, asked.seed).state for name in names}
    last = states[names[-1]]
    asked.keep(last.jobs)
    if asked.plot is not None:
        from ina.cli.allocation.plots import draw_trees

        draw_trees(last, asked.plot)
    if asked.explain is not None:
        trees = {job.name: job.tree for job in last.jobs if job.tree is not None}
        job = common.one_job(asked.explain, last.jobs)
        lines = explain_route(RoutingProblem(last.topology, last.jobs), trees, job)
        return common.explained(lines, "route", names[-1], job.name)
    rows = [(name, *map(rate, _rates(state))) for name, state in states.items()]
    parts = [_routed(last)] if len(states) == 1 else []
    parts.append(Listing("routing", ["policy", "smallest rate", "sum of rates"], rows))
    result = _route_result(states, asked.draws, asked.seed)
    return Reply(replace(result, unused_keys=asked.unused_keys("route")), parts)


def route_by(inputs: common.Inputs, name: str, draws: int, seed: int) -> Allocator:
    """Choose trees for the jobs, and return the allocator, which has the result.

    Args:
        inputs: Placed jobs and their cluster.
        name: Name of the policy.
        draws: Number of random roundings of policy grid.
        seed: Seed of the random numbers.

    Raises Failure or BadSpec.
    """
    free = tuple(replace(job, tree=None) for job in inputs.jobs)
    settings = AllocationSettings(routing=name, draws=draws, seed=seed)
    return common.decided(replace(inputs, jobs=free), settings, placed=True)


def _rates(state: FlowState) -> tuple[float, float]:
    rates = [state.rate_bps(job) for job in state.jobs if job.tree is not None]
    return min(rates, default=0.0), sum(rates)


def _routed(state: FlowState) -> Listing:
    rows = []
    for job, bps, bound in zip(state.jobs, state.steady.rate_bps, state.steady.bound_by, strict=True):
        if job.tree is None:
            rows.append((job.name, "-", "-", "-", "-", "one server"))
            continue
        sums = ", ".join(sorted(job.tree.aggregators)) or "none"
        row = (job.name, job.tree.root, sums, str(len(job.tree.switches)), rate(float(bps)))
        rows.append((*row, state.resource(int(bound))))
    return Listing("jobs", ["job", "root", "summed at", "switches", "rate", "bound by"], rows)


def _route_result(states: dict[str, FlowState], draws: int, seed: int) -> Result:
    metrics = {}
    for name, state in states.items():
        metrics[f"{name}_smallest_rate_bps"], metrics[f"{name}_total_rate_bps"] = _rates(state)
    state = list(states.values())[-1]
    jobs = {
        job.name: {
            "root": job.tree.root,
            "parents": dict(job.tree.parents),
            "aggregators": sorted(job.tree.aggregators),
            "rate_bps": float(bps),
            "bound_by": state.resource(int(bound)),
            "reason": reasons.place_text(job),
        }
        for job, bps, bound in zip(state.jobs, state.steady.rate_bps, state.steady.bound_by, strict=True)
        if job.tree is not None
    }
    return Result("route", {"policies": list(states), "draws": draws, "seed": seed}, metrics, jobs)


NO_MEMORY = "The job is on one server: it uses no switch memory."


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocSettings(common.Deciding):
    """Options of 'ina alloc': jobs, and the policies that divide slots among them."""

    policy: Annotated[
        str,
        Declared(
            metavar="NAME,…",
            help=f"Divide slots by this policy: {', '.join(MEMORIES)}; or one of your own: path.py:NAME, or "
            "a name that an installed package offers. Compares several, separated by commas.",
        ),
    ] = "deadline"
    reading: common.Reading = "measured"
    now: Annotated[
        float,
        Declared(
            metavar="SECONDS",
            help="Set the time at which slots are divided, on the clock of the jobs' deadlines.",
        ),
    ] = 0.0
    margin: common.Margin = 0.05


def alloc(asked: AllocSettings) -> Reply:
    """Divide switch memory among placed jobs.

    Divides slots as the controller does when all of these jobs run. Links carry gradients at their rate,
    reduced by the share of the packets' headers. A job is aggregated at the switches of its tree, or, if the
    file gives it no tree, at the switches on the shortest paths. Reads files only: no switch is contacted.

    Examples:
        ina alloc --jobs examples/allocation/jobs.toml --cluster examples/allocation/rack.toml

        ina alloc --policy static --jobs jobs.toml --cluster rack.toml --json

        ina alloc --jobs examples/allocation/jobs.toml --cluster examples/allocation/rack.toml --plot m.svg

        ina alloc --explain contest --jobs examples/allocation/jobs.toml --cluster
        examples/allocation/rack.toml
    """
    check_plots("--plot", asked.plot)
    names = common.policies(asked.policy)
    inputs = asked.load("alloc")
    found = {name: decide(inputs, name, asked) for name in names}
    last = found[names[-1]]
    if asked.explain is not None:
        common.one_job(asked.explain, inputs.jobs)
        problem, division = divided(last)
        of = next((job for job in problem.jobs if job.name == asked.explain), None)
        lines = [NO_MEMORY]
        if of is not None:
            why = _reasons(last, [asked.explain])[asked.explain]
            lines = [f"{asked.explain}: {why}.", *explain_memory(problem, division, of)]
        return common.explained(lines, "alloc", names[-1], asked.explain)
    if asked.plot is not None:
        from ina.cli.allocation.plots import draw_memory

        draw_memory(*divided(last), asked.plot)
    setup = {"policies": names, "reading": asked.reading, "now_s": asked.now, "margin": asked.margin}
    parts = [part for name, allocator in found.items() for part in _parts(name, allocator)]
    if len(found) > 1:
        rows = [(name, *_standings(each).values()) for name, each in found.items()]
        parts.append(Listing("memory", ["policy", *map(str, SlotStatus)], rows))
    return Reply(replace(_result(found, setup), unused_keys=asked.unused_keys("alloc")), parts)


def _parts(policy: str, allocator: Allocator) -> Iterator[Listing | str]:
    problem, division = divided(allocator)
    yield Listing(
        f"memory by {policy}",
        ["job", "standing", "switch", "slots", "rate", "needed", "link"],
        [row for job in allocator.placed.values() for row in _rows(problem, division, job)],
    )
    ended = [name for name, standing in division.standing.items() if standing is SlotStatus.ENDED]
    for name, why in _reasons(allocator, ended).items():
        yield (f"{name} {'is late' if name in allocator.late else 'has ended'}: {why}")


def decide(inputs: common.Inputs, name: str, asked: AllocSettings) -> Allocator:
    """Divide slots by the policy with this name.

    Returns the allocator, which has the result. Raises Failure or BadSpec.
    """
    now = asked.now
    refuse(not 0 <= now < 1e12, f"--now {now:g}: want seconds, 0 or more")
    for job in inputs.jobs:
        if job.due_s is not None and job.due_s <= now:
            raise Failure(
                f"{inputs.path}: job {job.name!r} is due at {job.due_s:g} s, not after --now {now:g}", USAGE
            )
    settings = AllocationSettings(memory=name, reading=asked.reading, margin=asked.margin)
    allocator = common.decided(inputs, settings, placed=True)
    allocator.divide(now)
    return allocator


def divided(allocator: Allocator) -> tuple[MemoryProblem, Division]:
    """Return the problem that the allocator solved last, and its division of slots.

    The problem has only the jobs on several servers: other jobs use no switch memory.
    """
    assert allocator.problem is not None
    assert allocator.division is not None
    return allocator.problem, allocator.division


def _reasons(allocator: Allocator, names: Iterable[str]) -> dict[str, str]:
    """Return, by job, the sentence with which the controller explains the job's slots."""
    late = {name: reasons.late_text(allocator.placed[name], at_s) for name, at_s in allocator.late.items()}
    return reasons.division_texts(*divided(allocator), names) | late


def _rows(problem: MemoryProblem, division: Division, job: Job) -> list[tuple[str, ...]]:
    if job.name not in division.standing:
        return [(job.name, "-", "-", "-", "-", "-", "one server")]
    need = division.demands.get(job.name)
    wanted = "-" if need is None else rate(need.rate_bps) if need.feasible else "too much"
    link = rate(problem.link_bps(job))
    standing = str(division.standing[job.name])
    rows: list[tuple[str, ...]] = []
    for name, region in division.regions[job.name].items():
        carried = rate_of(job, problem.topology.switch[name], region.size, problem.reading)
        slots = f"{count(region.size)} from {region.offset}"
        rows.append((job.name, standing, name, slots, rate(carried), wanted, link))
    return rows or [(job.name, standing, "-", "-", "-", wanted, link)]


def _standings(allocator: Allocator) -> dict[str, int]:
    """Return the number of jobs with each `SlotStatus`."""
    standing = list(divided(allocator)[1].standing.values())
    return {str(each): standing.count(each) for each in SlotStatus}


def _result(allocators: Mapping[str, Allocator], setup: Mapping[str, object]) -> Result:
    last = allocators[list(allocators)[-1]]
    _, division = divided(last)
    metrics = {
        f"{name}_{each}": number
        for name, allocator in allocators.items()
        for each, number in _standings(allocator).items()
    }
    why = _reasons(last, division.standing)
    of_jobs = {
        name: {
            "standing": str(standing),
            "regions": {switch: asdict(region) for switch, region in division.regions[name].items()},
            "reason": why[name],
            **({"demand": asdict(division.demands[name])} if name in division.demands else {}),
        }
        for name, standing in division.standing.items()
    }
    return Result("alloc", setup, metrics, of_jobs)
