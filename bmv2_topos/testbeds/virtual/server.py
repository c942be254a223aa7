"""A fallback server on its host: the real core, without its process."""

from __future__ import annotations

import numpy as np

from bmv2_topos.spec import Topology
from bmv2_topos.testbeds.virtual.interfaces import Socket
from bmv2_topos.testbeds.virtual.settings import VirtualSettings
from hostlib import wire
from hostlib.core.state import NEVER
from hostlib.fallback.config import FallbackJob, FallbackSettings
from hostlib.fallback.core import FallbackCore

BATCH_PACKETS = 256
SWITCH_MAC, SWITCH_IP = "02:00:00:00:ff:01", "10.0.255.1"


def endpoints(topology: Topology, host: str, port: int = wire.INA_UDP_PORT) -> wire.Endpoints:
    """Return the addresses in what a host sends from a UDP port; no switch looks at the receiver's."""
    return wire.Endpoints(topology.mac(host), SWITCH_MAC, topology.ip(host), SWITCH_IP, port)


class Server:
    """Serves the jobs it is given. Times are nanoseconds."""

    def __init__(self, socket: Socket, topology: Topology, settings: VirtualSettings) -> None:
        self.host = socket.host
        self.due = NEVER
        """When it has to be served even if nothing arrives."""
        self.received_bytes = 0
        self.sent_bytes = 0
        """Whole frames, over its whole life."""
        self._socket = socket
        self._topology = topology
        self._settings = settings
        self._jobs: dict[int, FallbackJob] = {}
        self._counters: dict[str, int] = {}
        self._down_until = 0
        self._core = self._make_core()
        self._out = np.zeros(BATCH_PACKETS * self._core.settings.result_bytes, np.uint8)

    def _make_core(self) -> FallbackCore:
        settings = self._settings
        return settings.cores.server(
            FallbackSettings(
                lanes=settings.lanes,
                endpoints=endpoints(self._topology, self.host, self._socket.port),
                capacity=settings.fallback_capacity,
                remind_s=settings.remind_s,
                remind_max_s=settings.remind_max_s,
            )
        )

    def add_job(self, job: FallbackJob) -> None:
        """Serve a job from now on."""
        self._jobs[job.job] = job
        self._core.add_job(job)

    def remove_job(self, job: int) -> None:
        """Forget a job."""
        self._note()
        del self._jobs[job]
        self._core.remove_job(job)

    def restart(self, now: int, down_ns: int) -> None:
        """Forget everything but the jobs, and be deaf for a while."""
        self._note()
        self._core = self._make_core()
        for job in self._jobs.values():
            self._core.add_job(job)
        self._down_until = now + down_ns
        self.due = NEVER

    def counters(self) -> dict[str, int]:
        """Return the counters of all jobs that it has served, summed."""
        total = dict(self._counters)
        for job in self._jobs:
            for name, value in self._core.statistics()[job].items():
                total[name] = total.get(name, 0) + value
        return total

    def _note(self) -> None:
        self._counters = self.counters()

    def serve(self, now: int) -> bool:
        """Take in what has arrived and answer; whether anything had arrived."""
        arrival = self._socket.receive()
        if arrival is None and now < self.due:
            return False
        if now < self._down_until:
            return False
        if arrival is not None:
            for data, length in arrival.segments():
                self.received_bytes += len(data)
                self._core.absorb(data, length, now)
        while True:
            count, length = self._core.emit(self._out, now)
            if not count:
                break
            self.sent_bytes += count * length
            self._socket.send(self._out, count, length)
        self.due = self._core.next_timeout()
        return arrival is not None
