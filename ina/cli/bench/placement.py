"""``ina bench placement``: how fast a batch of jobs is placed, and how well."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from controller.placement.policies import POLICIES
from controller.vocabulary.documents import hint
from ina.bench.allocation import measure_placement
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.output import table
from ina.cli.plain import Result, count, seconds

EPILOG = """Examples:

  ina bench placement

  ina bench placement --servers 200 --jobs 40 --policy locality --json
"""


def placement(
    servers: Annotated[
        int, typer.Option(metavar="SERVERS", min=1, max=100_000, help="Set the number of servers.")
    ] = 1000,
    gpus: Annotated[int, typer.Option(min=1, max=1024, help="Set the number of GPUs per server.")] = 8,
    jobs: Annotated[int, typer.Option(metavar="JOBS", min=1, max=10_000, help="Place this many jobs.")] = 100,
    policy: Annotated[
        str, typer.Option(help=f"Place jobs by this policy: {', '.join(POLICIES)}.")
    ] = "netpack",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed the random numbers; the same seed gives the same result.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Measure placement: jobs of 2 to 64 workers on an empty leaf-spine with racks of 40 servers."""
    if policy not in POLICIES:
        raise Failure(f"--policy {policy}: {hint(policy, POLICIES)}", USAGE)
    found = measure_placement(servers, jobs, gpus=gpus, policy=policy, seed=seed)
    if json:
        Result("bench placement", {"seed": seed}, asdict(found)).print_json()
        return
    row = (
        f"{policy}, {count(found.servers)} servers, {count(jobs)} jobs",
        seconds(found.time_s),
        seconds(found.processor_s),
        f"{found.value:.1f}",
        str(found.waiting),
    )
    table("placement", ["", "time", "processor", "GPUs computing", "waiting"], [row])
