"""The ``ina`` command: one module per subcommand, which parses, calls the libraries and renders.

This package is the only place that brings softswitch, controller and hostlib together, through
their public roots.
"""

from __future__ import annotations

import signal
import sys
import warnings
from types import FrameType
from typing import TextIO

import typer

from controller.cli import bench, demo, fallback, interleave, live_schedule, run, schedule, sim, soak, switch
from controller.cli import compile as compile_command
from controller.cli.errors import COMPILE, FAILED, verdict
from controller.cli.output import err
from controller.cli.register import register

app = typer.Typer(
    name="ina",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="In-network aggregation: gradients summed inside a P4 switch.",
    epilog="Exit codes: 0 done, 1 the work failed, 2 usage, 3 compile error, 4 internal error; "
    "'run' and 'demo' return the failed worker's.",
)
RUN, TRY, PARTS = "Run jobs", "Simulate, test, measure", "Parts by themselves"
register(app, "run", run.run, run.EPILOG, panel=RUN)
register(app, "demo", demo.demo, demo.EPILOG, panel=RUN)
register(app, "sim", sim.sim, sim.EPILOG, panel=TRY)
register(app, "soak", soak.soak, soak.EPILOG, panel=TRY)
app.add_typer(schedule.app, name="schedule", rich_help_panel=TRY)
register(schedule.app, "interleave", interleave.interleave_, interleave.EPILOG)
register(schedule.app, "live", live_schedule.live, live_schedule.EPILOG)
app.add_typer(bench.app, name="bench", rich_help_panel=TRY)
register(app, "switch", switch.switch, switch.EPILOG, panel=PARTS)
register(app, "fallback", fallback.fallback, fallback.EPILOG, panel=PARTS)
register(app, "compile", compile_command.compile_, compile_command.EPILOG, panel=PARTS)


def main() -> None:
    """Run the command line and exit with its code; a signal that ends it exits with 128 plus its number."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup asks for that
            signal.signal(number, _unwind)
    sys.exit(_main())


def _unwind(number: int, frame: FrameType | None) -> None:
    """Leave as from an error, so that workers, switches and admitted jobs are taken down; again: at once."""
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


def _main() -> int:
    warnings.showwarning = _warn
    try:
        app()  # ends with SystemExit, also on wrong usage
    except BrokenPipeError:
        return FAILED  # whoever read our output has seen enough
    except Exception as error:
        return _complain(*verdict(error))
    return 0


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning to whoever runs the command: without a line of our source."""
    _complain(f"warning: {message}", FAILED)


def _complain(message: str, code: int) -> int:
    # The compiler's messages begin with file and line, as compilers' do.
    prefix = "" if code == COMPILE else "ina: "
    err.print(prefix + message, markup=False, highlight=False, soft_wrap=True)
    return code
