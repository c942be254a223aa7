"""A fallback server on its host: the real core, without its process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from bmv2_topos.soak.network import Network
from bmv2_topos.soak.stations import BATCH, Alarm, Inbox
from hostlib.fallback.config import FallbackJob, FallbackSettings
from hostlib.fallback.core import FallbackCore


class ServerStation:
    """A fallback server on its host."""

    def __init__(
        self,
        network: Network,
        host: str,
        settings: FallbackSettings,
        make_core: Callable[[FallbackSettings], FallbackCore],
        coalesce_us: int,
        counts: Counter[str],
    ) -> None:
        self._network = network
        self._host = host
        self._settings = settings
        self._make_core = make_core
        self._counts = counts
        self._inbox = Inbox(network, coalesce_us, self.serve)
        self._alarm = Alarm(network, self.serve)
        self._jobs: dict[int, FallbackJob] = {}
        self._core = make_core(settings)
        self._out = np.zeros(BATCH * settings.result_bytes, np.uint8)
        self._deaf_until = 0
        self.deliver = self._inbox.deliver

    def add_job(self, job: FallbackJob) -> None:
        """Serve a job from now on."""
        self._jobs[job.job] = job
        self._core.add_job(job)

    def remove_job(self, job: int) -> None:
        """Forget a job."""
        self._note_job(job)
        del self._jobs[job]
        self._core.remove_job(job)

    def restart(self, down_ns: int) -> None:
        """Forget everything but the jobs, and be deaf for a while."""
        self.note()
        self._core = self._make_core(self._settings)
        for job in self._jobs.values():
            self._core.add_job(job)
        self._deaf_until = self._network.now + down_ns

    def note(self) -> None:
        """Add the core's counters to those of the schedule."""
        for job in (None, *self._jobs):
            self._note_job(job)

    def _note_job(self, job: int | None) -> None:
        for name, value in self._core.statistics()[job].items():
            if value and name not in ("entries", "unfinished", "pieces"):
                self._counts[name] += value

    def serve(self) -> None:
        """Take in what has arrived, and answer."""
        core, now = self._core, self._network.now
        runs = self._inbox.empty()
        if now < self._deaf_until:
            return
        for data, length in runs:
            core.absorb(np.frombuffer(data, np.uint8), length, now)
        while True:
            count, size = core.emit(self._out, now)
            if not count:
                break
            data = self._out[: count * size].tobytes()
            for at in range(0, len(data), size):
                self._network.send(self._host, data[at : at + size])
        self._alarm.set(core.next_timeout())
