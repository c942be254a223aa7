"""Run a script on a switch, usually the embedded switch in virtual time, and check its output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from softswitch.compiler import ir
from softswitch.engine.build import load
from softswitch.engine.pipeline import Pipeline, Trace
from softswitch.engine.ports import MAX_PORT, MemoryPort
from softswitch.engine.switch import Switch
from softswitch.stf.control import Control
from softswitch.stf.script import (
    Add,
    CheckCounter,
    Expect,
    NoPacket,
    PacketLine,
    Remove,
    ScriptCommand,
    ScriptError,
    SetDefault,
    Statement,
    Wait,
)

PACKET_GAP_US = 1000
"""Virtual time between two packets, in microseconds."""


@dataclass(frozen=True, slots=True)
class ScriptFailure:
    """A difference from the script's expectation. `line` is 0 if it was found after the last line."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of a script's command that reads a value."""

    line: int
    text: str


@dataclass(slots=True)
class ScriptReport:
    """The outcome of one script: packets sent, expectations checked, and failures."""

    packets: int = 0
    checks: int = 0
    failures: list[ScriptFailure] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True if all expectations of the script hold."""
        return not self.failures


class Target(Protocol):
    """A switch that a script can run on: it takes and gives packets at its ports, and has a control plane."""

    @property
    def control(self) -> Control:
        """The control plane, which applies the script's entries and reads the switch's counters."""

    def send(self, port: int, data: bytes) -> None:
        """Deliver a packet, and process all events that result."""

    def left(self) -> Mapping[int, Sequence[bytes]]:
        """Return, by port, all packets that have left so far; ports without packets may be missing."""


def run_script(
    program: ir.Program,
    statements: Sequence[Statement],
    *,
    backend: Literal["compiled", "interpreter"] = "compiled",
    seed: int = 0,
    trace: Trace | None = None,
) -> ScriptReport:
    """Run a script on a new switch, with the ports that `ports_of` returns.

    Packets that leave at other ports are lost, as on BMv2. Packets are compared port by port, in order.

    Args:
        program: The program.
        statements: The script.
        backend: The back end that runs the program.
        seed: Seed of the program's random numbers.
        trace: Receives each step of each packet; only the interpreter reports steps.

    Raises ScriptError if the script does not fit the program, Unsupported if the back end cannot run the
    program, NoCompiler if there is no C compiler.
    """
    ports = ports_of(statements)
    pipeline = load(program, backend=backend, seed=seed, trace=trace)
    with Switch({port: MemoryPort() for port in ports}, seed=seed) as switch:
        switch.load(pipeline)
        return play(statements, _Embedded(switch, pipeline))


def ports_of(statements: Sequence[Statement]) -> list[int]:
    """Return the ports that a script checks: the ports that it names or, with ``no_packet``, all ports.

    Raises ScriptError for an impossible port.
    """
    ports = {s.port: s.line for s in statements if isinstance(s, PacketLine | Expect)}
    for port, line in ports.items():
        if port > MAX_PORT:
            raise ScriptError(f"port {port}; ports are 0 to {MAX_PORT}", line)
    if any(isinstance(statement, NoPacket) for statement in statements):
        return list(range(MAX_PORT + 1))
    return sorted(ports)


def play(statements: Sequence[Statement], target: Target) -> ScriptReport:
    """Run a script on a switch, and check its output. Raises ScriptError."""
    return _ScriptRun(target).run(statements)


class _Embedded:
    """The embedded switch, in virtual time."""

    def __init__(self, switch: Switch, pipeline: Pipeline) -> None:
        self.control = Control(pipeline.program, pipeline, switch)
        self._switch = switch
        self._now_us = 0
        self._left: dict[int, list[bytes]] = {port: [] for port in switch.ports}

    def send(self, port: int, data: bytes) -> None:
        self._now_us += PACKET_GAP_US
        self._switch.inject(port, [data], self._now_us)
        while (due := self._switch.next_event_us()) is not None:
            self._now_us = max(self._now_us, due)
            self._switch.advance(self._now_us)
        for number, left in self._left.items():
            left.extend(self._switch.drain(number))

    def left(self) -> Mapping[int, Sequence[bytes]]:
        return self._left


class _ScriptRun:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._expected: dict[int, list[Expect]] = defaultdict(list)
        self._report = ScriptReport()

    def run(self, statements: Sequence[Statement]) -> ScriptReport:
        """Apply all statements, then compare the output with the expectations."""
        for statement in statements:
            self._obey(statement)
        left = self._target.left()
        for port in ports_of(statements):
            self._judge(port, self._expected[port], left.get(port, ()))
        self._report.failures.sort(key=lambda failure: failure.line or 1 << 30)
        return self._report

    def _obey(self, statement: Statement) -> None:
        control = self._target.control
        match statement:
            case PacketLine(_, port, data):
                self._report.packets += 1
                self._target.send(port, data)
            case Expect(_, port):
                self._expected[port].append(statement)
                self._report.checks += 1
            case Add():
                control.add(statement)
            case SetDefault():
                control.set_default(statement)
            case Remove(line):
                control.remove_all(line)
            case CheckCounter():
                self._report.checks += 1
                self._note(statement.line, control.check_counter(statement))
            case ScriptCommand():
                read = control.command(statement)
                if read is not None:
                    self._report.readings.append(Reading(statement.line, read))
            case Wait() | NoPacket():
                pass  # all packets have left by now; only the ports of `ports_of` are checked

    def _note(self, line: int, message: str | None) -> None:
        if message is not None:
            self._report.failures.append(ScriptFailure(line, message))

    def _judge(self, port: int, expected: Sequence[Expect], left: Sequence[bytes]) -> None:
        if any(expect.digits is None for expect in expected):
            return
        for expect, frame in zip(expected, left, strict=False):
            self._note(expect.line, compare(expect, frame))
        for expect in expected[len(left) :]:
            self._note(expect.line, f"a packet is missing at port {port}")
        for frame in left[len(expected) :]:
            self._note(0, f"unexpected packet at port {port}, {_show(frame)}")


def compare(expect: Expect, frame: bytes) -> str | None:
    """Return, as text, how a packet differs from the expectation; None if it does not differ."""
    wanted, got = expect.digits or "", frame.hex().upper()
    where = f"port {expect.port}: got {_show(frame)}"
    if len(got) < len(wanted):
        return f"{where}: {len(frame)} bytes, not {(len(wanted) + 1) // 2}"
    for at, digit in enumerate(wanted):
        if digit not in ("*", got[at]):
            byte = wanted[at // 2 * 2 : at // 2 * 2 + 2]
            return f"{where}: byte {at // 2} is {got[at // 2 * 2 : at // 2 * 2 + 2]}, not {byte}"
    if expect.exact and len(got) > len(wanted):
        return f"{where}: {len(frame)} bytes, not {len(wanted) // 2}"
    return None


def _show(frame: bytes) -> str:
    return frame.hex(" ", 4).upper()
