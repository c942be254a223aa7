"""Workers and a switch in virtual time: the same run for the same seed.

The entries that SwitchML's controller writes for a session of workers over UDP, with packets of 256 bytes.

They are the entries of its `udp_receiver`, `udp_sender`, `next_step_selector` and `pre`, for one session:
its multicast group is 0, as there.

A worker that speaks SwitchML's format over UDP: bytes and a clock in, frames out.

A tensor goes out in chunks of 64 numbers of 32 bits. Chunk c has slot c % window of the switch, in the set
c // window % 2 of the two that each slot has, so that a slot's last results are there while the next are
summed. The result of a chunk frees its slot for the next one; without a result a chunk is sent again.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.p4.switchml.client import Client, Match
from hostlib.wire import ipv4_checksum
from softswitch.bfrt import BfrtService
from softswitch.engine.cache import preprocess_once
from softswitch.engine.ports import Impairments, MemoryPort, PortImpairments
from softswitch.engine.switch import Switch
from softswitch.p4runtime import serve

SWITCH_MAC, SWITCH_IP = 0x001122334455, 0x0A0000FE
UDP_PORT, UDP_MASK = 0xBEE0, 0xFFF0
RECIRCULATION = 68
_MTU_256 = 1
_CONSUME0, _HARVEST7 = 0x4, 0xF
_FIRST, _LAST = 0, 1
_WORKER_OVER_UDP = 1


@dataclass(frozen=True, slots=True)
class Host:
    """A worker's place: its rank, its port of the switch, and its addresses."""

    rank: int
    port: int
    mac: int
    ip: int


def hosts(workers: int) -> list[Host]:
    """Return workers at every fourth port, as in SwitchML's example of a configuration."""
    return [Host(rank, 4 * rank, 0x001122330000 + rank, 0x0A000001 + rank) for rank in range(workers)]


def open_session(client: Client, workers: Sequence[Host]) -> None:
    """Write a session's entries into a switch that has none."""
    tables = client.tables
    addresses = {"switch_mac": SWITCH_MAC, "switch_ip": SWITCH_IP}
    sender = "Egress.udp_sender"
    tables[f"pipe.{sender}.switch_mac_and_ip"].set_default(addresses, f"{sender}.set_switch_mac_and_ip")
    for host in workers:
        _admit(client, host, len(workers))
        tables["$pre.node"].add(
            {"$MULTICAST_NODE_ID": host.rank}, {"$MULTICAST_RID": host.rank, "$DEV_PORT": [host.port]}
        )
    ranks = [host.rank for host in workers]
    tables["$pre.mgid"].add(
        {"$MGID": 0},
        {
            "$MULTICAST_NODE_ID": ranks,
            "$MULTICAST_NODE_L1_XID_VALID": [True] * len(ranks),
            "$MULTICAST_NODE_L1_XID": ranks,
        },
    )
    _steps(client)


def _admit(client: Client, host: Host, workers: int) -> None:
    receiver, sender = "Ingress.udp_receiver", "Egress.udp_sender"
    key: dict[str, Match] = {
        "$MATCH_PRIORITY": 10,
        "ig_intr_md.ingress_port": None,
        "hdr.ethernet.src_addr": host.mac,
        "hdr.ethernet.dst_addr": SWITCH_MAC,
        "hdr.ipv4.src_addr": host.ip,
        "hdr.ipv4.dst_addr": SWITCH_IP,
        "hdr.udp.dst_port": (UDP_PORT, UDP_MASK),
        "ig_prsr_md.parser_err": None,
    }
    worker = {"worker_type": _WORKER_OVER_UDP, "worker_id": host.rank, "worker_bitmap": 1 << host.rank}
    whole = {"mgid": 0, "num_workers": workers, **worker}
    client.tables[f"pipe.{receiver}.receive_udp"].add(key, whole, f"{receiver}.set_bitmap")
    to = {"eth_dst_addr": host.mac, "ip_dst_addr": host.ip}
    client.tables[f"pipe.{sender}.dst_addr"].add(
        {"eg_md.switchml_md.worker_id": host.rank}, to, f"{sender}.set_dst_addr"
    )


