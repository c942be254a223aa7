"""Drives sanitized builds with hostile input; run by test_sanitized.py with the sanitizers preloaded.

usage: python -m tests.system.sanitized switch ENGINE exclusive|shared PROGRAM SEED FRAMES
       python -m tests.system.sanitized worker LIBRARY SEED JOBS
       python -m tests.system.sanitized cables ENGINE SEED NETWORKS

Prints one JSON object of what happened. The sanitizers end the process at the first finding.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import socket
import sys
import time
from array import array
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib import _native, wire
from hostlib.core.congestion import CONGESTION, CONGESTION_NAMES
from hostlib.core.state import CoreSettings, Counter, RtoLimits
from hostlib.core.window import Exchange, Window
from hostlib.io.datagrams import open_socket
from hostlib.io.link import Pumped, datagram_link
from hostlib.wire.encodings import ENCODINGS, most_ranks
from softswitch.engine import native
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.native import NativeEngine, declare
from softswitch.engine.ports import Impairments, LinkModel, MemoryPort
from tests.programs import p4src_program
from tests.softswitch.differential import stimuli
from tests.softswitch.differential.script import parse_entry
from tests.softswitch.differential.test_aggregation import ENTRIES, FLOOD, JOBS, aggregation, ordinary
from tests.softswitch.test_engine_cables import drive

LANES = 32
SLOTS = 64  # few, so that random indices are often outside
PORTS = range(8)
CPU_PORT = 7
LONGEST = 9300  # beyond what the switch takes


def link(random: Random, port: int, direction: str) -> LinkModel:
    """Every other link does all that links may do."""
    chance = random.choice((0.0, 0.1))
    impairments = Impairments(
        loss=chance / 2,
        duplicate=chance,
        reorder=chance,
        corrupt=chance / 2,
        delay_s=random.choice((0.0, 1e-4)),
        jitter_s=random.choice((0.0, 1e-4)),
        rate_bps=random.choice((0.0, 1e8)),
        queue_packets=random.randrange(20),
    )
    return LinkModel.of(impairments, seed=port, port=port, direction=direction)


def any_frame(random: Random, psn: int) -> tuple[bytes, int]:
    """A right frame, a nearly right one, any bytes; and the port where it comes in."""
    frame, port = aggregation(random, LANES, psn)
    match random.randrange(10):
        case 0:
            return stimuli.frame(random, random.choice((100, 300, LONGEST))), port
        case 1:
            return random.randbytes(random.randrange(250)), port
        case 2:
            return stimuli.mutated(random, ordinary(random)), port
        case 3 | 4 | 5:
            return stimuli.mutated(random, frame), port
        case 6:
            return frame[: random.randrange(len(frame) + 1)], port
        case _:
            return frame, port


def fuzz_switch(engine_path: str, name: str, program_path: str, seed: int, frames: int) -> dict[str, int]:
    """Frames for a real program; half way, its tables are filled with entries of any content."""
    random = Random(seed)
    program = p4src_program(name, LANES=LANES, SLOTS=SLOTS)
    pipeline = CompiledPipeline(program, Path(program_path), seed=seed)
    for text in ENTRIES:
        pipeline.insert(*parse_entry(program, text))
    engine = NativeEngine(declare(ctypes.CDLL(engine_path)))
    for port in PORTS:
        links = link(random, port, "rx"), link(random, port, "tx")
        engine.add_port(port, MemoryPort(cpu=port == CPU_PORT), *links)
    engine.load(pipeline)
    for job in JOBS:
        engine.set_group(job.job, [(rank + 1, rank + 1) for rank in range(job.size)])
    engine.set_group(FLOOD, [(port, 0) for port in PORTS])
    sent = received = now_us = 0
    while sent < frames:
        if sent > frames // 2 and random.randrange(50) == 0:
            stimuli.disturb(random, [pipeline])
            members = [(random.choice((1, 2, 3, 8, 511, 65535)), random.randrange(5)) for _ in range(5)]
            engine.set_group(random.choice((FLOOD, 1, 2, 3)), random.choice((members, [], None)))
        batches: dict[int, list[bytes]] = {}
        for _ in range(random.choice((1, 1, 1, 4, 16))):
            frame, port = any_frame(random, sent // 16)
            batches.setdefault(port if random.randrange(10) else random.choice(PORTS), []).append(frame)
        for port, batch in batches.items():
            engine.inject(port, b"".join(batch), array("I", map(len, batch)), now_us)
            sent += len(batch)
        now_us += random.randrange(100)
        if random.randrange(4) == 0:
            engine.advance(min(now_us, engine.next_event_us() or now_us))
        for out in PORTS:
            received += len(engine.drain(out)[1])
    outcomes = [packets for packets, _ in pipeline.read_counters("InaIngress.outcomes")]
    engine.destroy()
    seen = {cell % 32 for cell, count in enumerate(outcomes) if count}
    return {"sent": sent, "received": received, "outcomes": len(seen)}


class Peer:
    """What answers a worker: results as they should be, or nearly, or any bytes."""

    def __init__(self, random: Random, window: Window) -> None:
        self._random = random
        self._window = window
        self._prefix = int(window.state.struct.prefix)
        self._bytes = window.state.packet_dtype.itemsize

    def answer(self, packet: bytes) -> bytes:
        """The result for a worker's packet."""
        out = bytearray(packet)
        header = memoryview(out)[self._prefix :]
        header[0] = wire.version_kind(wire.KIND_RESULT)
        header[8:12] = int(self._window.state.struct.result_bitmap).to_bytes(4, "big")
        header[24:26] = bytes(2)
        header[1] |= self._random.choice((0, 0, 0, wire.FLAG_ECN, wire.FLAG_COLLISION))
        if self._prefix:
            out[34:38] = wire.INA_UDP_PORT.to_bytes(2, "big") * 2
        return bytes(out)

    def spoiled(self, packet: bytes) -> bytes:
        """The same with flaws, often in its header, or something else."""
        random = self._random
        result = self.answer(packet)
        out = bytearray(result)
        match random.randrange(6):
            case 0:
                return random.randbytes(random.randrange(2 * self._bytes))
            case 1:
                return stimuli.mutated(random, result)
            case 2:
                out[self._prefix] = wire.version_kind(wire.KIND_STATUS)
                out[self._prefix + 18 : self._prefix + 20] = bytes(2)
                return bytes(out[: random.choice((None, self._prefix + wire.INA_BYTES))])
            case 3:  # what the fallback server asks, of what was sent just now or before
                out = bytearray(packet)
                out[self._prefix] = wire.version_kind(wire.KIND_REMINDER)
                out[self._prefix + 1] = random.choice((0, 0, wire.FLAG_RAW, 0xFF))
                out[self._prefix + 18 : self._prefix + 20] = bytes(2)
                psn = int.from_bytes(packet[self._prefix + 4 : self._prefix + 8], "big")
                asked = (psn - random.choice((0, 0, 1, 2, 5))) % 2**32
                out[self._prefix + 4 : self._prefix + 8] = asked.to_bytes(4, "big")
                if self._prefix:
                    out[34:38] = wire.INA_UDP_PORT.to_bytes(2, "big") * 2
                return bytes(out[: self._prefix + wire.INA_BYTES])
            case 4:  # a result with a hostile exponent, valid count and values
                out[self._prefix + 12 : self._prefix + 18] = random.randbytes(6)
                out[self._prefix + 24 :] = random.randbytes(len(out) - self._prefix - 24)
                return bytes(out)
            case _:
                for _ in range(3):
                    out[random.randrange(self._prefix, self._prefix + wire.INA_BYTES)] ^= (
                        1 << random.randrange(8)
                    )
                return bytes(out)

    def answers(self, packets: list[bytes]) -> list[bytes]:
        """Some results, in any order, with others between them."""
        random = self._random
        right = [self.answer(packet) for packet in packets]
        wrong = [self.spoiled(packet) for packet in packets if random.randrange(2)]
        everything = [result for result in right if random.randrange(4)] + wrong
        random.shuffle(everything)
        return everything


