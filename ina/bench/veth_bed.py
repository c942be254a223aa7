"""A switch process between two hosts: three network namespaces and two veth pairs, for as long as a block.

Host ``a`` is on port 1, host ``b`` on port 2; the switch forwards by MAC address. All kinds of switches are
used in the same way: started without entries, which are then written over P4Runtime.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Literal, Protocol

from bmv2_topos.testbeds.netns import offloads
from bmv2_topos.testbeds.netns.bmv2 import missing, switch_argv
from bmv2_topos.testbeds.netns.commands import Command
from bmv2_topos.testbeds.netns.errors import NotHere
from bmv2_topos.testbeds.netns.namespaces import check_here, existing, inside, remove
from bmv2_topos.testbeds.netns.serving import await_service, start_switch
from bmv2_topos.testbeds.netns.testbed import run_step
from controller import connect
from controller.switches.programs import p4c_command, p4c_output
from controller.switches.target import TableEntry
from hostlib.launch import command_line

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

HOSTS = ("a", "b")
INTERFACE = "eth0"
SOURCE, SOCKET = "forwarding.p4", "p4runtime"
END_S = 5.0
_PREFIX = "ina-bench-"
_number = itertools.count()
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class VethBed:
    """The hosts' namespaces by name, and the switch process between them."""

    namespaces: dict[str, str]
    pid: int

    def cpu_s(self) -> float:
        """Return the processor time that the switch has used, its own and the kernel's for it, in s."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


def number(host: str) -> int:
    """Return a host's MAC address as a number."""
    return 0x020000000001 + HOSTS.index(host)


def mac(host: str) -> str:
    """Return a host's MAC address as text."""
    return number(host).to_bytes(6, "big").hex(":")


def ip(host: str) -> str:
    """Return a host's IP address."""
    return f"10.78.0.{1 + HOSTS.index(host)}"


def check(kinds: Sequence[Kind]) -> None:
    """Raise NotHere, with the packages to install, if a bed of one of these switches cannot be made here."""
    check_here()
    if "bmv2" in kinds and (lacking := missing()):
        raise NotHere(f"the baseline bmv2 needs {lacking}; without --baseline only our own switch runs")


@contextlib.contextmanager
def bed(kind: Kind, *, offload: bool) -> Iterator[VethBed]:
    """Make the namespaces, start the switch and fill its table; all is removed after the block.

    With `offload` hosts leave segmentation and checksums to their interfaces, so that superframes reach the
    switch; without, only frames of their MTU do.

    Raises LiveError or ControllerError, with nothing left behind.
    """
    _sweep()
    tag = f"{_PREFIX}{os.getpid()}-{next(_number)}"
    names = {node: tag + node for node in (*HOSTS, "s")}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ina-veth-")))
        stack.callback(remove, names.values())
        for name in names.values():
            run_step(Command(("ip", "netns", "add", name)))
        for port, host in enumerate(HOSTS, start=1):
            _link(names, host, port, offload)
        process = start_switch(["ip", "netns", "exec", names["s"], *_argv(kind, folder)], folder / "log")
        stack.callback(_end, process)
        await_service(kind, process, folder / SOCKET, folder / "log")
        _fill(kind, folder)
        yield VethBed(names, process.pid)


def _sweep() -> None:
    """Remove the remains of a killed run."""
    for name in existing(_PREFIX):
        if not Path(f"/proc/{name.removeprefix(_PREFIX).partition('-')[0]}").exists():
            remove([name])


def _link(names: dict[str, str], host: str, port: int, offload: bool) -> None:
    ours, theirs = names["s"], names[host]
    (other,) = (each for each in HOSTS if each != host)
    lines = [
        f"link add p{port} netns {ours} type veth peer name {INTERFACE} netns {theirs} address {mac(host)}"
    ]
    run_step(Command(("ip", "-batch", "-"), tuple(lines)))
    up = (f"link set p{port} addrgenmode none", f"link set p{port} up")
    run_step(Command(("ip", "-n", ours, "-batch", "-"), up))
    far = (
        f"link set {INTERFACE} addrgenmode none",
        f"address add {ip(host)}/24 dev {INTERFACE}",
        f"link set {INTERFACE} up",
        f"neighbour replace {ip(other)} lladdr {mac(other)} dev {INTERFACE} nud permanent",
    )
    run_step(Command(("ip", "-n", theirs, "-batch", "-"), far))
    if not offload:
        inside(theirs, partial(offloads.turn_off, INTERFACE))
        inside(ours, partial(offloads.turn_off, f"p{port}"))


