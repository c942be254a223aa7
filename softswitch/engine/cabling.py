"""Cables between switches, and what drives them: `softswitch.engine.cables` says how."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from softswitch.engine.ports import SwitchError

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

    @property
    def addresses(self) -> Mapping[str, int]:
        """For callers in C: of the ``struct cabling`` under "cabling", and of its functions (engine.h).

        Empty if it is Python.
        """

    def close(self) -> None:
        """Free everything; nothing may be called after it. To be called before the switches are closed."""

    def next_event_us(self) -> int | None:
        """Return the time of the next event; None: never."""

    def advance(self, now_us: int, *, one_step: bool = False) -> int:
        """Let happen what is due up to `now_us`, or the first step of that; return the time then."""

    def send(self, end: int, data: bytes, lengths: array[int], now_us: int) -> None:
        """Let frames enter at an end.

        Args:
            end: The end.
            data: The frames, back to back.
            lengths: Bytes of each, as ``array("I")``.
            now_us: The time, which is the last step's.
        """

    def send_later(self, end: int, frame: bytes, times_us: array[int]) -> None:
        """Let a frame enter at an end at each of these times (``array("Q")``), which are not over yet."""

    def waiting(self) -> Sequence[int]:
        """Return the ends at which frames have arrived since the last call, to be drained at the switch."""

    def discard(self, end: int) -> int:
        """Throw away the frames that wait at an end; return how many there were."""

    def ask(self, entrance: int, asks: bool) -> None:
        """Ask, from now on or no more, for each frame that a cable carries or `send_later` sends."""
