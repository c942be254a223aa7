"""Invariant 3 through the real switch process: what is foreign or malformed is counted and touches no sum."""

from __future__ import annotations

import contextlib
import queue
import random
import select
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pytest

from controller import Admission, Member, Part, SwitchSession, connect
from controller.switches import forwarding
from controller.switches.model import OUTCOMES
from hostlib import Communicator, JobConfig, TransportConfig, wire
from ina.run.switches.switch_process import EmbeddedSwitch
from tests.controller import single
from tests.controller.frames import gradient, reminder
from tests.sockets import bound_udp

# --------------------------------------------------------------------- the far end of a switch's udp


ARP = b"\x08\x06"
FRAMES_KEPT = 500
"""Fewer than one array has: what is sent again is old then."""


class Tap:
    """What it sends comes from the address that the switch knows; a context manager."""

    def __init__(self) -> None:
        self.outer = _socket()
        """Towards the switch."""
        self._inner = _socket()
        self._wake, self._woken = socket.socketpair()
        self._worker: tuple[str, int] | None = None
        self.sent: list[bytes] = []
        """The first frames of the worker."""
        self.arp: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        """ARP frames from the switch."""
        self._thread = threading.Thread(target=self._serve)

    @property
    def number(self) -> int:
        """The UDP port that the switch is to have for its peer."""
        return int(self.outer.getsockname()[1])

    @property
    def address(self) -> str:
        """What the worker is to take for the switch."""
        return f"127.0.0.1:{self._inner.getsockname()[1]}"

    def start(self, switch: str) -> None:
        """Connect to the switch's port, and pass frames both ways from now on."""
        host, _, number = switch.rpartition(":")
        self.outer.connect((host, int(number)))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wake.send(b"x")
        if self._thread.ident:
            self._thread.join()
        for each in (self.outer, self._inner, self._wake, self._woken):
            each.close()

    def _serve(self) -> None:
        while True:
            ready = select.select([self.outer, self._inner, self._woken], [], [])[0]
            if self._woken in ready:
                return
            with contextlib.suppress(OSError):  # an end that is not there
                if self.outer in ready:
                    self._from_switch(self.outer.recv(65536))
                if self._inner in ready:
                    frame, self._worker = self._inner.recvfrom(65536)
                    if len(self.sent) < FRAMES_KEPT:
                        self.sent.append(frame)
                    self.outer.send(frame)

    def _from_switch(self, frame: bytes) -> None:
        if frame[12:14] == ARP:
            self.arp.put(frame)
        elif self._worker is not None:
            self._inner.sendto(frame, self._worker)


def _socket() -> socket.socket:
    made = bound_udp()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    return made


# --------------------------------------------------------------------- invariant 3 through the real s


LANES = 32
SIZE = 2
SLOTS = 64
LENGTH = 20_000
OTHER_PORT = 3
"""Of this switch, but not of the job."""
PORTS = (1, 2, OTHER_PORT)
REFUSALS = [
    *[*OUTCOMES][OUTCOMES["truncated"] : OUTCOMES["overflow"]],
    *("wrong_epoch", "wrong_direction", "no_uplink"),
]
FOREIGN = b"from elsewhere: "
BURST = 60
"""Frames sent before looking whether they were processed: as many fit any socket buffer."""
SHORT_BURST = 3 * BURST
"""The same of frames that are no longer than the job's, to all ports."""

IPV4, UDP, INA = 14, 34, 42
LONGEST_FRAME = 9216
SWITCH_IP, SWITCH_MAC = "10.0.0.254", "02:00:00:00:00:fe"
ARP_REQUEST = bytes.fromhex(
    "ffffffffffff 020000000007 0806"
    "0001 0800 06 04 0001 020000000007 0a000007 000000000000 0a0000fe"  # who has SWITCH_IP?
)


def patched(frame: bytes, at: int, *values: int) -> bytes:
    return frame[:at] + bytes(values) + frame[at + len(values) :]


