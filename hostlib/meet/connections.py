"""Authenticated connections: a process proves to a server (`Door`) that it knows the server's secret.

The server listens at an address, or at a Unix socket in a folder of this user alone
(`private_folder`). Messages are lines of `hostlib.meet`:

===========  =========================================  ===================================================
from server  ``{"challenge": text, "protocol": n, …}``  at once: random text, and the server's `hello`
to server    ``{"proof": text, "protocol": n, …}``      once: the proof for the challenge and for the other
                                                        fields of this message
from server  ``{"welcome": true, …}``                   the connection may be used from now on
             ``{"refused": reason}``                    the connection is closed
===========  =========================================  ===================================================

A line recorded from an earlier connection is no valid proof. Ranks connect in this way to the first rank
(`FirstRank`), processes to their turn server, and launchers to a fallback server.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import importlib
import json
import os
import secrets
import socket
import stat
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from hostlib.addresses import Address
from hostlib.errors import ConfigError, InaError, RendezvousError, refuse
from hostlib.meet import Lines, MessageError, encode, notice_its_end, shut_down
from hostlib.version import PROTOCOL, other_protocol

STRANGER_S: Final = 10.0
"""Seconds for which a connection may stay open without a proof, and longest wait for an answer."""
STRANGERS: Final = 64
"""Maximum number of connections without a proof, in addition to the expected number."""
_RETRY_S: Final = 0.02
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_GREETING_BYTES: Final = 1 << 16

Place = Address | Path
"""Where a server listens: an address, or the path of a Unix socket."""


class Door:
    """A server with a thread per connection, so that a connection without a proof delays no other.

    It is a context manager that closes itself.
    """

    SECRET: ClassVar = "INA_TOKEN"
    """Name of the secret, for messages."""

    def __init__(
        self,
        place: Place,
        secret: str,
        expected: int,
        hello: Mapping[str, Any] | None = None,
        *,
        stranger_s: float = STRANGER_S,
    ) -> None:
        """Start to listen for connections.

        Args:
            place: Where to listen; port 0: a free port. An existing socket at a path is replaced.
            secret: The secret that a process must prove to know.
            expected: Number of connections that may arrive at the same time. If `STRANGERS` more than this
                have no proof, the oldest of them is closed.
            hello: Fields about this end for the first message.
            stranger_s: Longest time that a connection stays open without a proof.

        Raises OSError.
        """
        self._secret, self._stranger_s = secret, stranger_s
        self._hello = {**(hello or {}), "protocol": PROTOCOL}
        self._place, self._most = place, expected + STRANGERS
        self._open = 0
        """Number of open connections."""
        self._strangers: dict[socket.socket, None] = {}
        """Connections without a proof, the oldest first."""
        self._change = threading.Condition()
        """Condition whose lock is held while a connection is admitted."""
        self._listener = listen(place, self._most)
        threading.Thread(target=self._accept, name=type(self).__name__, daemon=True).start()

    @property
    def address(self) -> str:
        """``host:port`` where the server listens."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    def close(self) -> None:
        """Stop listening; the connections stay open."""
        shut_down(self._listener)  # wakes the thread
        self._listener.close()
        if isinstance(self._place, Path):
            self._place.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _admit(self, request: Mapping[str, Any], connection: socket.socket) -> Mapping[str, Any]:
        """Admit a process that knows the secret; return fields for the welcome. Raises InaError to refuse."""
        return {}

    def _serve(self, request: Mapping[str, Any], connection: socket.socket) -> None:
        """Serve an admitted process; its connection is closed afterwards."""

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    return  # closed
                self._cut_off_oldest()
                time.sleep(0.01)  # no room: others may make some; do not spin
                continue
            with self._change:
                self._open += 1
                self._strangers[connection] = None
            if len(self._strangers) > self._most:
                self._cut_off_oldest()
            threading.Thread(target=self._handle_connection, args=(connection,), daemon=True).start()

    def _cut_off_oldest(self) -> None:
        with self._change:
            if oldest := next(iter(self._strangers), None):
                del self._strangers[oldest]
                shut_down(oldest)

    def _handle_connection(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError, MessageError):
                self._converse(connection)
        finally:
            with self._change:  # closed only here, so that no other connection with its number is closed
                self._strangers.pop(connection, None)
                connection.close()
                self._open -= 1

    def _converse(self, connection: socket.socket) -> None:
        challenge = secrets.token_hex(16)
        connection.sendall(encode({**self._hello, "challenge": challenge}))
        request = next_message(connection, self._stranger_s)
        proof = str(request.pop("proof", ""))
        try:
            with self._change:
                self._check(request, proof, challenge)
                answer = self._admit(request, connection)
                self._strangers.pop(connection, None)
                connection.settimeout(None)
                notice_its_end(connection)
                connection.sendall(encode({"welcome": True, **answer}))
        except InaError as error:
            connection.sendall(encode({"refused": str(error)}))
            return
        self._serve(request, connection)

    def _check(self, request: Mapping[str, Any], proof: str, challenge: str) -> None:
        if other := other_protocol(request):
            raise RendezvousError(other)
        if not hmac.compare_digest(
            proof.encode(errors="replace"), _proof(challenge, request, self._secret).encode()
        ):
            raise RendezvousError(f"its {self.SECRET} differs")