def _steps(client: Client) -> None:
    """Write the next step of a packet, by its type, its place among its slot's packets, and repetition."""
    size, kind, place, seen, selector = (
        *("packet_size", "packet_type", "first_last_flag", "map_result"),
        "Ingress.next_step_selector",
    )
    consume, harvest = {size: _MTU_256, kind: _CONSUME0}, {kind: _HARVEST7}
    rows: list[tuple[dict[str, int], str]] = [
        ({**consume, place: _LAST}, "recirculate_for_HARVEST7"),
        ({**consume, seen: 0}, "finish_consume"),
        ({**consume, place: _FIRST}, "recirculate_for_HARVEST7"),
        (consume, "drop"),
        ({**harvest, place: _LAST, seen: 0}, "broadcast"),
        ({**harvest, place: _FIRST, seen: 0}, "drop"),
        ({**harvest, place: _FIRST}, "retransmit"),
        (harvest, "drop"),
    ]
    names = (size, "worker_id", kind, place, seen)
    for priority, (row, action) in enumerate(rows):
        key: dict[str, Match] = {f"ig_md.switchml_md.{name}": row.get(name) for name in names}
        data = {"recirc_port": RECIRCULATION} if action.startswith("recirculate") else {}
        client.tables[f"pipe.{selector}.next_step"].add(
            {"$MATCH_PRIORITY": priority, **key}, data, f"{selector}.{action}"
        )


VALUES = 64
_HEADERS = struct.Struct("!6s6sH BBHHHBBHII HHHH BBIHbb")
FRAME_BYTES = _HEADERS.size + 4 * VALUES
_IPV4_BYTES = FRAME_BYTES - 14
_MTU_256, _JOB, _SET = 1, 0, 1 << 15
_CHUNK, _POOL = struct.Struct("!I"), struct.Struct("!H")
_CHUNK_AT = 14 + 20 + 8 + 2
_RESULT = 1


@dataclass(slots=True)
class Pending:
    """A chunk without a result, and the time at which it is sent again, in microseconds."""

    frame: bytes
    again_us: int