def with_checksum(frame: bytes) -> bytes:
    header = patched(frame, IPV4 + 10, 0, 0)[IPV4:UDP]
    return patched(frame, IPV4 + 10, *wire.ipv4_checksum(header).to_bytes(2, "big"))


def of_no_job(good: bytes) -> dict[str, list[bytes]]:
    """Variations of a frame that are refused whoever sends them, by the reason."""
    checksum = int.from_bytes(good[IPV4 + 10 : IPV4 + 12], "big")
    job = int.from_bytes(good[INA + 2 : INA + 4], "big")
    lengths = [n.to_bytes(2, "big") for n in (0, 8, 31, 32, 159, 161, 0xFFFF)]
    return {
        "truncated": [good[:length] for length in range(1, len(good))],
        "bad_checksum": [
            patched(good, IPV4 + 10, *(checksum ^ 1 << bit).to_bytes(2, "big")) for bit in range(16)
        ],
        "bad_version": [
            patched(good, INA, version << 4 | 1) for version in range(16) if version != wire.INA_VERSION
        ],
        "bad_kind": [patched(good, INA, wire.INA_VERSION << 4 | kind) for kind in (0, *range(6, 16))],
        "bad_lanes": [
            patched(good, INA + 18, *lanes.to_bytes(2, "big")) for lanes in (1, 31, 33, 64, 256, 0xFFFF)
        ],
        "bad_length": [
            patched(good, INA + 18, 0, 0),  # says that it has no lanes, and has some
            *(good + bytes(more) for more in (1, 4, 128, 1000, LONGEST_FRAME - len(good))),
            *(patched(good, UDP + 4, *length) for length in lengths),
            *(with_checksum(patched(good, IPV4 + 2, *length)) for length in lengths),
            *(patched(good, INA + 16, *valid.to_bytes(2, "big")) for valid in (LANES + 1, 256, 0xFFFF)),
        ],
        "unknown_job": [
            patched(good, INA + 2, *(job ^ difference).to_bytes(2, "big")) for difference in (1, 256, 0xFFFF)
        ],
    }


def of_no_outcome(good: bytes) -> list[bytes]:
    """Frames that no program gets to see, or that it does not take for aggregation."""
    return [
        b"",
        good + bytes(LONGEST_FRAME + 1 - len(good)),
        good + bytes(50_000),
        patched(good, 12, 0x88, 0xB5),  # another protocol
        with_checksum(patched(good, IPV4 + 6, 0, 1)),  # a later fragment
        with_checksum(patched(good, IPV4 + 9, 6)),  # TCP
        patched(good, UDP + 2, 0, 7),  # another UDP port
    ]


@dataclass
class Bed:
    """A switch with a job of two at ports 1 and 2, and the far ends of all its ports in our hands."""

    switch: EmbeddedSwitch
    controller: SwitchSession
    admission: Admission
    workers: list[Communicator]
    taps: dict[int, Tap]
    rounds: int = 0

    def good(self, rank: int = 0, psn: int = 0) -> bytes:
        """A frame that is taken if it comes from where it should."""
        return gradient(self.admission, psn, rank, [12345] * LANES)

    def send_beside_the_job(
        self, junk: Sequence[tuple[int, bytes]], *, burst: int = BURST, stranger: socket.socket | None = None
    ) -> None:
        """Send frames to ports, in bursts, while the job sums: exactly.

        They come from the ports' peers, but those that start with `FOREIGN` from a `stranger` without that.
        """
        rng = np.random.default_rng(self.rounds)
        for start in range(0, len(junk), burst):
            inputs = [rng.integers(-(2**26), 2**26, LENGTH, dtype=np.int32) for _ in range(SIZE)]
            handles = [
                worker.allreduce_async(array) for worker, array in zip(self.workers, inputs, strict=True)
            ]
            sent = junk[start : start + burst]
            for port, frame in sent:
                if stranger is not None and frame.startswith(FOREIGN):
                    stranger.sendto(frame.removeprefix(FOREIGN), self._address(port))
                else:
                    self.taps[port].outer.send(frame)
            for port in {port for port, _ in sent}:
                self._await_processing(port)
            for handle in handles:
                np.testing.assert_array_equal(handle.wait(), sum(inputs))
            self.rounds += 1

    def counters(self) -> tuple[dict[str, int], dict[str, int]]:
        """What is counted for packets of no job, and for the job."""
        return self.controller.row_counters(0), self.controller.counters(self.admission.job)

    def _address(self, port: int) -> tuple[str, int]:
        host, _, number = self.switch.udp_address(port).rpartition(":")
        return host, int(number)

    def _await_processing(self, port: int) -> None:
        """Ask for the switch's address: the answer comes after all that was sent to the port before."""
        self.taps[port].outer.send(ARP_REQUEST)
        try:
            self.taps[port].arp.get(timeout=60)
        except queue.Empty:
            pytest.fail(f"port {port} does not answer")


