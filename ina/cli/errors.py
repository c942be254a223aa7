"""The one-line message for the user about an error of a command, and the exit code (`ina.cli.command`)."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

from ina.cli.command import FAILED, INTERNAL, USAGE

_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
_OURS = ("bmv2_topos", "controller", "hostlib", "ina", "p4src", "softswitch")
_OF_SERVICE = ("fastapi", "httpx", "pydantic", "starlette", "uvicorn")


class Interrupted(SystemExit):
    """A signal asks this command to end in an orderly way."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number).name
        self.code: int
        super().__init__(128 + number)


def verdict(error: BaseException) -> tuple[str, int]:
    """Return the message for the user, which names the command's options, and the exit code.

    An unexpected error is reported as an internal error, with its traceback.
    """
    match error:
        case FileNotFoundError(filename=None) if _folder_is_gone():
            return "the current directory no longer exists: change to another one", FAILED
        case OSError(filename=str() as name, strerror=str() as reason):
            return f"{name}: {reason}", USAGE if isinstance(error, _NO_FILE) and _given(name) else FAILED
        case OSError() | MemoryError() | RuntimeError(args=("can't start new thread",)):
            return str(error) or "out of memory", FAILED
        case ImportError() if "google.protobuf" in str(error):
            return _other_protobuf(error), FAILED
        case ImportError(name=str() as module) if (package := module.partition(".")[0]) not in _OURS:
            extra = "[service]" if package in _OF_SERVICE else ""
            return f"this command needs {package}: pip install 'ina{extra}' ({error})", FAILED
        case Exception() if code := getattr(error, "exit_code", 0):
            return _message(error), code
        case _:
            trace = "".join(traceback.format_exception(error))
            return f"internal error: please report these lines\n{trace}", INTERNAL


def _message(error: Exception) -> str:
    """Return the message of an error of our packages, with the options that would help."""
    # Imported only after an error: `ina --help` needs none of it.
    from controller.errors import OtherProgram, TlsFailure
    from ina.errors import AddressTaken, BadRun

    match error:
        case BadRun(setting=str() as setting) if setting:
            return error.told(f"--{setting.replace('_', '-')}")
        case AddressTaken(chosen=True):
            return f"{error}; choose other ports with --worker-base"
        case OtherProgram():
            return f"{error}; give --replace-program to replace it"
        case TlsFailure():
            return f"{error} (check --tls-ca, --tls-cert and --tls-key)"
        case _:  # the compiler's errors show the line
            render: Callable[[], str] = getattr(error, "render", error.__str__)
            return render()


def _other_protobuf(error: ImportError) -> str:
    from importlib.metadata import version

    return (
        f"protobuf {version('protobuf')} in {sys.prefix} does not fit the other packages there ({error}):"
        " run 'pip install --upgrade protobuf'; install a package that needs an older one, such as"
        " p4runtime-shell, in another environment"
    )


def _given(name: str) -> bool:
    """Return whether a word of the command line is the file `name`, or ends with ``=`` and this file."""
    path = os.path.abspath(name)  # noqa: PTH100 - pathlib is not imported
    return any(os.path.abspath(each.rpartition("=")[2]) == path for each in sys.argv[1:])  # noqa: PTH100


def _folder_is_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib is not imported
    except FileNotFoundError:
        return True
    return False
