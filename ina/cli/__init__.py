"""The ``ina`` command: one module per subcommand, which parses, calls the libraries and renders.

The subpackages of `ina` combine softswitch, controller and hostlib, which do not import each other.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final, TextIO

from ina.cli.command import COMPILE, FAILED, Failure
from ina.cli.errors import Interrupted, verdict
from ina.cli.screen import replace_unencodable, screen
from ina.quickly import quickly

SERVERS: Final = (["switch"], ["fallback"], ["admit"])
"""Commands that other processes start and stop, where typer may be missing, or of another version."""

_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_AGAIN_S = 0.01
"""Delay, in seconds, before `_unraisable` sends a signal again. The destructor that the signal interrupted
has usually ended by then."""

_KEPT = ("INA_TESTBEDS", "INA_CONTROLLER", "NO_COLOR")
"""Environment variables that are passed on through sudo, besides `SETTINGS`: sudo clears the environment."""

_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
"""Folders with programs for root, as tc, which a user's PATH may lack."""


def main() -> None:
    """Run the command, and exit with the command's exit code; if signal N ended it, exit with 128 + N."""
    for number in _ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, _unwind)
    sys.unraisablehook = _unraisable
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, all our children end with status 0
    _open_standard_streams()
    replace_unencodable()
    sys.exit(_main())


def _open_standard_streams() -> None:
    """Open /dev/null for closed standard streams, so that other files do not get descriptors 0 to 2."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _unwind(number: int, frame: FrameType | None) -> None:
    """Raise Interrupted, so that workers, switches and jobs are stopped; later signals do not interrupt that.

    A second SIGINT or SIGTERM ends the process at once.
    """
    for each in _ENDS:
        if signal.getsignal(each) is _unwind:
            signal.signal(each, _continue_unwinding)
    _continue_unwinding(number, frame)
    raise Interrupted(number)


def _continue_unwinding(number: int, frame: FrameType | None) -> None:
    """Let the next such signal end the process, but not SIGHUP, which a closed terminal sends twice."""
    signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Send a signal again that arrived in a destructor: Python drops exceptions that a destructor raises."""
    if not isinstance(lost.exc_value, Interrupted):
        sys.__unraisablehook__(lost)
        return
    number = signal.Signals[lost.exc_value.signal]
    signal.signal(number, _unwind)
    again = threading.Timer(_AGAIN_S, signal.pthread_kill, (threading.main_thread().ident, number))
    again.daemon = True
    again.start()


def _main() -> int:
    warnings.showwarning = _warn
    logging.getLogger().addHandler(_messages)
    try:
        return _run()
    finally:
        logging.getLogger().removeHandler(_messages)
        _discard_unwritten()


def _discard_unwritten() -> None:
    """Discard output that cannot be written: Python would try again at its end, and report it then."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> int:
    line = sys.argv[1:]
    server = line[:1] in SERVERS
    if not server:
        screen.progress("loading …")  # the first sign of life on a terminal
    try:
        if call := _parsed(line, server and "--help" not in line):
            screen.progress("")
            call()
            sys.stdout.flush()
            return 0
        with quickly():
            from ina.cli.commands import app

        if os.environ.get("NO_COLOR"):
            from typer import rich_utils

            rich_utils.COLOR_SYSTEM = None  # otherwise help has bold text
        screen.progress("")
        app()  # ends with SystemExit, also on wrong usage
    except Interrupted as interrupted:
        if not server:
            _complain(f"interrupted by {interrupted.signal}", FAILED)
        raise
    except BrokenPipeError:
        return FAILED  # the reader of our output has closed it
    except Exception as error:
        if getattr(error, "as_root", False):
            return _complain(_again_as_root(str(error)), FAILED)
        return _complain(*verdict(error))
    return 0


def _parsed(line: Sequence[str], server: bool) -> Callable[[], None] | None:
    """Return a function that runs the command of a command line.

    Return None if typer must parse the line: it asks for help, or is wrong, and typer says how. Typer takes
    longer to load than many commands run. With `server`, raise Failure for a wrong line instead.
    """
    from ina.cli.catalog import command_of
    from ina.cli.declared import flattened, read

    if (found := command_of(line)) is None:
        return None
    command, options = flattened(found[0]), found[1]
    try:
        return functools.partial(command, **read(command, options))
    except Failure:
        if server:
            raise
        return None


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a Python warning to the user, without file and source line."""
    _complain(f"warning: {message}", FAILED)


class _Messages(logging.Handler):
    """Shows log messages of the libraries to the user; they print nothing themselves."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message with its level, and the traceback that came with it."""
        _complain(f"{record.levelname.lower()}: {self.format(record)}", FAILED)


_messages: Final = _Messages(logging.WARNING)


def _complain(message: str, code: int) -> int:
    # The compiler's messages begin with file and line, as compilers' do.
    from ina.cli.command import say

    prefix = "" if code == COMPILE else "ina: "
    with contextlib.suppress(OSError):  # the terminal may be gone
        say(prefix + message)
    return code


def _again_as_root(why: str) -> str:
    """Replace this process by the same command, run as root with sudo.

    Return only if that fails, with the reason.

    The command runs with this Python interpreter, whatever root's PATH is.
    """
    import shlex
    import shutil

    from hostlib.launch import command_line
    from hostlib.launch.launcher import SETTINGS, environment

    kept = environment((*SETTINGS, *_KEPT)) | {"PATH": f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PATH}"}
    variables = (f"{name}={text}" for name, text in kept.items())
    command = ["env", *variables, *command_line.module("ina", *sys.argv[1:])]
    sudo = shutil.which("sudo")
    if sudo is None:
        return f"{why}. There is no sudo here; as root, run {shlex.join(command)}"
    print(f"ina: {why}: going on with sudo", file=sys.stderr, flush=True)
    try:
        os.execv(sudo, [sudo, "--", *command])
    except OSError as error:
        return f"{why}; {sudo}: {error.strerror}"
