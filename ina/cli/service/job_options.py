"""What commands tell a controller of a single job, which no file describes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

JOB = "The job, for a controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Keys of a ``[[job]]`` table, as options."""

    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=JOB,
            help="Name the job so. Default: the program's name, or 'admitted', and a random number.",
        ),
    ] = None
    deadline: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            rich_help_panel=JOB,
            help="Let the job be done within this many seconds. Default: best effort.",
        ),
    ] = None
    iterations: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", rich_help_panel=JOB, help="Let the job have this many iterations. Default: 100."
        ),
    ] = None
    compute: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            rich_help_panel=JOB,
            help="Let an iteration compute for this many seconds, as an estimate. Default: 0.001.",
        ),
    ] = None
    model_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            rich_help_panel=JOB,
            help="Let an iteration sum this many bytes. Default: 262144. Of a job that is admitted, the "
            "progress follows from it if it is given.",
        ),
    ] = None

    def keys(self) -> dict[str, object]:
        """Return the given ones, by the keys of the table, but for the name."""
        own = {
            "deadline_s": self.deadline,
            "iterations": self.iterations,
            "compute_s": self.compute,
            "model_bytes": self.model_bytes,
        }
        return {key: value for key, value in own.items() if value is not None}
