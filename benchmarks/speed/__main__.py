"""``python -m benchmarks.speed NAME [OPTION...]``; ``--help`` lists the commands, and their options."""

from __future__ import annotations

import sys

import typer

from benchmarks.speed import decisions, fallback
from ina.cli.command import Failure
from ina.cli.errors import verdict

app = typer.Typer(
    help="Measure the speed of parts; see docs/explanations/performance.md.", pretty_exceptions_enable=False
)
for command in (
    fallback.fallback,
    *(decisions.grouping, decisions.schedulers, decisions.simulation),
):
    app.command(command.__name__)(command)
try:
    from benchmarks.speed.controller import controller
except ImportError as error:
    missing = error.name

    @app.command("controller", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def _lacking() -> None:
        """Raise Failure for the package that the measurement of a controller lacks."""
        raise Failure(f"benchmarks.speed controller needs {missing}: pip install 'ina[service]'")
else:
    app.command()(controller)

if __name__ == "__main__":
    try:
        app()
    except Exception as error:
        message, code = verdict(error)
        print(f"benchmarks.speed: {message}", file=sys.stderr)
        sys.exit(code)
