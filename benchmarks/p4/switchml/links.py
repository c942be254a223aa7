"""Workers and a switch in virtual time: the same run for the same seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.p4.switchml.client import Client
from benchmarks.p4.switchml.session import Host, hosts, open_session
from benchmarks.p4.switchml.worker import FRAME_BYTES, Worker
from softswitch.bfrt import BfrtService
from softswitch.engine.cache import preprocess_once
from softswitch.engine.ports import Impairments, MemoryPort, PortImpairments
from softswitch.engine.switch import Switch
from softswitch.p4runtime import serve

_PATIENCE_US = 1000
_QUEUE = 2048
_ANSWERS = ("broadcast", "retransmit")
"""What a packet becomes that was recirculated to read a slot; the program counts no other such packets."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What an allreduce runs on: workers, int32 values each, window in packets, links and their loss."""

    workers: int = 4
    values: int = 65536
    window: int = 64
    rate_bps: float = 1e9
    delay_s: float = 2e-6
    loss: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an allreduce took.

    `sent` are the frames of all workers, `resent` those of them that were sent again, `passes` the packets
    that passed ingress, recirculated ones too; `exact`: all workers have the right sums.
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
        stack: What they are entered into.
        folder: The program's.
        places: The workers.
        impairments: Of the ports' links.
        seed: Of the links.

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
