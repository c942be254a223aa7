"""``python -m benchmarks.speed NAME [OPTION...]``; ``--help`` lists the commands, and their options."""

from __future__ import annotations

import sys

import typer

from benchmarks.speed import controller, decisions, fallback, jobs
from ina.cli.errors import verdict

app = typer.Typer(help="Measure the speed of parts; see docs/performance.md.", pretty_exceptions_enable=False)
for command in (
    *(jobs.jobs, fallback.fallback, controller.controller),
    *(decisions.grouping, decisions.waterfill, decisions.placement, decisions.routing),
    *(decisions.cluster, decisions.schedulers, decisions.simulation),
):
    app.command(command.__name__)(command)

if __name__ == "__main__":
    try:
        app()
    except Exception as error:
        said, code = verdict(error)
        print(f"benchmarks.speed: {said}", file=sys.stderr)
        sys.exit(code)
