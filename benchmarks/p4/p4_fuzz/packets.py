"""Frames through programs that are built with the sanitizers, which must stay silent.

A case is one program on a switch in virtual time, with entries, groups and sessions drawn at random, and some
hundred frames: the program's script's, if it has one, with bytes changed, removed and added, and random
bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.p4.p4_fuzz.programs import REFUSED, SIZES, program_files
from softswitch.compiler import CompileError, compile_file, ir
from softswitch.engine.build import build
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.pipeline import PipelineError
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.stf.control import Control
from softswitch.stf.script import PacketLine, Statement, parse_script

PORTS = (*range(8), 510)
CPU_PORT = 510
BATCHES = 30
MOST_FRAMES = 16
LONGEST = 9300
"""Bytes: more than the switch accepts."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A program, its object with sanitizers, and its script."""

    program: ir.Program
    shared_object: Path
    script: tuple[Statement, ...]

    @property
    def frames(self) -> list[bytes]:
        """The frames that the script sends."""
        return [statement.data for statement in self.script if isinstance(statement, PacketLine)]


def cases(seed: int, corpus: Path | None) -> Callable[[int], str]:
    """Return a function that tries one case by its number and returns its outcome. It raises defects."""
    paths = program_files(corpus)
    subject_of = cache(_subject)

    def case(number: int) -> str:
        path = paths[number % len(paths)]
        subject = subject_of(path)
        if subject is None:
            return REFUSED
        try:
            return Run(subject, random.Random(f"{seed}/{number}")).outcome()
        except Exception as error:
            error.add_note(f"the program: {path}")
            raise

    return case


def _subject(path: Path) -> Subject | None:
    try:
        program = compile_file(path, defines=SIZES)
    except CompileError:
        return None
    script = path.with_name("packets.stf")
    statements = parse_script(script.read_text()) if script.exists() else []
    return Subject(program, build(program, sanitize=True), tuple(statements))


class Run:
    """One case."""

    def __init__(self, subject: Subject, rng: random.Random) -> None:
        self._subject = subject
        self._rng = rng
        self._pipeline = CompiledPipeline(subject.program, subject.shared_object, seed=rng.getrandbits(32))

    def outcome(self) -> str:
        """Send all frames, and read all counters and registers."""
        ports = {port: MemoryPort(cpu=port == CPU_PORT) for port in PORTS}
        with Switch(ports, seed=self._rng.getrandbits(32)) as switch:
            switch.load(self._pipeline)
            self._set_up(switch)
            left = sum(self._sent(switch, now_us) for now_us in range(1000, 1000 * BATCHES, 1000))
            self._read_all()
        return "frames left" if left else "nothing left"

    def _set_up(self, switch: Switch) -> None:
        if self._rng.random() < 0.7:
            Control(self._subject.program, self._pipeline, switch).configure(self._subject.script)
        for number in range(4):
            members = [(self._rng.choice((*PORTS, 99)), self._rng.randrange(9)) for _ in range(number)]
            switch.set_multicast_group(number + 1, members)
            switch.set_clone_session(number + 1, members, self._rng.choice((0, 0, 1, 40)))
        for table in self._subject.program.tables.values():
            for _ in range(self._rng.randrange(6)):
                self._insert(table)

    def _insert(self, table: ir.Table) -> None:
        patterns = tuple(self._pattern(key) for key in table.keys)
        entry = ir.ConstEntry(patterns, self._invocation(table), self._rng.randrange(1, 9))
        with suppress(PipelineError):
            self._pipeline.insert(table.name, entry)

    def _invocation(self, table: ir.Table) -> ir.Invocation:
        params = self._subject.program.actions[name := self._rng.choice(table.actions).action].params
        return ir.Invocation(name, tuple(self._number(ir.width_of(param.type)) for param in params))

    def _pattern(self, key: ir.Key) -> ir.Pattern:
        width = ir.width_of(key.expr.type)
        value, full = self._number(width), (1 << width) - 1
        match key.match:
            case "lpm":
                mask = full ^ (full >> self._rng.randint(0, width))
                return ir.Pattern("mask", value & mask, mask)
            case "ternary":
                mask = self._number(width)
                return ir.Pattern("mask", value & mask, mask)
            case "range":
                return ir.Pattern("range", value, self._rng.randint(value, full))
            case "optional" if self._rng.random() < 0.3:
                return ir.Pattern("any")
        return ir.Pattern("exact", value)

    def _number(self, width: int) -> int:
        few = min(width, self._rng.choice((1, 3, width)))
        return self._rng.choice((0, (1 << width) - 1, *[self._rng.getrandbits(few)] * 4))

    def _sent(self, switch: Switch, now_us: int) -> int:
        """Deliver some frames, and return the number that left."""
        count = self._rng.randrange(MOST_FRAMES)
        switch.inject(self._rng.choice(PORTS), [self._frame() for _ in range(count)], now_us)
        switch.advance(now_us)
        return sum(len(switch.drain(port)) for port in PORTS)

    def _frame(self) -> bytes:
        rng = self._rng
        known = self._subject.frames
        frame = bytearray(
            rng.choice(known) if known and rng.random() < 0.8 else rng.randbytes(rng.randrange(200))
        )
        for _ in range(rng.choice((0, 1, 1, 2, 8))):
            if frame:
                frame[rng.randrange(len(frame))] = rng.choice((0, 1, 255, rng.randrange(256)))
        match rng.randrange(12):
            case 0:
                del frame[rng.randrange(len(frame) + 1) :]
            case 1:
                frame += rng.randbytes(rng.randrange(100))
            case 2 if rng.random() < 0.1:
                frame += bytes(rng.randrange(LONGEST))
        return bytes(frame)

    def _read_all(self) -> None:
        program, pipeline = self._subject.program, self._pipeline
        for register in program.registers.values():
            pipeline.read_register(register.name, self._rng.randrange(register.size))
        for counter in program.counters.values():
            if counter.table is None:
                pipeline.read_counters(counter.name)
        for table in program.tables.values():
            for entry in () if table.const_entries else pipeline.entries(table.name):
                pipeline.delete(table.name, entry)
        pipeline.take_digests()
