"""Records a run: the packets at every switch port and every host, and the time of each rank's sums.

Captures of switches have the form of captures at real ports, so that the same tools can read them.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from pathlib import Path

from bmv2_topos.trace import Event, IterationPath, Record, Sum, TracedJob, events_of, explain
from bmv2_topos.trace.captures import read
from controller.vocabulary.lists import by_key
from hostlib import wire
from softswitch import CaptureSettings, Switch, file_header, packet_block

SNAP = wire.FRAME_PREFIX_BYTES + wire.INA_BYTES
"""Number of bytes recorded of each frame: its headers."""
_NOTES = ("outcome", "index")
_CAPACITY = 1 << 40


class Recorder:
    """Records the packets of a run, if passed to `VirtualTestbed`; uses 150 bytes per packet and hop."""

    def __init__(self) -> None:
        self.sums: list[Sum] = []
        self.jobs: list[TracedJob] = []
        self._switches: dict[tuple[str, int], bytearray] = defaultdict(bytearray)
        self._hosts: list[Record] = []

    def watch(self, switch: Switch) -> None:
        """Capture the packets at all ports of a switch from now on."""
        switch.capture(CaptureSettings(notes=_NOTES, snap=SNAP, capacity=_CAPACITY))

    def collect(self, name: str, switch: Switch) -> None:
        """Add the packets that a switch has captured since the last call."""
        for port in switch.ports:
            records, dropped = switch.captured(port)
            assert not dropped, "a switch can hold all packets that it captures between two calls"
            self._switches[name, port] += records

    def sent(self, host: str, time_us: int, frames: bytes, length: int) -> None:
        """Record frames that a host sends.

        Args:
            host: Name of the host.
            time_us: Time at which the frames leave.
            frames: The frames, back to back.
            length: Bytes of each frame.
        """
        for at in range(0, len(frames), length):
            self._note(host, time_us, frames[at : at + min(length, SNAP)], inbound=False)

    def arrived(self, host: str, data: bytearray, lengths: array[int], times_us: array[int]) -> None:
        """Record frames that have arrived at a host.

        Args:
            host: Name of the host.
            data: The frames, back to back.
            lengths: Bytes of each frame.
            times_us: Time of arrival of each frame.
        """
        at = 0
        for length, time_us in zip(lengths, times_us, strict=True):
            self._note(host, time_us, data[at : at + min(length, SNAP)], inbound=True)
            at += length

    def _note(self, host: str, time_us: int, head: bytes | bytearray, *, inbound: bool) -> None:
        self._hosts.append(Record(time_us * 1000, host, inbound, bytes(head)))

    def explain(self) -> list[IterationPath]:
        """Return the critical path of each iteration, with the causes of its time."""
        return explain(self.events(), self.sums, self.jobs)

    def write(self, folder: Path) -> None:
        """Write captures: a file for each switch port, and each host. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        for (name, port), found in self._switches.items():
            header = file_header(f"{name}/{port}", SNAP)
            (folder / f"{name}-port{port}.pcapng").write_bytes(header + found)
        hosts = by_key(
            (seen.place, packet_block(seen.frame, seen.time_ns, inbound=bool(seen.inbound)))
            for seen in self._hosts
        )
        for host, blocks in hosts.items():
            (folder / f"{host}.pcapng").write_bytes(file_header(host, SNAP) + b"".join(blocks))

    def events(self) -> list[Event]:
        """Return the events of all recorded aggregation packets, in order of time."""
        records = list(self._hosts)
        for (name, port), found in self._switches.items():
            records += read(file_header(f"{name}/{port}", SNAP) + bytes(found), name, name)
        return events_of(records)
