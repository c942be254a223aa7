"""The C engine from Python: ctypes declarations, a thin class over them, and interpreted programs for it.

An interpreted program is a ``struct p4_program`` whose functions call Python. Calls release the GIL; the
engine locks itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import shutil
import socket
import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from softswitch.compiler import ir
from softswitch.engine.build import build_engine
from softswitch.engine.compiled import (
    ABI,
    CLONE,
    COPY,
    EGRESS,
    INGRESS,
    CField,
    CompiledPipeline,
    CProgram,
)
from softswitch.engine.pcapng import NAME_BYTES, NOTES, CaptureSettings
from softswitch.engine.pipeline import (
    MAX_FRAME,
    Copy,
    Packet,
    Pipeline,
    Verdict,
)
from softswitch.engine.ports import (
    PORT_COUNTERS,
    SWITCH_COUNTERS,
    InterfacePort,
    LinkModel,
    MemoryPort,
    PortError,
    PortSpec,
    PortStatistics,
    SharedPort,
    SwitchError,
    SwitchStatistics,
    UdpPort,
    threshold,
)


class InterpretedProgram:
    """The engine's view of a `Pipeline` in Python.

    The engine identifies a packet by the address of its memory. This memory holds only the program's
    metadata, which captures read; the packet is kept here until the engine reuses the memory.
    """

    state_address = None

    def __init__(self, pipeline: Pipeline, failed: Callable[[BaseException], None]) -> None:
        """Run packets through `pipeline`. If it raises an exception, drop the packet and call `failed`."""
        self._pipeline = pipeline
        self._failed = failed
        self._packets: dict[int, Packet] = {}
        found = getattr(pipeline, "program", None)
        self._sizes = {} if found is None else dict(_sizes(found.meta))
        places = [
            CField(name.encode(), 8 * number, size) for number, (name, size) in enumerate(self._sizes.items())
        ]
        self._places = (CField * (len(places) + 1))(*places)  # the last one has no name
        copy = COPY(self._copy)
        self._program = CProgram(
            abi=ABI,
            packet_size=8 * len(places) + 8,
            ingress=INGRESS(self._ingress),
            copy=copy,
            lend=copy,
            clone=CLONE(self._clone),
            egress=EGRESS(self._egress),
            metadata=ctypes.addressof(self._places),
        )

    @property
    def ops_address(self) -> int:
        """Address of the program's ``struct p4_program``."""
        return ctypes.addressof(self._program)

    def _ingress(self, *args: Any) -> None:
        _, to, frame, length, port, instance_type, now_us, previous, field_list, verdict = args
        try:
            before = None if previous is None else self._packets[previous]
            data = ctypes.string_at(frame, length)
            packet, found = self._pipeline.ingress(data, port, now_us, instance_type, before, field_list)
            self._keep(to, packet)
        except BaseException as error:
            self._failed(error)
            found = Verdict(dropped=1)
        verdict[0] = found

    def _egress(
        self,
        _state: int,
        at: int,
        copy: ctypes._Pointer[Copy],
        out: int,
        verdict: ctypes._Pointer[Verdict],
    ) -> int:
        try:
            packet = self._packets[at]
            frame, found = self._pipeline.egress(packet, copy.contents)
            self._keep(at, packet)
        except BaseException as error:
            self._failed(error)
            frame, found = None, Verdict(dropped=1)
        verdict[0] = found
        frame = (frame or b"")[:MAX_FRAME]
        ctypes.memmove(out, frame, len(frame))
        return len(frame)

    def _copy(self, to: int, at: int) -> None:
        self._make(to, lambda: self._pipeline.copy_packet(self._packets[at]))

    def _clone(self, _state: int, to: int, at: int, *of: int) -> None:
        instance_type, frame, length, field_list = of
        data = ctypes.string_at(frame, length)
        self._make(
            to, lambda: self._pipeline.clone_packet(self._packets[at], data, instance_type, field_list)
        )

    def _make(self, to: int, packet: Callable[[], Packet]) -> None:
        try:
            self._keep(to, packet())
        except BaseException as error:
            self._failed(error)

    def _keep(self, at: int, packet: Packet) -> None:
        self._packets[at] = packet
        values = self._pipeline.metadata(packet, list(self._sizes)) if self._sizes else {}
        for number, (name, size) in enumerate(self._sizes.items()):
            value = (values.get(name, 0) & (1 << 8 * size) - 1).to_bytes(8, "little")
            ctypes.memmove(at + 8 * number, value, 8)


