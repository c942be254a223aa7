"""Speed of the switch between veth interfaces: single frames, superframes, and a comparison with BMv2.

Host ``h1`` keeps a window of frames in flight to host ``h2``, and sends more when frames arrive there. So
the switch is never flooded with frames that it must drop. A time per frame is the processor time of the
switch's process, in user and kernel mode: other load on the machine affects it less than frames per second.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Literal, Protocol

from bmv2_topos.testbeds.netns import MissingRequirement, State, offloads, store
from bmv2_topos.testbeds.netns.bmv2 import missing
from bmv2_topos.testbeds.netns.commands import BMV2, EMBEDDED, Program
from bmv2_topos.testbeds.netns.names import interface, namespace
from bmv2_topos.testbeds.netns.namespaces import check_here, inside
from bmv2_topos.testbeds.netns.testbed import controllers, down, temporary
from controller.switches.model import mac_to_int
from controller.switches.target import TableEntry
from controller.vocabulary import Link, star
from ina.bench.frame_loop import compiled_loops
from ina.bench.turns import processor_s

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


@dataclass(frozen=True, slots=True)
class VethBed:
    """A running testbed of two hosts and a switch."""

    state: State

    def cpu_s(self) -> float:
        """Return the processor time of the switch's process, in user and kernel mode, in seconds."""
        return processor_s([self.state.switches[SWITCH]])

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
        self._frame = (addresses + _NOBODYS_TYPE).ljust(frame_bytes, b"\0")
        self._library = compiled_loops()
        # the counters of this namespace; the file can be read from any namespace
        self._counters = inside(on.at(TO), partial(FileIO, "/proc/thread-self/net/dev"))

    def send(self, frames: int) -> int:
        """Send frames; see `FrameLink.send`."""
        if frames < BATCH:  # they would cost as many system calls
            return 0
        sent = self._library.bench_send(self._socket.fileno(), self._frame, len(self._frame), BATCH)
        if sent < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(sent)

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


SMALL_FRAME = 64
WINDOW: Mapping[Kind, int] = {"ina": 512, "bmv2": 64}
"""Maximum number of frames in flight, by kind of switch. BMv2 has a queue of 64, and drops further frames."""
SUPERFRAMES = 24
"""Maximum number of superframes in flight."""
PAUSE_S = 20e-6
PATIENCE_S = 5.0
"""Seconds without an arrival after which all frames in flight count as lost."""


@dataclass(frozen=True, slots=True)
class VethPassed:
    """Frames that one host sent to the other through a switch in `wall_s` seconds."""

    switch: Kind
    name: str
    frames: int
    frame_bytes: int
    lost: int
    wall_s: float
    cpu_s: float
    """Processor time of the switch's process."""

    @property
    def frames_per_s(self) -> float:
        """Frames that arrived, per second."""
        return self.frames / self.wall_s

    @property
    def bits_per_s(self) -> float:
        """Bits of the frames that arrived, per second."""
        return 8 * self.frame_bytes * self.frames_per_s

    @property
    def ns_per_frame(self) -> float:
        """Processor time of the switch per frame, in ns."""
        return 1e9 * self.cpu_s / max(1, self.frames)


@dataclass(frozen=True, slots=True)
class VethBench:
    """Result of each case: the round whose number of frames per second is the median of all rounds."""

    cases: tuple[VethPassed, ...]

    def times_baseline(self, value: Callable[[VethPassed], float]) -> dict[str, float]:
        """Return, by case, `value` of our switch divided by `value` of BMv2; {} if BMv2 was not measured."""
        theirs = {case.name: value(case) for case in self.cases if case.switch == "bmv2"}
        ours = {case.name: value(case) for case in self.cases if case.switch == "ina"}
        return {name: ours[name] / theirs[name] for name in theirs if theirs[name]}


def bench_veth(*, baseline: bool, round_s: float, rounds: int) -> VethBench:
    """Measure our switch and, with `baseline`, BMv2 with the same program and frames, in alternating runs.

    Raises NetnsError, or its subclass MissingRequirement if a package is missing; ControllerError.
    """
    kinds: tuple[Kind, ...] = ("ina", "bmv2") if baseline else ("ina",)
    check(kinds)
    with contextlib.ExitStack() as stack:
        raw = [(kind, stack.enter_context(bed(kind, offload=False))) for kind in kinds]
        another = stack.enter_context(bed("ina", offload=False))
        offloading = stack.enter_context(bed("ina", offload=True))
        runs = [
            *(partial(_raw, kind, on, size, round_s) for size in (SMALL_FRAME, FRAME) for kind, on in raw),
            partial(_beside, raw[0][1], another, round_s),
            partial(_superframes, offloading, round_s),
        ]
        done = [[run() for run in runs] for _ in range(rounds)]
    in_order = [sorted(case, key=lambda each: each.frames_per_s) for case in zip(*done, strict=True)]
    return VethBench(tuple(case[len(case) // 2] for case in in_order))


def _raw(kind: Kind, on: VethBed, frame_bytes: int, duration_s: float) -> VethPassed:
    with contextlib.closing(RawFrames(on, frame_bytes)) as link:
        return _passed(kind, "frame by frame", on, link, frame_bytes, WINDOW[kind], duration_s)


def _beside(on: VethBed, another: VethBed, duration_s: float) -> VethPassed:
    """Measure our switch while a second process of our switch forwards the same frames."""
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(_raw, "ina", another, FRAME, duration_s)
        found = _raw("ina", on, FRAME, duration_s)
        other.result()
    return replace(found, name=f"{found.name}, a second switch forwarding, too")


def _superframes(on: VethBed, duration_s: float) -> VethPassed:
    with contextlib.closing(Superframes(on)) as link:
        return _passed("ina", "superframes", on, link, FRAME, SUPERFRAMES * SUPERFRAME, duration_s)


def _passed(
    kind: Kind, how: str, on: VethBed, link: FrameLink, frame_bytes: int, window: int, duration_s: float
) -> VethPassed:
    started_s, used_s = time.monotonic(), on.cpu_s()
    frames, lost = keep_full(link, window, duration_s, time.monotonic)
    wall_s = time.monotonic() - started_s
    return VethPassed(kind, f"{frame_bytes} B, {how}", frames, frame_bytes, lost, wall_s, on.cpu_s() - used_s)


def keep_full(link: FrameLink, window: int, duration_s: float, clock: Callable[[], float]) -> tuple[int, int]:
    """Send with at most `window` frames in flight; return the numbers of frames that arrived and were lost.

    Args:
        link: The path from host ``h1`` to host ``h2``.
        window: Maximum number of frames in flight.
        duration_s: Time of sending, in seconds.
        clock: Returns the time in seconds.
    """
    sent = lost = received = 0
    before, moved_s = link.arrived(), clock()
    end_s = moved_s + duration_s
    while (now_s := clock()) < end_s or sent - lost > received:
        arrived = link.arrived() - before
        if arrived > received:
            received, moved_s = arrived, now_s
        elif now_s - moved_s > PATIENCE_S:
            lost, moved_s = sent - received, now_s
        taken = link.send(window - (sent - lost - received)) if now_s < end_s else 0
        sent += taken
        if not taken:
            time.sleep(PAUSE_S)
    return received, sent - received