@pytest.fixture
def bed() -> Iterator[Bed]:
    with contextlib.ExitStack() as stack:
        taps = {port: stack.enter_context(Tap()) for port in PORTS}
        ports = [f"--port={port}=udp:0:{tap.number}" for port, tap in taps.items()]
        switch = stack.enter_context(EmbeddedSwitch(["--program=exclusive", f"--lanes={LANES}", *ports]))
        controller = stack.enter_context(connect(switch.address))
        controller.install([forwarding.own_address(SWITCH_IP, SWITCH_MAC)])
        members = [
            Member(rank, rank + 1, f"02:00:00:00:00:0{rank}", f"10.0.0.{rank + 1}", 9000)
            for rank in range(SIZE)
        ]
        admission = single.admit(controller, Part(tuple(members), SLOTS))
        for port, tap in taps.items():
            tap.start(switch.udp_address(port))
        workers = []
        for rank, member in enumerate(members):
            transport = TransportConfig(
                "loopback", "127.0.0.1:0", taps[rank + 1].address, member.mac, SWITCH_MAC, member.ip
            )
            config = JobConfig(
                admission.job, rank, SIZE, LANES, transport, 2 * admission.window, epoch=admission.epoch
            )
            workers.append(Communicator(config))
            stack.callback(workers[rank].close)
        yield Bed(switch, controller, admission, workers, taps)


