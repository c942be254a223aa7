"""The log of a switch: one line of JSON for each job that is admitted or removed, with time and user."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TextIO

from controller.switches import names
from controller.switches.jobs import decode_registration
from softswitch import Written

_log = logging.getLogger(__name__)


class SwitchLog:
    """Writes a switch's log to a file; `written` may be called by several threads."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._turn = threading.Lock()
        self._failed = False

    def started(self) -> None:
        """Log that the switch has started, without jobs."""
        self._write({"event": "started"})

    def written(self, written: Written) -> None:
        """Log a controller's write if it loads a program, or admits or removes a job."""
        if written.kind == "LOAD":
            self._write({"event": "program loaded", "client": written.client})
        elif written.table == names.JOB and (event := _EVENTS.get(written.kind)):
            self._write({"event": event, "client": written.client, **_job(written)})

    def _write(self, fields: Mapping[str, object]) -> None:
        now = datetime.now().astimezone().isoformat(timespec="milliseconds")
        with self._turn:
            try:
                print(json.dumps({"time": now, **fields}), file=self._file, flush=True)
            except OSError as error:  # the switch continues without a log
                if not self._failed:
                    _log.warning("the log %s cannot be written: %s", self._file.name, error.strerror)
                self._failed = True


_EVENTS = {"INSERT": "admitted", "DELETE": "removed"}


def _job(written: Written) -> dict[str, object]:
    params = written.params or {}
    registration = decode_registration(written.metadata)
    fields = asdict(registration) if registration else {}
    return {
        "job": (written.match or {}).get(names.JOB_KEY),
        "generation": params.get("generation"),
        "first_slot": params.get("offset"),
        "slots": params.get("size"),
        **{name: fields[name] for name in _LOGGED_FIELDS if fields.get(name) not in (None, "")},
    }


_LOGGED_FIELDS = ("holder", "name", "user", "command", "priority", "lease_s", "age_s", "goodput_bps")
"""Fields of a job's registration that are logged; age and goodput are from the last renewal."""
