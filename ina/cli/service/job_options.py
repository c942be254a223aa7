"""What commands tell a controller of a single job, which no file describes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ina.cli.declared import Declared

JOB = "The job, for a controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Keys of a ``[[job]]`` table, as options."""

    name: Annotated[
        str | None,
        Declared(
            metavar="NAME",
            rich_help_panel=JOB,
            help="Give the job this name. Default: the program's name, or 'admitted', and a random number.",
        ),
    ] = None
    deadline: Annotated[
        float | None,
        Declared(
            metavar="SECONDS",
            rich_help_panel=JOB,
            help="Give the job a deadline, in seconds after its submission. Default: none.",
        ),
    ] = None
    iterations: Annotated[
        int | None,
        Declared(metavar="COUNT", rich_help_panel=JOB, help="Expect this many iterations. Default: 100."),
    ] = None
    compute: Annotated[
        float | None,
        Declared(
            metavar="SECONDS",
            rich_help_panel=JOB,
            help="Expect an iteration to compute for this many seconds. Default: 0.001.",
        ),
    ] = None
    model_bytes: Annotated[
        int | None,
        Declared(
            metavar="BYTES",
            rich_help_panel=JOB,
            help="Expect an iteration to sum this many bytes. Default: 262144. With 'ina admit', the "
            "controller counts a job's iterations by it, if it is given.",
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