def knock(
    place: Place, fields: Mapping[str, Any], secret: str, timeout_s: float
) -> tuple[socket.socket, Mapping[str, Any]]:
    """Connect to a server (`Door`); once admitted, return the connection and the server's fields.

    Args:
        place: Where the server listens.
        fields: Fields about this process to send.
        secret: The server's secret.
        timeout_s: Longest wait for each answer.

    Raises RendezvousError with the reason if the server refuses; OSError or MessageError if no such server
    listens there.
    """
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(connected(place, timeout_s))
        hello = next_message(connection, timeout_s)
        if other := other_protocol(hello):
            raise RendezvousError(other)
        request = {**fields, "protocol": PROTOCOL}
        proof = _proof(str(hello.get("challenge")), request, secret)
        connection.sendall(encode({**request, "proof": proof}))
        answer = next_message(connection, timeout_s)
        if not answer.get("welcome"):
            raise RendezvousError(str(answer.get("refused")))
        connection.settimeout(None)
        notice_its_end(connection)
        stack.pop_all()
        return connection, {**hello, **answer}


class MissingRanks(RendezvousError):
    """Some ranks have not connected to the first rank in time."""

    def __init__(self, missing: Collection[int], size: int, patience_s: float, more: str = "") -> None:
        """Make the error for the ranks `missing` of `size` ranks; append `more` to the message."""
        ranks = ", ".join(map(str, missing))
        named = f"rank {ranks} has" if len(missing) == 1 else f"ranks {ranks} have"
        super().__init__(f"{named} not connected within {patience_s:g} s, of {size} ranks{more}")


class FirstRank(Door):
    """The first rank's server, which accepts a connection from each other rank."""

    def __init__(self, place: Place, others: Collection[int], size: int, secret: str) -> None:
        """Start to listen for connections.

        Args:
            place: Where to listen.
            others: The ranks to wait for.
            size: Number of ranks of the launch or job; each rank must send the same number.
            secret: The secret of the launch or job.

        Raises ConfigError if it is impossible to listen at `place`.
        """
        self.connections: dict[int, socket.socket] = {}
        """Connections by rank, of ranks that have connected."""
        self.texts: dict[int, str] = {}
        """By rank, the text that the rank sent when it connected, such as the description of its call."""
        self._others, self._size = others, size
        self._refused = ""
        try:
            super().__init__(place, secret, size)
        except OSError as error:
            raise ConfigError(f"cannot listen at {_shown(place)}: {error.strerror or error}") from error

    def gather(self, patience_s: float) -> None:
        """Wait for all other ranks. Raises MissingRanks."""
        with self._change:
            if not self._change.wait_for(lambda: len(self.connections) == len(self._others), patience_s):
                missing = [rank for rank in self._others if rank not in self.connections]
                raise MissingRanks(missing, self._size, patience_s, self._refused)

    def _check(self, request: Mapping[str, Any], proof: str, challenge: str) -> None:
        try:
            super()._check(request, proof, challenge)
        except RendezvousError as error:
            self._refused = f"; one was refused: {error}"
            raise

    def _admit(self, request: Mapping[str, Any], connection: socket.socket) -> Mapping[str, Any]:
        rank, size = request.get("rank"), request.get("size")
        refuse(
            size != self._size,
            f"it is in a launch of {size} ranks, this launch has {self._size} ranks and the same "
            f"identifiers ({_shown(self._place)}): start one after the other",
            RendezvousError,
        )
        refuse(
            type(rank) is not int or rank in self.connections or rank not in self._others,
            f"rank {rank} has connected already, or is not expected here",
            RendezvousError,
        )
        assert isinstance(rank, int)
        self.connections[rank] = connection.dup()
        self.connections[rank].settimeout(None)
        self.texts[rank] = str(request.get("text"))
        self._change.notify_all()
        return {}


