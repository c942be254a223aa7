"""The P4Runtime service on gRPC: decodes requests, calls the package's other modules, maps their errors.

This is the only file of the package that knows gRPC's status codes (`CODES`, used by other services, too).
The permissions of a Unix socket's file determine which users may control the switch.
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import DecodeError

from p4src.messages import p4runtime_pb2 as p4
from p4src.messages import p4runtime_pb2_grpc, status_pb2
from softswitch.engine.native import PATH_BYTES, make_socket_folder
from softswitch.p4runtime import entities, errors, roles, translate
from softswitch.p4runtime.entities import Journal, Written, client_of, prepare
from softswitch.p4runtime.errors import RequestError
from softswitch.p4runtime.state import Device

MAX_MESSAGE = 64 << 20
"""Maximum size of an accepted message in bytes: enough for a batch of half a million entries."""

MAX_UNREAD = 64 << 20
"""Maximum number of unread bytes of one stream; further messages to its client are dropped."""


MAX_READS = 16
"""Maximum number of reads whose answers clients are taking at a time; further ones wait."""

CODES: Final = {
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    errors.OutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    errors.Aborted: grpc.StatusCode.ABORTED,
    errors.Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
}


UNIX = "unix:"
_NAME = "p4runtime"


@contextlib.contextmanager
def private_socket() -> Iterator[str]:
    """Create a folder that only this user can enter, yield a socket address in it, then remove the folder."""
    folder = make_socket_folder(_NAME)
    try:
        yield f"{UNIX}{folder / _NAME}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_free(address: str) -> None:
    """Raise OSError if a Unix socket cannot be opened at `address` or another process listens there.

    gRPC would take over the path of that process.
    """
    path = Path(address.removeprefix(UNIX))
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
            return  # no socket, or one whose process has ended
        except OSError as error:
            raise OSError(f"cannot listen on {address}: {error.strerror}") from error
    raise OSError(f"cannot listen on {address}: another process listens there")


API_VERSION = "1.4.1"
"""The version of the P4Runtime API that this service follows."""

_STANDINGS = {
    roles.StreamStanding.PRIMARY: (grpc.StatusCode.OK, "you are the primary controller"),
    roles.StreamStanding.BACKUP: (grpc.StatusCode.ALREADY_EXISTS, "another controller is the primary"),
    roles.StreamStanding.NO_PRIMARY: (grpc.StatusCode.NOT_FOUND, "there is no primary controller"),
}

_OURS = "/p4.v1.P4Runtime/"
_ENTITIES_PER_MESSAGE = 512

_GRACE_S = 2.0
"""Seconds that requests in progress have to finish when the service closes."""

_STATUS_BYTES = 5000
"""Maximum size in bytes of a batch's errors: in base64, they must fit in the 8 KiB that clients accept."""

_OK_BYTES, _ERROR_BYTES = 36, 60
"""Size in bytes of one update in a batch's status: without an error, and with one but without its text."""

_MORE_BYTES = 75
"""Bytes that clients of larger batches accept per update, if they follow the specification's advice."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Files for TLS, in PEM format. With `client_ca`, clients must present a certificate of this CA."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> Any:
        """Read the files. Raises OSError if one cannot be read."""
        client_ca = self.client_ca.read_bytes() if self.client_ca else None
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.certificate.read_bytes())],
            root_certificates=client_ca,
            require_client_auth=client_ca is not None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Address and options of a P4Runtime service.

    Attributes:
        address: ``host:port``, where port 0 takes a free one, or ``unix:path``.
        device_id: The device id.
        tls: Files for TLS; None: no encryption.
        journal: Called with each table write and each program load of a controller; None: do not report them.
    """

    address: str = "127.0.0.1:0"
    device_id: int = 0
    tls: Tls | None = None
    journal: Journal | None = None


