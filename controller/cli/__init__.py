"""The ``ina`` command: one module per subcommand, which parses, calls the libraries and renders.

This package is the only place that brings softswitch, controller and hostlib together, through
their public roots.
"""

from __future__ import annotations

import signal
import sys
import traceback
import warnings
from types import FrameType
from typing import TextIO

import typer

from controller.cli import bench, demo, run, switch
from controller.cli import compile as compile_command
from controller.cli.errors import COMPILE, FAILED, INTERNAL, USAGE, Failure
from controller.cli.output import err

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
app.command("run", epilog=run.EPILOG)(run.run)
app.command("demo", epilog=demo.EPILOG)(demo.demo)
app.command("switch", epilog=switch.EPILOG)(switch.switch)
app.command("compile", epilog=compile_command.EPILOG)(compile_command.compile_)
app.add_typer(bench.app, name="bench")


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
    except Failure as failure:
        return _complain(str(failure), failure.exit_code)
    except BrokenPipeError:
        return FAILED  # whoever read our output has seen enough
    except Exception as error:
        return _explain(error)
    return 0


def _explain(error: Exception) -> int:
    """Say what went wrong in terms of the command; anything unforeseen is our fault."""
    import softswitch
    from controller import BadJob, ControllerError, ProgramMismatch
    from hostlib.launcher import LaunchError

    match error:
        case softswitch.CompileError():
            err.print(error.render(), markup=False, highlight=False, soft_wrap=True)
            return COMPILE
        case BadJob() | ProgramMismatch():
            return _complain(str(error), USAGE)
        case OSError(filename=str() as name, strerror=str() as reason):
            return _complain(f"{name}: {reason}", FAILED)
        case (
            ControllerError()
            | LaunchError()
            | softswitch.SwitchError()
            | softswitch.PipelineError()
            | OSError()
        ):
            return _complain(str(error), FAILED)
        case _:
            err.print("".join(traceback.format_exception(error)), markup=False, highlight=False)
            return _complain("internal error: please report the lines above", INTERNAL)


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
    err.print(f"ina: {message}", markup=False, highlight=False, soft_wrap=True)
    return code
