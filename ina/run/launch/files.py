"""Small files that one process writes and others read. A reader never sees a half-written file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def plain(record: object) -> Any:
    """Convert a record, or a collection of records, to plain data. A range becomes a list of its two ends."""
    return msgspec.to_builtins(record, enc_hook=lambda ends: [ends.start, ends.stop])


def record_of(kind: type[T], found: object) -> T:
    """Convert plain data, which `plain` has made, back to a record of type `kind`.

    Fields that are missing in `found` get their defaults.

    Raises ValueError with the path of a wrong value, such as ``$.jobs[0].name``, and any error that the
    constructor of `kind` raises.
    """
    return msgspec.convert(found, kind, dec_hook=lambda kind, ends: kind(*ends))


_LOOK_S = 0.5
"""Maximum time, in s, to wait for a folder's lock, which `process_of` holds for less time than this; and the
interval at which a process looks for room on a full disk."""


def write(path: Path, value: Any, *, synced: bool = False) -> None:
    """Write a record as JSON, readable by this user alone; `synced`: so that it survives a power failure."""
    beside = path.with_name(path.name + ".new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w") as file:  # noqa: PTH123 - it takes the mode from os.open
        json.dump(plain(value), file)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    beside.replace(path)


def read(path: Path, kind: Any = Any) -> Any:
    """Return the record of type `kind` in a JSON file; None if there is no file. Raises ValueError."""
    try:
        return record_of(kind, json.loads(path.read_text()))
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def alive(folder: Path) -> Iterator[bool]:
    """Register this process as the owner of a folder until the end of the context; yield True.

    Yield False, and register nothing, if another process is registered. On a full disk, wait for room.
    """
    with (folder / "alive").open("a+") as handle:
        until = time.monotonic() + _LOOK_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    yield False
                    return
                time.sleep(_LOOK_S / 50)  # a reader may hold the lock (`process_of`)
        handle.seek(0)
        handle.truncate()
        while True:
            try:
                os.write(handle.fileno(), str(os.getpid()).encode())
                break
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                time.sleep(_LOOK_S)
        yield True


def process_of(folder: Path) -> int | None:
    """Return the ID of the process that `alive` has registered for a folder.

    None: no process is registered, or it has ended.
    """
    with contextlib.suppress(FileNotFoundError), (folder / "alive").open("r") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            until = time.monotonic() + _LOOK_S
            while not (text := handle.read()) and time.monotonic() < until:
                time.sleep(_LOOK_S / 50)  # it has the lock, and writes its number next
            return int(text) if text else None
    return None
