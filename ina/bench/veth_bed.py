"""A testbed for `ina bench switch --veth`: a switch process between two hosts in network namespaces.

The embedded switch and BMv2 forward by MAC address, with entries that are written over P4Runtime.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Literal, Protocol

from bmv2_topos.testbeds.netns import offloads, store
from bmv2_topos.testbeds.netns.bmv2 import missing
from bmv2_topos.testbeds.netns.commands import BMV2, EMBEDDED, Program
from bmv2_topos.testbeds.netns.errors import MissingRequirement
from bmv2_topos.testbeds.netns.names import interface, namespace
from bmv2_topos.testbeds.netns.namespaces import check_here, inside
from bmv2_topos.testbeds.netns.store import State
from bmv2_topos.testbeds.netns.testbed import controllers, down, temporary
from controller.switches.model import mac_to_int
from controller.switches.target import TableEntry
from controller.vocabulary import Link
from controller.vocabulary.catalog import star

Kind = Literal["ina", "bmv2"]

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { }
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action forward(bit<9> port) { sm.egress_spec = port; }
    action drop() { mark_to_drop(sm); }
    table l2 {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; drop; }
        default_action = drop();
        size = 1024;
    }
    apply { l2.apply(); }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), Verify(), I(), E(), Compute(), D()) main;
"""

