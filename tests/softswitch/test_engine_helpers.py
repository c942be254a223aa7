"""Several threads of one switch: what keeps packets on one, what they count, programs that change."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from softswitch.compiler import ir
from softswitch.engine.build import load
from softswitch.engine.pcapng import CaptureSettings
from softswitch.engine.ports import MemoryPort, PortImpairments, PortSpec, SharedPort, UdpPort
from softswitch.engine.switch import Switch
from tests.softswitch.lowering import lowered
from tests.softswitch.script_program import have_compiler

pytestmark = pytest.mark.skipif(not have_compiler, reason="no C compiler")

CELLS = "register<bit<32>>(1024) r; bit<32> x; counter(1, CounterType.packets) c;"
COUNTED = """
    r.read(x, (bit<32>)hdr.h.a * 64); r.write((bit<32>)hdr.h.a * 64, x + 1); c.count(0);
    standard_metadata.egress_spec = {0};
"""
PACKETS = 400


def counting(port: str = "standard_metadata.ingress_port") -> ir.Program:
    """Return a program that counts packets by their first byte, and sends them on."""
    return lowered(COUNTED.format(port), locals=CELLS)


@contextmanager
def running(ports: dict[int, PortSpec], busy_packets: int = 0) -> Iterator[Switch]:
    with Switch(ports, threads=3, busy_packets=busy_packets) as switch:
        switch.start()
        yield switch


@contextmanager
def client(switch: Switch, port: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.settimeout(20)
        opened.connect(switch.port_address(port))
        yield opened


def echo(opened: socket.socket, packets: int) -> list[bytes]:
    """Send packets with first bytes 0 to 15 in turn, a few at a time; return the answers."""
    answers = []
    for number in range(packets):
        opened.send(bytes((number % 16, number >> 8, number & 255, 0)))
        if number >= 8:
            answers.append(opened.recv(100))
    return answers + [opened.recv(100) for _ in range(8)]


def test_threads_count_together_and_keep_the_order_of_a_slot() -> None:
    pipeline = load(counting(), backend="compiled")
    with running({1: UdpPort(), 2: UdpPort()}) as switch, client(switch, 1) as opened:
        switch.load(pipeline)
        assert switch.undivided() is None
        answers = echo(opened, PACKETS)
        with switch.locked():
            cells = [pipeline.read_register("C.r", 64 * cell) for cell in range(16)]
            assert cells == [PACKETS // 16] * 16
            assert pipeline.read_counter("C.c", 0)[0] == PACKETS
        statistics = switch.statistics(1)
        assert (statistics.rx_packets, statistics.tx_packets) == (PACKETS, PACKETS)
        assert 0 < switch.switch_statistics().handed_over < PACKETS
    for cell in range(16):
        numbers = [answer[1] << 8 | answer[2] for answer in answers if answer[0] == cell]
        assert numbers == sorted(numbers) == list(range(cell, PACKETS, 16))


def test_few_packets_stay_on_the_thread_that_receives_them() -> None:
    with running({1: UdpPort()}, busy_packets=64) as switch, client(switch, 1) as opened:
        switch.load(load(counting(), backend="compiled"))
        assert len(echo(opened, PACKETS)) == PACKETS
        assert switch.switch_statistics().handed_over == 0


def test_frames_for_the_controller_come_from_every_thread() -> None:
    taken: list[bytes] = []
    with running({1: UdpPort(), 2: MemoryPort(cpu=True)}) as switch, client(switch, 1) as opened:
        switch.on_packet_in(lambda port, frame: taken.append(frame))
        switch.load(load(counting("2"), backend="compiled"))
        for number in range(64):
            opened.send(bytes((number % 16, 0, number, 0)))
        deadline = time.monotonic() + 20
        while len(taken) < 64 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sorted(frame[2] for frame in taken) == list(range(64))
        assert switch.switch_statistics().handed_over > 0


def test_another_program_is_loaded_between_two_packets_of_all_threads() -> None:
    programs = [load(counting(), backend="compiled") for _ in range(2)]
    with running({1: UdpPort()}) as switch, client(switch, 1) as opened:
        for turn in range(10):
            switch.load(programs[turn % 2])
            assert len(echo(opened, 64)) == 64
        switch.load(None)
    for pipeline in programs:
        cells = [pipeline.read_register("C.r", 64 * cell) for cell in range(16)]
        assert cells == [5 * 64 // 16] * 16


def test_a_port_that_is_added_later_is_every_threads() -> None:
    pipeline = load(counting("9"), backend="compiled")
    with running({1: UdpPort()}) as switch:
        switch.load(pipeline)
        switch.add_port(9, UdpPort())
        with client(switch, 1) as opened, client(switch, 9) as far:
            far.send(bytes(4))  # so that the switch knows its peer; the program sends it back
            assert len(far.recv(100)) == 4
            for number in range(64):
                opened.send(bytes((number % 16, 0, number, 0)))
            assert sorted(far.recv(100)[2] for _ in range(64)) == list(range(64))
        assert switch.switch_statistics().handed_over > 0


def test_what_keeps_packets_on_one_thread(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = load(counting(), backend="compiled")
    with Switch({1: MemoryPort()}, threads=2) as switch:
        assert switch.undivided() == "there is no program"
        switch.load(pipeline)
        assert switch.undivided() is None
        switch.capture(CaptureSettings())
        assert switch.undivided() == "frames are captured"
        switch.capture(None)
        assert switch.undivided() is None
        switch.add_port(2, SharedPort())
        assert switch.undivided() == "a port is shared memory"
    with Switch({1: MemoryPort()}, threads=2, impairments={1: PortImpairments.parse("rate=1G")}) as switch:
        switch.load(pipeline)
        assert switch.undivided() == "a port has a rate"
    with Switch({1: MemoryPort()}) as switch:
        switch.load(pipeline)
        assert switch.undivided() == "there is only one"
    caplog.clear()
    with caplog.at_level(logging.WARNING), Switch({1: MemoryPort()}, threads=2) as switch:
        switch.load(load(lowered("r.read(x, 3);", locals=CELLS), backend="compiled"))
    (said,) = caplog.messages
    assert said.startswith("one thread processes all packets: the index of C.r is the same for all packets")


def test_a_table_behind_which_registers_decide_sends_all_packets_to_one_thread_while_it_has_entries() -> None:
    program = lowered(
        "x = (bit<32>)hdr.h.a * 64; t.apply(); r.read(y, x); r.write(x, y + 1);"
        "standard_metadata.egress_spec = standard_metadata.ingress_port;",
        locals=CELLS
        + """bit<32> y; register<bit<32>>(64) q;
        action go() { q.read(x, (bit<32>)hdr.h.b); x = (bit<32>)hdr.h.a * 64 + x; }
        table t { key = { hdr.h.b: exact; } actions = { go; NoAction; } const default_action = NoAction; }""",
    )
    pipeline = load(program, backend="compiled")
    entry = ir.ConstEntry((ir.Pattern("exact", 200),), ir.Invocation("C.go", ()), 0)
    with running({1: UdpPort()}) as switch, client(switch, 1) as opened:
        switch.load(pipeline)
        for times in range(1, 4):
            before = switch.switch_statistics().handed_over
            assert len(echo(opened, 64)) == 64
            assert switch.switch_statistics().handed_over > before
            with switch.locked():
                pipeline.insert("C.t", entry)
            assert "depend on registers" in (switch.undivided() or "")
            before = switch.switch_statistics().handed_over
            assert len(echo(opened, 64)) == 64
            assert switch.switch_statistics().handed_over == before
            with switch.locked():
                pipeline.delete("C.t", entry)
            assert switch.undivided() is None
            with switch.locked():
                cells = [pipeline.read_register("C.r", 64 * cell) for cell in range(16)]
            assert cells == [8 * times] * 16
