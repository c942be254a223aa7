"""Cables between switches in Python: see `softswitch.engine.cables`, whose oracle this is."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence

from softswitch.engine.cables import Cable, End
from softswitch.engine.switch import Switch


class TwinCabling:
    """What runtime/engine_cables.c does, between switches each of its own."""

    def __init__(self, switches: Sequence[Switch], cables: Sequence[Cable], ends: Sequence[End]) -> None:
        self._switches = switches
        self._cables = cables
        self._ends = ends
        self._entrances = [(each.target, each.target_port) for each in cables]
        self._entrances += [(end.switch, end.port) for end in ends]
        self._step_us = min((cable.delay_us for cable in cables), default=0)
        self._under_way: list[tuple[int, int, int, bytes]] = []
        """Time, order, entrance and frame: a heap."""
        self._order = 0
        self._now_us = 0

    def close(self) -> None:
        """Do nothing: the switches are somebody else's."""

    def next_event_us(self) -> int | None:
        """See `Cabling.next_event_us`."""
        times = [switch.next_event_us() for switch in self._switches]
        times.append(self._under_way[0][0] if self._under_way else None)
        return min((time for time in times if time is not None), default=None)

    def advance(self, now_us: int, *, one_step: bool = False) -> int:
        """See `Cabling.advance`."""
        if not self._cables:
            self._let_in(now_us)
        while self._cables and self._now_us < now_us:
            # After a pause there is nothing to exchange before the next event.
            due = self.next_event_us()
            if due is None or due >= now_us:
                break
            self._let_in(until := min(now_us, max(self._now_us, due - 1) + self._step_us))
            self._advance_all(until)
            if one_step:
                return until
        self._advance_all(now_us)
        return now_us

    def send(self, end: int, data: bytes, lengths: array[int], now_us: int) -> None:
        """See `Cabling.send`."""
        at = self._ends[end]
        self._switches[at.switch].inject_batch(at.port, data, lengths, now_us)
        self._collect()  # what has crossed the switch at once is to be at the next in time

    def send_later(self, end: int, frame: bytes, times_us: array[int]) -> None:
        """See `Cabling.send_later`."""
        for time_us in times_us:
            self._put(time_us, len(self._cables) + end, frame)

    def discard(self, end: int) -> int:
        """See `Cabling.discard`."""
        return len(self._switches[self._ends[end].switch].drain(self._ends[end].port))

    def _put(self, time_us: int, entrance: int, frame: bytes) -> None:
        self._order += 1
        heapq.heappush(self._under_way, (time_us, self._order, entrance, frame))

    def _let_in(self, now_us: int) -> None:
        """Let enter switches, each at its time, what does so up to `now_us`."""
        under_way = self._under_way
        while under_way and under_way[0][0] <= now_us:
            due, _, entrance, frame = heapq.heappop(under_way)
            frames = [frame]
            while under_way and under_way[0][0] == due and under_way[0][2] == entrance:
                frames.append(heapq.heappop(under_way)[3])
            switch, port = self._entrances[entrance]
            self._switches[switch].inject(port, frames, due)

    def _advance_all(self, now_us: int) -> None:
        for switch in self._switches:
            switch.advance(now_us)
        self._now_us = now_us
        self._collect()

    def _collect(self) -> None:
        """Take what has left the switches towards each other."""
        for number, cable in enumerate(self._cables):
            for time_us, frame in self._switches[cable.source].drain_timed(cable.port):
                self._put(time_us + cable.delay_us, number, frame)
