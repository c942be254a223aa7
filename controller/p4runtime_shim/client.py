"""A client of one P4Runtime server over gRPC, which raises the errors of this package.

`Tls` names the files for a connection with TLS. The module also explains why such a connection failed.
"""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.experimental

from controller.errors import NotPrimary, Refused, SwitchError, TlsFailure, Unreachable, UpdateError
from controller.switches.target import Kind
from p4src.messages import code_pb2, p4runtime_pb2_grpc, status_pb2
from p4src.messages import p4runtime_pb2 as p4

_ANSWER_S = 2.0
"""Time that a listening server may take to answer, seconds."""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files for TLS: the server's CA; the client's certificate and key, if the server wants these."""

    server_ca: Path
    certificate: Path | None = None
    key: Path | None = None

    def credentials(self) -> Any:
        """Read the files; return them as gRPC credentials. Raises OSError if a file cannot be read."""
        return grpc.ssl_channel_credentials(
            self.server_ca.read_bytes(),
            self.key.read_bytes() if self.key else None,
            self.certificate.read_bytes() if self.certificate else None,
        )


def diagnose(address: str, tls: Tls | None) -> str | None:
    """Return why a connection to ``host:port`` fails if TLS, or its absence, is the reason; else None.

    gRPC itself only reports that the time is up. Makes one connection and closes it.
    """
    with contextlib.suppress(OSError, ValueError):  # no answer, or an address of another form
        where = urlsplit(f"//{address}")
        with socket.create_connection((where.hostname or "", where.port or 0), _ANSWER_S) as connection:
            if tls is None:
                return "it speaks TLS, and the request was without TLS" if _speaks_tls(connection) else None
            return _complaint(connection, where.hostname or "", tls)
    return None


def _speaks_tls(connection: socket.socket) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_socket(connection).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def _complaint(connection: socket.socket, host: str, tls: Tls) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(tls.server_ca)
    except ssl.SSLError:
        return f"{tls.server_ca} holds no certificate in PEM"
    if tls.certificate is not None:
        try:
            context.load_cert_chain(tls.certificate, tls.key)
        except ssl.SSLError as error:
            return f"{tls.certificate} and {tls.key} are not a PEM certificate and its key: {_reason(error)}"
    try:
        with context.wrap_socket(connection, server_hostname=host) as encrypted:
            # A server of gRPC speaks first; in TLS 1.3 it refuses a client after the client's handshake.
            refused = not encrypted.recv(1)
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not valid by the CA in {tls.server_ca}: {error.verify_message}"
    except (ssl.SSLEOFError, ConnectionResetError):
        refused = True
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return f"it does not speak TLS ({_reason(error)})"
        refused = True
    if not refused:
        return None
    if tls.certificate is None:
        return "it ends the connection: it may want a client certificate"
    return f"it ends the connection: it may not trust the client certificate {tls.certificate}"


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


# ---------------------------------------------------------------------------
# Mastership of one switch: a lock between controllers that do not know each other.
#
# A switch takes writes only from its primary controller, the one with the highest election id it has seen.
# Our controllers are primary only while they write. A controller first asks who is primary, without an
# election id. If no controller is primary, it claims the highest id so far plus one. If two controllers claim
# at once, they claim the same id, and the switch ends the stream of the later one, which then asks again. So
# a claim never takes the switch from a primary that is still connected, and a controller that dies releases
# the switch. A claim may arrive late, after other controllers have been primary and have left. The switch
# accepts the late claim, but a controller that saw the others leave claims a higher id. So the late claim has
# no effect, and its controller claims again.
#
# If a controller has claimed the highest possible id, P4Runtime admits no lower id until the switch restarts.
# Then all controllers claim the highest id. They still take turns, but the switch cannot distinguish a late
# write of the last primary, under way when its stream ended, from a write of the next primary.
#
# BMv2 promotes the next controller itself, and treats a missing election id as 0: a controller that
# asks may become primary at once, which also works.


HIGHEST_ID = (1 << 128) - 1
"""The highest election id: ids have 128 bits."""

_PAUSE_S = 0.02
"""Mean pause before another claim of mastership, in seconds, after the switch has ended the stream because
two controllers claimed the same election id."""


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The end of a stream by the switch; `code` is None if there was no error."""

    code: grpc.StatusCode | None
    message: str


