"""``ina topo draw``: a picture of a topology, with the aggregation trees of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controller.vocabulary import place
from ina.cli import job_files
from ina.cli.errors import USAGE, Failure
from ina.cli.plain import say
from ina.cli.topo.topology import LinkOptions, Name

EPILOG = """Examples:

  ina topo draw fat-tree:4 --output fat-tree.svg

  ina topo draw leaf-spine --jobs examples/three_jobs.toml --output jobs.png
"""


def draw_(
    *,
    name: Name,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            writable=True,
            metavar="FILE",
            help="Write this .png, .svg or .pdf. Default: TOPOLOGY.png.",
        ),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the aggregation trees of the jobs of this file, too."),
    ] = None,
    links: LinkOptions,
) -> None:
    """Draw a topology, and the aggregation trees of jobs on it.

    Each job gets hosts of its own, in the order of the file, spread evenly over the racks.
    """
    from bmv2_topos.draw import draw
    from controller.figures import FORMATS

    topology = links.topology(name)
    place_ = output or Path(Path(name).stem.replace(":", "-")).with_suffix(".png")
    if place_.suffix not in FORMATS:
        raise Failure(f"--output {place_}: want a name that ends in {', '.join(FORMATS)}", exit_code=USAGE)
    entries = job_files.jobs(jobs, "topo") if jobs else ()
    hosts = place(topology, [entry.workers for entry in entries])
    draw(topology, place_, {entry.name: of for entry, of in zip(entries, hosts, strict=True)})
    say(f"ina: wrote {place_}")
