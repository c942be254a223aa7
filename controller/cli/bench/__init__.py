"""``ina bench``: how fast the parts are, ratios measured in one run."""

from __future__ import annotations

import typer

from controller.cli.bench import allreduce, fallback, grouping, jobs, pipeline
from controller.cli.register import register

app = typer.Typer(no_args_is_help=True, help="Measure the parts alone and together; see docs/performance.md.")
register(app, "pipeline", pipeline.pipeline, pipeline.EPILOG)
register(app, "allreduce", allreduce.allreduce, allreduce.EPILOG)
register(app, "jobs", jobs.jobs, jobs.EPILOG)
register(app, "fallback", fallback.fallback, fallback.EPILOG)
register(app, "grouping", grouping.grouping, grouping.EPILOG)