class ArbitrationStream:
    """A StreamChannel on which a controller asks for mastership, and keeps it while the stream is open."""

    def __init__(self, stub: Any, device_id: int) -> None:
        self.election_id: int | None = None
        self._device_id = device_id
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = stub.StreamChannel(self._outgoing())
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, election_id: int | None) -> None:
        """Send a MasterArbitrationUpdate; an election id of None asks who is primary, and claims nothing."""
        update = p4.MasterArbitrationUpdate(device_id=self._device_id)
        if election_id is not None:
            update.election_id.high = election_id >> 64
            update.election_id.low = election_id & (2**64 - 1)
        self.election_id = election_id
        self._requests.put(p4.StreamMessageRequest(arbitration=update))

    def answer(self, timeout_s: float) -> Any:
        """Wait for the next MasterArbitrationUpdate or `StreamEnded`.

        Raises queue.Empty if neither comes within `timeout_s`.
        """
        return self._answers.get(timeout=max(0.0, timeout_s))

    def release(self) -> None:
        """Close the stream and wait until the switch has noticed."""
        self._requests.put(None)
        self._reader.join(2.0)
        self._call.cancel()

    def _outgoing(self) -> Iterator[Any]:
        while (request := self._requests.get()) is not None:
            yield request

    def _read(self) -> None:
        try:
            for response in self._call:
                if response.WhichOneof("update") == "arbitration":
                    self._answers.put(response.arbitration)
            self._answers.put(StreamEnded(None, ""))
        except grpc.RpcError as error:
            self._answers.put(StreamEnded(error.code(), error.details() or ""))


