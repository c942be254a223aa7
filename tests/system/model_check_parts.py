"""Parts of a small network as pure functions, for exploring all that can happen to them.

A part is the real thing: a switch with the compiled program, a worker's window, a fallback server's core.
Here each becomes a finite automaton that is found out step by step: its states are numbered, and a step (a
state and a packet or a time-out) is carried out by the real part once, after putting it into that state, and
remembered. Two states are one if they differ in nothing but clocks and counters: a part's clock goes on only
when it is told that a time-out is over.
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bmv2_topos.soak.recovery import unfinished_packets
from bmv2_topos.soak.testbed import MOVE_PREFIX, SLOT_PREFIX, RunningTestbed
from controller.switches.jobs import change_row, job_row
from controller.switches.model import Admission
from hostlib import wire
from hostlib.core.state import NEVER, Chain, CoreStruct
from hostlib.core.window import Exchange, Window
from tests.twins.fallback_core import NumpyCore
from tests.twins.fallback_store import Phase

Packets = tuple[tuple[str, int | None, bytes], ...]
"""What a step sends: to whom, to which port of it, the bytes."""

PASS = b"pass"
"""Instead of a packet: longer than any time-out goes by, and nothing is due."""
FIRE = b"fire"
"""Instead of a packet: the next time-out is over."""
FORGET = b"forget"
"""Instead of a packet: a fallback server is started again."""
CHANGE = b"change"
"""Instead of a packet: the controller writes the rows of a switch's jobs anew."""


class Part(Protocol):
    """The real thing, which can be put into a state that it was in before."""

    def save(self) -> tuple[Hashable, Any]:
        """Return what tells its state from others, and what `restore` needs."""
        ...

    def restore(self, saved: Any) -> None:
        """Be in that state."""
        ...

    def step(self, port: int | None, packet: bytes) -> Packets:
        """Take a packet, or `PASS` or `FIRE`; return what it sends."""
        ...


class Automaton:
    """A part, as far as it is known."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._numbers: dict[Hashable, int] = {}
        self._saved: list[Any] = []
        self._steps: dict[tuple[int, int | None, bytes], tuple[int, Packets]] = {}
        self._at = self._number()
        self.first = self._at

    @property
    def states(self) -> int:
        """How many it has been in."""
        return len(self._saved)

    @property
    def steps(self) -> int:
        """How many the real part has made."""
        return len(self._steps)

    def step(self, state: int, port: int | None, packet: bytes) -> tuple[int, Packets]:
        """Return the state after a step, and what it sends."""
        key = state, port, packet
        known = self._steps.get(key)
        if known is None:
            self.enter(state)
            sent = self.part.step(port, packet)
            self._at = self._number()
            known = self._steps[key] = self._at, sent
        return known

    def enter(self, state: int) -> None:
        """Put the part into a state."""
        if state != self._at:
            self.part.restore(self._saved[state])
            self._at = state

    def _number(self) -> int:
        key, saved = self.part.save()
        number = self._numbers.setdefault(key, len(self._saved))
        if number == len(self._saved):
            self._saved.append(saved)
        else:
            self.part.restore(self._saved[number])
        return number


class SwitchPart:
    """A switch of a testbed with the jobs on it.

    Its clock stands still, and nothing ages, unless it is said to age: then all that is in its slots is too
    old as soon as longer than any time-out has gone by. (For that the slots are put back, not the clock on:
    only the difference counts, and so there are no more states than needed.)
    """

    def __init__(
        self,
        built: RunningTestbed,
        name: str,
        slots: range,
        *,
        change: Callable[[], None],
        ages: bool = False,
    ) -> None:
        """`change`: write the jobs' rows at this switch anew, once."""
        self._pipeline = built.pipelines[name]
        self._switch = built.switches[name]
        self._wires = built.wires[name]
        self._controller = built.fleet.controllers[name]
        self._target = built.fleet.targets[name]
        self._jobs = tuple(built.fleet.jobs)
        self._change = change
        self._slots = slots
        self._ages = ages
        program = built.pool.program
        moves = [name for name in program.registers if name.startswith(MOVE_PREFIX)]
        rows = range(1, len(self._jobs) + 1)
        self._cells = [(register, row) for register in moves for row in rows]
        self._cells += [(name, index) for name in program.registers if name not in moves for index in slots]
        self._clock_us = built.pool.next_clock_us(_NOW_US)
        self._values: tuple[int, ...] = ()
        self._rows = self._read_rows()

    def save(self) -> tuple[Hashable, Any]:
        read = self._pipeline.read_register
        self._values = tuple(read(register, index) for register, index in self._cells)
        saved = self._values, self._rows
        return saved, saved

    def restore(self, saved: Any) -> None:
        values, rows = saved
        for (register, index), old, new in zip(self._cells, self._values, values, strict=True):
            if old != new:
                self._pipeline.write_register(register, index, new)
        for old, new in zip(self._rows, rows, strict=True):
            if old != new:
                self._target.write("MODIFY", [job_row(new)])
                self._target.write("DELETE", [change_row(old)] if old.change else [])
                self._target.write("INSERT", [change_row(new)] if new.change else [])
        self._values, self._rows = saved

    def step(self, port: int | None, packet: bytes) -> Packets:
        if packet == CHANGE:
            self._change()
            self._rows = self._read_rows()
            return ()
        if packet == PASS and self._ages:
            for index in self._slots:
                self._pipeline.write_register(TOUCHED, index, 0)
        if packet in (PASS, FIRE):
            return ()
        assert port is not None
        self._switch.inject(port, [packet], self._clock_us)
        return tuple(
            (wire.to, wire.port, frame)
            for out, wire in self._wires.items()
            for frame in self._switch.drain(out)
        )

    def _read_rows(self) -> tuple[Admission, ...]:
        jobs = self._controller.jobs()
        return tuple(jobs[job] for job in self._jobs)


