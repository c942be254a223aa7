"""What docs/protocol.md says of the fallback server, in a page of Python, for tests of all else.

Same calls as `hostlib.fallback.core.FallbackCore`. It keeps everything, unless told to forget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib import wire
from hostlib.core.state import NEVER
from hostlib.wire.tree import Tree
from tests.hostlib.virtual_network import endpoints

_START = wire.FRAME_PREFIX_BYTES + wire.INA_BYTES


@dataclass
class Entry:
    header: NDArray[Any]
    sums: dict[int, tuple[int, NDArray[np.int64]]] = field(default_factory=dict)
    """Bitmap and sum by node."""
    raw: dict[int, NDArray[Any]] | None = None
    """Values by rank, once somebody sent raw ones."""
    exponent: int = 0
    flags: int = 0
    result: NDArray[Any] | None = None
    due: int = 0
    wait: int = 0
    sent_at: int = -(10**12)


class ReferenceServer:
    def __init__(
        self,
        jobs: Mapping[int, tuple[Tree, int]],
        lanes: int,
        remind_ns: int = 2_000_000,
        forget_after: int = 0,
    ) -> None:
        """`jobs`: tree and epoch by id. All is forgotten after so many packets, twice as many, and so on."""
        self.jobs = jobs
        self.packet = wire.packet_dtype(lanes, framed=True)
        self.lanes = lanes
        self.entries: dict[tuple[int, int], Entry] = {}
        self.remind_ns = remind_ns
        self.queue: deque[bytes] = deque()
        self.repairs = 0
        self.forget_after = forget_after
        self.received = 0

    def absorb(self, data: NDArray[Any], segment: int, now: int) -> None:
        for start in range(0, len(data), segment):
            self.received += 1
            if self.received == self.forget_after:
                self.entries.clear()
                self.forget_after *= 2
            frame = data[start : start + segment].tobytes()
            if len(frame) in (_START, self.packet.itemsize):  # without lanes it adds zeros
                whole = frame.ljust(self.packet.itemsize, b"\0")
                self._receive(np.frombuffer(whole, self.packet).copy(), now)

    def emit(self, out: NDArray[Any], now: int) -> tuple[int, int]:
        for (job, _), entry in self.entries.items():
            if entry.result is None and entry.due <= now:
                entry.wait = min(2 * entry.wait, 250_000_000)
                entry.due = now + entry.wait
                for node, bitmap in self._missing(self.jobs[job][0], entry):
                    self._short(entry, wire.KIND_REMINDER, node, bitmap)
        if not self.queue:
            return 0, 0
        frame = self.queue.popleft()
        out[: len(frame)] = np.frombuffer(frame, np.uint8)
        return 1, len(frame)

    def next_timeout(self) -> int:
        return min((entry.due for entry in self.entries.values() if entry.result is None), default=NEVER)

    def _receive(self, packets: NDArray[Any], now: int) -> None:
        packet = packets[0]
        job = int(packet["job"])
        tree, epoch = self.jobs[job]
        assert packet["epoch"] == epoch & 0xFF
        key = (job, int(packet["psn"]))
        kind = int(packet["version_kind"]) & 0x0F
        assert kind in (wire.KIND_PARTIAL, wire.KIND_RESULT)
        flags = int(packet["flags"])
        entry = self.entries.get(key)
        if kind == wire.KIND_RESULT:
            if flags & wire.FLAG_RESEND and not packet["lanes"]:
                return  # it only tells that there is a result
            overflowed = flags & (wire.FLAG_OVERFLOW | wire.FLAG_RAW) == wire.FLAG_OVERFLOW
            if entry and entry.result is None and not (overflowed and entry.raw is not None):
                self._finish(
                    entry, packets["values"], int(packet["exponent"]), flags & ~wire.FLAG_RESEND, now
                )
            return
        if entry is None:
            entry = self.entries[key] = Entry(packets.copy(), due=now + self.remind_ns, wait=self.remind_ns)
        node, bitmap = int(packet["node"]), int(packet["bitmap"])
        assert packet["fan_in"] == tree.fan_in(node)
        if entry.result is not None:
            overflowed = (
                entry.result["flags"][0] & wire.FLAG_OVERFLOW and not entry.result["flags"][0] & wire.FLAG_RAW
            )
            if not (flags & wire.FLAG_RAW and overflowed):
                self._send_result(entry, now)
                return
            entry.result, entry.sums, entry.flags = None, {}, 0
        if entry.header["tag"] != packet["tag"]:
            self._finish(entry, packets["values"], 0, wire.FLAG_DISAGREE, now)
            return
        entry.exponent = max(entry.exponent, int(packet["exponent"]))
        if flags & wire.FLAG_RAW:
            self._take_raw(entry, packets, tree, now)
        elif entry.raw is not None:
            self._send(entry, packets["values"], 0, wire.FLAG_OVERFLOW)
            return
        else:
            entry.flags |= flags & (wire.STICKY_FLAGS | wire.FLAG_BYPASS)
            self._merge(entry, tree, node, bitmap, packets["values"][0].astype(np.int64), now)
        if flags & wire.FLAG_QUERY and entry.result is None:
            while node and node not in entry.sums and entry.raw is None:
                node = tree.parent(-node)[0]
            self._short(entry, wire.KIND_STATUS, node, self._bitmap(tree, entry, node))

    def _merge(
        self, entry: Entry, tree: Tree, node: int, bitmap: int, values: NDArray[np.int64], now: int
    ) -> None:
        above = node
        while above:
            above, bit = tree.parent(-above)
            if entry.sums.get(above, (0,))[0] & bit:
                return
        seen, sums = entry.sums.get(node, (0, np.zeros(self.lanes, np.int64)))
        if seen & bitmap:
            return
        sums = sums + values
        if (np.abs(sums + 0.5) > 2**31).any():
            entry.flags |= wire.FLAG_OVERFLOW
        seen, sums = seen | bitmap, sums.astype(np.int32).astype(np.int64)
        if seen != tree.full_bitmap(node):
            entry.sums[node] = seen, sums
        elif node == 0:
            self._finish(entry, sums[None, :], entry.exponent, entry.flags, now)
        else:
            entry.sums.pop(node, None)
            self._merge(entry, tree, *tree.parent(-node), sums, now)

    def _take_raw(self, entry: Entry, packets: NDArray[Any], tree: Tree, now: int) -> None:
        packet = packets[0]
        if entry.raw is None:
            entry.raw = {}
            self.repairs += 1
            entry.exponent, entry.flags = (
                int(packet["exponent"]),
                entry.flags & (wire.FLAG_ECN | wire.FLAG_COLLISION),
            )
        rank = tree.nodes[int(packet["node"])][int(packet["bitmap"]).bit_length() - 1]
        assert rank >= 0
        values = packets["values"][0].astype(np.int32)
        is_int = packet["valid"] & wire.VALID_INT32
        entry.raw.setdefault(
            rank, values.astype(np.int64) if is_int else values.view(np.float32).astype(np.float64)
        )
        if len(entry.raw) < tree.size:
            return
        with np.errstate(all="ignore"):
            total = entry.raw[0]
            for rank in range(1, tree.size):
                total = total + entry.raw[rank]
            flags = entry.flags | wire.FLAG_RAW
            if is_int:
                flags |= wire.FLAG_OVERFLOW if (total != total.astype(np.int32)).any() else 0
                result = total.astype(np.int32)
            else:
                result = total.astype(np.float32).view(np.int32)
        self._finish(entry, result[None, :], entry.exponent, flags, now)

    def _finish(self, entry: Entry, values: NDArray[Any], exponent: int, flags: int, now: int) -> None:
        entry.result = entry.header.copy()
        entry.result["values"], entry.result["exponent"], entry.result["flags"] = values, exponent, flags
        entry.sums, entry.raw = {}, None
        entry.sent_at = -(10**12)
        self._send_result(entry, now)

    def _send_result(self, entry: Entry, now: int) -> None:
        assert entry.result is not None
        if now - entry.sent_at >= self.remind_ns:
            entry.sent_at = now
            result = entry.result
            self._send(entry, result["values"], int(result["exponent"][0]), int(result["flags"][0]))

    def _send(self, entry: Entry, values: NDArray[Any], exponent: int, flags: int) -> None:
        packet = self._addressed(entry, wire.KIND_RESULT, 0)
        packet["values"], packet["exponent"], packet["flags"] = values, exponent, flags
        packet["bitmap"] = self.jobs[int(packet["job"][0])][0].result_bitmap
        packet["lanes"] = packet["valid"] = self.lanes
        self.queue.append(packet.tobytes())

    def _short(self, entry: Entry, kind: int, node: int, bitmap: int) -> None:
        packet = self._addressed(entry, kind, node)
        packet["bitmap"], packet["flags"] = bitmap, 0
        packet["lanes"] = packet["valid"] = 0
        if kind == wire.KIND_REMINDER:
            packet["target"] = wire.TARGET_ALL
        self.queue.append(packet.tobytes()[:_START])

    def _addressed(self, entry: Entry, kind: int, node: int) -> NDArray[Any]:
        packet = entry.header.copy()
        lanes = self.lanes if kind == wire.KIND_RESULT else 0
        prefix = wire.frame_prefix(endpoints(200), wire.INA_BYTES + 4 * lanes)
        packet.view(np.uint8)[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        packet["version_kind"], packet["node"] = wire.version_kind(kind), node
        packet["fan_in"] = self.jobs[int(packet["job"][0])][0].fan_in(node)
        return packet

    def _bitmap(self, tree: Tree, entry: Entry, node: int) -> int:
        if entry.raw is None:
            return entry.sums.get(node, (0,))[0]
        return sum(1 << bit for bit, child in enumerate(tree.nodes[node]) if child in entry.raw)

    def _missing(self, tree: Tree, entry: Entry) -> list[tuple[int, int]]:
        """Return node and missing bits of every incomplete node whose sum is not above yet."""
        found, stack = [], [0]
        while stack:
            node = stack.pop()
            bitmap = self._bitmap(tree, entry, node)
            missing = tree.full_bitmap(node) & ~bitmap
            found.append((node, missing))
            stack += [-c for bit, c in enumerate(tree.nodes[node]) if c < 0 and missing >> bit & 1]
        return [(node, missing) for node, missing in found if missing]
