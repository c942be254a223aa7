"""One digest that a controller has subscribed to: its lists, and their acknowledgements (section 16.3).

No clock here and no stream: times are parameters, in nanoseconds, and lists are returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from p4src.messages import p4runtime_pb2 as p4

MAX_WAITING = 4096
"""Digests of one list at most, whatever its subscription says."""


@dataclass(slots=True)
class Subscription:
    """One digest that a controller has asked for: what waits to be sent, or to be acknowledged."""

    entry: Any
    waiting: list[Any] = field(default_factory=list)
    since_ns: int = 0
    sent: dict[int, tuple[int, frozenset[bytes]]] = field(default_factory=dict)
    """Time and data of lists that are not acknowledged."""
    next_list: int = 1

    def offer(self, data: Any, now_ns: int) -> None:
        """Take a digest that the program has sent, unless the controller is about to know it."""
        key = data.SerializeToString(deterministic=True)
        if any(key in known for _, known in self.sent.values()):
            return
        if len(self.waiting) >= MAX_WAITING or (self._suppresses() and data in self.waiting):
            return
        if not self.waiting:
            self.since_ns = now_ns
        self.waiting.append(data)

    def due(self, now_ns: int) -> Iterator[Any]:
        """Yield the lists that are full, or have waited as long as they may."""
        config = self.entry.config
        limit = config.ack_timeout_ns
        self.sent = {n: (at, known) for n, (at, known) in self.sent.items() if now_ns - at < limit}
        most = min(config.max_list_size or MAX_WAITING, MAX_WAITING)
        while len(self.waiting) >= most or (self.waiting and now_ns - self.since_ns >= config.max_timeout_ns):
            yield self._send(self.waiting[:most], now_ns)
            del self.waiting[:most]
            self.since_ns = now_ns

    def _suppresses(self) -> bool:
        return bool(self.entry.config.ack_timeout_ns > 0)

    def _send(self, data: list[Any], now_ns: int) -> Any:
        number = self.next_list
        self.next_list += 1
        if self._suppresses():
            known = frozenset(item.SerializeToString(deterministic=True) for item in data)
            self.sent[number] = (now_ns, known)
        return p4.DigestList(digest_id=self.entry.digest_id, list_id=number, data=data, timestamp=now_ns)
