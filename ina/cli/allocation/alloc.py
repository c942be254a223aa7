"""``ina alloc``: which slots of which switches each job gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from controller.core import reasons
from controller.core.allocator import Allocator
from controller.policies.by_kind import AllocationSettings
from controller.policies.memory import demand
from controller.policies.memory.explain import explain as explain_memory
from controller.policies.memory.policy import Answer, Question, Standing
from controller.policies.registry import MEMORIES
from controller.vocabulary import Job
from ina.cli import job_files, options
from ina.cli.allocation import common
from ina.cli.errors import USAGE, Failure
from ina.cli.output import table
from ina.cli.plain import Result, count, rate

EPILOG = """Examples:

  ina alloc --jobs examples/allocation/jobs.toml --cluster examples/allocation/rack.toml

  ina alloc --policy static --jobs jobs.toml --cluster rack.toml --json

  ina alloc --jobs examples/allocation/jobs.toml --cluster examples/allocation/rack.toml --plot m.svg

  ina alloc --explain contest --jobs examples/allocation/jobs.toml --cluster examples/allocation/rack.toml
"""

NO_MEMORY = "It stays on one server: it uses no switch memory."


Policies = Annotated[
    str,
    typer.Option(
        metavar="NAME,…",
        help=f"Divide slots by this policy: {', '.join(MEMORIES)}; or one of your own: path.py:NAME, or "
        "a name that an installed package offers. Compares several, separated by commas.",
    ),
]
Reading = Annotated[
    demand.Reading,
    typer.Option(
        help="Compute how much memory a deadline needs. measured: a slot is held for the job's "
        "hold_s, and communication overlaps with computing; article: a slot is held for one "
        "round trip, and communication follows computing."
    ),
]
Now = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="Decide at this time, in seconds on the clock of the deadlines."),
]


def alloc(
    jobs: common.Jobs,
    cluster: common.ClusterFile,
    policy: Policies = "deadline",
    reading: Reading = "measured",
    now: Now = 0.0,
    margin: common.Margin = 0.05,
    explain: common.Explain = None,
    plot: common.Plot = None,
    json: options.Json = False,
) -> None:
    """Divide switch memory among placed jobs.

    Divides slots as the controller does when all of these jobs run: links carry gradients at their rate less
    the packets' headers. A job is aggregated at the switches of its tree; a job without a tree in the file,
    at the switches on the shortest paths. Reads files only: no switch is contacted.
    """
    common.check_files(plot)
    names = common.policies(policy)
    inputs = common.load(jobs, cluster, "alloc")
    asked = {name: decide(inputs, name, reading, now, margin) for name in names}
    if explain is not None:
        common.one_job(explain, inputs.jobs)
        question, answer = divided(asked[names[-1]])
        of = next((job for job in question.jobs if job.name == explain), None)
        lines = [NO_MEMORY]
        if of is not None:
            why = _reasons(asked[names[-1]], [explain])[explain]
            lines = [f"{explain}: {why}.", *explain_memory(question, answer, of)]
        common.print_lines(lines, "alloc", names[-1], explain, json=json)
        return
    if plot is not None:
        from ina.cli.allocation.plots import draw_memory

        draw_memory(*divided(asked[names[-1]]), plot)
    if json:
        setup = {"policies": names, "reading": reading, "now_s": now, "margin": margin}
        _result(asked, setup).print_json(unused_keys=job_files.unused_keys("alloc", jobs, cluster))
        return
    for name, allocator in asked.items():
        _show(name, allocator)
    if len(asked) > 1:
        rows = [(name, *map(str, _standings(each).values())) for name, each in asked.items()]
        table("memory", ["policy", *map(str, Standing)], rows)


def _show(policy: str, allocator: Allocator) -> None:
    question, answer = divided(allocator)
    table(
        f"memory by {policy}",
        ["job", "standing", "switch", "slots", "rate", "needed", "link"],
        [row for job in allocator.placed.values() for row in _rows(question, answer, job)],
    )
    ended = [name for name, standing in answer.standing.items() if standing is Standing.ENDED]
    for name, why in _reasons(allocator, ended).items():
        print(f"{name} {'is late' if name in allocator.late else 'has ended'}: {why}")


def decide(inputs: common.Inputs, name: str, reading: demand.Reading, now: float, margin: float) -> Allocator:
    """Return the allocator that has divided the slots.

    Args:
        inputs: Placed jobs and their cluster.
        name: Name of the policy.
        reading: How the slots that deadlines need are computed.
        now: The time in seconds, on the clock of the jobs' arrivals.
        margin: Part of the time left that is kept in reserve.

    Raises Failure or BadSpec.
    """
    if not 0 <= now < 1e12:
        raise Failure(f"--now {now:g}: want seconds, 0 or more", USAGE)
    for job in inputs.jobs:
        if job.due_s is not None and job.due_s <= now:
            raise Failure(
                f"{inputs.path}: job {job.name!r} is due at {job.due_s:g} s, and --now is {now:g}", USAGE
            )
    settings = AllocationSettings(memory=name, reading=reading, margin=margin)
    allocator = common.decided(inputs, settings, placed=True)
    allocator.divide(now)
    return allocator


def divided(allocator: Allocator) -> tuple[Question, Answer]:
    """Return the last division of the slots, among the jobs on more than one server."""
    assert allocator.question is not None
    assert allocator.answer is not None
    return allocator.question, allocator.answer


def _reasons(allocator: Allocator, names: Iterable[str]) -> dict[str, str]:
    """Return why these jobs have their slots, as the controller says it."""
    late = {name: reasons.of_late(allocator.placed[name], at_s) for name, at_s in allocator.late.items()}
    return reasons.of_division(*divided(allocator), names) | late


def _rows(question: Question, answer: Answer, job: Job) -> list[tuple[str, ...]]:
    if job.name not in answer.standing:
        return [(job.name, "-", "-", "-", "-", "-", "one server")]
    need = answer.demands.get(job.name)
    wanted = "-" if need is None else rate(need.rate_bps) if need.feasible else "too much"
    link = rate(question.link_bps(job))
    standing = str(answer.standing[job.name])
    rows: list[tuple[str, ...]] = []
    for name, region in answer.regions[job.name].items():
        carried = demand.rate_of(job, question.topology.switch[name], region.size, question.reading)
        slots = f"{count(region.size)} from {region.offset}"
        rows.append((job.name, standing, name, slots, rate(carried), wanted, link))
    return rows or [(job.name, standing, "-", "-", "-", wanted, link)]


def _standings(allocator: Allocator) -> dict[str, int]:
    """Return how many jobs have each standing."""
    standing = list(divided(allocator)[1].standing.values())
    return {str(each): standing.count(each) for each in Standing}


def _result(asked: Mapping[str, Allocator], setup: Mapping[str, object]) -> Result:
    last = asked[list(asked)[-1]]
    _, answer = divided(last)
    metrics = {
        f"{name}_{each}": number
        for name, allocator in asked.items()
        for each, number in _standings(allocator).items()
    }
    why = _reasons(last, answer.standing)
    of_jobs = {
        name: {
            "standing": str(standing),
            "regions": {switch: asdict(region) for switch, region in answer.regions[name].items()},
            "reason": why[name],
            **({"demand": asdict(answer.demands[name])} if name in answer.demands else {}),
        }
        for name, standing in answer.standing.items()
    }
    return Result("alloc", setup, metrics, of_jobs)
