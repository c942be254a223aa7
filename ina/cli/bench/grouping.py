"""``ina bench grouping``: how fast jobs are grouped by how their stages interleave, and how well."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from controller.grouping.quality import rounds_against_exact
from ina.bench.grouping import measure_grouping, profiles
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.output import table
from ina.cli.plain import Result, count, plural, seconds

EPILOG = """Examples:

  ina bench grouping --jobs 1000

  ina bench grouping --jobs 10000 --kinds 8 --json

  ina bench grouping --jobs 1000 --exact
"""

MOST_JOBS = 1_000_000
MOST_EXACT = 2_000


def grouping(
    jobs: Annotated[
        int, typer.Option(metavar="JOBS", min=1, max=MOST_JOBS, help="Group this many jobs.")
    ] = 1000,
    resources: Annotated[
        int,
        typer.Option(
            min=2,
            max=6,
            help="Set the number of resources that stages use, which is also the largest size of a group.",
        ),
    ] = 4,
    kinds: Annotated[
        int,
        typer.Option(min=0, help="Draw this many different profiles of stage times; 0: one for each job."),
    ] = 0,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed the random numbers; the same seed gives the same result.")
    ] = 0,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Match exactly as well, and report the loss of efficiency per round; at most "
            f"{MOST_EXACT} jobs. Takes minutes.",
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Measure grouping: match jobs of random stage times in rounds, as Muri does.

    Also prints the efficiency gamma of the groups, 0 to 1: the mean share of a round in which a group's
    resources are busy.
    """
    if exact and jobs > MOST_EXACT:
        raise Failure(
            f"--exact with --jobs {jobs}: compares all pairs, so want at most {MOST_EXACT} jobs", USAGE
        )
    measured = measure_grouping(jobs, resources=resources, kinds=kinds, seed=seed)
    setup = {"jobs": jobs, "resources": resources, "kinds": kinds, "seed": seed}
    numbers = {name: value for name, value in asdict(measured).items() if name not in setup}
    rounds = rounds_against_exact(profiles(jobs, resources, kinds, seed)) if exact else []
    losses = {f"loss_round_{number}": one.loss for number, one in enumerate(rounds, 1)}
    if json:
        Result("bench grouping", setup, {**numbers, **losses}).print_json()
        return
    row = (
        f"{plural(jobs, 'job')}, {plural(resources, 'resource')}",
        seconds(measured.time_s),
        count(measured.jobs_per_s),
        str(measured.groups),
        f"{measured.total_efficiency:.2f}",
        f"{measured.mean_efficiency:.3f}",
        *(f"{one.loss:.3%}" for one in rounds),
    )
    columns = ["grouping", "time", "jobs/s", "groups", "total efficiency", "mean"]
    columns += [f"lost in round {number}" for number in range(1, len(rounds) + 1)]
    table("multi-round grouping", columns, [row])