_NOW_US = 1 << 30
"""Of a switch's clock: longer than anything may age."""
TOUCHED = f"{SLOT_PREFIX}touched"
"""When a slot was last added to."""
_LONG_NS = 60_000_000_000
_ARRAYS = (
    "index",
    "sent_at",
    "status",
    "exponent",
    "ready_ring",
    "resend_ring",
    "marks",
    "wanted",
    "answers",
    "kept",
    "answer_ring",
)
_TIMELESS = (
    *(
        "base",
        "tag",
        "ready_head",
        "ready_count",
        "resend_head",
        "resend_count",
        "answer_head",
        "answer_count",
    ),
    *("completed", "in_flight", "oldest", "limit", "claims", "overflow_index", "disagree_index"),
    *("data_packets", "misfits"),
)
"""Fields of the core that are neither constant, nor clocks, nor counters."""


class WorkerPart:
    """A worker's window with one collective under way."""

    def __init__(
        self,
        window: Window,
        source: NDArray[Any],
        expected: NDArray[Any],
        switch: str,
        port: int,
        *,
        priority: int,
        target: int = wire.TARGET_ALL,
        foreseen: bytes = b"",
    ) -> None:
        """`foreseen`: an earlier sum's exponents, from which this one's are foreseen."""
        self.expected = expected
        self._window = window
        self._switch, self._port = switch, port
        self._now = 1_000_000_000
        self.output = np.zeros_like(source)
        self._size = int(window.state.struct.packet_bytes)
        self._out = np.zeros(64 * self._size, np.uint8)
        series = [("sum", len(source))] if foreseen else []
        window._foresight.learn([("sum", len(foreseen))], foreseen, all_fit=True)
        exchange = Exchange(source, self.output, tag=0x600D, priority=priority, target=target, series=series)
        window.begin(exchange, self._now)
        self._finished = False
        self.sent_first = self._emit()

    @property
    def complete(self) -> bool:
        """Whether it has all results."""
        return self._finished

    @property
    def exact(self) -> bool:
        """Whether what it has is the sum."""
        return bool((self.output == self.expected).all())

    @property
    def outstanding(self) -> frozenset[tuple[int, int]]:
        """The packets whose result it lacks: job and number."""
        window = self._window
        return frozenset((window.settings.job, index) for index in unfinished_packets(window))

    def save(self) -> tuple[Hashable, Any]:
        state = self._window.state
        arrays = tuple(getattr(state, name).tobytes() for name in _ARRAYS)
        exponents = tuple(
            None if array is None else array.copy() for array in (state.found, state.foreseen, state.picked)
        )
        flight = state.status & int(Chain.FLIGHT) != 0
        key = (
            *(getattr(state.struct, name) for name in _TIMELESS),
            *(data for name, data in zip(_ARRAYS, arrays, strict=True) if name != "sent_at"),
            tuple(np.argsort(state.sent_at[flight], kind="stable").tolist()),
            self._window.next_timeout() != NEVER,
            self.output.tobytes(),
            *(None if array is None else array.tobytes() for array in exponents),
            self._finished,
        )
        driver = self._window._next_psn, self._finished, self._now
        return key, (bytes(state.struct), arrays, exponents, self.output.tobytes(), driver)

    def restore(self, saved: Any) -> None:
        struct, arrays, exponents, output, driver = saved
        self._window._next_psn, self._finished, self._now = driver
        state = self._window.state
        ctypes.memmove(ctypes.byref(state.struct), struct, ctypes.sizeof(CoreStruct))
        state.set_exponents(*(None if array is None else array.copy() for array in exponents))
        for name, data in zip(_ARRAYS, arrays, strict=True):
            array = getattr(state, name)
            array[...] = np.frombuffer(data, array.dtype).reshape(array.shape)
        self.output[...] = np.frombuffer(output, self.output.dtype)

    def step(self, port: int | None, packet: bytes) -> Packets:
        if packet == FIRE:
            if self.complete or self._window.next_timeout() == NEVER:
                return ()
            self._now = max(self._now, self._window.next_timeout())
            self._window.on_timeout(self._now)
        elif packet != PASS:
            self._window.absorb(np.frombuffer(packet, np.uint8), len(packet), self._now)
        self._finished = self._finished or (self._window.complete and self._window.finish(self._now))
        return self._emit()

    def _emit(self) -> Packets:
        sent: list[tuple[str, int | None, bytes]] = []
        while count := self._window.emit(self._out, self._now):
            size = self._window.emitted_bytes
            data = self._out[: count * size].tobytes()
            sent += [(self._switch, self._port, data[at : at + size]) for at in range(0, len(data), size)]
        return tuple(sent)


