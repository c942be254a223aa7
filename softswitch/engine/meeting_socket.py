"""Unix sockets at which the far ends of shared memory ports arrive (``runtime/shared_ring.h``)."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final

from softswitch.engine.ports import PortError

PATH_BYTES: Final = 107
"""Longest path that a socket address has room for."""


def make_socket_folder(longest: str) -> Path:
    """Make a folder whose path leaves room for a socket of a name as long as `longest`; return it."""
    folder = Path(tempfile.mkdtemp(prefix="ina-"))
    if len(bytes(folder / longest)) > PATH_BYTES:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="ina-", dir="/tmp"))
    return folder


_WAITING: Final = 4


class MeetingSockets:
    """Listening sockets that only this user can connect to; those without a path are in a private folder."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._paths: dict[int, Path] = {}

    def open(self, number: int, path: str | None) -> socket.socket:
        """Return the socket of port `number`, which listens. Raises PortError."""
        at = Path(path) if path else self._private_folder() / f"port-{number}"
        if len(bytes(at)) > PATH_BYTES:
            raise PortError(f"port {number}: {at} is too long for a socket, which has {PATH_BYTES} bytes")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            _remove_leftover(at)
            listening.bind(str(at))
            at.chmod(0o600)
            listening.listen(_WAITING)
        except OSError as error:
            listening.close()
            raise PortError(f"port {number}: cannot listen at {at}: {error.strerror}") from error
        self._paths[number] = at
        return listening

    def path(self, number: int) -> str:
        """Return where the socket of a port is."""
        return str(self._paths[number])

    def close(self) -> None:
        """Remove the sockets' names, and the folder."""
        for path in self._paths.values():
            path.unlink(missing_ok=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _private_folder(self) -> Path:
        if self._folder is None:
            self._folder = make_socket_folder("port-511")
        return self._folder


def _remove_leftover(path: Path) -> None:
    """Remove a socket whose process is gone. One that is served makes `bind` fail, and so does a file."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
