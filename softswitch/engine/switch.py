"""A switch: ports, a P4 program, multicast groups and clone sessions.

Two ways to drive it:

* Real time: ``start()`` runs the event loop in a thread, until ``stop()``. The thread holds no GIL.
* Virtual time: the caller feeds memory ports with ``inject`` and moves the clock with ``advance`` to
  ``next_event_us``. No other event happens in between, so the same calls give the same frames.

Time is in microseconds from the switch's creation.
"""

from __future__ import annotations

import logging
import threading
import weakref
from array import array
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from softswitch.engine.native import Members, NativeEngine
from softswitch.engine.pcapng import CaptureSettings
from softswitch.engine.pipeline import Pipeline
from softswitch.engine.ports import (
    MAX_PORT,
    InterfacePort,
    LinkModel,
    MemoryPort,
    PortError,
    PortImpairments,
    PortSpec,
    PortStatistics,
    SharedPort,
    SwitchError,
    SwitchStatistics,
    UdpPort,
)

PacketIn = Callable[[int, bytes], None]
"""A function that is called with the CPU port's number and the frame of each packet-in."""

_log = logging.getLogger(__name__)


class _Closed:
    def __getattr__(self, name: str) -> None:
        raise SwitchError("the switch is closed")


def _shut_down(engine: NativeEngine, threads: list[threading.Thread]) -> None:
    engine.stop()
    for thread in threads:
        thread.join()
    engine.destroy()


class Locked:
    """Context manager that keeps packets out of a switch's program; every table write enters it."""

    __slots__ = ("_lock", "_unlock")

    def __init__(self, engine: NativeEngine) -> None:
        self._lock, self._unlock = engine.lock, engine.unlock

    def __enter__(self) -> None:
        self._lock()

    def __exit__(self, *raised: object) -> None:
        self._unlock()


