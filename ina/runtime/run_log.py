"""The log file of a run: opened before anything starts; its lines are those of `hostlib.io.joblog`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ina.runtime.errors import BadRun


def begin_log(path: Path) -> Path:
    """Create the file, empty; return its absolute path, for workers in any folder.

    Raises BadRun if it cannot be written, or is not a regular file: all workers open it by name.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise BadRun(f"{error.strerror}", setting="log", value=str(path)) from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise BadRun(
                "not a regular file: several workers cannot append to it", setting="log", value=str(path)
            )
        os.ftruncate(file, 0)
    finally:
        os.close(file)
    return path.absolute()
