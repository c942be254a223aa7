"""The worker that speaks SwitchML's format, and its published program where `INA_SWITCHML` names it."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.p4.switchml.links import FRAME_BYTES, VALUES, Host, Setting, Worker, allreduce

HOST = Host(3, 12, 0x001122330003, 0x0A000004)


def answer(frame: bytes, values: np.ndarray) -> bytes:
    """Return the result that the switch makes of a frame's chunk."""
    return frame[:42] + bytes([0x10 | frame[42]]) + frame[43:52] + values.astype(">i4").tobytes()


def test_a_frame_is_ipv4_and_udp_with_a_right_checksum_and_the_values_in_network_order() -> None:
    values = np.arange(-5, VALUES - 5, dtype=np.int32)
    (frame,) = Worker(HOST, values, 4, 1000).start(0)
    assert len(frame) == FRAME_BYTES == 14 + 20 + 8 + 8 + 2 + 256
    assert frame[6:14] == HOST.mac.to_bytes(6, "big") + b"\x08\x00"
    total = sum(struct.unpack("!10H", frame[14:34]))
    assert (total >> 16) + (total & 0xFFFF) == 0xFFFF
    assert struct.unpack("!HHHH", frame[34:42]) == (0xBEE0, 0xBEE0, len(frame) - 34, 0)
    assert np.array_equal(np.frombuffer(frame[52:], ">i4"), values)


def test_a_slot_alternates_its_sets_and_is_used_again_after_its_result() -> None:
    worker = Worker(HOST, np.zeros(5 * VALUES, np.int32), 2, 1000)
    first, second = worker.start(0)
    pools = [frame[48:50] for frame in (first, second)]
    (third,) = worker.receive(answer(first, np.full(VALUES, 7)), 10)
    assert worker.receive(answer(first, np.full(VALUES, 9)), 11) == []  # a second result changes nothing
    (fourth,) = worker.receive(answer(second, np.full(VALUES, 8)), 12)
    (fifth,) = worker.receive(answer(third, np.zeros(VALUES)), 13)
    pools += [frame[48:50] for frame in (third, fourth, fifth)]
    assert [int.from_bytes(pool, "big") for pool in pools] == [0, 1, 0x8000, 0x8001, 0]
    assert list(worker.sums[:VALUES]) == [7] * VALUES
    assert worker.receive(b"short", 14) == worker.receive(fifth, 14) == []


def test_what_has_no_result_is_sent_again_after_its_patience() -> None:
    worker = Worker(HOST, np.zeros(2 * VALUES, np.int32), 2, 1000)
    first, second = worker.start(5)
    assert worker.wakes_us() == 1005
    worker.receive(answer(first, np.zeros(VALUES)), 900)
    assert worker.resend(1004) == []
    assert worker.resend(1005) == [second]
    assert (worker.wakes_us(), worker.sent, worker.resent) == (2005, 3, 1)
    worker.receive(answer(second, np.zeros(VALUES)), 1100)
    assert (worker.is_done, worker.wakes_us()) == (True, None)


def test_without_the_program_the_page_says_what_to_fetch(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.p4.switchml.compare", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "it is dev_root/p4 of p4lang/p4app-switchML" in done.stderr


@pytest.mark.skipif(
    "INA_SWITCHML" not in os.environ,
    reason="INA_SWITCHML does not name dev_root/p4 of a clone of github.com/p4lang/p4app-switchML",
)
@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_the_published_program_sums_exactly(loss: float) -> None:
    outcome = allreduce(Path(os.environ["INA_SWITCHML"]), Setting(values=8000, window=16, loss=loss))
    assert outcome.exact
    assert (outcome.resent > 0) == (loss > 0)