class Switch:
    """A switch, as the module's docstring describes; a context manager that closes the switch at the end."""

    def __init__(
        self,
        ports: Mapping[int, PortSpec],
        *,
        seed: int = 0,
        impairments: Mapping[int, PortImpairments] | None = None,
    ) -> None:
        """Open the ports.

        Raises PortError, with no port left open, if a port cannot be opened; NoCompiler if the engine cannot
        be built and did not come with the package.
        """
        impairments = impairments or {}
        _check_ports(ports, impairments)
        self.ports: Mapping[int, PortSpec] = dict(ports)
        """The ports by number."""
        self._seed = seed
        self._groups: dict[int, list[tuple[int, int]]] = {}
        self._cpu_ports = [n for n, spec in ports.items() if isinstance(spec, MemoryPort) and spec.cpu]
        self._packet_in: PacketIn | None = None
        self._failure: SwitchError | None = None
        self._threads: list[threading.Thread] = []
        self.engine = NativeEngine()
        """The engine, for drivers of several switches (`softswitch.engine.cables`)."""
        self._locked = Locked(self.engine)
        self.loads = 0
        """Programs loaded so far."""
        # Also at interpreter exit: a thread must not run a program while Python frees it.
        self._close = weakref.finalize(self, _shut_down, self.engine, self._threads)
        try:
            for number, spec in ports.items():
                self._open(number, spec, impairments.get(number, PortImpairments()))
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------ configuration

    def add_port(self, number: int, spec: PortSpec, impairments: PortImpairments | None = None) -> None:
        """Open one more port, also while the switch runs. Raises PortError, with nothing left open."""
        given = {} if impairments is None else {number: impairments}
        _check_ports({number: spec}, given)
        if number in self.ports:
            raise PortError(f"port {number}: exists already")
        with self.locked():
            self._open(number, spec, given.get(number, PortImpairments()))
            self.ports = {**self.ports, number: spec}

    def set_loss(self, port: int, *, rx: float, tx: float) -> None:
        """Set the probabilities that a frame is lost as it arrives at a port, and as it leaves by it."""
        self._check_port(port)
        with self.locked():
            self.engine.set_loss(port, rx, tx)

    def port_address(self, port: int) -> tuple[str, int]:
        """Return the address and UDP port that a UDP port's socket is bound to. Raises PortError."""
        if not isinstance(self.ports.get(port), UdpPort):
            raise PortError(f"port {port} is not a UDP port")
        return "127.0.0.1", self.engine.udp_port(port)

    def shared_path(self, port: int) -> str:
        """Return the Unix socket to which a shared memory port's far end connects. Raises PortError."""
        if not isinstance(self.ports.get(port), SharedPort):
            raise PortError(f"port {port} is not a shared memory port")
        return self.engine.shared_path(port)

    def load(self, pipeline: Pipeline | None) -> None:
        """Run this program from the next packet on; with None, drop all packets.

        Packets in egress queues belong to the old program and are dropped (`SwitchStatistics.unloaded`).
        """
        self.engine.load(pipeline)
        self.loads += 1

    def locked(self) -> Locked:
        """Return a context manager that keeps packets out while tables are changed; it can be nested.

        Keep its block short: the data path waits.
        """
        return self._locked

    def set_multicast_group(
        self, group: int, members: Members | None, exclusions: Sequence[int] = ()
    ) -> None:
        """Define or replace a group; None removes it. Packets to an empty group are not counted as dropped.

        `exclusions`: each member's level 1 exclusion id (Tofino), 0 for a member that is never excluded.
        """
        _check_number("multicast group", group)
        _check_members(members)
        if exclusions and len(exclusions) != len(members or ()):
            counts = f"{len(exclusions)} exclusion ids for {len(members or ())} members"
            raise SwitchError(f"multicast group {group} has {counts}: want one id per member, or none")
        for exclusion in exclusions:
            if not 0 <= exclusion < 65536:
                raise SwitchError(f"level 1 exclusion id {exclusion}: want 0..65535")
        with self.locked():
            self.engine.set_group(group, members, exclusions)
            self._groups.pop(group, None)
            if members is not None:
                self._groups[group] = list(members)

    def multicast_groups(self) -> dict[int, list[tuple[int, int]]]:
        """Return, for each multicast group by number, its members as (port, replication id)."""
        with self.locked():
            return {group: list(members) for group, members in self._groups.items()}

    def set_exclusion(self, id_: int, ports: Sequence[int] | None) -> None:
        """Set the ports that a level 2 exclusion id excludes (Tofino).

        None restores the default: the id excludes the port with its number.
        """
        _check_number("level 2 exclusion id", id_)
        _check_members([(port, 0) for port in ports or ()])
        with self.locked():
            self.engine.set_exclusion(id_, ports)

    def set_clone_session(self, session: int, members: Members | None, truncate: int = 0) -> None:
        """Define a clone session; None removes it. Clones are cut to `truncate` bytes (0: uncut)."""
        _check_number("clone session", session)
        _check_members(members)
        with self.locked():
            self.engine.set_session(session, members, truncate)

    # ------------------------------------------------------------------ frames

    def inject(self, port: int, frames: Sequence[bytes], now_us: int | None = None) -> None:
        """Deliver `frames` to `port`, one after the other, at `now_us` (default: the real time)."""
        self.inject_batch(port, b"".join(frames), array("I", map(len, frames)), now_us)

    def inject_batch(self, port: int, data: bytes, lengths: array[int], now_us: int | None = None) -> None:
        """Deliver several frames to a port.

        Args:
            port: The port.
            data: The frames, back to back.
            lengths: Length of each frame in bytes, as ``array("I")``.
            now_us: The time in microseconds; None: now.
        """
        self._check_port(port)
        if sum(lengths) > len(data):
            raise ValueError(f"{len(data)} bytes of data for frames of {sum(lengths)} bytes together")
        self.engine.inject(port, data, lengths, self.engine.now_us() if now_us is None else now_us)
        self._deliver_unless_running()

    def packet_out(self, port: int, frame: bytes) -> None:
        """Deliver a frame of the controller to `port`, usually the CPU port, now."""
        self.inject(port, [frame])

    def on_packet_in(self, callback: PacketIn | None) -> None:
        """Pass frames that leave by CPU ports to `callback`.

        In real time, `callback` is called from a thread of its own; in virtual time, from ``inject`` and
        ``advance``.
        """
        self._packet_in = callback
        self._deliver_unless_running()

    def advance(self, now_us: int) -> None:
        """Process all events up to `now_us`."""
        self.engine.advance(now_us)
        self._deliver_unless_running()

    def next_event_us(self) -> int | None:
        """Return the time of the next delayed or queued frame in microseconds; None: there is none."""
        return self.engine.next_event_us()

    def drain(self, port: int) -> list[bytes]:
        """Remove and return the frames that have left by a memory port."""
        return [frame for _, frame in self.drain_timed(port)]

    def drain_timed(self, port: int) -> list[tuple[int, bytes]]:
        """Remove and return the frames that have left by a memory port, as (arrival time, frame).

        The time is when the frame arrived at the far end of the link, in microseconds.
        """
        data, lengths, times = self.drain_batch(port)
        frames = []
        at = 0
        for length, time_us in zip(lengths, times, strict=True):
            frames.append((time_us, bytes(data[at : at + length])))
            at += length
        return frames

    def drain_batch(self, port: int) -> tuple[bytearray, array[int], array[int]]:
        """Remove and return the frames that have left by a memory port, as for `drain_timed`.

        Returns the frames back to back, their lengths in bytes, and their arrival times in microseconds.
        """
        if not isinstance(self.ports.get(port), MemoryPort):
            raise PortError(f"port {port} is not a memory port")
        return self.engine.drain(port)

    def capture(self, settings: CaptureSettings | None) -> None:
        """Start capturing frames at the ports; None: stop. `captured` still returns the records so far."""
        self.engine.capture(settings)

    def captured(self, port: int) -> tuple[bytes, int]:
        """Return a port's records since the last call: pcapng packet blocks (`softswitch.engine.pcapng`).

        Also returns the number of records lost so far for lack of memory.
        """
        self._check_port(port)
        return self.engine.captured(port)

    def now_us(self) -> int:
        """Return the real time since the switch was created, in microseconds."""
        return self.engine.now_us()

    def statistics(self, port: int) -> PortStatistics:
        """Return the counters of one port."""
        self._check_port(port)
        return self.engine.port_statistics(port)

    def switch_statistics(self) -> SwitchStatistics:
        """Return the counters of the switch itself."""
        return self.engine.switch_statistics()

    # ------------------------------------------------------------------ real time

    def start(self) -> None:
        """Serve all ports in real time, from a thread."""
        if self._threads:
            raise SwitchError("the switch is running already")
        self._failure = None
        self.engine.prepare()
        for target in (_serve, _deliver_packets) if self._cpu_ports else (_serve,):
            thread = threading.Thread(target=target, args=(weakref.ref(self), self.engine), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop serving; raises SwitchError if the event loop ended with an error."""
        self.engine.stop()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop, and close all ports. Every later call except `close` raises SwitchError."""
        self._close()
        self.engine = _Closed()  # type: ignore[assignment]  # raises SwitchError for every call

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, number: int, spec: PortSpec, links: PortImpairments) -> None:
        rx, tx = (
            LinkModel.of(faults, seed=self._seed, port=number, direction=direction)
            for faults, direction in ((links.rx, "rx"), (links.tx, "tx"))
        )
        self.engine.add_port(number, spec, rx, tx)

    def _check_port(self, port: int) -> None:
        if port not in self.ports:
            raise PortError(f"there is no port {port}")

    def _deliver_unless_running(self) -> None:
        if self._cpu_ports and not self._threads:
            self._deliver()

    def _deliver(self) -> None:
        if self._packet_in is None:
            return  # frames wait in the port until `drain`, or until a callback is set
        for port in self._cpu_ports:
            for frame in self.drain(port):
                self._packet_in(port, frame)


