"""A fallback server in virtual time, on its host: the real protocol core, without a process of its own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np

from bmv2_topos.testbeds.virtual.interfaces import Socket
from bmv2_topos.testbeds.virtual.settings import VirtualSettings
from controller.vocabulary import Topology
from hostlib import wire
from hostlib.core.driver import Arrivals, Send
from hostlib.core.state import NEVER
from hostlib.fallback.config import FallbackJob, FallbackSettings
from hostlib.fallback.core import FallbackCore

BATCH_PACKETS = 256
SWITCH_MAC, SWITCH_IP = "02:00:00:00:ff:01", "10.0.255.1"


def endpoints(topology: Topology, host: str, port: int = wire.INA_UDP_PORT) -> wire.Endpoints:
    """Return the source and destination addresses of packets from a host's UDP port to the switch.

    Switches do not read the destination.
    """
    return wire.Endpoints(topology.mac(host), SWITCH_MAC, topology.ip(host), SWITCH_IP, port)


class FallbackHost:
    """A fallback server for the jobs that were added to it. Times are nanoseconds."""

    def __init__(self, make_core: Callable[[], FallbackCore], send: Send, *, batch: int) -> None:
        """Make a server that sends up to `batch` packets at a time with `send`.

        `make_core` is called now and at each restart.
        """
        self._make_core = make_core
        self._send = send
        self._core = make_core()
        self._out = np.zeros(batch * self._core.settings.result_bytes, np.uint8)
        self._jobs: dict[int, FallbackJob] = {}
        self._counts: dict[int | None, Counter[str]] = defaultdict(Counter)
        self._deaf_until = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        """`received_bytes` and `sent_bytes` count whole frames since the server was made; restarts do not
        reset them."""

    def add_job(self, job: FallbackJob) -> None:
        """Serve a job from now on."""
        self._jobs[job.job] = job
        self._core.add_job(job)

    def remove_job(self, job: int) -> None:
        """Stop serving a job; keep its counters."""
        self._counts[job].update(self._core.statistics()[job])
        del self._jobs[job]
        self._core.remove_job(job)

    def restart(self, now: int, down_ns: int) -> None:
        """Lose all state except the list of jobs, and receive nothing for `down_ns`."""
        self._counts = self.counts()
        self._core = self._make_core()
        for job in self._jobs.values():
            self._core.add_job(job)
        self._deaf_until = now + down_ns

    def counts(self) -> dict[int | None, Counter[str]]:
        """Return the counters by job id, which restarts do not reset.

        The key None has the counters of packets without a job.
        """
        counts = defaultdict(Counter, {job: Counter(found) for job, found in self._counts.items()})
        for job, found in self._core.statistics().items():
            counts[job].update(found)
        return counts

    def serve(self, now: int, arrivals: Arrivals) -> int:
        """Process arrived packets and send answers; return when to serve again if nothing arrives."""
        if now < self._deaf_until:
            return NEVER
        for packets, length in arrivals:
            self.received_bytes += len(packets)
            self._core.absorb(packets, length, now)
        while (sent := self._core.emit(self._out, now))[0]:
            count, length = sent
            self.sent_bytes += count * length
            self._send(self._out, count, length)
        return self._core.next_timeout()


class PolledServer(FallbackHost):
    """A fallback server that reads its socket when the testbed gives it a turn."""

    def __init__(self, socket: Socket, topology: Topology, settings: VirtualSettings) -> None:
        self.due = NEVER
        """Time at which the server gets its next turn even if no packet arrives."""
        self.host = socket.host
        self.port = socket.port
        self._socket = socket
        core = FallbackSettings(
            lanes=settings.lanes,
            endpoints=endpoints(topology, socket.host, socket.port),
            remind_s=settings.remind_s,
            remind_max_s=settings.remind_max_s,
        )
        super().__init__(lambda: settings.cores.server(core), socket.send, batch=BATCH_PACKETS)

    def poll(self, now: int) -> None:
        """Serve if packets have arrived, or if the server is due."""
        arrival = self._socket.receive()
        if arrival is not None or now >= self.due:
            self.due = self.serve(now, () if arrival is None else arrival.segments())
