"""Throughput of the fallback server alone, through real sockets.

A driver process plays the switch: it sends the contributions of the workers in superframes, a bounded
number ahead of the results, and compares every result with the sum. Rates are per second of the server
process's own processor time: payload bits of contributions.
"""

from __future__ import annotations

import socket
import time
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.fill import show
from hostlib import wire
from hostlib.wire.tree import Tree
from ina.cli import options
from ina.cli.command import Failure, Json
from ina.run.fallback.process import TITLE
from ina.run.launch.server_process import ServerProcess

UDP_SEGMENT, UDP_GRO = 103, 104  # udp(7)
JOB = 7
EPOCH = 1
BATCH_BYTES = 60_000
MAX_BATCH = 64
BASES = 64
"""Number of different contents of packets; PSNs that are equal modulo this number have equal sums."""


class _Driver:
    """Sends contributions of all workers, and checks the results."""

    def __init__(self, sock: socket.socket, lanes: int, workers: int, ahead: int, batch: int) -> None:
        self._socket = sock
        self._workers = workers
        self._ahead = ahead
        self._dtype = wire.packet_dtype(lanes, framed=True)
        self._batch = max(1, min(batch, BATCH_BYTES // self._dtype.itemsize))
        rng = np.random.default_rng(1)
        values = rng.integers(-(2**26), 2**26, (workers, BASES, lanes), dtype=np.int32)
        self._sums = values.sum(axis=0, dtype=np.int32).astype(">i4")
        self._packets = [self._contributions(values[rank], rank) for rank in range(workers)]
        self._buffer = np.zeros(1 << 16, np.uint8)
        sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, self._dtype.itemsize)
        sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)

    def _contributions(self, values: np.ndarray[Any, Any], rank: int) -> np.ndarray[Any, Any]:
        packets = np.zeros(BASES, self._dtype)
        lanes = values.shape[1]
        endpoints = wire.Endpoints(
            "02:00:00:00:ff:01", "02:00:00:00:00:fb", "10.0.255.1", "10.0.0.251", wire.INA_UDP_PORT
        )
        prefix = wire.frame_prefix(endpoints, wire.INA_BYTES + 4 * lanes)
        raw = packets.view(np.uint8).reshape(BASES, -1)
        raw[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
        packets["version_kind"] = wire.version_kind(wire.KIND_PARTIAL)
        packets["job"], packets["epoch"], packets["bitmap"] = JOB, EPOCH, 1 << rank
        packets["fan_in"], packets["valid"], packets["lanes"] = self._workers, lanes, lanes
        packets["target"], packets["values"] = wire.TARGET_ALL, values
        return packets

    def run(self, psns: range) -> None:
        """Send the contributions to these PSNs and wait for all results."""
        sent, done = psns.start, psns.start
        while done < psns.stop:
            while sent < psns.stop and sent - done < self._ahead:
                size = min(self._batch, psns.stop - sent)
                for packets in self._packets:
                    batch = packets[np.arange(sent, sent + size) % BASES]
                    batch["psn"] = np.arange(sent, sent + size)
                    self._socket.send(batch.view(np.uint8).data)
                sent += size
            done += self._take_results(done)

    def _take_results(self, done: int) -> int:
        size = self._socket.recv_into(self._buffer.data)
        packets = self._buffer[:size].view(np.uint8)
        if size % self._dtype.itemsize:
            return 0  # a reminder: the driver was slow
        results = packets.view(self._dtype)
        psns = results["psn"].astype(np.int64)
        results, psns = results[psns >= done], psns[psns >= done]
        if not (psns == done + np.arange(len(psns))).all():
            raise RuntimeError(f"results {psns[0]}..{psns[-1]} where {done} was next: something was lost")
        if not (results["values"] == self._sums[psns % BASES]).all():
            raise RuntimeError(f"a sum is wrong among the results {psns[0]}..{psns[-1]}")
        return len(psns)


def _ask(server: ServerProcess, command: object) -> dict[str, Any]:
    server.say(command)
    answer = server.hear() or {"error": "the server ended"}
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer


def measure(
    *,
    lanes: int = 256,
    workers: int = 4,
    contributions: int = 400_000,
    window: int = 512,
    batch: int = MAX_BATCH,
) -> dict[str, float]:
    """Sum `contributions` packets through a server process of its own.

    Args:
        lanes: values per packet.
        workers: contributions to each sum, 1 to 32.
        contributions: packets to send.
        window: most packets ahead of the results.
        batch: packets that the driver sends at once; 1 is the worst case.

    Returns:
        Payload bits of contributions and contributions per second of the server's processor time, the former
        also per second of wall time, driver included, and both times.

    Raises:
        ProcessFailed: the server did not start.
        RuntimeError: it ended, lost something or summed wrongly.
        TimeoutError: it does not answer.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(10)
        address = ":".join(map(str, sock.getsockname()))
        with ServerProcess("fallback", TITLE, ("--switch", address, "--lanes", str(lanes))) as server:
            host, port = server.ready()["ready"]["local"].split(":")
            sock.connect((host, int(port)))
            tree = Tree.star(workers).to_json()
            _ask(server, {"add": {"job": JOB, "epoch": EPOCH, "tree": tree, "window": window}})
            driver = _Driver(sock, lanes, workers, window, batch)
            psns = max(1, contributions // workers)
            warm_up = min(psns, 4 * window)
            driver.run(range(warm_up))
            before = _ask(server, {"statistics": True})["statistics"]
            started = time.perf_counter()
            driver.run(range(warm_up, warm_up + psns))
            wall = time.perf_counter() - started
            after = _ask(server, {"statistics": True})["statistics"]
    cpu = after["cpu_s"] - before["cpu_s"]
    counted = [each["jobs"][str(JOB)]["gradient_bytes"] for each in (before, after)]
    merged = [each["jobs"][str(JOB)]["merged"] for each in (before, after)]
    if merged[1] - merged[0] != psns * workers:
        raise RuntimeError(f"{merged[1] - merged[0]} contributions were merged, not {psns * workers}")
    bits = 8 * (counted[1] - counted[0])
    return {
        "gradient_bps": bits / cpu,
        "contributions_per_s": psns * workers / cpu,
        "wall_gradient_bps": bits / wall,
        "cpu_s": cpu,
        "wall_s": wall,
    }


def fallback(
    lanes: options.Lanes = 256,
    workers: Annotated[
        int, typer.Option(*options.WORKERS, min=1, max=32, help="Contributions to each sum.")
    ] = 4,
    contributions: Annotated[int, typer.Option(min=1000, help="Send this many packets.")] = 400_000,
    batch: Annotated[
        int, typer.Option(min=1, max=MAX_BATCH, help="Deliver this many at once; 1 is the worst case.")
    ] = MAX_BATCH,
    json: Json = False,
) -> None:
    """Measure how many contributions the fallback server sums per second of its own processor time."""
    try:
        found = measure(lanes=lanes, workers=workers, contributions=contributions, batch=batch)
    except (RuntimeError, TimeoutError) as error:
        raise Failure(str(error)) from error
    setup = {"lanes": lanes, "workers": workers, "contributions": contributions, "batch": batch}
    show("fallback", setup, found, as_json=json)