def _serve(switch: weakref.ref[Switch], engine: NativeEngine) -> None:
    try:
        engine.run()
    except SwitchError as error:
        _log.error("the switch stopped: %s", error)
        if (owner := switch()) is not None:
            owner._failure = error


def _deliver_packets(switch: weakref.ref[Switch], engine: NativeEngine) -> None:
    while (ready := engine.wait_cpu(-1)) is not None:
        owner = switch() if ready else None
        if owner is None:
            continue
        try:
            owner._deliver()
        except Exception:
            _log.exception("the receiver of packet-ins failed")
        del owner  # otherwise the switch could never be garbage-collected


def _check_ports(ports: Mapping[int, PortSpec], impairments: Mapping[int, PortImpairments]) -> None:
    interfaces: dict[str, int] = {}
    for number, spec in ports.items():
        if not 0 <= number <= MAX_PORT:
            raise PortError(f"port number {number}: want 0..{MAX_PORT}")
        if isinstance(spec, InterfacePort) and interfaces.setdefault(spec.name, number) != number:
            raise PortError(f"ports {interfaces[spec.name]} and {number} are both interface {spec.name}")
    if unknown := sorted(set(impairments) - set(ports)):
        raise PortError(f"impairments of port {unknown[0]}, which does not exist")


def _check_number(what: str, number: int) -> None:
    if not 0 < number < 65536:
        raise SwitchError(f"{what} {number}: want 1..65535")


def _check_members(members: Members | None) -> None:
    for port, rid in members or ():
        if not 0 <= port < 65536 or not 0 <= rid < 65536:
            raise SwitchError(f"member (port {port}, replication id {rid}): want 0..65535 for both")
