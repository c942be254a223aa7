"""The file of ``ina run --log``: opened before anything starts; its lines are those of `hostlib.joblog`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from controller.cli.errors import USAGE, Failure


def begin_log(path: Path) -> Path:
    """Make the file, empty; return where it is for workers in whatever folder.

    Raises Failure if it cannot be written, or is no file on a disk: all workers open it by its name.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise Failure(f"--log {path}: {error.strerror}", exit_code=USAGE) from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Failure(f"--log {path}: not a regular file, which all workers can append to", USAGE)
        os.ftruncate(file, 0)
    finally:
        os.close(file)
    return path.absolute()