FROM, TO, SWITCH = "h1", "h2", "s1"
"""Names of the sending host at port 1, the receiving host at port 2, and the switch."""
_PREFIX = "ina-bench-"
_number = itertools.count()
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class VethBed:
    """A running testbed of two hosts and a switch."""

    state: State

    def cpu_s(self) -> float:
        """Return the processor time of the switch's process, in user and kernel mode, in seconds."""
        fields = Path(f"/proc/{self.state.switches[SWITCH]}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def at(self, host: str) -> str:
        """Return the namespace of a host."""
        return namespace(self.state.name, host)

    def mac(self, host: str) -> int:
        """Return a host's MAC address as a number."""
        return mac_to_int(self.state.topology.mac(host))


def check(kinds: Sequence[Kind]) -> None:
    """Raise MissingRequirement, with the packages to install, if a switch of these kinds cannot run here."""
    check_here()
    if "bmv2" in kinds and (lacking := missing()):
        raise MissingRequirement(
            f"the baseline bmv2 needs {lacking}; without --baseline only our own switch runs"
        )


@contextlib.contextmanager
def bed(kind: Kind, *, offload: bool) -> Iterator[VethBed]:
    """Start a testbed whose switch has its table entries; remove it after the block.

    With `offload`, hosts leave segmentation and checksums to their interfaces, so that superframes reach the
    switch; without it, no frame exceeds the hosts' MTU.

    Raises NetnsError or ControllerError, with nothing left behind.
    """
    for killed in store.known():
        number = killed.removeprefix(_PREFIX).partition("-")[0]
        if killed.startswith(_PREFIX) and not Path(f"/proc/{number}").exists():
            down(killed)
    topology = star(2, link=Link("h", "s", rate_bps=0, delay_s=0))
    with tempfile.TemporaryDirectory(prefix="ina-veth-") as folder:
        source = Path(folder) / "forwarding.p4"
        source.write_text(PROGRAM)
        program = Program(str(source), target=BMV2 if kind == "bmv2" else EMBEDDED)
        with temporary(f"{_PREFIX}{os.getpid()}-{next(_number)}", topology, program) as state:
            made = VethBed(state)
            for port, host in enumerate((FROM, TO), start=1):
                if not offload:
                    inside(made.at(host), partial(offloads.turn_off, interface(host)))
                    inside(made.at(SWITCH), partial(offloads.turn_off, interface(SWITCH, port)))
            with controllers(state) as at:
                at[SWITCH].install(
                    TableEntry("I.l2", {"hdr.ethernet.dst": made.mac(host)}, "I.forward", {"port": port})
                    for port, host in enumerate((FROM, TO), start=1)
                )
            yield made


BATCH = 32
"""Frames per system call."""


class _Part(ctypes.Structure):
    """The C type ``struct iovec``, for sendmmsg(2)."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """The C type ``struct msghdr``, for sendmmsg(2)."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("parts", ctypes.POINTER(_Part)),
        ("part_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """The C type ``struct mmsghdr``, for sendmmsg(2)."""

    _fields_ = (("header", _Header), ("sent_bytes", ctypes.c_uint32))


@dataclass(slots=True)
class FrameSender:
    """Sends copies of a frame through a packet socket that is bound to an interface."""

    at: socket.socket
    frame: bytes
    _messages: Any = field(init=False)
    _keep: Any = field(init=False)
    _library: Any = field(init=False)

    def __post_init__(self) -> None:
        buffer = ctypes.create_string_buffer(self.frame, len(self.frame))
        part = _Part(ctypes.addressof(buffer), len(self.frame))
        self._keep = (buffer, part)
        message = _Message(_Header(parts=ctypes.pointer(part), part_count=1))
        self._messages = (_Message * BATCH)(*(message,) * BATCH)
        self._library = ctypes.CDLL(None, use_errno=True)

    def send(self, count: int) -> int:
        """Send `count` copies, `BATCH` at most; return the number that the socket took. Raises OSError."""
        sent = self._library.sendmmsg(self.at.fileno(), self._messages, min(count, BATCH), 0)
        if sent < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(sent)


PAYLOAD = 1024
"""Payload of a datagram, in bytes."""
FRAME = PAYLOAD + 42
"""Bytes of a frame that carries one datagram, with headers."""
SUPERFRAME = 60
"""Number of datagrams in a superframe; they fit into 64 KiB together."""

_UDP_SEGMENT, _UDP_GRO, _SO_RCVBUFFORCE = 103, 104, 33
_PORT = 7800
_NOBODYS_TYPE = b"\x90\x00"  # Ethernet's configuration testing: the receiving kernel drops it at once


class FrameLink(Protocol):
    """A path from the sending to the receiving host, which counts frames."""

    def send(self, frames: int) -> int:
        """Send at most `frames` frames; return the number sent."""

    def arrived(self) -> int:
        """Return the total number of arrived frames."""


class RawFrames:
    """Single frames from a packet socket of the sending host, counted at the receiving host's interface."""

    def __init__(self, on: VethBed, frame_bytes: int) -> None:
        self._socket = inside(on.at(FROM), _packet_socket)
        addresses = on.mac(TO).to_bytes(6, "big") + on.mac(FROM).to_bytes(6, "big")
        self._sender = FrameSender(self._socket, (addresses + _NOBODYS_TYPE).ljust(frame_bytes, b"\0"))
        self._counters = inside(on.at(TO), _interface_counters)

    def send(self, frames: int) -> int:
        """Send frames; see `FrameLink.send`."""
        return (
            self._sender.send(frames) if frames >= BATCH else 0
        )  # fewer frames would cost as many system calls

    def arrived(self) -> int:
        """Return the number of arrived frames; see `FrameLink.arrived`."""
        self._counters.seek(0)
        line = self._counters.read().partition(interface(TO).encode() + b":")[2]
        return int(line.split(maxsplit=2)[1])

    def close(self) -> None:
        """Close the sockets."""
        self._socket.close()
        self._counters.close()


class Superframes:
    """Superframes of 60 UDP datagrams: one system call sends (UDP GSO) or receives (GRO) a superframe."""

    def __init__(self, on: VethBed) -> None:
        udp = partial(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
        self._socket = inside(on.at(FROM), udp)
        self._socket.connect((on.state.topology.ip(TO), _PORT))
        self._socket.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, PAYLOAD)
        self._far = inside(on.at(TO), udp)
        self._far.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        self._far.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        self._far.bind((on.state.topology.ip(TO), _PORT))
        self._far.settimeout(0.1)
        self._payload = bytes(PAYLOAD * SUPERFRAME)
        self._bytes = 0
        self._closing = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, frames: int) -> int:
        """Send frames; see `FrameLink.send`."""
        if frames < SUPERFRAME:
            return 0
        self._socket.send(self._payload)
        return SUPERFRAME

    def arrived(self) -> int:
        """Return the number of arrived frames; see `FrameLink.arrived`."""
        return self._bytes // PAYLOAD

    def close(self) -> None:
        """Close the sockets."""
        self._closing = True
        self._reader.join()
        self._socket.close()
        self._far.close()

    def _read(self) -> None:
        buffer = bytearray(1 << 16)
        while not self._closing:
            try:
                self._bytes += self._far.recv_into(buffer)
            except TimeoutError:
                continue


def _packet_socket() -> socket.socket:
    """Return a socket that sends frames and, with protocol 0, receives none."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.bind((interface(FROM), 0))
    return opened


def _interface_counters() -> FileIO:
    """Open the interface counters of the current namespace; the file can be read from any namespace."""
    return Path("/proc/thread-self/net/dev").open("rb", buffering=0)
