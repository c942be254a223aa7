"""The web server around the application: its listening socket, TLS, and limits of connections."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from controller.vocabulary import BadSpec
from ina.api.access import Gate
from ina.api.app import app
from ina.api.guard import LOOPBACK, PER_PEER, Listener, Peer
from ina.api.problems import Problem
from ina.run.daemon import Daemon
from ina.run.tokens import Tokens
from ina.run.views import Reload

_STOP_S = 2
"""Maximum time, in s, for open requests to complete after the service has begun to end."""
_SILENT_MS = 60_000
"""Time, in ms, after which the kernel closes a connection whose client reads nothing."""
_BACKLOG = 256
"""Maximum number of connections that the kernel queues until they are accepted."""
HEAD_S = 10.0
"""Maximum time, in s, in which a request's head must arrive, or a TLS handshake must be complete."""
HEAD_BYTES = 64 << 10
_PIECE_BYTES = 4 << 10
_LINGER_S = 1.0
"""Time, in s, for which a connection stays open after a refusal. If it were closed earlier, the client might
not receive the refusal."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address at which the service listens: the path of a Unix socket, or a host and a port.

    Port 0 means any free port.
    """

    host: str = "127.0.0.1"
    port: int = 0
    path: Path | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``HOST:PORT``, ``[IPV6]:PORT`` or ``unix:PATH``. Raises BadSpec."""
        if text.startswith("unix:") and text != "unix:":
            return cls(path=Path(text.removeprefix("unix:")))
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not (port.isascii() and port.isdecimal() and int(port[:6]) < 1 << 16):
            raise BadSpec(f"{text!r}: want HOST:PORT or unix:PATH, such as 127.0.0.1:9580")
        return cls(host, int(port))

    @property
    def local(self) -> bool:
        """Whether only this machine can connect to the address."""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def bound(self) -> Listener:
        """Return a socket that listens at the address. Raises OSError."""
        if self.path is not None:
            return _unix(self.path)
        try:
            family, _, _, _, where = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            return _tcp(family, where)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{self.host}:{self.port}") from error


def _tcp(family: int, where: tuple[object, ...]) -> Listener:
    listener = Listener(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MS)  # connections inherit it
        listener.bind(where)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _unix(path: Path) -> Listener:
    """Return a socket that listens at a path, to which only its owner can connect. Raises OSError."""
    listener = Listener(socket.AF_UNIX)
    try:
        with (
            contextlib.suppress(FileNotFoundError, ConnectionRefusedError),
            socket.socket(socket.AF_UNIX) as other,
        ):
            other.connect(str(path))
            raise FileExistsError(None, "another process listens there", str(path))
        if path.is_socket():
            path.unlink()  # of a service that has ended
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files for TLS.

    `certificate` has the certificate and the certificates of its signers; `key` has the certificate's private
    key.
    """

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raise BadSpec if a server cannot use the files."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        except OSError as error:  # ssl.SSLError, too; it does not name the files
            raise BadSpec(
                f"{self.certificate} and {self.key}: want a certificate and its key, in PEM"
                f" ({getattr(error, 'reason', error.strerror)})"
            ) from error