class Service:
    """A P4Runtime service for one device, listening until `close`.

    `address` is ``host:port`` or ``unix:path``; `port` is the port's number, or None for a Unix socket. If
    the requested port is 0, `address` and `port` have the number of the free port that the service took.
    Raises OSError if the address is not available.
    """

    def __init__(self, device: Device, serving: Serving, handlers: Iterable[Any] = ()) -> None:
        """Start to listen; `handlers` are the handlers of further services at the same address."""
        address, tls = serving.address, serving.tls
        self.device = device
        self._servicer = _Servicer(device, serving.device_id, serving.journal)
        self._threads = ThreadPoolExecutor(roles.MAX_STREAMS + 16, thread_name_prefix="p4runtime")
        self._readers = ThreadPoolExecutor(MAX_READS, thread_name_prefix="p4runtime-read")
        self._server = grpc.server(
            self._threads,
            interceptors=[_Handlers(self._readers)],
            options=[
                ("grpc.max_receive_message_length", MAX_MESSAGE),  # a program may exceed the default 4 MB
                ("grpc.so_reuseport", 0),  # requests to one port would go to either of two switches at random
            ],
        )
        p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(self._servicer, self._server)
        self._server.add_generic_rpc_handlers(tuple(handlers))
        unix = address.startswith(UNIX)
        if unix:
            check_free(address)
        try:
            port: int = (
                self._server.add_secure_port(address, tls.credentials())
                if tls
                else self._server.add_insecure_port(address)
            )
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        self.port = None if unix else port
        self.address = address if self.port is None else f"{address.rpartition(':')[0]}:{port}"
        self._server.start()

    def packet_in(self, frame: bytes) -> None:
        """Send a frame that left by the CPU port to the primary controllers."""
        self._servicer.packet_in(frame)

    def close(self) -> None:
        """End all streams and stop listening; requests in progress have some seconds to finish."""
        self._servicer.end_streams()
        # With a time limit: gRPC can miscount its calls and then wait for ever.
        self._server.stop(grace=_GRACE_S).wait(2 * _GRACE_S)
        for threads in (self._threads, self._readers):
            threads.shutdown(wait=False)