def reach(
    place: Place, rank: int, size: int, secret: str, patience_s: float, *, text: str = "", first: int = 0
) -> socket.socket:
    """Return a connection to the first rank; wait until the first rank listens.

    Args:
        place: Where the first rank listens.
        rank: This rank.
        size: Number of ranks.
        secret: The secret of all ranks.
        patience_s: Longest wait for the first rank to listen.
        text: Text to send.
        first: The first rank's number, for messages.

    Raises RendezvousError if the first rank does not listen in time, or refuses this rank.
    """
    until_s = time.monotonic() + patience_s
    while True:
        try:
            connection, _ = knock(place, {"rank": rank, "size": size, "text": text}, secret, STRANGER_S)
        except RendezvousError as error:
            raise RendezvousError(f"rank {rank}: refused by rank {first}: {error}") from error
        except MessageError as error:
            raise RendezvousError(
                f"rank {rank}: no first rank of this version of ina listens at {_shown(place)}: {error}"
            ) from error
        except OSError as error:
            if time.monotonic() > until_s:
                raise RendezvousError(
                    f"rank {rank}: rank {first} does not listen after {patience_s:g} s{_advice(place)} "
                    f"({_shown(place)}: {error.strerror or error})"
                ) from error
            time.sleep(_RETRY_S)
        else:
            return connection


def next_message(
    connection: socket.socket, timeout_s: float, *, longest: int = _GREETING_BYTES
) -> dict[str, Any]:
    """Return the next message, and leave later messages unread. Raises OSError, MessageError."""
    until_s, lines = time.monotonic() + timeout_s, Lines(longest)
    while True:
        connection.settimeout(max(0.001, until_s - time.monotonic()))
        coming = connection.recv(_GREETING_BYTES, socket.MSG_PEEK)
        if not coming:
            raise ConnectionAbortedError("the connection has ended")
        for message in lines.feed(connection.recv(coming.find(b"\n") + 1 or len(coming))):
            return message


def _proof(challenge: str, message: Mapping[str, Any], secret: str) -> str:
    """Return hexadecimal digits that prove knowledge of the secret and authenticate a message."""
    text = f"said {challenge}{json.dumps(message, sort_keys=True)}"
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def listen(place: Place, backlog: int) -> socket.socket:
    """Return a socket that listens at `place`; if a file is at that path, replace it. Raises OSError."""
    if not isinstance(place, Path):
        return socket.create_server(place, backlog=backlog)
    listener = socket.socket(socket.AF_UNIX)
    place.unlink(missing_ok=True)
    with _as_short(place) as path:
        listener.bind(path)
    listener.listen(backlog)
    return listener


def connected(place: Place, timeout_s: float) -> socket.socket:
    """Return a connection to a socket that listens at `place`. Raises OSError."""
    if not isinstance(place, Path):
        connection = socket.create_connection(place, timeout=timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout_s)
    try:
        with _as_short(place) as path:
            connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _as_short(address: Path) -> Iterator[str]:
    """Yield a path of a Unix socket that fits into 107 bytes (unix(7)), however deep its folder is."""
    folder = os.open(address.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{address.name}"
    finally:
        os.close(folder)


def _shown(place: Place) -> str:
    return str(place) if isinstance(place, Path) else "{}:{}".format(*place)


def _advice(place: Place) -> str:
    if not isinstance(place, Path):
        return ", or its machine cannot be reached"
    return (
        ": it has ended or not called init(), or runs as another user, in another container, or with another "
        "XDG_RUNTIME_DIR or TMPDIR"
    )


def private_folder() -> Path:
    """Return a folder that only this user can enter, for private sockets; create it if necessary.

    Raises:
        ConfigError: the folder belongs to another user, or is open to other users.
    """
    place = os.environ.get("XDG_RUNTIME_DIR") or importlib.import_module("tempfile").gettempdir()
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


def private_path(kind: str, key: str) -> Path:
    """Return a path in the private folder for a secret or long key. Raises ConfigError."""
    return private_folder() / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