class _BoundedConnection(H11Protocol):
    """An HTTP connection with a limit on the time in which the head of a request must arrive (`HEAD_S`).

    The ASGI scope of each request has the connection's `Peer` as ``state["peer"]``. Bytes that are not a
    request are answered with a problem document.
    """

    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to serve a new connection, and limit the time until its first request's head is complete."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": Peer(self.client, self.server)}
        self._head: asyncio.TimerHandle | None = self.loop.call_later(HEAD_S, self._late)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes, and limit the time until a request's head is complete."""
        # h11 limits a head only while it is incomplete, so one that came in a single read would have no limit
        for first in range(0, len(data), _PIECE_BYTES):
            if self._refused:
                return
            super().data_received(data[first : first + _PIECE_BYTES])
        if self.conn.their_state is not h11.IDLE:
            self._whole()
        elif self._head is None:
            self._head = self.loop.call_later(HEAD_S, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection: cancel the limit on the time for a request's head."""
        self._whole()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not a valid request; uvicorn calls this while it handles an error of h11."""
        error = sys.exc_info()[1]
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            self._refuse(
                Problem(431, f"the head of the request is too long: want at most {HEAD_BYTES} bytes")
            )
        else:
            self._refuse(Problem(400, f"not a valid HTTP/1.1 request: {error or msg}"))

    def _whole(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _late(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(Problem(408, f"the head of the request took longer than {HEAD_S:g} s"))
        else:
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        self._refused = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(problem.written())
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)


class _Server(uvicorn.Server):
    """A web server that leaves signals to its caller, and sets the event `listening` once it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self.ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Install no signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup([])

        def connected() -> asyncio.Protocol:
            return _BoundedConnection(self.config, self.server_state, self.lifespan.state)

        for bound in sockets or ():
            serving = await asyncio.get_running_loop().create_server(
                connected,
                sock=bound,
                ssl=self.config.ssl,
                backlog=_BACKLOG,
                ssl_handshake_timeout=None if self.config.ssl is None else HEAD_S,
            )
            self.servers.append(serving)
        self.listening.set()

    async def main_loop(self) -> None:
        """Do uvicorn's periodic work until the server must end.

        An idle server does it once per second, where uvicorn does it ten times.
        """
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.ending.wait()


@contextlib.contextmanager
def listening(address: Address, tokens: Tokens, certificate: Certificate | None) -> Iterator[Listener]:
    """Listen at an address while the context lasts; clients wait until a service speaks there (`speaking`).

    Raises BadSpec if other machines could connect without TLS or without tokens, or if the certificate cannot
    be used; OSError if the address is taken.
    """
    if certificate is not None:
        certificate.check()
    if not address.local:
        what = f"{address.host}:{address.port} can be reached by other machines"
        if certificate is None:
            raise BadSpec(f"{what}: want a TLS certificate and its key")
        if not tokens.grants():
            raise BadSpec(f"{what}: add a token first, with 'ina controller token add NAME --role operator'")
    with address.bound() as bound:
        if certificate is None:
            bound.refusal = Problem(
                503, f"too many connections are open, or you have {PER_PEER} or more: close some"
            ).written()
        try:
            yield bound
        finally:
            if address.path is not None:
                address.path.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def speaking(
    service: Daemon,
    address: Address,
    bound: Listener,
    tokens: Tokens,
    *,
    certificate: Certificate | None = None,
    reload: Reload | None = None,
) -> AsyncIterator[str]:
    """Serve a service at an address while the context lasts; yield the URL.

    Args:
        service: The service.
        address: The address.
        bound: The socket that listens there (`listening`).
        tokens: The tokens that are accepted.
        certificate: The certificate for TLS; None: plain HTTP.
        reload: Reads the cluster file and the policies file again; None: the service has neither.
    """
    made = app(
        service,
        gate=Gate(tokens, local=address.local),
        reload=reload,
        hosts=LOOPBACK if address.local and address.path is None else None,
    )
    config = uvicorn.Config(
        made,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_graceful_shutdown=_STOP_S,
        ssl_certfile=certificate.certificate if certificate else None,
        ssl_keyfile=certificate.key if certificate else None,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[bound]))
    listens = asyncio.create_task(server.listening.wait())
    try:
        await asyncio.wait({task, listens}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            raise OSError("the web server ended before it could listen")
        yield _url(address, bound, certificate)
    finally:
        listens.cancel()
        server.should_exit = True
        server.ending.set()
        await task


def _url(address: Address, bound: socket.socket, certificate: Certificate | None) -> str:
    if address.path is not None:
        return f"unix:{address.path}"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{'https' if certificate else 'http'}://{host}:{bound.getsockname()[1]}"