class _Handlers(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Changes how gRPC handles methods whose requests or answers are streams.

    Requests are decoded by `_decode_stream_message`, so that gRPC finds no invalid message. After an invalid
    message, gRPC would end the stream itself, then ask this service to end it. If nothing was sent before,
    the second end would never complete, and the server would not stop.

    Reads have threads of their own: each holds one until its client has taken the answer, or has gone.
    """

    def __init__(self, readers: ThreadPoolExecutor) -> None:
        self._readers = readers

    def intercept_service(self, continuation: Any, call: Any) -> Any:
        handler = continuation(call)
        if handler is None or not handler.response_streaming or not call.method.startswith(_OURS):
            return handler
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(
                handler.stream_stream, _decode_stream_message, handler.response_serializer
            )
        read: Any = partial(handler.unary_stream)
        read.experimental_thread_pool = self._readers
        return grpc.unary_stream_rpc_method_handler(
            read, handler.request_deserializer, handler.response_serializer
        )


def _decode_stream_message(data: bytes) -> Any:
    """Decode a StreamMessageRequest; return (not raise) InvalidArgument if `data` is invalid."""
    try:
        return p4.StreamMessageRequest.FromString(data)
    except DecodeError:
        return errors.InvalidArgument(
            f"{len(data)} bytes on the stream are no StreamMessageRequest; the stream ends here"
        )


class _Stream:
    """One StreamChannel.

    `responses` is the queue from which gRPC takes responses. A None or an error in the queue ends the stream.
    """

    def __init__(self) -> None:
        self.responses: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0  # bytes

    def offer(self, response: Any) -> None:
        """Queue a packet or an error; drop it if too many bytes are still unread."""
        size = response.ByteSize()
        with self._lock:
            if self._waiting + size > MAX_UNREAD:
                return
            self._waiting += size
        self.responses.put(response)

    def take(self) -> Any:
        """Wait for the next response and return it."""
        response = self.responses.get()
        if isinstance(response, p4.StreamMessageResponse) and not response.HasField("arbitration"):
            with self._lock:
                self._waiting -= response.ByteSize()
        return response


class _Watch:
    """A thread that polls the switch for notifications by calling `look`.

    `look` returns the seconds until the next poll; None: no notification can be expected. The thread starts
    at the first `wake` at which `look` does not return None.
    """

    def __init__(self, look: Callable[[], float | None]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Poll now and, if notifications can be expected, again after each interval that `look` returns."""
        if self._look() is None:
            return
        with self._lock:
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
        self._woken.set()

    def end(self) -> None:
        """Stop polling."""
        with self._lock:
            self._ended = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended:
            self._woken.wait(self._look())
            self._woken.clear()


class _Servicer(p4runtime_pb2_grpc.P4RuntimeServicer):  # type: ignore[misc]  # generated code has no types
    def __init__(self, device: Device, device_id: int, journal: Journal | None) -> None:
        self._journal = journal
        self._device = device
        self._device_id = device_id
        self._arbitration = roles.Arbitration()
        self._streams: set[_Stream] = set()
        self._watch = _Watch(self._look)

    # ------------------------------------------------------------------ configuration

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        try:
            self._check_device(request.device_id)
            config = request.config if request.HasField("config") else None
            self._device.configure(request.action, config, partial(self._permit_load, request))
            loads = (p4.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, request.COMMIT)
            if self._journal is not None and request.action in loads:
                self._journal(Written("LOAD", client_of(context)))
        except RequestError as error:
            _abort(context, error)
        return p4.SetForwardingPipelineConfigResponse()

    def _permit_load(self, request: Any) -> None:
        with self._device.mutex:
            self._arbitration.check_primary(request.role, _election_id(request))
            if not self._arbitration.config(request.role).loads_programs:
                raise errors.PermissionDenied(f"role '{request.role}' may not load programs")

    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        try:
            self._check_device(request.device_id)
        except RequestError as error:
            _abort(context, error)
        response = p4.GetForwardingPipelineConfigResponse()
        config = self._device.config
        if config is None:
            return response
        kinds = p4.GetForwardingPipelineConfigRequest
        if config.HasField("cookie"):
            response.config.cookie.CopyFrom(config.cookie)
        else:
            response.config.SetInParent()
        if request.response_type in (kinds.ALL, kinds.P4INFO_AND_COOKIE):
            response.config.p4info.CopyFrom(config.p4info)
        if request.response_type in (kinds.ALL, kinds.DEVICE_CONFIG_AND_COOKIE):
            response.config.p4_device_config = config.p4_device_config
        return response

    def Capabilities(self, request: Any, context: Any) -> Any:
        return p4.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    # ------------------------------------------------------------------ entities

    def Write(self, request: Any, context: Any) -> Any:
        client = client_of(context) if self._journal else ""
        try:
            with self._device.writing():
                self._check_device(request.device_id)
                self._arbitration.check_primary(request.role, _election_id(request))
                _ = self._device.bundle
                prepared = prepare(self._device.bundle, request.updates, client) if self._journal else []
                outcomes = entities.write_batch(
                    self._device,
                    request.updates,
                    all_or_none=request.atomicity != p4.WriteRequest.CONTINUE_ON_ERROR,
                    permit=self._arbitration.config(request.role).check_write,
                )
        except RequestError as error:
            _abort(context, error)
        self._watch.wake()
        if self._journal is not None:
            for written, refused in zip(prepared, outcomes, strict=True):
                if written is not None and refused is None:
                    self._journal(written)
        abort_batch(context, "written", outcomes)
        return p4.WriteResponse()

    def Read(self, request: Any, context: Any) -> Iterator[Any]:
        found: list[Any] = []
        try:
            self._check_device(request.device_id)
            with self._device.mutex:
                _ = self._device.bundle
                outcomes = [
                    errors.outcome(lambda each: found.extend(entities.read(self._device, each)), entity)
                    for entity in request.entities
                ]
        except RequestError as error:
            _abort(context, error)
        for start in range(0, len(found), _ENTITIES_PER_MESSAGE):
            yield p4.ReadResponse(entities=found[start : start + _ENTITIES_PER_MESSAGE])
        abort_batch(context, "read", outcomes)

    # ------------------------------------------------------------------ streams

    def StreamChannel(self, requests: Iterable[Any], context: Any) -> Iterator[Any]:
        stream = _Stream()
        with self._device.mutex:
            full = len(self._streams) >= roles.MAX_STREAMS
            if not full:
                self._streams.add(stream)
        if full:  # each stream holds a thread of the server; keep some for requests
            _abort(context, errors.ResourceExhausted(f"{roles.MAX_STREAMS} streams are open already"))
        context.add_callback(lambda: stream.responses.put(None))
        threading.Thread(target=self._listen, args=(stream, requests), daemon=True).start()
        failure = None
        try:
            while (response := stream.take()) is not None:
                if isinstance(response, RequestError):
                    failure = response
                    break
                yield response
        finally:
            with self._device.mutex:
                self._streams.discard(stream)
                self._notify(self._arbitration.leave(stream))
        if failure is not None:
            _abort(context, failure)

    def _listen(self, stream: _Stream, requests: Iterable[Any]) -> None:
        try:
            for request in requests:
                if isinstance(request, RequestError):
                    raise request
                match request.WhichOneof("update"):
                    case "arbitration":
                        self._arbitrate(stream, request.arbitration)
                    case "packet":
                        packet = request.packet
                        failed = p4.StreamError(packet_out=p4.PacketOutError(packet_out=packet))
                        self._serve_primary(stream, "send packets", partial(self._send, packet), failed)
                    case "digest_ack":
                        message = request.digest_ack
                        failed = p4.StreamError(
                            digest_list_ack=p4.DigestListAckError(digest_list_ack=message)
                        )
                        act = partial(self._acknowledge, message)
                        self._serve_primary(stream, "acknowledge digests", act, failed)
                    case kind:
                        unknown = errors.Unimplemented(f"stream messages of kind {kind} are not supported")
                        self._complain(stream, unknown, p4.StreamError(other=p4.StreamOtherError()))
        except RequestError as error:
            stream.responses.put(error)
        except grpc.RpcError:
            pass  # the client has disconnected
        finally:
            stream.responses.put(None)

    def _arbitrate(self, stream: _Stream, message: Any) -> None:
        with self._device.mutex:
            if message.device_id != self._device_id and self._arbitration.role_of(stream) is not None:
                raise errors.FailedPrecondition(
                    f"this stream is for device {self._device_id}; open another one for {message.device_id}"
                )
            self._check_device(message.device_id)
            role, config = message.role.name, roles.decode_role(message.role)
            roles.check_apart(role, config, self._arbitration.configs())
            self._notify(self._arbitration.update(stream, role, _election_id(message), config))

    def _notify(self, notifications: Iterable[roles.Notification]) -> None:
        for notification in notifications:
            code, text = _STANDINGS[notification.standing]
            message = p4.MasterArbitrationUpdate(
                device_id=self._device_id,
                status=status_pb2.Status(code=code.value[0], message=text),
            )
            if notification.role:
                message.role.name = notification.role
            if notification.config.message is not None:
                message.role.config.CopyFrom(notification.config.message)
            if notification.highest is not None:
                message.election_id.high = notification.highest >> 64
                message.election_id.low = notification.highest & (2**64 - 1)
            notification.client.responses.put(p4.StreamMessageResponse(arbitration=message))

    def _serve_primary(self, stream: _Stream, doing: str, act: Callable[[], None], failed: Any) -> None:
        """Call `act` if the stream is its role's primary; complain with the message `failed` otherwise."""
        try:
            with self._device.mutex:
                if not self._arbitration.is_primary(stream):
                    raise errors.PermissionDenied(f"only the primary controller may {doing}")
                act()
        except RequestError as error:
            self._complain(stream, error, failed)

    def _send(self, packet: Any) -> None:
        bundle = self._device.running
        if bundle is None:
            raise errors.FailedPrecondition("no program is loaded to take the packet")
        self._device.send_to_cpu(
            translate.from_packet_out(bundle.packet_headers.get("packet_out", ()), packet)
        )

    def _acknowledge(self, message: Any) -> None:
        entities.acknowledge(self._device.bundle, message)

    def _look(self) -> float | None:
        """Send the switch's notifications; return the seconds until the next poll."""
        with self._device.mutex:
            bundle = self._device.running
            if bundle is not None and entities.interval_s(bundle) is not None:
                with self._device.switch.locked():
                    found = list(entities.look(bundle))
                for message in found:
                    for stream, config in self._arbitration.primaries():
                        if config.hears(message):
                            stream.offer(message)
            return entities.interval_s(bundle)

    def _complain(self, stream: _Stream, error: RequestError, message: Any) -> None:
        message.canonical_code = CODES[type(error)].value[0]
        message.message = str(error)
        stream.offer(p4.StreamMessageResponse(error=message))

    def packet_in(self, frame: bytes) -> None:
        with self._device.mutex:
            bundle = self._device.running
            if bundle is None:
                return
            message = translate.to_packet_in(bundle.packet_headers.get("packet_in", ()), frame)
            for stream, config in self._arbitration.primaries():
                if config.takes(message):
                    stream.offer(p4.StreamMessageResponse(packet=message))

    def end_streams(self) -> None:
        self._watch.end()
        with self._device.mutex:
            for stream in self._streams:
                stream.responses.put(None)

    # ------------------------------------------------------------------ helpers

    def _check_device(self, device_id: int) -> None:
        if device_id != self._device_id:
            raise errors.NotFound(
                f"there is no device {device_id} here; this switch is device {self._device_id}"
            )


def _election_id(message: Any) -> int | None:
    if not message.HasField("election_id"):
        return None
    return int(message.election_id.high) << 64 | int(message.election_id.low)


def _abort(context: Any, error: RequestError) -> NoReturn:
    context.abort(CODES[type(error)], str(error))
    raise AssertionError("abort does not return")


def abort_batch(
    context: Any,
    done: str,
    outcomes: Sequence[RequestError | None],
    error_type: Any = p4.Error,
    most_errors: int | None = None,
) -> None:
    """End a batch with status UNKNOWN if some of its updates or reads failed.

    The status has an error for each update or read of the batch, or for those before the last shown error.

    Args:
        context: The call.
        done: What was done, in the error's text.
        outcomes: The error of each update or read, or None.
        error_type: The type of an error's message.
        most_errors: Number of errors to show; None: all.
    """
    failed = [number for number, error in enumerate(outcomes) if error]
    if not failed:
        return
    text = f"{len(failed)} of {len(outcomes)} could not be {done}: {outcomes[failed[0]]}"
    many = most_errors is not None and len(failed) >= most_errors
    shown = outcomes[: failed[:most_errors][-1] + 1] if many else outcomes
    least = _OK_BYTES * len(shown) + (_ERROR_BYTES - _OK_BYTES) * len(failed)
    most = _STATUS_BYTES if least < _STATUS_BYTES else _STATUS_BYTES + _MORE_BYTES * len(shown)
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=text[: _STATUS_BYTES // 8])
    for error in shown:
        detail = error_type()
        if error:
            detail.canonical_code = CODES[type(error)].value[0]
            detail.message = str(error)[: (most - least) // len(failed)]
            detail.space = "ina"
        status.details.add().Pack(detail)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, status.message)
