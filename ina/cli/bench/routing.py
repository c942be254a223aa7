"""``ina bench routing``: how fast aggregation trees are chosen, and how well."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from controller.routing.policies import POLICIES
from controller.vocabulary.documents import hint
from ina.bench.allocation import measure_routing
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.output import table
from ina.cli.plain import Result, count, rate, seconds

EPILOG = """Examples:

  ina bench routing

  ina bench routing --programmable 0.2 --jobs 12 --policy shortest-path --json
"""


def routing(
    k: Annotated[
        int,
        typer.Option(
            "--k", min=2, max=32, help="Set the number of ports per switch of the fat-tree; an even number."
        ),
    ] = 8,
    hosts: Annotated[
        int, typer.Option(min=1, max=100, help="Attach this many servers to each edge switch.")
    ] = 6,
    jobs: Annotated[
        int,
        typer.Option(
            metavar="JOBS",
            min=1,
            max=1000,
            help="Choose trees for this many jobs: 1 uses all servers, more use 16 servers each.",
        ),
    ] = 1,
    programmable: Annotated[
        float, typer.Option(min=0, max=1, help="Let this share of the switches aggregate, 0 to 1.")
    ] = 1.0,
    policy: Annotated[
        str, typer.Option(help=f"Choose trees by this policy: {', '.join(POLICIES)}.")
    ] = "grid",
    draws: Annotated[
        int,
        typer.Option(
            min=1, max=1000, help="Round this many times at random with policy grid, and keep the best trees."
        ),
    ] = 8,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed the random numbers; the same seed gives the same result.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Measure tree selection on a fat-tree; default: 80 switches and 192 servers, as in GRID."""
    if policy not in POLICIES:
        raise Failure(f"--policy {policy}: {hint(policy, POLICIES)}", USAGE)
    if k % 2:
        raise Failure(f"--k {k}: want an even number", USAGE)
    found = measure_routing(k, hosts, jobs, programmable=programmable, draws=draws, policy=policy, seed=seed)
    if json:
        setup = {"programmable": programmable, "draws": draws, "seed": seed}
        Result("bench routing", setup, asdict(found)).print_json()
        return
    row = (
        f"{policy}, {count(found.switches)} switches, {count(found.servers)} servers",
        seconds(found.time_s),
        seconds(found.processor_s),
        rate(found.smallest_bps),
        rate(found.total_bps),
    )
    table("routing", ["", "time", "processor", "smallest rate", "sum of rates"], [row])
