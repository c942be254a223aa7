"""A folder that only this user can enter, for the private sockets of a job's ranks."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hostlib.errors import ConfigError


def private_folder() -> Path:
    """Return the folder; create it if necessary.

    Raises:
        ConfigError: the folder belongs to another user, or is open to other users.
    """
    place = os.environ.get("XDG_RUNTIME_DIR") or _temporary()
    folder = Path(place) / f"ina-jobs-{os.geteuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"{folder} must be a folder that only user {os.geteuid()} can enter: remove it, or set "
            "XDG_RUNTIME_DIR to another place"
        )
    return folder


def _temporary() -> str:
    import tempfile  # most ranks ask for no such folder, and this takes a tenth of their imports

    return tempfile.gettempdir()