def array_of(random: Random, length: int) -> NDArray[Any]:
    """Numbers of any size, infinities and NaN among them."""
    bits = np.frombuffer(random.randbytes(4 * length), np.int32).copy()
    return bits if random.randrange(3) == 0 else bits.view(np.float32)


class Memory:
    """Carries collectives of a window to their end in virtual time, with buffers of exact size."""

    def __init__(self, random: Random, window: Window, peer: Peer) -> None:
        self._random = random
        self._window = window
        self._peer = peer
        self._packet_bytes = window.state.packet_dtype.itemsize
        self.now = 0

    def step(self) -> None:
        """Send, hear an answer to some packets, wait."""
        random, window, size = self._random, self._window, self._packet_bytes
        out = np.zeros(size * random.randrange(1, 40), np.uint8)
        count = window.emit(out, self.now)
        packets = [out[i * size : (i + 1) * size].tobytes() for i in range(count)]
        for answer in self._peer.answers(packets):
            self._absorb(answer, max(1, len(answer)))
        batch = b"".join(map(self._peer.answer, packets[: random.randrange(1, 9)]))
        cut = batch[: random.choice((None, random.randrange(len(batch) + 1)))]
        self._absorb(cut, random.choice((size, size, size, 24, 5000)))
        self.now += random.choice((1_000, 1_000_000, 100_000_000))
        window.on_timeout(self.now)

    def close(self) -> None:
        """Nothing is open."""

    def _absorb(self, data: bytes, segment: int) -> None:
        self._window.absorb(np.frombuffer(data, np.uint8).copy(), segment, self.now)


