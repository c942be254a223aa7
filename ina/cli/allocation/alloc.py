"""``ina alloc``: divides the slots of switches among jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from controller.core import reasons
from controller.core.allocator import Allocator
from controller.policies.memory import demand
from controller.policies.memory.explain import explain as explain_memory
from controller.policies.memory.policy import MemoryDivision as Division
from controller.policies.memory.policy import MemoryProblem, SlotStatus
from controller.policies.registry import MEMORIES
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Job
from ina.cli.allocation import common
from ina.cli.declared import Declared
from ina.cli.errors import USAGE, Failure
from ina.cli.output import check_plots
from ina.cli.plain import Listing, Reply, Result, count, rate

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
    if asked.plot is not None:
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
    if not 0 <= now < 1e12:
        raise Failure(f"--now {now:g}: want seconds, 0 or more", USAGE)
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
        carried = demand.rate_of(job, problem.topology.switch[name], region.size, problem.reading)
        slots = f"{count(region.size)} from {region.offset}"
        rows.append((job.name, standing, name, slots, rate(carried), wanted, link))
    return rows or [(job.name, standing, "-", "-", "-", wanted, link)]


def _standings(allocator: Allocator) -> dict[str, int]:
    """Return the number of jobs with each `SlotStatus`."""
    standing = list(divided(allocator)[1].standing.values())
    return {str(each): standing.count(each) for each in SlotStatus}


def _result(asked: Mapping[str, Allocator], setup: Mapping[str, object]) -> Result:
    last = asked[list(asked)[-1]]
    _, division = divided(last)
    metrics = {
        f"{name}_{each}": number
        for name, allocator in asked.items()
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