def completed(bed: Bed) -> int:
    """How many sums the job has completed: those of the data, and one by which ranks agree on the call."""
    return bed.rounds * (-(-LENGTH // LANES) + 1)


def test_every_refusal_is_counted_by_its_reason(bed: Bed) -> None:
    good = bed.good()
    expected_of_no_job: Counter[str] = Counter()
    expected_of_job: Counter[str] = Counter()
    junk: list[tuple[int, bytes]] = []
    for reason, frames in of_no_job(good).items():
        junk += [(port, frame) for port in PORTS for frame in frames]
        expected_of_no_job[reason] = len(PORTS) * len(frames)
    junk += [(port, frame) for port in PORTS for frame in of_no_outcome(good)]
    for_the_job = {
        "wrong_port": [(OTHER_PORT, bed.good(rank, psn)) for rank in range(SIZE) for psn in range(40)],
        "wrong_rank": [
            (rank + 1, patched(bed.good(rank), INA + 8, *bitmap.to_bytes(4, "big")))
            for rank in range(SIZE)
            for bitmap in (0, 2 - rank, 3, 4, 1 << 31, 0xFFFFFFFF)
        ],
        "wrong_fan_in": [
            (rank + 1, patched(bed.good(rank), INA + 12, fan_in))
            for rank in range(SIZE)
            for fan_in in (0, 1, 3, 32, 255)
        ],
        "wrong_epoch": [
            (rank + 1, patched(bed.good(rank), INA + 15, bed.admission.epoch ^ difference))
            for rank in range(SIZE)
            for difference in (1, 0x80, 0xFF)
        ],
        "wrong_direction": [
            (rank + 1, reminder(bed.admission, psn)) for rank in range(SIZE) for psn in range(9)
        ],
    }
    for reason, sent in for_the_job.items():
        junk += sent
        expected_of_job[reason] = len(sent)
    random.Random(1).shuffle(junk)
    bed.send_beside_the_job(junk)

    of_no_job_counted, of_job_counted = bed.counters()
    assert {name: count for name, count in of_no_job_counted.items() if count} == expected_of_no_job
    assert {name: of_job_counted[name] for name in REFUSALS if of_job_counted[name]} == expected_of_job
    assert of_job_counted["completed"] == of_job_counted["aggregated"] == completed(bed)
    assert of_job_counted["overflow"] == of_job_counted["disagree"] == of_job_counted["stale"] == 0


def test_nothing_from_a_foreign_port_gets_in(bed: Bed) -> None:
    chance = random.Random(2)
    junk = []
    for number in range(900):
        frame = bytearray(bed.good(number % SIZE, chance.randrange(20_000)))
        for _ in range(chance.randrange(4)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        junk.append((OTHER_PORT, bytes(frame[: chance.choice((None, chance.randrange(300)))])))
    bed.send_beside_the_job(junk)
    of_no_job_counted, of_job_counted = bed.counters()
    assert of_job_counted["completed"] == of_job_counted["aggregated"] == completed(bed)
    assert of_job_counted["wrong_port"] > 100
    assert of_job_counted["wrong_port"] + sum(of_no_job_counted.values()) <= len(junk)
    assert of_job_counted["wrong_rank"] == of_job_counted["wrong_fan_in"] == 0


def test_ten_thousand_forged_replayed_and_foreign_packets(bed: Bed) -> None:
    """From the right address and from others, while the job sums: each is counted by its reason."""
    bed.send_beside_the_job(
        [(OTHER_PORT, b"")]
    )  # the taps keep what passes first: its slots are others' soon
    chance = random.Random(3)
    good = bed.good()
    job, epoch = bed.admission.job, bed.admission.epoch
    forged = {
        "bad_checksum": lambda rank: patched(good, IPV4 + 10, good[IPV4 + 10] ^ chance.randrange(1, 256)),
        "unknown_job": lambda rank: patched(
            good, INA + 2, *(job ^ chance.randrange(1, 1 << 16)).to_bytes(2, "big")
        ),
        "wrong_epoch": lambda rank: patched(bed.good(rank), INA + 15, epoch ^ chance.randrange(1, 256)),
        "wrong_rank": lambda rank: bed.good(1 - rank, chance.randrange(1 << 32)),
        "wrong_fan_in": lambda rank: patched(bed.good(rank), INA + 12, chance.choice([0, 1, 3, 255])),
        "wrong_direction": lambda rank: reminder(bed.admission, chance.randrange(1 << 32)),
    }
    junk: list[tuple[int, bytes]] = []
    for make in forged.values():
        junk += [(rank + 1, make(rank)) for rank in range(SIZE) for _ in range(500)]
    junk += [(OTHER_PORT, bed.good(number % SIZE, chance.randrange(1 << 32))) for number in range(1000)]
    replays = [(rank + 1, chance.choice(bed.taps[rank + 1].sent)) for rank in range(SIZE) for _ in range(500)]
    foreign = [
        (chance.choice(PORTS), FOREIGN + bed.good(number % SIZE, chance.randrange(40_000)))
        for number in range(2000)
    ]
    junk += replays + foreign
    assert len(junk) == 10_000
    chance.shuffle(junk)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        bed.send_beside_the_job(junk, burst=SHORT_BURST, stranger=stranger)

        of_no_job_counted, counted = bed.counters()
        assert {name: count for name, count in of_no_job_counted.items() if count} == {
            "bad_checksum": 1000,
            "unknown_job": 1000,
        }
        assert {name: counted[name] for name in REFUSALS if counted[name]} == {
            **dict.fromkeys(
                ("wrong_epoch", "wrong_rank", "wrong_fan_in", "wrong_direction", "wrong_port"), 1000
            ),
        }
        assert counted["stale"] == len(replays)
        assert bed.switch.strangers() == len(foreign)
        assert counted["completed"] == counted["aggregated"] == completed(bed)
        assert counted["overflow"] == counted["disagree"] == 0
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.recv(1)  # nobody answers