class Socket:
    """The same in real time, through the loop that moves packets between core and socket."""

    def __init__(self, window: Window, peer: Peer) -> None:
        self._window = window
        self._peer = peer
        self._other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._other.bind(("127.0.0.1", 0))
        own = open_socket(("127.0.0.1", 0), self._other.getsockname(), 1 << 20)
        self._other.connect(own.getsockname())
        self._other.setblocking(False)
        self._link = datagram_link(own, window)

    @property
    def now(self) -> int:
        """The clock of the loop."""
        return time.monotonic_ns()

    def step(self) -> None:
        """Send, hear an answer to some packets, wait."""
        if self._link.pump(self._window, self.now + 1_000_000) is Pumped.ROUND:
            self._window.on_round()
        packets = []
        with contextlib.suppress(BlockingIOError):
            while True:
                packets.append(self._other.recv(65536))
        for answer in self._peer.answers(packets):
            self._other.send(answer)
        self._window.on_timeout(self.now)

    def close(self) -> None:
        """Close both ends."""
        self._link.carrier.close()
        self._other.close()


def fuzz_worker(library_path: str, seed: int, jobs: int) -> dict[str, int]:
    """Collectives of every shape whose answers are spoiled.

    Returns:
        What the windows in virtual time counted: the same for a seed on any machine. Each job has random
        numbers of its own, so that the jobs in real time, whose steps depend on the machine, change no other.
    """
    _native.library_path = lambda: Path(library_path)
    kernel = _native.NativeKernel()
    counts = dict.fromkeys(Counter, 0)
    endpoints = wire.Endpoints("02:00:00:00:00:01", "02:00:00:00:ff:01", "10.0.0.1", "10.0.0.2", 9000)
    for number in range(jobs):
        random = Random(f"{seed} {number}")
        in_real_time = number % 10 == 0
        size = random.choice((1, 2, 3, 31, 32))
        settings = CoreSettings(
            job=random.randrange(65536),
            rank=random.randrange(size),
            size=size,
            slots=2 * random.choice((1, 2, 5, 64)),
            lanes=LANES,
            endpoints=random.choice((endpoints, None)),
            first_psn=random.choice((0, 2**32 - 20)),
            fallback=random.choice((False, True)),
            numbers=random.choice([each for each in ENCODINGS if size <= most_ranks(each)]),
            rto=RtoLimits(0.002, 0.001, 0.005),  # for the socket, whose time is real
        )
        # a2tp sends packets past the slots, for which JobConfig wants a fallback server
        controls = [name for name in CONGESTION_NAMES if settings.fallback or name != "a2tp"]
        window = Window(settings, kernel, CONGESTION[random.choice(controls)]())
        peer = Peer(random, window)
        driver = Socket(window, peer) if in_real_time else Memory(random, window, peer)
        for _ in range(3):
            source = array_of(random, random.choice((100, random.randrange(1500))))
            target = random.choice((source, np.empty_like(source)))
            average = source.dtype == np.float32 and random.randrange(2) == 0
            tag = random.getrandbits(32)
            feedback = target is not source and random.randrange(2) == 0
            exchange = Exchange(source, target, tag, average=average, feedback=feedback)
            window.begin(exchange._replace(series=[("name", len(source))]), driver.now)
            for _ in range(4):  # forged exponents might be sent again for ever
                while not window.complete and not window.ranks_disagree:
                    driver.step()
                if not window.complete or window.finish(driver.now):
                    break
            if not window.complete:
                break  # a forged flag: that is the end of a job
        driver.close()
        if not in_real_time:
            for counter in Counter:
                counts[counter] += window.count(counter)
    return {counter.name.lower(): count for counter, count in counts.items()}


def fuzz_cables(library: str, seed: int, networks: int) -> dict[str, int]:
    """Let frames pass random networks of switches."""
    native._library = lambda: declare(ctypes.CDLL(library))
    arrived = sum(len(drive("compiled", seed + number)[0]) for number in range(networks))
    return {"arrived": arrived}


def main(what: str, *arguments: str) -> None:
    """See the module."""
    *paths, seed, amount = arguments
    fuzz: Any = {"switch": fuzz_switch, "worker": fuzz_worker, "cables": fuzz_cables}[what]
    print(json.dumps(fuzz(*paths, int(seed), int(amount))))


if __name__ == "__main__":
    main(*sys.argv[1:])
