"""``ina alloc``: which slots of which switches each job gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from controller.memory.demand import rate_of
from controller.memory.policies import POLICIES
from controller.memory.policy import GROUP, Answer, Question, Standing, check
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
"""


class ReadingOption(StrEnum):
    """How the need of a deadline is computed."""

    MEASURED = "measured"
    ARTICLE = "article"


Policies = Annotated[
    str,
    typer.Option(
        metavar="NAME,…",
        help="Divide slots by this policy: deadline, deadline-lazy, earliest, static, shared, preemptive or "
        "preemptive-ending; or "
        "one of your own: path.py:NAME, or a name that an installed package offers. Compares several, "
        "separated by commas.",
    ),
]
Reading = Annotated[
    ReadingOption,
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
    reading: Reading = ReadingOption.MEASURED,
    now: Now = 0.0,
    plot: common.Plot = None,
    json: options.Json = False,
) -> None:
    """Divide switch memory among placed jobs.

    A job is aggregated at the switches of its tree; a job without a tree in the file, at the switches on the
    shortest paths. Reads files only: no switch is contacted.
    """
    common.check_files(plot)
    names = common.policies(policy)
    inputs = common.load(jobs, cluster, "alloc")
    asked = {name: decide(inputs, name, reading, now) for name in names}
    question, answer = asked[names[-1]]
    if plot is not None:
        from ina.cli.allocation.plots import draw_memory

        draw_memory(question, answer, plot)
    if json:
        _result(asked).print_json(unused_keys=job_files.unused_keys("alloc", jobs, cluster))
        return
    for name, (question, answer) in asked.items():
        _show(name, question, answer)
    if len(asked) > 1:
        rows = [(name, *map(str, _standings(answer).values())) for name, (_, answer) in asked.items()]
        table("memory", ["policy", *map(str, Standing)], rows)


def _show(policy: str, question: Question, answer: Answer) -> None:
    table(
        f"memory by {policy}",
        ["job", "standing", "switch", "slots", "rate", "needed", "link"],
        [row for job in question.jobs for row in _rows(question, answer, job)],
    )
    for job in question.jobs:
        if answer.standing[job.name] is Standing.ENDED:
            end_s = answer.demands[job.name].estimate_s
            print(f"{job.name} has ended: due at {job.due_s:g} s, it could finish at {end_s:.6g} s")


def decide(inputs: common.Inputs, name: str, reading: ReadingOption, now: float) -> tuple[Question, Answer]:
    """Return the policy's question and answer.

    Args:
        inputs: Placed jobs and their cluster.
        name: Name of the policy.
        reading: How the slots that deadlines need are computed.
        now: The time in seconds, on the clock of the jobs' arrivals.

    Raises Failure or BadSpec.
    """
    if not 0 <= now < 1e12:
        raise Failure(f"--now {now:g}: want seconds, 0 or more", USAGE)
    policy = common.policy(name, POLICIES, GROUP)
    for job in inputs.jobs:
        if job.due_s is not None and job.due_s <= now:
            raise Failure(
                f"{inputs.path}: job {job.name!r} is due at {job.due_s:g} s, and --now is {now:g}", USAGE
            )
    question = Question(inputs.jobs, inputs.topology, now, reading.value)
    return question, check(question, policy(question))


def _rows(question: Question, answer: Answer, job: Job) -> list[tuple[str, ...]]:
    need = answer.demands.get(job.name)
    wanted = "-" if need is None else rate(need.rate_bps) if need.feasible else "too much"
    link = rate(question.link_bps(job)) if job.name in question.trees else "-"
    standing = str(answer.standing[job.name])
    rows: list[tuple[str, ...]] = []
    for name, region in answer.regions[job.name].items():
        carried = rate_of(job, question.topology.switch[name], region.size, question.reading)
        slots = f"{count(region.size)} from {region.offset}"
        rows.append((job.name, standing, name, slots, rate(carried), wanted, link))
    return rows or [(job.name, standing, "-", "-", "-", wanted, link)]


def _standings(answer: Answer) -> dict[str, int]:
    """Return how many jobs have each standing."""
    standing = list(answer.standing.values())
    return {str(each): standing.count(each) for each in Standing}


def _result(asked: Mapping[str, tuple[Question, Answer]]) -> Result:
    question, answer = asked[list(asked)[-1]]
    setup = {"policies": list(asked), "reading": question.reading, "now_s": question.now_s}
    metrics = {
        f"{name}_{each}": number
        for name, (_, of_policy) in asked.items()
        for each, number in _standings(of_policy).items()
    }
    of_jobs = {
        job.name: {
            "standing": str(answer.standing[job.name]),
            "regions": {name: asdict(region) for name, region in answer.regions[job.name].items()},
            **({"demand": asdict(answer.demands[job.name])} if job.name in answer.demands else {}),
        }
        for job in question.jobs
    }
    return Result("alloc", setup, metrics, of_jobs)
