"""Drives a sanitized build of the C core with hostile input; run by `tests.system.test_sanitized`.

usage: python -m tests.hostlib.fallback.sanitized LIBRARY SEED STEPS

Prints one JSON object of what happened. The sanitizers end the process at the first finding.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from random import Random

import numpy as np

from hostlib import _native, wire
from hostlib.config import TransportConfig
from hostlib.fallback import FallbackJob, FallbackSettings
from hostlib.fallback.core import FallbackCore
from hostlib.fallback.server import FallbackLink
from tests.hostlib.fallback.packets import ENDPOINTS, LANES, TREES
from tests.hostlib.fallback.test_core import any_packet

Counts = dict[str, int]


def fuzz_memory(random: Random, steps: int, counts: Counts) -> None:
    """Any packets for one core after another, in buffers of exact size."""
    for _ in range(steps):
        framed = random.randrange(2) == 0
        names = random.choices(list(TREES), k=random.randrange(1, 4))
        jobs = {random.choice((7, 0, 65535)): TREES[name] for name in names}
        most = max(max(len(tree.nodes), tree.size) for tree in jobs.values())
        capacity = most * len(jobs) + random.choice((0, 0, 1, 50))
        endpoints = ENDPOINTS if framed else None
        core = FallbackCore(FallbackSettings(LANES, endpoints, capacity, 0.001, 0.02, 0.1))
        window, slots = random.choice((None, 1, 5)), random.choice((None, 0, 7))
        for job, tree in jobs.items():
            core.add_job(FallbackJob(job, 1, tree, window, slots))
        now, base = 0, random.choice((0, 2**32 - 30))
        for _ in range(60):
            psns = [(base + random.randrange(9)) % 2**32 for _ in range(3)]
            batch = [any_packet(random, jobs, psns) for _ in range(random.randrange(1, 20))]
            if not framed:
                batch = [data[wire.FRAME_PREFIX_BYTES :] for data in batch]
            data = np.frombuffer(b"".join(batch), np.uint8).copy()
            segment = random.choice((len(batch[0]) or 1, core.settings.result_bytes, 1, 5000))
            core.absorb(data, segment, now)
            out = np.zeros(random.choice((100, 1000, 65507)), np.uint8)
            while core.emit(out, now)[0]:
                counts["sent"] += 1
            base += random.randrange(3)
            now += random.choice((0, 100_000, 5_000_000, 200_000_000))
            core.next_timeout()
            if random.randrange(20) == 0:
                job = random.choice(list(jobs))
                _count(core, counts)
                core.remove_job(job)
                core.add_job(FallbackJob(job, 1, jobs[job], window, slots))
        _count(core, counts)
        core.close()


def fuzz_socket(random: Random, steps: int, counts: Counts) -> None:
    """The same through the loop that moves packets between core and socket."""
    jobs = {7: TREES["two racks"]}
    core = FallbackCore(FallbackSettings(LANES, ENDPOINTS, 20, 0.001, 0.02, 0.1))
    core.add_job(FallbackJob(7, 1, jobs[7]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as switch:
        switch.bind(("127.0.0.1", 0))
        switch.setblocking(False)
        host, port = switch.getsockname()
        link = FallbackLink(TransportConfig("loopback", "127.0.0.1:0", f"{host}:{port}"))
        switch.connect(link.socket.getsockname())
        for step in range(steps):
            for _ in range(random.randrange(8)):
                switch.send(any_packet(random, jobs, [step, step + 1]))
            link.pump(core, -1, time.monotonic_ns() + 1_000_000)
            try:
                while switch.recv(65536):
                    counts["received"] += 1
            except BlockingIOError:
                pass
        link.close()
    _count(core, counts)
    core.close()


def _count(core: FallbackCore, counts: Counts) -> None:
    for values in core.statistics().values():
        for name, value in values.items():
            counts[name] = counts.get(name, 0) + value


def main(path: str, seed: str, steps: str) -> None:
    """See the module."""
    _native.library_path = lambda: Path(path)
    counts = {"sent": 0, "received": 0}
    fuzz_memory(Random(int(seed)), int(steps), counts)
    fuzz_socket(Random(int(seed)), int(steps), counts)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
