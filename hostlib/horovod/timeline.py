"""Record each tensor's negotiation and sum in Chrome's trace format (chrome://tracing, Perfetto)."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import IO, Final

_MICRO: Final = 1e6


class TensorTimeline:
    """The timeline file of one rank; any thread may call its methods, without effect until `start`."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._lock = threading.Lock()
        self._file: IO[str] | None = None
        self._began = 0.0
        self._marks_cycles = False
        self._rows: dict[str, int] = {}

    def start(self, path: str, *, mark_cycles: bool = False) -> None:
        """Start to write to `path`, ``NAME.json``; at rank r > 0 to ``NAME.r.json``. Raises OSError."""
        file = Path(path)
        if self._rank:
            file = file.with_name(f"{file.stem}.{self._rank}{file.suffix}")
        with self._lock:
            self._close()
            self._file = file.open("w", encoding="utf-8")
            at = {"start_time_since_epoch_in_micros": round(time.time() * _MICRO)}
            self._file.write(
                "[\n" + json.dumps({"ph": "M", "name": "process_name", "pid": 0, "args": at}) + ",\n"
            )
            self._began = time.monotonic()
            self._marks_cycles = mark_cycles
            self._rows.clear()

    def begin(self, name: str, what: str) -> None:
        """Record that the phase `what` of a tensor starts now."""
        self._write(name, {"ph": "B", "name": what})

    def end(self, name: str) -> None:
        """Record that the current phase of a tensor ends now."""
        self._write(name, {"ph": "E"})

    def cycle(self) -> None:
        """Mark the start of a collective that all ranks have submitted, if cycles are marked."""
        if self._marks_cycles:
            self._write(None, {"ph": "i", "name": "CYCLE_START", "s": "g"})

    def stop(self) -> None:
        """Close the file."""
        with self._lock:
            self._close()

    def _write(self, name: str | None, event: dict[str, object]) -> None:
        """Write an event of the tensor `name`; None: an event of all tensors."""
        if self._file is None:
            return
        with self._lock:
            if self._file is None:
                return
            if name is not None and name not in self._rows:
                self._rows[name] = len(self._rows)
                row = {"ph": "M", "name": "process_name", "pid": self._rows[name], "args": {"name": name}}
                self._file.write(json.dumps(row) + ",\n")
            at = round((time.monotonic() - self._began) * _MICRO)
            row_number = 0 if name is None else self._rows[name]
            self._file.write(json.dumps({**event, "pid": row_number, "tid": 0, "ts": at}) + ",\n")

    def _close(self) -> None:
        if self._file is not None:
            self._file.write("{}]\n")
            self._file.close()
            self._file = None
