"""Standard output and standard error while jobs run: workers' output, messages, and a line of progress.

Workers' bytes are forwarded unchanged, with a prefix where a line begins. An incomplete line stays open:
further output of the same worker continues it; other output begins a new line. The line of progress is shown
on a terminal only, below everything else, and never while a line is open.

Both streams replace characters that their encoding lacks by similar ones: ``µs`` becomes ``us``, an arrow
``->``. Python's own error handlers would end the command ("strict") or print escapes.
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

# The ends of lines that have something behind them. Most output has no carriage returns.
_AGAIN: Final = re.compile(rb"(?:\n|\r(?!\n))(?!\Z)")
_ERASE: Final = "\r\x1b[2K"


class Screen:
    """Writes to standard output and standard error of this process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._progress = ""
        self._shown = ""
        self._open: dict[str, Hashable] = {}

    def forward(self, source: Hashable, prefix: bytes, data: bytes, *, to_stderr: bool) -> None:
        """Write the output of a worker.

        Args:
            source: Identifies the worker and its stream.
            prefix: Text to insert before each line.
            data: The output.
            to_stderr: Write to standard error instead of standard output.

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
        """Show `text` as the line of progress; "": remove it. No effect unless standard error is a terminal.

        Does not wait while another thread writes: the text is then shown by a later call.
        """
        self._progress = text
        if self._lock.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):  # the terminal may be gone
                    self._show()
            finally:
                self._lock.release()

    @contextlib.contextmanager
    def message(self, stream: TextIO | None) -> Iterator[None]:
        """Hold back all other output while the context writes whole lines to `stream`."""
        with self._lock:
            self._hide()
            self._end_line(stream)
            yield

    def finish(self) -> None:
        """End incomplete lines, and remove the line of progress."""
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
    """Insert the prefix after each end of line in the data, except after the end of the last line."""
    if not prefix:
        return data
    if b"\r" in data:
        return _AGAIN.sub(lambda match: match[0] + prefix, data)
    begun = data.replace(b"\n", b"\n" + prefix)
    return begun.removesuffix(prefix) if data.endswith(b"\n") else begun


def _place(stream: TextIO) -> str:
    """Return an identifier of a stream's destination: both streams may go to the same terminal or file."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return str(id(stream))
    return f"{found.st_dev}:{found.st_ino}"


def _cut(text: str, columns: int) -> str:
    from rich.cells import set_cell_size  # imported here: it is not needed without a terminal

    return set_cell_size(text, columns).rstrip()


def _moves(stream: TextIO | None) -> TypeGuard[TextIO]:
    """Return whether a stream is a terminal on which the cursor can be moved."""
    return (
        stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    )


# --------------------------------------------------------------------------- characters


_NAME: Final = "ina.run.fallback"
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
    r"""Return similar ASCII text, to print characters that an encoding lacks; an escape if none is similar.

    >>> instead("20 µs → é 数")
    '20 us -> e \\u6570'
    """
    parts = unicodedata.normalize("NFKD", text).translate(_INSTEAD)
    letters = "".join(letter for letter in parts if not unicodedata.combining(letter))
    return letters.encode("ascii", "backslashreplace").decode("ascii")


def visible(text: str) -> str:
    r"""Return text with escapes in place of control characters, which could move the cursor or set colours.

    Line ends and tabs stay. Characters that reverse the direction of text are escaped, too.

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
    """Make both standard output streams print `instead(text)` for characters that they cannot encode."""
    codecs.register_error(_NAME, _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_NAME)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return instead(error.object[error.start : error.end]), error.end
