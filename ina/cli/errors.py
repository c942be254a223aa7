"""Failures of commands: exit codes and the one line that says why.

===  =====================================================
0    done
1    the work failed
2    usage: an option or argument is wrong, or names a file that is not there or cannot be read
3    the P4 program does not compile
4    internal error: please report it
130  interrupted (Ctrl-C); other signals that end it give 128 plus their number, too
===  =====================================================
"""

from __future__ import annotations

import os
import signal
import sys
import traceback

FAILED = 1
USAGE = 2
COMPILE = 3
INTERNAL = 4
_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


class Failure(Exception):
    """A command cannot continue; `exit_code` becomes that of the process."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class Interrupted(SystemExit):
    """A signal asks this command to end in an orderly way."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number).name
        self.code: int
        super().__init__(128 + number)


def verdict(error: BaseException) -> tuple[str, int]:
    """Return the message for the user, in terms of the command, and the exit code.

    Unexpected errors are internal ones.
    """
    # Loaded when something has gone wrong: `ina --help` needs none of it.
    import softswitch
    from bmv2_topos.testbeds.netns.errors import BadName, LiveError
    from controller import BadJob, ControllerError, ProgramMismatch
    from controller.errors import OtherProgram, TlsFailure
    from controller.scheduling import BadSpec, BadTrace
    from hostlib import ConfigError, NativeMissing
    from hostlib.launcher import LaunchError
    from ina.runtime.errors import AddressTaken, BadRun, ProcessFailed, RunError
    from ina.service.errors import ServiceError
    from softswitch.stf import RuntimeFileError

    match error:
        case Failure():
            return str(error), error.exit_code
        case BadRun(setting=str() as setting) if setting:
            return error.told(f"--{setting.replace('_', '-')}"), USAGE
        case BadRun():
            return str(error), USAGE
        case AddressTaken(chosen=True):
            return f"{error}; choose other ports with --worker-base", FAILED
        case ProcessFailed(status=int() as status):
            return str(error), status or FAILED
        case OtherProgram():
            return f"{error}; give --replace-program to replace it", USAGE
        case softswitch.CompileError():
            return error.render(), COMPILE
        case (
            BadJob()
            | BadSpec()
            | BadTrace()
            | ProgramMismatch()
            | BadName()
            | ConfigError()
            | RuntimeFileError()
        ):
            return str(error), USAGE
        case TlsFailure():
            return f"{error} (check --tls-ca, --tls-cert and --tls-key)", FAILED
        case FileNotFoundError(filename=None) if _folder_is_gone():
            return "the current directory no longer exists: change to another one", FAILED
        case OSError(filename=str() as name, strerror=str() as reason):
            return f"{name}: {reason}", USAGE if isinstance(error, _NO_FILE) and _given(name) else FAILED
        case (
            ControllerError()
            | LaunchError()
            | NativeMissing()
            | softswitch.SwitchError()
            | softswitch.PipelineError()
            | OSError()
            | RunError()
            | LiveError()
            | ServiceError()
        ):
            return str(error), FAILED
        case _:
            trace = "".join(traceback.format_exception(error))
            return f"internal error: please report these lines\n{trace}", INTERNAL


def needs_root(error: BaseException) -> bool:
    """Return whether root could do what this user cannot."""
    from bmv2_topos.testbeds.netns.errors import NeedsRoot

    return isinstance(error, NeedsRoot)


def _given(name: str) -> bool:
    """Return whether the command line names this file, by itself or as ``--option=FILE``."""
    path = os.path.abspath(name)  # noqa: PTH100 - pathlib is not at hand
    return any(os.path.abspath(each.rpartition("=")[2]) == path for each in sys.argv[1:])  # noqa: PTH100


def _folder_is_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib asks the same, and is not at hand
    except FileNotFoundError:
        return True
    return False
