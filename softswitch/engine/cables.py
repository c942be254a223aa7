"""Several switches in virtual time, and the cables between their memory ports.

A port's impairments are its link: rate, queue and loss are those of the port that sends. A cable adds its
delay, for what leaves one switch has to enter another at the right time. Nothing that leaves a switch now can
touch another one sooner than the shortest delay of a cable. So all switches advance by steps of at most that,
one after the other, and what they sent each other is exchanged in between: no packet comes too late, to the
microsecond. Of what enters at the same microsecond, first what was sent in an earlier step, then what left an
earlier switch of the list by an earlier port.

Ports without a cable are *ends*: hosts are there, which send and receive. Nothing else lets frames enter.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from softswitch.engine.ports import MemoryPort, SwitchError
from softswitch.engine.switch import Switch

Survives = Callable[[int], bool]
"""Asked for each frame that goes to an entrance for which that is wanted; False: the frame is lost."""


@dataclass(frozen=True, slots=True)
class Cable:
    """One direction: what leaves a switch by a port enters another. Switches are numbered."""

    source: int
    port: int
    target: int
    target_port: int
    delay_us: int

    def __post_init__(self) -> None:
        if self.delay_us < 1:
            raise SwitchError(f"a cable's delay is {self.delay_us} µs, must be 1 or more")


@dataclass(frozen=True, slots=True)
class End:
    """A port without a cable."""

    switch: int
    port: int


class Cabling(Protocol):
    """Switches, their cables and ends. Times are microseconds.

    An *entrance* is a cable's number or, behind those of all cables, an end's.
    """

    def close(self) -> None:
        """Free everything; nothing may be called after it. To be called before the switches are closed."""

    def next_event_us(self) -> int | None:
        """Return the time of the next event; None: never."""

    def advance(self, now_us: int, *, one_step: bool = False) -> int:
        """Let happen what is due up to `now_us`, or the first step of that; return the time then."""

    def send(self, end: int, data: bytes, lengths: array[int], now_us: int) -> None:
        """Let frames enter at an end, now: `data` has them back to back, `lengths` the bytes of each."""

    def send_later(self, end: int, frame: bytes, times_us: array[int]) -> None:
        """Let a frame enter at an end at each of these times (``array("Q")``), which are not over yet."""

    def waiting(self) -> Sequence[int]:
        """Return the ends at which frames have arrived since the last call, to be drained at the switch."""

    def discard(self, end: int) -> int:
        """Throw away the frames that wait at an end; return how many there were."""

    def ask(self, entrance: int, asks: bool) -> None:
        """Ask, from now on or no more, for each frame that a cable carries or `send_later` sends."""


def connect(
    switches: Sequence[Switch], cables: Sequence[Cable], ends: Sequence[End], survives: Survives
) -> Cabling:
    """Connect switches that stand at time 0.

    Args:
        switches: The switches, all of one engine, with memory ports that are not the CPU's.
        cables: The cables, those of an earlier switch first.
        ends: The ports at which hosts are.
        survives: Asked where `Cabling.ask` wants it.

    Raises:
        SwitchError: a switch has a port of another kind, or the cables are in another order.
    """
    from softswitch.engine.native import NativeEngine
    from softswitch.engine.native_cables import NativeCabling
    from softswitch.engine.python_cables import PythonCabling

    for number, switch in enumerate(switches):
        for port, spec in switch.ports.items():
            if not isinstance(spec, MemoryPort) or spec.cpu:
                raise SwitchError(f"port {port} of switch {number} is not a memory port for frames")
    if any(after.source < before.source for before, after in itertools.pairwise(cables)):
        raise SwitchError("cables must come in the order of the switches that they lead from")
    engines = [switch.engine for switch in switches]
    natives = [engine for engine in engines if isinstance(engine, NativeEngine)]
    if len(natives) == len(engines):
        return NativeCabling(natives, cables, ends, survives)
    return PythonCabling(switches, cables, ends, survives)
