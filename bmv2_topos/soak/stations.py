"""What workers and fallback servers have in common: packets that wait, and alarms."""

from __future__ import annotations

from collections.abc import Callable

from bmv2_topos.soak.network import Network
from hostlib.core.state import NEVER

BATCH = 16
"""Packets that a core writes at a time."""


class Inbox:
    """Packets that arrived and wait to be looked at: at once, or every so often."""

    def __init__(self, network: Network, coalesce_us: int, serve: Callable[[], None]) -> None:
        self._network = network
        self._coalesce_ns = coalesce_us * 1000
        self._serve = serve
        self._frames: list[bytes] = []

    def deliver(self, frame: bytes) -> None:
        """Take a packet."""
        self._frames.append(frame)
        if not self._coalesce_ns:
            self._serve()
        elif len(self._frames) == 1:
            self._network.at(self._network.now + self._coalesce_ns, self._serve)

    def empty(self) -> list[tuple[bytes, int]]:
        """Return what came, as runs of packets of the same length, each with that length."""
        frames, self._frames = self._frames, []
        if len(frames) == 1:
            return [(frames[0], len(frames[0]))]
        runs: list[tuple[bytes, int]] = []
        start = 0
        for at in range(1, len(frames) + 1):
            if at == len(frames) or len(frames[at]) != len(frames[start]):
                runs.append((b"".join(frames[start:at]), len(frames[start])))
                start = at
        return runs


class Alarm:
    """Serves a station when its core says so; asking for a later time than before costs nothing."""

    def __init__(self, network: Network, serve: Callable[[], None]) -> None:
        self._network = network
        self._serve = serve
        self._at = NEVER

    def set(self, due: int) -> None:
        """Serve at this time, or earlier."""
        if due < self._at:
            self._at = max(due, self._network.now)
            self._network.at(self._at, self._ring, self._at)

    def _ring(self, at: int) -> None:
        if at == self._at:
            self._at = NEVER
            self._serve()
