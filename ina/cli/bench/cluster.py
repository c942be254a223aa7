"""``ina bench cluster``: how fast jobs on a cluster's network are simulated."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from controller.policies.by_kind import policies_of
from controller.simulator.network.settings import NetworkSettings
from ina.bench.cluster import measure_cluster
from ina.cli import options
from ina.cli.output import table
from ina.cli.plain import Result, count, seconds
from ina.cli.schedule import common

EPILOG = """Examples:

  ina bench cluster

  ina bench cluster --jobs 1000 --servers 64 --gap 8 --memory deadline --json

  ina bench cluster --jobs 100000
"""


def cluster(
    jobs: Annotated[
        int, typer.Option(metavar="JOBS", min=1, max=1_000_000, help="Generate this many jobs.")
    ] = 10_000,
    servers: Annotated[
        int, typer.Option(metavar="SERVERS", min=2, max=100_000, help="Set the number of servers.")
    ] = 256,
    gpus: Annotated[int, typer.Option(min=1, max=1024, help="Set the number of GPUs per server.")] = 8,
    gap: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Set the mean time between arrivals, in seconds."),
    ] = 2.0,
    scheduler: Annotated[
        str, typer.Option(help="Schedule jobs by this policy; 'ina schedule policies' lists them.")
    ] = "fifo-backfill",
    placement: Annotated[str, typer.Option(help="Place jobs by this policy, as in 'ina place'.")] = "netpack",
    memory: Annotated[str, typer.Option(help="Divide slots by this policy, as in 'ina alloc'.")] = "shared",
    routing: Annotated[
        str, typer.Option(help="Choose trees by this policy, as in 'ina route'.")
    ] = "shortest-path",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed the random numbers; the same seed gives the same result.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Measure the simulation of a cluster's network; default: 10,000 jobs on 256 servers.

    Generates jobs of 1 to 16 workers, on a leaf-spine with racks of 16 servers.
    """
    settings = NetworkSettings(placement=placement, memory=memory, routing=routing, seed=seed)
    names = {"scheduler": scheduler, **settings.names}
    policies_of(settings)
    with common.Bars([" + ".join(names.values())]) as bars:
        found = measure_cluster(
            jobs,
            servers,
            gpus=gpus,
            gap_s=gap,
            scheduler=scheduler,
            settings=settings,
            seed=seed,
            progress=(lambda done, of: bars.update(0, done / max(1, of))) if bars.shown else None,
        )
    if json:
        Result("bench cluster", {**names, "gap_s": gap, "seed": seed}, asdict(found)).print_json()
        return
    row = (
        f"{count(jobs)} jobs, {count(found.servers)} servers",
        seconds(found.time_s),
        seconds(found.processor_s),
        seconds(found.makespan_s),
        f"{found.gpu_busy:.1%}",
    )
    table("cluster simulation", ["", "time", "processor", "simulated", "GPUs"], [row])