def _sizes(struct: ir.Struct, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield name and size in bytes of the metadata fields of up to 64 bits, as in compiled programs."""
    for name, type_ in struct.fields:
        match type_:
            case ir.Struct():
                yield from _sizes(type_, f"{prefix}{name}.")
            case ir.Bits(width=width) if width <= 64:
                yield prefix + name, next(size for size in (1, 2, 4, 8) if width <= 8 * size)
            case ir.Bool() | ir.Enum():
                yield prefix + name, 1 if isinstance(type_, ir.Bool) else 4


PATH_BYTES: Final = 107
"""Maximum length in bytes of the path in a Unix socket's address."""


def make_socket_folder(longest: str) -> Path:
    """Create and return a folder whose path leaves room for socket names as long as the name `longest`."""
    folder = Path(tempfile.mkdtemp(prefix="ina-"))
    if len(bytes(folder / longest)) > PATH_BYTES:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="ina-", dir="/tmp"))
    return folder


_WAITING: Final = 4


class MeetingSockets:
    """Listening sockets that only this user can connect to, by default in a private folder."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._paths: dict[int, Path] = {}

    def open(self, number: int, path: str | None) -> socket.socket:
        """Return the listening socket of port `number`. Raises PortError."""
        at = Path(path) if path else self._private_folder() / f"port-{number}"
        if len(bytes(at)) > PATH_BYTES:
            raise PortError(
                f"port {number}: {at} is too long for the path of a socket; the limit is {PATH_BYTES} bytes"
            )
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
        """Return the path of a port's socket."""
        return str(self._paths[number])

    def close(self) -> None:
        """Remove the sockets' files and the private folder."""
        for path in self._paths.values():
            path.unlink(missing_ok=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _private_folder(self) -> Path:
        if self._folder is None:
            self._folder = make_socket_folder("port-511")
        return self._folder


def _remove_leftover(path: Path) -> None:
    """Remove the socket file of a process that has ended.

    A socket in use, or a file of another kind, stays: `bind` then fails.
    """
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)


Members = Sequence[tuple[int, int]]
"""Copies to make, as (port, replication id)."""

_ERROR_BYTES = 256
_NEVER = 2**64 - 1


class _Statistics(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in PORT_COUNTERS + SWITCH_COUNTERS]


class _Member(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint16) for name in ("port", "rid", "exclusion")]


