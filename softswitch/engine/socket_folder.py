"""Folders that only this user can enter, for Unix sockets."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

PATH_BYTES: Final = 107
"""Longest path that a socket address has room for."""


def make_socket_folder(longest: str) -> Path:
    """Make a folder whose path leaves room for a socket of a name as long as `longest`; return it."""
    folder = Path(tempfile.mkdtemp(prefix="ina-"))
    if len(bytes(folder / longest)) > PATH_BYTES:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="ina-", dir="/tmp"))
    return folder