class ServerPart:
    """A fallback server."""

    def __init__(self, core: NumpyCore, switch: str, port: int) -> None:
        self._core = core
        self._fresh = pickle.dumps(core)
        self._switch, self._port = switch, port
        self._now = 1_000_000_000
        self._out = np.zeros(64 * core.settings.result_bytes, np.uint8)

    def save(self) -> tuple[Hashable, Any]:
        return (*map(self._of_job, self._core._store.jobs.values()),), (pickle.dumps(self._core), self._now)

    def restore(self, saved: Any) -> None:
        data, self._now = saved
        self._core = pickle.loads(data)

    def step(self, port: int | None, packet: bytes) -> Packets:
        if packet == FIRE:
            if self._core.next_timeout() == NEVER:
                return ()
            self._now = max(self._now, self._core.next_timeout())
        elif packet == PASS:
            if self._core.next_timeout() != NEVER:
                return ()
            self._now += _LONG_NS
        elif packet == FORGET:
            self._core = pickle.loads(self._fresh)
        else:
            self._core.absorb(np.frombuffer(packet, np.uint8), len(packet), self._now)
        sent: list[tuple[str, int | None, bytes]] = []
        while True:
            count, size = self._core.emit(self._out, self._now)
            if not count:
                return tuple(sent)
            data = self._out[: count * size].tobytes()
            sent += [(self._switch, self._port, data[at : at + size]) for at in range(0, len(data), size)]

    def _of_job(self, job: Any) -> Hashable:
        """Return what is known of a job but when it came; of results, whether they were sent just now."""
        return job.front, tuple(
            (
                *(entry.psn, entry.tag, entry.valid, entry.exponent, entry.flags, entry.phase, entry.asked),
                tuple(
                    (key, piece.bitmap, piece.lanes.tobytes()) for key, piece in sorted(entry.pieces.items())
                ),
                entry.phase is Phase.FINISHED and self._now - entry.sent_at < job.remind_ns,
            )
            for _, entry in sorted(job.entries.items())
        )
