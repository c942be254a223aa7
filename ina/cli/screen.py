"""Standard output and standard error while jobs run: workers' bytes, our own messages, one line of progress.

Workers' bytes are forwarded unchanged, with a prefix where a line begins. An incomplete line stays open:
further output of the same worker continues it, output of others begins a new line. The line of progress is
shown on a terminal only, below everything else, and never while a line is open.

Characters that an output's encoding lacks are replaced: Python's own handlers end the command ("strict") or
print escapes. Here ``µs`` becomes ``us`` and an arrow ``->``, for all writers, as the streams do it.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
import threading
import unicodedata
from collections.abc import Hashable, Iterator
from io import TextIOWrapper
from typing import Final, TextIO, TypeGuard

# Where a line begins (again), if something follows. Most output has no carriage returns.
_AGAIN: Final = re.compile(rb"(?:\n|\r(?!\n))(?!\Z)")
_ERASE: Final = "\r\x1b[2K"


class Screen:
    """Both streams of this process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._progress = ""
        self._shown = ""
        self._open: dict[str, Hashable] = {}

    def forward(self, source: Hashable, prefix: bytes, data: bytes, *, to_stderr: bool) -> None:
        """Write the output of a worker.

        Args:
            source: Identifies the worker's stream.
            prefix: Goes before each line.
            data: The output.
            to_stderr: Write to standard error.

        Raises OSError.
        """
        stream: TextIO | None = sys.stderr if to_stderr else sys.stdout
        if stream is None:  # closed by the parent process
            return
        with self._lock:
            self._hide()
            place = _place(stream)
            if self._open.get(place) != source:
                self._end_line(stream)
                data = prefix + _with(prefix, data)
            else:
                data = _with(prefix, data)
            stream.flush()
            stream.buffer.write(data)
            stream.buffer.flush()
            if data.endswith(b"\n"):
                self._open.pop(place, None)
            else:
                self._open[place] = source

    def progress(self, text: str) -> None:
        """Show this as the line of progress, "" for none; no effect unless standard error is a terminal.

        Returns at once while a slow reader is being written to.
        """
        self._progress = text
        if self._lock.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):  # a terminal that is gone
                    self._show()
            finally:
                self._lock.release()

    @contextlib.contextmanager
    def message(self, stream: TextIO | None) -> Iterator[None]:
        """Hold back all other output while a message of ours, in whole lines, is written to a stream."""
        with self._lock:
            self._hide()
            self._end_line(stream)
            yield

    def finish(self) -> None:
        """End open lines and the line of progress."""
        with self._lock:
            self._progress = ""
            self._hide()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError):
                    self._end_line(stream)

    def _show(self) -> None:
        stream: TextIO | None = sys.stderr
        if self._progress == self._shown or not _moves(stream) or _place(stream) in self._open:
            return
        columns = os.get_terminal_size(stream.fileno()).columns or 80
        text = _cut(self._progress, columns - 1) if self._progress else ""
        stream.write(f"{_ERASE}{text}\r")  # other processes' output overwrites it
        stream.flush()
        self._shown = self._progress

    def _hide(self) -> None:
        if self._shown:
            self._shown = ""
            with contextlib.suppress(OSError):
                sys.stderr.write(_ERASE)
                sys.stderr.flush()

    def _end_line(self, stream: TextIO | None) -> None:
        if stream is not None and self._open.pop(_place(stream), None) is not None:
            stream.write("\n")
            stream.flush()


screen: Final = Screen()


def _with(prefix: bytes, data: bytes) -> bytes:
    """Insert the prefix where lines begin inside the data."""
    if not prefix:
        return data
    if b"\r" in data:
        return _AGAIN.sub(lambda match: match[0] + prefix, data)
    begun = data.replace(b"\n", b"\n" + prefix)
    return begun.removesuffix(prefix) if data.endswith(b"\n") else begun


def _place(stream: TextIO) -> str:
    """Identify the destination of a stream: both streams may lead to one terminal, or one file."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return str(id(stream))
    return f"{found.st_dev}:{found.st_ino}"


def _cut(text: str, columns: int) -> str:
    from rich.cells import set_cell_size  # where no terminal is, nothing is cut

    return set_cell_size(text, columns).rstrip()


def _moves(stream: TextIO | None) -> TypeGuard[TextIO]:
    """Return whether a stream is a terminal whose cursor can be moved."""
    return (
        stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    )


# --------------------------------------------------------------------------- characters


_NAME: Final = "ina.fallback"
_INSTEAD: Final = str.maketrans(
    {
        **{"→": "->", "←": "<-", "↑": "^", "↓": "v", "×": "x", "÷": "/", "·": ".", "•": "*", "°": " deg"},
        **{"–": "-", "—": "-", "−": "-", "…": "...", "≤": "<=", "≥": ">=", "≈": "~", "±": "+-", "∞": "inf"},
        **{
            "‘": "'",
            "’": "'",
            "“": '"',
            "”": '"',
            "«": '"',
            "»": '"',
            "µ": "u",
            "μ": "u",
            "✓": "ok",
            "✗": "x",
        },
        **dict.fromkeys("─━═╌┄", "-"),
        **dict.fromkeys("│┃║", "|"),
        **dict.fromkeys("┌┐└┘├┤┬┴┼┏┓┗┛┣┫┳┻╋┡┩╇╭╮╰╯", "+"),
        **dict.fromkeys("█▉▊▋▌▍▎▏▇▆▅▄▃▂▁■▪●", "#"),
        **dict.fromkeys("░▒▓□○", "."),
    }
)


def instead(text: str) -> str:
    r"""Return ASCII text for characters that an encoding lacks: the nearest letters or signs, else an escape.

    >>> instead("20 µs → é 数")
    '20 us -> e \\u6570'
    """
    parts = unicodedata.normalize("NFKD", text).translate(_INSTEAD)
    letters = "".join(letter for letter in parts if not unicodedata.combining(letter))
    return letters.encode("ascii", "backslashreplace").decode("ascii")


def visible(text: str) -> str:
    r"""Return text without characters that move the cursor, set colours or reverse the line: escapes instead.

    Line ends and tabs stay.

    >>> visible("job \x1b[31mred\n")
    'job \\x1b[31mred\n'
    """
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode()
        if letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cf")
        else letter
        for letter in text
    )


def replace_unencodable() -> None:
    """Make both standard streams replace characters that their encodings lack, by `instead`."""
    codecs.register_error(_NAME, _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_NAME)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return instead(error.object[error.start : error.end]), error.end