class Worker:
    """One worker's allreduce of `values`, int32, with at most `window` chunks under way.

    Args:
        host: Its place.
        values: Its contribution; `sums` is a copy with the sums.
        window: Chunks under way at a time; the switch gives each two cells of all its registers.
        patience_us: Time without a result after which a chunk is sent again.
    """

    def __init__(self, host: Host, values: NDArray[np.int32], window: int, patience_us: int) -> None:
        self._host = host
        self._chunks = -(-len(values) // VALUES)
        padded = np.zeros(self._chunks * VALUES, np.int32)
        padded[: len(values)] = values
        self._values = padded.astype(">i4").reshape(-1, VALUES)
        self._results = np.zeros_like(self._values)
        self._length = len(values)
        self._window = window
        self._patience_us = patience_us
        self._pending: dict[int, Pending] = {}
        self.done = 0
        """Chunks with a result."""
        self.sent = 0
        self.resent = 0

    @property
    def sums(self) -> NDArray[np.int32]:
        """The results so far."""
        return self._results.reshape(-1)[: self._length].astype(np.int32)

    @property
    def is_done(self) -> bool:
        """True once all results are there."""
        return self.done == self._chunks

    def start(self, now_us: int) -> list[bytes]:
        """Return the first frames."""
        return [self._send(chunk, now_us) for chunk in range(min(self._window, self._chunks))]

    def receive(self, frame: bytes, now_us: int) -> list[bytes]:
        """Receive a frame from the switch; return the frames that may be sent then."""
        if len(frame) != FRAME_BYTES or frame[_CHUNK_AT - 2] >> 4 != _RESULT:
            return []
        (chunk,) = _CHUNK.unpack_from(frame, _CHUNK_AT)
        if chunk not in self._pending:
            return []  # its result came before
        (pool,) = _POOL.unpack_from(frame, _CHUNK_AT + 4)
        assert pool == self._pool(chunk)
        del self._pending[chunk]
        self._results[chunk] = np.frombuffer(frame, ">i4", VALUES, FRAME_BYTES - 4 * VALUES)
        self.done += 1
        following = chunk + self._window
        return [self._send(following, now_us)] if following < self._chunks else []

    def resend(self, now_us: int) -> list[bytes]:
        """Return the frames whose results are overdue."""
        overdue = [pending for pending in self._pending.values() if pending.again_us <= now_us]
        for pending in overdue:
            pending.again_us = now_us + self._patience_us
        self.sent += len(overdue)
        self.resent += len(overdue)
        return [pending.frame for pending in overdue]

    def wakes_us(self) -> int | None:
        """Return the next time at which a chunk is overdue; None: never."""
        return min((pending.again_us for pending in self._pending.values()), default=None)

    def frames(self, window: int) -> list[bytes]:
        """Return the frames of all chunks, as a worker with this window sends them."""
        self._window = window
        return [self._frame(chunk) for chunk in range(self._chunks)]

    def _pool(self, chunk: int) -> int:
        return chunk % self._window | (_SET if chunk // self._window % 2 else 0)

    def _send(self, chunk: int, now_us: int) -> bytes:
        frame = self._frame(chunk)
        self._pending[chunk] = Pending(frame, now_us + self._patience_us)
        self.sent += 1
        return frame

    def _frame(self, chunk: int) -> bytes:
        host = self._host
        before = (0x45, 0, _IPV4_BYTES, 0, 0, 64, 17)
        words = struct.pack("!BBHHHBBHII", *before, 0, host.ip, SWITCH_IP)
        headers: tuple[Any, ...] = (
            *(SWITCH_MAC.to_bytes(6, "big"), host.mac.to_bytes(6, "big"), 0x0800),
            *(*before, ipv4_checksum(words), host.ip, SWITCH_IP),
            *(UDP_PORT, UDP_PORT, _IPV4_BYTES - 20, 0),
            *(_MTU_256, _JOB, chunk, self._pool(chunk), 0, 0),
        )
        return bytes(_HEADERS.pack(*headers) + self._values[chunk].tobytes())


_PATIENCE_US = 1000
_QUEUE = 2048
_ANSWERS = ("broadcast", "retransmit")
"""Counted outcome of a packet that was recirculated to read a slot; the program counts no other ones."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting of an allreduce: workers, int32 values each, window in packets, links and their loss."""

    workers: int = 4
    values: int = 65536
    window: int = 64
    rate_bps: float = 1e9
    delay_s: float = 2e-6
    loss: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Costs of an allreduce.

    `sent` counts the frames of all workers, `resent` the retransmitted ones, `passes` the packets through
    ingress, recirculated ones too; `exact`: all workers have the right sums.
    """

    time_s: float
    sent: int
    resent: int
    passes: int
    frame_bytes: int
    exact: bool


def allreduce(folder: Path, setting: Setting) -> Outcome:
    """Sum by SwitchML's program in `folder`, filled over BF Runtime. Raises CompileError."""
    places = hosts(setting.workers)
    link = Impairments(
        loss=setting.loss, rate_bps=setting.rate_bps, delay_s=setting.delay_s, queue_packets=_QUEUE
    )
    impairments = {host.port: PortImpairments(rx=link, tx=link) for host in places}
    draw = np.random.default_rng(setting.seed)
    contributions = [draw.integers(-1 << 20, 1 << 20, setting.values, np.int32) for _ in places]
    workers = [
        Worker(host, values, setting.window, _PATIENCE_US)
        for host, values in zip(places, contributions, strict=True)
    ]
    with ExitStack() as stack:
        switch, client = opened(stack, folder, places, impairments, seed=setting.seed)
        time_us = _run(switch, [host.port for host in places], workers)
        counters = [client.tables[f"pipe.Ingress.next_step_selector.{name}_counter"] for name in _ANSWERS]
        recirculated = sum(
            cast("int", data["$COUNTER_SPEC_PKTS"]) for table in counters for _, data, _ in table.entries()
        )
        arrived = sum(switch.statistics(host.port).rx_packets for host in places)
        lost = sum(switch.statistics(host.port).rx_lost for host in places)
    total = np.sum(contributions, axis=0, dtype=np.int32)
    exact = all(np.array_equal(worker.sums, total) for worker in workers)
    sent, resent = sum(worker.sent for worker in workers), sum(worker.resent for worker in workers)
    passes = arrived - lost + recirculated
    return Outcome(time_us / 1e6, sent, resent, passes, FRAME_BYTES, exact)


def opened(
    stack: ExitStack,
    folder: Path,
    places: Sequence[Host],
    impairments: Mapping[int, PortImpairments],
    *,
    seed: int = 0,
) -> tuple[Switch, Client]:
    """Return a switch with SwitchML's program and a session's entries, and a client, until `stack` ends.

    Args:
        stack: Closes them at its end.
        folder: The program's folder.
        places: The workers.
        impairments: Impairments of the ports' links.
        seed: Seed of the links.

    Raises CompileError.
    """
    ports = {host.port: MemoryPort() for host in places}
    switch = stack.enter_context(Switch(ports, seed=seed, impairments=impairments))
    service = serve(switch, source=preprocess_once(folder / "switchml.p4", defines={}))
    stack.callback(service.close)
    drivers = BfrtService(service.device)
    stack.callback(drivers.close)
    client = Client(drivers.address)
    stack.callback(client.close)
    open_session(client, places)
    return switch, client


def _run(switch: Switch, ports: Sequence[int], workers: Sequence[Worker]) -> int:
    """Run until all workers have all sums; return the time in microseconds."""
    now_us = 0
    for port, worker in zip(ports, workers, strict=True):
        switch.inject(port, worker.start(now_us), now_us)
    while not all(worker.is_done for worker in workers):
        times = [switch.next_event_us(), *(worker.wakes_us() for worker in workers)]
        now_us = max(now_us, min(time for time in times if time is not None))
        switch.advance(now_us)
        for port, worker in zip(ports, workers, strict=True):
            out = [reply for frame in switch.drain(port) for reply in worker.receive(frame, now_us)]
            out += worker.resend(now_us)
            if out:
                switch.inject(port, out, now_us)
    return now_us