class _CaptureConfig(ctypes.Structure):
    """The C struct ``engine_capture_config``, with the fields of `CaptureSettings`."""

    _fields_ = (
        ("epoch_ns", ctypes.c_uint64),
        ("capacity", ctypes.c_uint64),
        ("snap", ctypes.c_uint32),
        ("notes", ctypes.c_char * (NAME_BYTES + 1) * NOTES),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    return declare(ctypes.CDLL(str(build_engine())))


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Set the argument and result types of engine.h's functions; return the library."""
    engine, u16, u32, u64 = ctypes.c_void_p, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
    integer, pointer, text = ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p
    link = ctypes.POINTER(LinkModel)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "create": (engine, []),
        "destroy": (None, [engine]),
        "lock": (None, [engine]),
        "unlock": (None, [engine]),
        "add_memory": (integer, [engine, u16, link, link, integer, text]),
        "add_udp": (integer, [engine, u16, link, link, integer, u16, u16, text]),
        "add_interface": (integer, [engine, u16, link, link, text, text]),
        "add_shared": (integer, [engine, u16, link, link, integer, text]),
        "serve_port": (integer, [engine, u16, text]),
        "udp_port": (u16, [engine, u16]),
        "load": (integer, [engine, pointer, pointer]),
        "set_group": (integer, [engine, u16, pointer, u32]),
        "set_exclusion": (integer, [engine, u16, pointer, u32]),
        "set_session": (integer, [engine, u16, pointer, u32, u32]),
        "set_loss": (None, [engine, u16, u64, u64]),
        "inject": (None, [engine, u16, pointer, pointer, u32, u64]),
        "advance": (None, [engine, u64]),
        "next_event": (u64, [engine]),
        "pending": (u32, [engine, u16, ctypes.POINTER(u64)]),
        "drain": (u32, [engine, u16, pointer, pointer, pointer, u32, u64]),
        "port_statistics": (None, [engine, u16, pointer]),
        "switch_statistics": (None, [engine, pointer]),
        "capture": (integer, [engine, pointer]),
        "captured": (u64, [engine, u16, pointer, u64, ctypes.POINTER(u64)]),
        "now": (u64, [engine]),
        "prepare": (None, [engine]),
        "run": (integer, [engine, text]),
        "stop": (None, [engine]),
        "wait_cpu": (integer, [engine, integer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"engine_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class NativeEngine:
    """One ``struct engine``. Every method is atomic."""

    def __init__(self, library: ctypes.CDLL | None = None) -> None:
        """Create an engine. Raises NoCompiler if it cannot be built, SwitchError if memory is short."""
        self._library = library or _library()
        self._engine: int = self._library.engine_create()
        if not self._engine:
            raise SwitchError("the switch engine cannot start: out of memory or file descriptors")
        self._pipeline: CompiledPipeline | InterpretedProgram | None = None
        self._failure: BaseException | None = None
        self._meeting = MeetingSockets()

    @property
    def library(self) -> ctypes.CDLL:
        """The engine's shared object."""
        return self._library

    @property
    def address(self) -> int:
        """Address of the C struct ``engine``."""
        return self._engine

    @property
    def interprets(self) -> bool:
        """True if the engine's program is interpreted."""
        return isinstance(self._pipeline, InterpretedProgram)

    def destroy(self) -> None:
        """Free everything and close sockets; no method may be called after it."""
        self._meeting.close()
        self._library.engine_destroy(self._engine)
        self._pipeline = None

    def add_port(self, number: int, spec: PortSpec, rx: LinkModel, tx: LinkModel) -> None:
        """Open a port. If `run` already serves other ports, hold `lock` during the call.

        Args:
            number: The port's number.
            spec: The port's kind and addresses.
            rx: Impairments of received frames.
            tx: Impairments of sent frames.

        Raises PortError, with nothing left open.
        """
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        links = (ctypes.byref(rx), ctypes.byref(tx))
        match spec:
            case MemoryPort(cpu):
                failed = self._library.engine_add_memory(self._engine, number, *links, cpu, error)
            case UdpPort(local, peer, fd):
                socket = (-1 if fd is None else fd, local, peer or 0)
                failed = self._library.engine_add_udp(self._engine, number, *links, *socket, error)
            case SharedPort(path):
                listening = self._meeting.open(number, path).detach()
                failed = self._library.engine_add_shared(self._engine, number, *links, listening, error)
            case InterfacePort(name):
                encoded = name.encode()
                failed = self._library.engine_add_interface(self._engine, number, *links, encoded, error)
        if failed or self._library.engine_serve_port(self._engine, number, error):
            raise PortError(error.value.decode())

    def set_loss(self, number: int, rx: float, tx: float) -> None:
        """Set the loss probabilities of frames that arrive at a port (`rx`) and leave by it (`tx`)."""
        self._library.engine_set_loss(self._engine, number, threshold(rx), threshold(tx))

    def udp_port(self, number: int) -> int:
        """Return the UDP port number that this switch port is bound to."""
        return int(self._library.engine_udp_port(self._engine, number))

    def shared_path(self, number: int) -> str:
        """Return the Unix socket to which the far end of this shared memory port connects."""
        return self._meeting.path(number)

    def load(self, pipeline: Pipeline | None) -> None:
        """Run this program from the next packet on; with None, drop all packets."""
        served: CompiledPipeline | InterpretedProgram | None = None
        if isinstance(pipeline, CompiledPipeline):
            served = pipeline
        elif pipeline is not None:
            served = InterpretedProgram(pipeline, self._failed)
        addresses = (None, None) if served is None else (served.ops_address, served.state_address)
        if self._library.engine_load(self._engine, *addresses):
            raise SwitchError("the program was built for another version of the engine, or memory is short")
        self._pipeline = served  # keeps it alive; the previous one is no longer in use

    def lock(self) -> None:
        """Stop processing packets until `unlock`, which must be called as often as `lock`."""
        self._library.engine_lock(self._engine)

    def unlock(self) -> None:
        """Process packets again, after `lock`."""
        self._library.engine_unlock(self._engine)

    def set_group(self, group: int, members: Members | None, exclusions: Sequence[int] = ()) -> None:
        """Define a multicast group; None removes it."""
        excluded = members and exclusions and [(*m, id_) for m, id_ in zip(members, exclusions, strict=True)]
        self._members(self._library.engine_set_group, group, excluded or members)

    def set_exclusion(self, id_: int, ports: Sequence[int] | None) -> None:
        """Set the ports that a level 2 exclusion id excludes; see `Switch.set_exclusion`."""
        members = None if ports is None else [(port,) for port in ports]
        self._members(self._library.engine_set_exclusion, id_, members)

    def set_session(self, session: int, members: Members | None, truncate: int) -> None:
        """Define a clone session; None removes it."""
        self._members(self._library.engine_set_session, session, members, truncate)

    def _members(
        self, call: Callable[..., int], number: int, members: Sequence[tuple[int, ...]] | None, *rest: int
    ) -> None:
        count = len(members or ())
        # One more than needed: an empty group differs from no group.
        values = None if members is None else (_Member * (count + 1))(*(_Member(*m) for m in members))
        if call(self._engine, number, values, count, *rest):
            raise SwitchError("out of memory")

    def inject(self, port: int, data: bytes, lengths: array[int], now_us: int) -> None:
        """Deliver frames to a port.

        Args:
            port: The port.
            data: The frames, back to back.
            lengths: Length of each frame in bytes.
            now_us: The time in microseconds.
        """
        address, count = lengths.buffer_info()
        self._library.engine_inject(self._engine, port, data, address, count, now_us)
        if self._failure is not None:
            self.check()

    def advance(self, now_us: int) -> None:
        """Process all events up to `now_us`."""
        self._library.engine_advance(self._engine, now_us)
        if self._failure is not None:
            self.check()

    def next_event_us(self) -> int | None:
        """Return the time of the next event in microseconds; None: no event is scheduled."""
        next_us = int(self._library.engine_next_event(self._engine))
        return None if next_us == _NEVER else next_us

    def drain(self, port: int) -> tuple[bytearray, array[int], array[int]]:
        """Remove and return the frames that have left by a memory port; see `Switch.drain_batch`."""
        size = ctypes.c_uint64()
        count = self._library.engine_pending(self._engine, port, ctypes.byref(size))
        data = bytearray(size.value)
        lengths, times = array("I", bytes(4 * count)), array("Q", bytes(8 * count))
        if count:
            into = (ctypes.c_char * len(data)).from_buffer(data)
            taken = self._library.engine_drain(
                self._engine, port, into, lengths.buffer_info()[0], times.buffer_info()[0], count, len(data)
            )
            assert taken == count, "two threads drain the port at once; only one may"
        return data, lengths, times

    def capture(self, settings: CaptureSettings | None) -> None:
        """Start capturing frames at the ports; None: stop."""
        config = None
        if settings is not None:
            config = _CaptureConfig(settings.epoch_ns, settings.capacity, settings.snap)
            for number, name in enumerate(settings.notes):
                config.notes[number].value = name.encode()
        if self._library.engine_capture(self._engine, config and ctypes.byref(config)):
            raise SwitchError("out of memory")

    def captured(self, port: int) -> tuple[bytes, int]:
        """Remove and return a port's records. Also return the number of records lost for lack of memory."""
        dropped = ctypes.c_uint64()
        room, records = 0, ctypes.create_string_buffer(0)
        while True:
            used = self._library.engine_captured(self._engine, port, records, room, ctypes.byref(dropped))
            if used <= room:
                return records.raw[:used], dropped.value
            room = used + used // 2  # more may arrive meanwhile
            records = ctypes.create_string_buffer(room)

    def port_statistics(self, port: int) -> PortStatistics:
        """Return a snapshot of one port's counters."""
        values = _Statistics()
        self._library.engine_port_statistics(self._engine, port, ctypes.byref(values))
        return PortStatistics(**{name: getattr(values, name) for name in PORT_COUNTERS})

    def switch_statistics(self) -> SwitchStatistics:
        """Return a snapshot of the switch's own counters."""
        values = _Statistics()
        self._library.engine_switch_statistics(self._engine, ctypes.byref(values))
        return SwitchStatistics(**{name: getattr(values, name) for name in SWITCH_COUNTERS})

    def now_us(self) -> int:
        """Return the real time since the engine was created, in microseconds."""
        return int(self._library.engine_now(self._engine))

    def prepare(self) -> None:
        """Cancel an earlier `stop`; call this before each `run`."""
        self._library.engine_prepare(self._engine)

    def run(self) -> None:
        """Serve all ports until `stop`. Raises SwitchError if that fails."""
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        if self._library.engine_run(self._engine, error):
            raise SwitchError(error.value.decode())
        try:
            self.check()
        except Exception as failure:
            raise SwitchError(f"the interpreted program failed: {failure!r}") from failure

    def check(self) -> None:
        """Raise the exception that an interpreted program has raised since the last call, if any."""
        error, self._failure = self._failure, None
        if error is not None:
            raise error

    def _failed(self, error: BaseException) -> None:
        self._failure = error
        self.stop()

    def stop(self) -> None:
        """Make `run` and `wait_cpu` return."""
        self._library.engine_stop(self._engine)

    def wait_cpu(self, timeout_ms: int) -> bool | None:
        """Wait at most `timeout_ms` for frames at a CPU port.

        Return True if there are frames, False if there are none, None after `stop`.
        """
        ready = int(self._library.engine_wait_cpu(self._engine, timeout_ms))
        return None if ready < 0 else ready > 0
