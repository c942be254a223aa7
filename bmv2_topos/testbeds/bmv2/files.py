"""Runs a ``simple_switch`` or ``simple_switch_grpc`` in pcap-file mode, which needs no root.

Its input files are pipes, so packets go in at any time, also between configuration steps; no result depends
on timing.
"""

from __future__ import annotations

import array
import fcntl
import os
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bmv2_topos.trace.captures import read

Arrival = tuple[int, bytes]
"""A frame and its ingress port."""

DEADLINE_S = 600.0
PIPE_BYTES = 1 << 20
OTHER_FILES = 256
"""Maximum number of open files of a switch, not counting the files of its ports."""
PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)


class ToolFailed(Exception):
    """A reference tool failed or refused a request; the message holds the tool's output."""


class FileSwitch:
    """A switch process whose ports are files; it runs from `start` to `stop`.

    The switch merges its inputs by time stamp: it reads a packet once every other open input has a packet
    with a later time stamp.
    """

    def __init__(self, folder: Path, *, ports: Sequence[int], inputs: Sequence[int]) -> None:
        """Make the files of the ports; the switch receives packets only at the ports in `inputs`."""
        self._folder = folder
        self._ports = sorted(ports)
        self._pipes: dict[int, int] = {}
        self._clock = 0
        self._log = folder / "switch.log"
        for port in self._ports:
            path = folder / f"{port}_in.pcap"
            if port in inputs:
                os.mkfifo(path)
                # open both ways: neither this nor the switch's own open ever blocks
                self._pipes[port] = os.open(path, os.O_RDWR)
                fcntl.fcntl(self._pipes[port], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
                os.write(self._pipes[port], PCAP_HEADER)
            else:
                path.write_bytes(PCAP_HEADER)

    def start(self, before: Sequence[str], after: Sequence[str], answers: Callable[[], bool]) -> None:
        """Start the switch, and wait until `answers` returns True. Raises ToolFailed.

        The command is `before`, the options for the ports, and `after`.
        """
        command = port_command(before, {port: f"{self._folder}/{port}" for port in self._ports}, after)
        with self._log.open("wb") as log:
            self._switch = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            self._wait(answers, "its control port to open")
        except BaseException:
            self.stop()
            raise

    @property
    def inputs(self) -> Sequence[int]:
        """The ports whose inputs are still open."""
        return tuple(self._pipes)

    def write(self, packets: Iterable[Arrival]) -> None:
        """Write packets to the inputs, each with a later time stamp than the packet before it."""
        records: dict[int, list[bytes]] = {port: [] for port in self._pipes}
        for port, frame in packets:
            self._clock += 1
            records[port].append(_record(self._clock, frame))
        for port, chunks in records.items():
            data = b"".join(chunks)
            # a longer write would block here, while the switch waits for another input
            assert len(data) < PIPE_BYTES, f"send at most {PIPE_BYTES} bytes per port at a time"
            os.write(self._pipes[port], data)

    def write_at(self, time_us: int, port: int, frame: bytes) -> None:
        """Write a packet with this time stamp to the input of a port."""
        os.write(self._pipes[port], _record(time_us, frame))

    def close_input(self, port: int) -> None:
        """Close the input of a port: no more packets arrive there."""
        os.close(self._pipes.pop(port))

    def settle(self) -> None:
        """Wait until the switch has read all input and is idle. Raises ToolFailed after `DEADLINE_S`.

        The switch is idle if all its threads sleep at the same moment, as only another thread could wake one.
        So it was idle if two checks find all threads asleep, and no thread has run between the two checks.
        """
        last: dict[str, tuple[str, str]] | None = None

        def settled() -> bool:
            nonlocal last
            if any(_unread(pipe) for pipe in self._pipes.values()):
                return False
            before, last = last, _asleep(self._switch.pid)
            return last is not None and last == before

        self._wait(settled, "the switch to become idle")

    def sent(self) -> dict[int, list[bytes]]:
        """Return all frames that the switch has sent, in order, by port; ports without frames are left out.

        Empty frames are left out: files can hold them, networks cannot.
        """
        frames = {port: _frames(self._folder / f"{port}_out.pcap") for port in self._ports}
        return {port: out for port, out in frames.items() if out}

    def stop(self) -> None:
        """End the switch."""
        for port in self.inputs:
            self.close_input(port)
        self._switch.send_signal(signal.SIGKILL)
        self._switch.wait()

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if (status := self._switch.poll()) is not None:
                log = self._log.read_text()
                raise ToolFailed(f"BMv2 ended with status {status} while we waited for {what}: {log}")
            if time.monotonic() > deadline:
                raise ToolFailed(f"waited {DEADLINE_S:.0f} s for {what}: {self._log.read_text()}")
            time.sleep(0.002)


def port_command(before: Sequence[str], ports: Mapping[int, str], after: Sequence[str]) -> list[str]:
    """Return a command (`before`, the ports, `after`) that may open two files for each port.

    A switch with five hundred ports needs more than the usual limit of 1,024 open files.
    """
    words = [word for port, name in ports.items() for word in ("-i", f"{port}@{name}")]
    files = OTHER_FILES + 2 * len(ports)
    raised = f'[ "$(ulimit -n)" -ge {files} ] || ulimit -n {files}; exec "$@"'
    return ["sh", "-c", raised, "sh", *before, *words, *after]


def _record(time_us: int, frame: bytes) -> bytes:
    seconds, microseconds = divmod(time_us, 1_000_000)
    return struct.pack("<IIII", seconds, microseconds, len(frame), len(frame)) + frame


def _unread(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def _asleep(pid: int) -> dict[str, tuple[str, str]] | None:
    """Return the context switches of each thread of a process, by thread id; None if a thread is not asleep.

    Each value has two counts: of the voluntary context switches, and of the involuntary ones.
    """
    switches = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            status = (task / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):  # ended just now
            return None
        fields = dict(line.split(":", 1) for line in status.splitlines())
        if not fields["State"].strip().startswith("S"):
            return None
        switches[task.name] = (fields["voluntary_ctxt_switches"], fields["nonvoluntary_ctxt_switches"])
    return switches


def _frames(path: Path) -> list[bytes]:
    data = path.read_bytes()  # nothing before the first packet
    return [each.frame for each in read(data, path.stem, str(path)) if each.frame] if data else []
