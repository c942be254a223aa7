"""Lines of JSON about jobs, in one file that a launcher and all its workers append to.

Every line has ``time`` (Unix time, seconds), ``event``, ``job`` (its id) and, of an event that is about one
worker, ``rank``:

==============  ==================================================================================
``start``       by the launcher, before the workers: ``name`` ("" without a job file), ``workers``, and where
                they are plugged in: ``ports`` (SWITCH/PORT by rank), ``server`` (the same, or null)
``collective``  by a worker, at its end: ``number`` (from 0), ``what`` (what ranks agree on, readable),
                ``bytes``, ``time_s``, ``priority``, ``error`` (the exception's class, or null), and how
                its packets fared: ``sent_packets``, ``resent_packets``, ``result_packets``; of the
                results, ``collided_packets`` met another sum at their slot, and ``repaired_packets``
                overflowed: both take the way by the fallback server; of those sent,
                ``bypassed_packets`` were not to take a slot
``exit``        by the launcher: ``status`` (128 + signal if it was killed) and ``reason``
``end``         by the launcher: the numbers of ``ina run --json``, among them how many sums were completed
                in slots (``switch_completed_packets``) and by the fallback server (``fallback_results``);
                packets do not tell, and so the lines above cannot
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
    """An open log; `write` may be called from any thread."""

    def __init__(self, path: str) -> None:
        """Open a file that is there; do not wait if it is no file (any more). Raises OSError."""
        self._path: Final = path
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)

    def write(self, event: str, **fields: object) -> None:
        """Append a line. What cannot be written ends the log, with a warning, and nothing else."""
        if self._file is None:
            return
        line = json.dumps({"time": time.time(), "event": event, **fields}).encode() + b"\n"
        try:
            if os.write(self._file, line) == len(line):
                return
            reason = "a line did not fit"
        except OSError as error:
            reason = str(error.strerror)
        _log.warning("%s: %s; nothing more is logged", self._path, reason)
        self.close()

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
