"""Drives the reference P4 tools: ``p4c`` compiles, ``simple_switch`` runs, ``simple_switch_CLI`` configures.

The switch runs in pcap-file mode, which needs no root. Its input files are pipes, so packets go in whenever
the test likes, in between configuration; nothing depends on how long anything takes.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

Arrival = tuple[int, bytes]
"""A frame and the port that it comes in at."""

THRIFT = ("simple_switch", "simple_switch_CLI")
DEADLINE_S = 600.0
PIPE_BYTES = 1 << 20
EGRESS_QUEUE_PACKETS = 1 << 20
PROMPT = b"RuntimeCmd: "
PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)


class ToolFailed(Exception):
    """A reference tool failed or refused what it was asked; the message holds its output."""


def missing(*switches: str) -> str:
    """Name the reference tools that are not on PATH, or return an empty string."""
    tools = {"p4c": _compiler() is not None}
    tools |= {name: shutil.which(name) is not None for name in switches or THRIFT}
    return ", ".join(name for name, found in tools.items() if not found)


def _compiler() -> str | None:
    return shutil.which("p4c-bm2-ss") or shutil.which("p4c")


def compile_p4(source: Path, directory: Path, defines: Mapping[str, str] | None = None) -> Path:
    """Compile `source` for v1model and return the JSON that simple_switch loads.

    Raises ToolFailed with the diagnostics if the compiler refuses the program.
    """
    compiler_output(source, directory, defines)
    return _json_of(source, directory)


def compiler_output(source: Path, directory: Path, defines: Mapping[str, str] | None = None) -> str:
    """Compile `source` into `directory` and return what the compiler had to say about it: warnings.

    Raises ToolFailed with the diagnostics if the compiler refuses the program.
    """
    tool = _compiler()
    assert tool is not None, "p4c is not on PATH"
    output = _json_of(source, directory)
    command = [tool, "--arch", "v1model", *(f"-D{name}={value}" for name, value in (defines or {}).items())]
    if Path(tool).name == "p4c":
        command += ["--target", "bmv2", "-o", str(directory)]
    else:
        command += ["-o", str(output)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    if done.returncode or not output.exists():
        raise ToolFailed(f"{source.name}: {done.stderr}")
    return done.stdout + done.stderr


def _json_of(source: Path, directory: Path) -> Path:
    return directory / f"{source.stem}.json"


class Reference:
    """A running simple_switch. Use as a context manager.

    `ports` are what it can send from, `inputs` those of them that packets come in at.
    `filler` is a frame that does no harm; `send` says what for.
    """

    def __init__(
        self,
        program: Path,
        directory: Path,
        *,
        ports: Sequence[int],
        inputs: Sequence[int],
        filler: bytes = b"\0",
    ) -> None:
        self._directory = directory
        self._ports = sorted(ports)
        self._filler = filler
        self._pipes: dict[int, int] = {}
        self._waiting: list[Arrival] = []
        self._clock = 0
        self._log = directory / "switch.log"
        for port in self._ports:
            path = directory / f"{port}_in.pcap"
            if port in inputs:
                os.mkfifo(path)
                # open both ways: neither this nor the switch's own open ever blocks
                self._pipes[port] = os.open(path, os.O_RDWR)
                fcntl.fcntl(self._pipes[port], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
                os.write(self._pipes[port], PCAP_HEADER)
            else:
                path.write_bytes(PCAP_HEADER)
        command = self._command(program)
        for port in self._ports:
            command += ["-i", f"{port}@{directory}/{port}"]
        with self._log.open("wb") as log:
            self._switch = subprocess.Popen([*command, *self._more(program)], stdout=log, stderr=log)
        try:
            self._wait(self._answers, "its control port to open")
            self._connect()
        except BaseException:
            self._stop()
            raise

    def _command(self, program: Path) -> list[str]:
        """Return how the command begins, before the ports."""
        self._thrift_port = _free_port()
        notify = ["--notifications-addr", f"ipc://{self._directory}/n.ipc"]
        return [
            "simple_switch",
            "--use-files",
            "0",
            "-L",
            "off",
            "--thrift-port",
            f"{self._thrift_port}",
            *notify,
        ]

    def _more(self, program: Path) -> list[str]:
        """Return how it ends, after them."""
        return [str(program)]

    def _answers(self) -> bool:
        return _accepts(self._thrift_port)

    def _connect(self) -> None:
        self._cli = CommandLine(self._thrift_port)
        self.run(f"set_queue_depth {EGRESS_QUEUE_PACKETS}")

    def __enter__(self) -> Reference:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cli.close()
        self._stop()

    def run(self, command: str) -> str:
        """Run one command of simple_switch_CLI and return what it prints. Raises ToolFailed if refused."""
        return self._cli.run(command)

    def send(self, packets: Iterable[Arrival]) -> list[Arrival]:
        """Feed packets in this order, wait until all are through, and return what really went in.

        The switch merges its inputs by time stamp and takes a packet only when every other input has one
        that is later. With several inputs a filler therefore follows on each; all but the first of
        them reach the program only with the next `send` or `finish`.
        """
        arrivals = [*self._waiting, *packets]
        self._write(arrivals[len(self._waiting) :])
        if len(self._pipes) > 1:
            fillers = [(port, self._filler) for port in self._pipes]
            self._write(fillers)
            arrivals.append(fillers[0])
            self._waiting = fillers[1:]
        self._settle()
        return arrivals

    def finish(self) -> list[Arrival]:
        """Close the inputs and return the packets that went in by that."""
        for pipe in self._pipes.values():
            os.close(pipe)
        self._pipes.clear()
        self._settle()
        return self._waiting

    def sent(self) -> dict[int, list[bytes]]:
        """Return all frames that came out so far, in order, by port; only ports that had any.

        Empty frames are left out: files can hold them, networks cannot.
        """
        frames = {port: _read_pcap(self._directory / f"{port}_out.pcap") for port in self._ports}
        return {port: out for port, out in frames.items() if out}

    def _write(self, packets: Iterable[Arrival]) -> None:
        records: dict[int, list[bytes]] = {port: [] for port in self._pipes}
        for port, frame in packets:
            self._clock += 1
            seconds, microseconds = divmod(self._clock, 1_000_000)
            records[port].append(struct.pack("<IIII", seconds, microseconds, len(frame), len(frame)) + frame)
        for port, chunks in records.items():
            data = b"".join(chunks)
            # more would block here, while the switch waits for another input
            assert len(data) < PIPE_BYTES, f"send at most {PIPE_BYTES} bytes per port at a time"
            os.write(self._pipes[port], data)

    def _settle(self) -> None:
        """Wait until the switch has taken all input and has nothing left to do.

        It has if all its threads are asleep at one moment: what would wake one is another of them.
        They were, if two looks find all asleep and no thread has run in between.
        """
        last: dict[str, tuple[str, str]] | None = None

        def settled() -> bool:
            nonlocal last
            if any(_unread(pipe) for pipe in self._pipes.values()):
                return False
            before, last = last, _asleep(self._switch.pid)
            return last is not None and last == before

        self._wait(settled, "the switch to come to rest")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if self._switch.poll() is not None:
                raise ToolFailed(f"simple_switch ended while waiting for {what}: {self._log.read_text()}")
            if time.monotonic() > deadline:
                raise ToolFailed(f"waited {DEADLINE_S:.0f} s for {what}: {self._log.read_text()}")
            time.sleep(0.002)

    def _stop(self) -> None:
        for pipe in self._pipes.values():
            os.close(pipe)
        self._pipes.clear()
        self._switch.send_signal(signal.SIGKILL)
        self._switch.wait()


class CommandLine:
    """A running simple_switch_CLI: one command in, its output back."""

    def __init__(self, thrift_port: int) -> None:
        self._process = subprocess.Popen(
            ["simple_switch_CLI", "--thrift-port", str(thrift_port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in = self._process.stdin
        self._out = self._process.stdout
        self._answer()

    def run(self, command: str) -> str:
        """Run one command and return what it prints. Raises ToolFailed if it was refused."""
        self._in.write(command.encode() + b"\n")
        self._in.flush()
        answer = self._answer()
        if answer.startswith(("Error", "Invalid", "***")) or "\nInvalid" in answer:
            raise ToolFailed(f"{command}: {answer}")
        return answer

    def close(self) -> None:
        """End the tool."""
        with contextlib.suppress(BrokenPipeError):
            self._in.close()
        self._process.kill()
        self._process.wait()
        self._out.close()

    def _answer(self) -> str:
        text = b""
        while not text.endswith(PROMPT):
            ready, _, _ = select.select([self._out], [], [], DEADLINE_S)
            chunk = os.read(self._out.fileno(), 1 << 16) if ready else b""
            if not chunk:
                self.close()
                raise ToolFailed(f"simple_switch_CLI stopped answering after {text!r}")
            text += chunk
        return text.removesuffix(PROMPT).decode().strip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S).close()
    except ConnectionRefusedError:
        return False
    return True


def _unread(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def _asleep(pid: int) -> dict[str, tuple[str, str]] | None:
    """Return how often each thread of a process has been switched, or None if one is not asleep."""
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


def _read_pcap(path: Path) -> list[bytes]:
    data = path.read_bytes()
    frames = []
    offset = len(PCAP_HEADER)
    while offset < len(data):
        length = struct.unpack_from("<I", data, offset + 8)[0]
        if length:
            frames.append(data[offset + 16 : offset + 16 + length])
        offset += 16 + length
    return frames