def _argv(kind: Kind, folder: Path) -> list[str]:
    """Return the command that runs the switch, its program compiled. Raises StepFailed."""
    source = folder / SOURCE
    source.write_text(PROGRAM)
    if kind == "bmv2":
        run_step(Command(tuple(p4c_command(source, {}, folder))))
        return switch_argv({1: "p1", 2: "p2"}, folder / SOCKET)
    interfaces = ("-i", "1@p1", "-i", "2@p2")
    address = f"unix:{folder / SOCKET}"
    return command_line.ina("switch", "--program", str(source), *interfaces, "--p4runtime", address)


def _fill(kind: Kind, folder: Path) -> None:
    with connect(f"unix:{folder / SOCKET}") as controller:
        if kind == "bmv2":
            controller.load(p4c_output(folder / SOURCE, folder))
        controller.install(
            TableEntry("I.l2", {"hdr.ethernet.dst": number(host)}, "I.forward", {"port": port})
            for port, host in enumerate(HOSTS, start=1)
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


BATCH = 32
"""Frames per system call."""


class _Part(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """``struct msghdr``."""

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
    """``struct mmsghdr``."""

    _fields_ = (("header", _Header), ("sent_bytes", ctypes.c_uint32))


@dataclass(slots=True)
class FrameSender:
    """Sends copies of a frame by a packet socket that is bound to an interface."""

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
        """Send `count` copies, `BATCH` at most; return how many of them the socket took. Raises OSError."""
        sent = self._library.sendmmsg(self.at.fileno(), self._messages, min(count, BATCH), 0)
        if sent < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(sent)


PAYLOAD = 1024
"""Bytes of a datagram."""
FRAME = PAYLOAD + 42
"""Bytes of its frame, with headers."""
SUPERFRAME = 60
"""Datagrams of a superframe: as many as fit into 64 KiB."""

_UDP_SEGMENT, _UDP_GRO, _SO_RCVBUFFORCE = 103, 104, 33
_PORT = 7800
_NOBODYS_TYPE = b"\x90\x00"  # Ethernet's configuration testing: the receiving kernel drops it at once


class FrameLink(Protocol):
    """A way from host to host. Both counts are of frames."""

    def send(self, frames: int) -> int:
        """Send at most `frames` frames; return how many were sent."""

    def arrived(self) -> int:
        """Return how many frames have arrived in all."""


class RawFrames:
    """Frames one by one from a packet socket of ``a``, counted at the interface of ``b``."""

    def __init__(self, on: VethBed, frame_bytes: int) -> None:
        self._socket = inside(on.namespaces["a"], _packet_socket)
        addresses = number("b").to_bytes(6, "big") + number("a").to_bytes(6, "big")
        self._sender = FrameSender(self._socket, (addresses + _NOBODYS_TYPE).ljust(frame_bytes, b"\0"))
        self._counters = inside(on.namespaces["b"], _interface_counters)

    def send(self, frames: int) -> int:
        """Send frames; see `FrameLink.send`."""
        return self._sender.send(frames) if frames >= BATCH else 0  # fewer would cost as many calls

    def arrived(self) -> int:
        """Return the arrivals; see `FrameLink.arrived`."""
        self._counters.seek(0)
        line = self._counters.read().partition(INTERFACE.encode() + b":")[2]
        return int(line.split(maxsplit=2)[1])

    def close(self) -> None:
        """Close the sockets."""
        self._socket.close()
        self._counters.close()


class Superframes:
    """Datagrams of a UDP socket that are sent, and received, sixty at a time."""

    def __init__(self, on: VethBed) -> None:
        udp = partial(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
        self._socket = inside(on.namespaces["a"], udp)
        self._socket.connect((ip("b"), _PORT))
        self._socket.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, PAYLOAD)
        self._far = inside(on.namespaces["b"], udp)
        self._far.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        self._far.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        self._far.bind((ip("b"), _PORT))
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
        """Return the arrivals; see `FrameLink.arrived`."""
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
    opened.bind((INTERFACE, 0))
    return opened


def _interface_counters() -> FileIO:
    """Return a file of this namespace's counters that can be read anywhere."""
    return Path("/proc/thread-self/net/dev").open("rb", buffering=0)
