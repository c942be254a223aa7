"""Write lines of JSON about jobs to a file, to which a launcher and all its workers append.

Every line has ``time`` (Unix time, seconds), ``event``, ``job`` (its id) and, for an event of one worker,
``rank``:

==============  ==================================================================================
``start``       by the launcher, before the workers: ``name`` ("" without a job file), ``workers``, and their
                ports: ``ports`` (SWITCH/PORT by rank), ``server`` (the fallback server's, or null)
``collective``  by a worker, at its end: ``number`` (from 0), ``what`` (a description of the call),
                ``bytes``, ``time_s``, ``priority``, ``error`` (the exception's class, or null), and counts
                of packets: ``sent_packets``, ``resent_packets``, ``result_packets``; of the results,
                ``collided_packets`` met another sum at their slot, and ``repaired_packets``
                overflowed: both go through the fallback server; of those sent,
                ``bypassed_packets`` did not claim a slot
``exit``        by the launcher: ``status`` (128 + signal if it was killed) and ``reason``
``end``         by the launcher: the numbers of ``ina run --json``, with the sums completed in slots
                (``switch_completed_packets``) and by the fallback server (``fallback_results``), which
                workers cannot distinguish
==============  ==================================================================================

Each line is one write at the end of the file, so that lines of several processes stay whole.
"""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Final

_log = logging.getLogger("hostlib")


class JobLog:
    """A log file that is open; any thread may call `write`."""

    def __init__(self, path: str) -> None:
        """Open an existing file for appending. Raises OSError, also if it is a pipe without a reader."""
        self._path: Final = path
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)

    def write(self, event: str, **fields: object) -> None:
        """Append a line. A failed write ends the log with a warning."""
        if self._file is None:
            return
        line = json.dumps({"time": time.time(), "event": event, **fields}).encode() + b"\n"
        try:
            if os.write(self._file, line) == len(line):
                return
            reason = "only a part of a line could be written"
        except OSError as error:
            reason = str(error.strerror)
        _log.warning("%s: %s; nothing more is logged", self._path, reason)
        self.close()

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
