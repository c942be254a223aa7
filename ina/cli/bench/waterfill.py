"""``ina bench waterfill``: how fast the steady state of many jobs is computed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from controller.placement.waterfill import Reading
from ina.bench.allocation import measure_waterfill
from ina.cli import options
from ina.cli.output import table
from ina.cli.plain import Result, count, rate, seconds

EPILOG = """Examples:

  ina bench waterfill

  ina bench waterfill --jobs 1000 --links 500 --reading freeze --json
"""


def waterfill(
    jobs: Annotated[
        int, typer.Option(metavar="JOBS", min=1, max=1_000_000, help="Compute the rates of this many jobs.")
    ] = 10_000,
    links: Annotated[
        int, typer.Option(metavar="LINKS", min=100, max=100_000, help="Set the number of links.")
    ] = 5_000,
    reading: Annotated[
        Reading,
        typer.Option(
            help="Choose what happens where switch memory is full: gradients pass unsummed "
            "(spill), or jobs stop (freeze)."
        ),
    ] = "spill",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed the random numbers; the same seed gives the same result.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Measure water-filling: rates of jobs with two to eight servers on a leaf-spine.

    Prints the time to build the jobs' flows and the time to fill the links; the processor time is that of
    both together.
    """
    found = measure_waterfill(jobs, links, reading=reading, seed=seed)
    if json:
        Result("bench waterfill", {"reading": reading, "seed": seed}, asdict(found)).print_json()
        return
    times = (seconds(found.build_s), seconds(found.fill_s), seconds(found.processor_s))
    row = (f"{count(found.jobs)} jobs, {count(found.links)} links", *times, rate(found.smallest_bps))
    table("water-filling", ["", "flows", "filling", "processor", "smallest rate"], [row])