def acquire(stub: Any, device_id: int, address: str, *, timeout_s: float) -> ArbitrationStream:
    """Become the primary controller of a device, for as long as the returned stream stays open.

    Args:
        stub: The P4Runtime stub.
        device_id: The device.
        address: The server's address, for error messages.
        timeout_s: Time to wait for another controller to release the switch, and for answers.

    Raises NotPrimary if another controller stays primary for `timeout_s`, Unreachable if the switch does not
    answer, SwitchError if the switch refuses the stream.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        stream = ArbitrationStream(stub, device_id)
        try:
            if _claim(stream, address, deadline):
                return stream
        except BaseException:
            stream.release()
            raise
        stream.release()
        time.sleep(_PAUSE_S * 2 * random.random())


def _claim(stream: ArbitrationStream, address: str, deadline: float) -> bool:
    """Wait for mastership; return True once `stream` has it, or False if a new stream has to be opened.

    Waits until `deadline`, a time of `time.monotonic`.
    """
    stream.ask(None)
    holder: int | None = None
    answered = False
    while True:
        try:
            answer = stream.answer(deadline - time.monotonic())
        except queue.Empty:
            if not answered:
                raise Unreachable(f"the switch at {address} does not answer on its stream") from None
            raise NotPrimary(
                f"another controller (election id {holder}) is the primary of the switch at {address}"
            ) from None
        answered = True
        if isinstance(answer, StreamEnded):
            if answer.code is grpc.StatusCode.INVALID_ARGUMENT and time.monotonic() < deadline:
                return False
            if answer.code is grpc.StatusCode.UNAVAILABLE:
                raise Unreachable(f"the connection to the switch at {address} ended: {answer.message}")
            raise SwitchError(f"the switch at {address} ended the stream: {answer.code}: {answer.message}")
        highest = answer.election_id.high << 64 | answer.election_id.low
        match answer.status.code:
            case code_pb2.OK if stream.election_id in (None, highest):
                return True
            case code_pb2.OK:  # of an earlier claim, which the next controller may outbid
                holder = highest
            case code_pb2.NOT_FOUND:
                stream.ask(min(highest + 1, HIGHEST_ID))
            case _:
                holder = highest


_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


_MAX_MESSAGE = 64 << 20
"""Maximum length of an answer in bytes: one answer may have all entries of a table."""

_LOOK_S = 1.0
"""Time to wait for a connection before its failure is diagnosed, seconds."""

_SILENT_S = 1.0
"""Time-out, in seconds, of a request that checks whether a switch answers again after a time-out."""


class P4RuntimeClient:
    """A client for one device of a P4Runtime server at ``host:port`` or ``unix:path``.

    Reads work at any time; writes need `mastership`. Each call waits at most `timeout_s`. After a time-out,
    each call first sends a short request and waits only 1 s for its answer, until the switch answers again.
    Raises Unreachable if the server cannot be reached within `timeout_s`; TlsFailure, a subclass, as soon as
    TLS turns out to be the reason. With `at_once`, the client connects when it is created; otherwise its
    first call does.
    """

    def __init__(
        self,
        address: str,
        *,
        device_id: int = 0,
        tls: Tls | None = None,
        timeout_s: float = 10.0,
        at_once: bool = True,
    ) -> None:
        self.address = address.removeprefix("grpc://")
        self.device_id = device_id
        self._timeout_s = timeout_s
        self._silent = False
        """True if a request to the switch has timed out, and the switch has not answered since."""
        self._election_id: int | None = None
        self._last_id: int | None = None
        self._ids_grow = False
        self.restarts = 0
        """Number of restarts of the switch that were observed: at a restart the switch forgets all election
        ids."""
        self.undisturbed = False
        """True if no other controller was primary between this client's last two `mastership` blocks."""
        options = [
            ("grpc.max_receive_message_length", _MAX_MESSAGE),
            ("grpc.enable_http_proxy", 0),  # http_proxy's server is for the web, and would see all requests
            ("grpc.max_metadata_size", 1 << 24),  # the errors of a large batch exceed the default of 8 KiB
            ("grpc.initial_reconnect_backoff_ms", 100),  # find a restarted switch soon
            ("grpc.max_reconnect_backoff_ms", 1000),
            (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),  # or each read starts a thread
        ]
        self._channel = (
            grpc.secure_channel(self.address, tls.credentials(), options)
            if tls
            else grpc.insecure_channel(self.address, options)
        )
        self._stub = p4runtime_pb2_grpc.P4RuntimeStub(self._channel)
        self._read_bytes = self._channel.unary_stream(
            f"/{p4.DESCRIPTOR.services_by_name['P4Runtime'].full_name}/Read",
            request_serializer=p4.ReadRequest.SerializeToString,
            response_deserializer=None,
        )
        try:
            if at_once:
                self._reach(tls)
        except BaseException:
            self._channel.close()
            raise

    def _reach(self, tls: Tls | None) -> None:
        """Wait until the server answers; `tls` is for the diagnosis of a failure. Raises Unreachable."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                self._stub.Capabilities(
                    p4.CapabilitiesRequest(), timeout=min(left, _LOOK_S), wait_for_ready=True
                )
                return
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:  # Capabilities is newer than P4Runtime 1.0
                    return
                if why := diagnose(self.address, tls):
                    raise TlsFailure(f"no connection to the switch at {self.address}: {why}") from error
                if left <= _LOOK_S:
                    raise Unreachable(
                        f"no P4Runtime server answers at {self.address} within {self._timeout_s:g} s:"
                        f" {error.details()}"
                    ) from error

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def expect_silence(self) -> None:
        """Make the next call first check that the switch answers at all."""
        self._silent = True

    def _make_sure(self) -> None:
        """If a request to the switch has timed out, send a short one to check that the switch answers again.

        Raises Unreachable.
        """
        if not self._silent:
            return
        try:
            self._stub.Capabilities(p4.CapabilitiesRequest(), timeout=_SILENT_S)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:  # see `_reach`
                raise Unreachable(
                    f"the switch at {self.address} did not answer a call in time, nor another one within "
                    f"{_SILENT_S:g} s: {error.details()}"
                ) from error
        self._silent = False

    @contextmanager
    def mastership(self, *, timeout_s: float = 10.0) -> Iterator[None]:
        """Be the primary controller during the block: only the primary may write.

        Of all clients of this class, in any process, only one is in such a block at a time. If this client
        dies, its block ends. Do not nest blocks. Raises NotPrimary if another controller stays the primary
        for `timeout_s`.
        """
        self._make_sure()
        try:
            stream = acquire(self._stub, self.device_id, self.address, timeout_s=timeout_s)
        except Unreachable:
            self._silent = True
            raise
        self._election_id = stream.election_id
        self._notice_others(stream.election_id)
        try:
            yield
        finally:
            self._election_id = None
            stream.release()

    def _notice_others(self, election_id: int | None) -> None:
        """Set `undisturbed` and `restarts` from this client's new election id and its last one.

        A controller claims the highest id so far, plus one. A switch forgets the highest id only when it
        restarts. So an id that is higher by one shows that no other controller was primary meanwhile, and an
        id that is not higher shows a restart. A restart is not counted for a switch whose ids have not been
        seen to grow, and `HIGHEST_ID` shows nothing.
        """
        self.undisturbed = False
        if election_id is None or election_id == HIGHEST_ID:
            return
        if self._last_id is not None:
            if election_id > self._last_id:
                self._ids_grow = True
                self.undisturbed = election_id == self._last_id + 1
            elif self._ids_grow:
                self.restarts += 1
        self._last_id = election_id

    # ------------------------------------------------------------------ entities

    def write(self, kind: Kind, entities: Iterable[Any]) -> None:
        """Insert, modify or delete entities, as `kind` says, in unspecified order.

        Raises Refused if the update of any entity failed; the updates of all other entities took effect.
        """
        self._make_sure()
        request = p4.WriteRequest(device_id=self.device_id)
        self._sign(request)
        for entity in entities:
            request.updates.add(type=p4.Update.Type.Value(kind), entity=entity)
        try:
            self._stub.Write(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            number = len(request.updates)
            raise self._error(
                f"{kind} of {'an entry' if number == 1 else f'{number} entries'}", error
            ) from error

    def read(self, entities: Sequence[Any]) -> list[Any]:
        """Read all entities that match one of `entities`; unset fields match everything. Raises Refused."""
        return entities_of(self.read_bytes(entities))

    def read_bytes(self, entities: Sequence[Any]) -> tuple[bytes, ...]:
        """Read entities as `read` does, and return them still encoded (`entities_of`). Raises Refused."""
        self._make_sure()
        request = p4.ReadRequest(device_id=self.device_id, entities=entities)
        try:
            return tuple(self._read_bytes(request, timeout=self._timeout_s))
        except grpc.RpcError as error:
            raise self._error("read", error) from error

    # ------------------------------------------------------------------ program

    def p4info(self) -> Any | None:
        """Read the P4Info of the loaded program; None if there is none."""
        config = self._config(p4.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE)
        # Some switches say "none" by an empty message; a program's has at least its architecture.
        return config.p4info if config is not None and config.p4info.ByteSize() else None

    def cookie(self) -> int:
        """Read the cookie of the loaded program; 0 if it has none, or there is no program."""
        config = self._config(p4.GetForwardingPipelineConfigRequest.COOKIE_ONLY)
        return 0 if config is None else int(config.cookie.cookie)

    def _config(self, what: Any) -> Any | None:
        self._make_sure()
        request = p4.GetForwardingPipelineConfigRequest(device_id=self.device_id, response_type=what)
        try:
            response = self._stub.GetForwardingPipelineConfig(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:  # BMv2's way to say "none"
                return None
            raise self._error("reading the loaded program", error) from error
        return response.config if response.HasField("config") else None

    def load(self, p4info: Any, device_config: bytes, *, cookie: int = 0, timeout_s: float = 120.0) -> None:
        """Replace the switch's program; all its entries are deleted. Raises Refused.

        Args:
            p4info: The program's P4Info message.
            device_config: The program in the switch's own format.
            cookie: Identifies the program from then on (`cookie`); 0: no cookie.
            timeout_s: Maximum time for the request, in seconds: the switch may have to compile the program.
        """
        self._make_sure()
        request = p4.SetForwardingPipelineConfigRequest(
            device_id=self.device_id,
            action=p4.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=p4.ForwardingPipelineConfig(p4info=p4info, p4_device_config=device_config),
        )
        if cookie:
            request.config.cookie.cookie = cookie
        self._sign(request)
        try:
            self._stub.SetForwardingPipelineConfig(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise self._error("loading the program", error) from error

    # ------------------------------------------------------------------ helpers

    def _sign(self, request: Any) -> None:
        if self._election_id is not None:
            request.election_id.high = self._election_id >> 64
            request.election_id.low = self._election_id & (2**64 - 1)

    def _error(self, what: str, error: Any) -> SwitchError:
        code, message = error.code(), error.details() or "no reason given"
        self._silent = code is grpc.StatusCode.DEADLINE_EXCEEDED
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return Unreachable(f"{what}: the switch at {self.address} does not answer: {message}")
        return Refused(what, code.name, message, _update_errors(error))


def entities_of(answers: Iterable[bytes]) -> list[Any]:
    """Decode the entities in a switch's answers (`P4RuntimeClient.read_bytes`)."""
    return [entity for answer in answers for entity in p4.ReadResponse.FromString(answer).entities]


def _update_errors(error: Any) -> tuple[UpdateError, ...]:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            found = []
            for position, detail in enumerate(status_pb2.Status.FromString(value).details):
                update = p4.Error()
                if detail.Unpack(update) and update.canonical_code:
                    name = _CODE_NAMES.get(update.canonical_code, str(update.canonical_code))
                    found.append(UpdateError(position, name, update.message))
            return tuple(found)
    return ()
