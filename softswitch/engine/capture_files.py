"""Captures of a running switch as files: one for each port, both directions.

A file that cannot be written any more (full disk, limit reached) ends the capture at its port
with a warning; the switch continues.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from softswitch.engine.pcapng import CaptureSettings, file_header
from softswitch.engine.switch import Switch

_PERIOD_S = 0.05
_LOOKS = 5
"""Number of times that the switch's clock and the time of day are read to find their difference.

The quickest pair of reads counts.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureTo:
    """The folder and the limits of captures."""

    folder: Path
    name: str = "s1"
    """The switch's name: files are called ``NAME-portN.pcapng``."""
    notes: tuple[str, ...] = ()
    snap: int = 65535
    limit: int = 1 << 30
    """Maximum size of a file in bytes."""
    waiting: int = 64 << 20
    """Maximum number of bytes of a port's records that wait in memory to be written."""


class _File:
    """One port's file; `full` is True once the file takes no more records."""

    def __init__(self, path: Path, header: bytes, limit: int) -> None:
        self.path = path
        self.full = False
        self._left = limit - len(header)
        self._file = FileIO(path, "w")
        try:
            if self._file.write(header) != len(header):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._file.close()
            error.filename = str(path)  # an error in a write does not name the file
            raise

    def write(self, records: bytes) -> None:
        """Append whole records; on a failure, report the reason once and stop writing."""
        if self.full or not records:
            return
        if len(records) > self._left:
            self._end(f"the size limit (--pcap-limit) is reached, {len(records):,} bytes are lost")
            return
        try:
            if (written := self._file.write(records)) != len(records):
                self._file.truncate(self._file.tell() - (written or 0))
                self._end("the disk is full")
        except OSError as error:
            self._end(error.strerror or str(error))
        self._left -= len(records)

    def close(self) -> None:
        self._file.close()

    def _end(self, why: str) -> None:
        self.full = True
        _log.warning("%s: %s; the capture of this port ends, the switch goes on", self.path, why)


class CaptureFiles:
    """Writes a switch's captures to files, from its creation until `close`; a context manager."""

    def __init__(self, switch: Switch, to: CaptureTo) -> None:
        """Create the folder and the files. Raises OSError, with nothing captured, if that fails."""
        self._switch = switch
        self._to = to
        to.folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[int, _File] = {}
        try:
            for port in switch.ports:
                self.add(port)
        except OSError:
            self._close_files()
            raise
        epoch_ns = _epoch_ns(switch)
        switch.capture(CaptureSettings(notes=to.notes, snap=to.snap, capacity=to.waiting, epoch_ns=epoch_ns))
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def add(self, port: int) -> None:
        """Create the file of a port that was added to the switch. Raises OSError."""
        to, header = self._to, file_header(f"{self._to.name}/{port}", self._to.snap)
        file = _File(to.folder / f"{to.name}-port{port}.pcapng", header, to.limit)
        self._files = {**self._files, port: file}  # another thread writes to the existing files

    def close(self) -> None:
        """Write the remaining packets, and close the files."""
        self._done.set()
        self._thread.join()
        self._switch.capture(None)
        self.write()
        for port, file in self._files.items():
            if dropped := self._switch.captured(port)[1]:
                _log.warning("%s: %d packets came too fast to be captured", file.path, dropped)
        self._close_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._done.wait(_PERIOD_S):
            self.write()

    def write(self) -> None:
        """Write the packets captured since the last write."""
        for port, file in self._files.items():
            file.write(self._switch.captured(port)[0])

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()


def _epoch_ns(switch: Switch) -> int:
    """Return the time of day at the switch's time 0, in nanoseconds since 1970.

    Of several pairs of reads of both clocks, use the quickest pair.
    """
    looks = []
    for _ in range(_LOOKS):
        before_ns, own_ns = time.time_ns(), switch.now_us() * 1000
        looks.append((time.time_ns() - before_ns, before_ns - own_ns))
    return min(looks)[1]
