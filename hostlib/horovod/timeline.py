"""When each tensor was agreed on and summed, in Chrome's trace format (chrome://tracing, Perfetto)."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import IO, Final

_MICRO: Final = 1e6


class Timeline:
    """The file of one rank; any thread may call. Without effect until `start`."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._lock = threading.Lock()
        self._file: IO[str] | None = None
        self._began = 0.0
        self._rows: dict[str, int] = {}

    def start(self, path: str) -> None:
        """Write to this file; at ranks but 0 to one beside it. Raises OSError."""
        file = Path(path)
        if self._rank:
            file = file.with_name(f"{file.stem}.{self._rank}{file.suffix}")
        with self._lock:
            self._close()
            self._file = file.open("w", encoding="utf-8")
            self._file.write("[\n")
            self._began = time.monotonic()
            self._rows.clear()

    def begin(self, name: str, what: str) -> None:
        """Note that something begins with a tensor."""
        self._write(name, {"ph": "B", "name": what})

    def end(self, name: str) -> None:
        """Note that what began last with a tensor has ended."""
        self._write(name, {"ph": "E"})

    def stop(self) -> None:
        """Close the file."""
        with self._lock:
            self._close()

    def _write(self, name: str, event: dict[str, object]) -> None:
        if self._file is None:
            return
        with self._lock:
            if self._file is None:
                return
            if name not in self._rows:
                self._rows[name] = len(self._rows)
                row = {"ph": "M", "name": "process_name", "pid": self._rows[name], "args": {"name": name}}
                self._file.write(json.dumps(row) + ",\n")
            at = round((time.monotonic() - self._began) * _MICRO)
            self._file.write(json.dumps({**event, "pid": self._rows[name], "tid": 0, "ts": at}) + ",\n")

    def _close(self) -> None:
        if self._file is not None:
            self._file.write("{}]\n")
            self._file.close()
            self._file = None
