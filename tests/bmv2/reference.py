"""Drives the reference P4 tools: ``p4c`` compiles, ``simple_switch`` runs, ``simple_switch_CLI`` configures.

The switch runs in pcap-file mode, which needs no root. Its input files are pipes, so packets go in whenever
the test likes, in between configuration; nothing depends on how long anything takes.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from bmv2_topos.testbeds.bmv2.files import DEADLINE_S, Arrival, FileSwitch, ToolFailed
from controller.switches.programs import p4c_command, p4c_on_path

__all__ = ["Arrival", "Reference", "ToolFailed"]

THRIFT = ("simple_switch", "simple_switch_CLI")
EGRESS_QUEUE_PACKETS = 1 << 20
PROMPT = b"RuntimeCmd: "


def missing() -> str:
    """Name the reference tools that are not on PATH, or return an empty string."""
    tools = {"p4c": p4c_on_path() is not None}
    tools |= {name: shutil.which(name) is not None for name in THRIFT}
    return ", ".join(name for name, found in tools.items() if not found)


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
    assert p4c_on_path() is not None, "p4c is not on PATH"
    command = p4c_command(source, defines or {}, directory)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not _json_of(source, directory).exists():
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
        self._filler = filler
        self._waiting: list[Arrival] = []
        self._switch = FileSwitch(directory, ports=ports, inputs=inputs)
        port = free_port()
        notify = ("--notifications-addr", f"ipc://{directory}/n.ipc")
        command = ["simple_switch", "--use-files", "0", "-L", "off", "--thrift-port", str(port), *notify]
        self._switch.start(command, [str(program)], lambda: _accepts(port))
        try:
            self._cli = CommandLine(port)
            self.run(f"set_queue_depth {EGRESS_QUEUE_PACKETS}")
        except BaseException:
            self._switch.stop()
            raise

    def __enter__(self) -> Reference:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cli.close()
        self._switch.stop()

    def run(self, command: str) -> str:
        """Run one command of simple_switch_CLI and return what it prints. Raises ToolFailed if refused."""
        return self._cli.run(command)

    def send(self, packets: Iterable[Arrival]) -> list[Arrival]:
        """Feed packets in this order, wait until all are through, and return what really went in.

        The switch takes a packet only when every other input has one that is later. With several inputs a
        filler therefore follows on each; all but the first of them reach the program only with the next
        `send` or `finish`.
        """
        arrivals = [*self._waiting, *packets]
        self._switch.write(arrivals[len(self._waiting) :])
        if len(self._switch.inputs) > 1:
            fillers = [(port, self._filler) for port in self._switch.inputs]
            self._switch.write(fillers)
            arrivals.append(fillers[0])
            self._waiting = fillers[1:]
        self._switch.settle()
        return arrivals

    def finish(self) -> list[Arrival]:
        """Close the inputs and return the packets that went in by that."""
        for port in self._switch.inputs:
            self._switch.close_input(port)
        self._switch.settle()
        return self._waiting

    def sent(self) -> dict[int, list[bytes]]:
        """Return all frames that came out so far, in order, by port; only ports that had any."""
        return self._switch.sent()


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


def free_port() -> int:
    """Return a TCP port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S).close()
    except ConnectionRefusedError:
        return False
    return True
