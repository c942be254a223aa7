"""Unix sockets for P4Runtime: the file's permissions decide which users may control the switch."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from softswitch.engine.native import PATH_BYTES, make_socket_folder

PREFIX = "unix:"
_NAME = "p4runtime"


@contextlib.contextmanager
def private_socket() -> Iterator[str]:
    """Make a folder that only this user can enter, and remove it; give the address of a socket in it."""
    folder = make_socket_folder(_NAME)
    try:
        yield f"{PREFIX}{folder / _NAME}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_free(address: str) -> None:
    """Raise OSError if a Unix socket cannot be opened at `address` or another process listens there.

    gRPC would take the path away from that process.
    """
    path = Path(address.removeprefix(PREFIX))
    if not 1 <= len(bytes(path)) <= PATH_BYTES:
        raise OSError(f"cannot listen on {address}: the path of a socket has 1 to {PATH_BYTES} bytes")
    if path.exists() and not path.is_socket():
        raise OSError(f"cannot listen on {address}: the file exists and is not a socket")
    if not path.parent.is_dir():
        raise OSError(f"cannot listen on {address}: there is no folder {path.parent}")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return  # nothing there, or left by a process that is gone
        except OSError as error:
            raise OSError(f"cannot listen on {address}: {error.strerror}") from error
    raise OSError(f"cannot listen on {address}: another process does")
