"""Cables between switches in virtual time: those in C send the same frames at the same times as in Python."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from contextlib import ExitStack, closing

import pytest

from softswitch.engine.cables import Cable, Cabling, End, connect
from softswitch.engine.ports import Impairments, MemoryPort, PortImpairments, SwitchError
from softswitch.engine.switch import Switch
from tests.softswitch.script_program import ENGINES, frame, have_compiler, load_script, scripted, seen
from tests.twins.switch_cables import TwinCabling

PORTS = 4
CABLINGS = [
    *ENGINES,
    pytest.param("oracle", marks=pytest.mark.skipif(not have_compiler, reason="no C compiler")),
]
GROUP = 7

Arrived = tuple[int, int, int, bytes]
"""When it was drained, the end, when it arrived, and the frame."""


def make(engine: str, number: int, links: dict[int, PortImpairments] | None = None) -> Switch:
    engine = "compiled" if engine == "oracle" else engine
    return scripted(engine, {port: MemoryPort() for port in range(PORTS)}, seed=number, impairments=links)


def join(
    engine: str, switches: Sequence[Switch], cables: Sequence[Cable], ends: Sequence[End]
) -> Cabling | TwinCabling:
    return (TwinCabling if engine == "oracle" else connect)(switches, cables, ends)


def impairments(rng: random.Random) -> Impairments:
    return Impairments(
        loss=rng.choice((0, 0, 0.1)),
        duplicate=rng.choice((0, 0, 0.05)),
        reorder=rng.choice((0, 0, 0.2)),
        reorder_s=20e-6,
        delay_s=rng.choice((0, 0, 3e-6)),
        jitter_s=rng.choice((0, 0, 2e-6)),
        rate_bps=rng.choice((0, 1e8, 1e9)),
        queue_packets=rng.choice((2, 50)),
    )


def drive(engine: str, seed: int, *, one_step: bool = False) -> tuple[list[Arrived], list[object]]:
    """Send random frames through a random network; return what arrived where, and all counters."""
    rng = random.Random(seed)
    count = rng.randint(1, 5)
    places = [(switch, port) for switch in range(count) for port in range(PORTS)]
    rng.shuffle(places)
    cables: list[Cable] = []
    for _ in range(rng.randint(0, len(places) // 2 - 1)):
        a, b = places.pop(), places.pop()
        delay_us = rng.randint(1, 4)
        cables += [Cable(*a, *b, delay_us), Cable(*b, *a, delay_us)]
    cables.sort(key=lambda cable: (cable.source, cable.port))
    ends = [End(*place) for place in places]
    with ExitStack() as stack:
        switches = []
        for number in range(count):
            links = {port: PortImpairments(impairments(rng), impairments(rng)) for port in range(PORTS)}
            switches.append(stack.enter_context(make(engine, number, links)))
            out = [(end.port, 1) for end in ends if end.switch == number]
            switches[-1].set_multicast_group(GROUP, out)
        cabling = join(engine, switches, cables, ends)
        stack.callback(cabling.close)
        arrived: list[Arrived] = []
        now = 0

        def drain() -> None:
            for number, end in enumerate(ends):
                for time_us, data in switches[end.switch].drain_timed(end.port):
                    arrived.append((now, number, time_us, data))

        for tag in range(60):
            number = rng.randrange(len(ends))
            to = rng.randrange(PORTS)
            size = rng.choice((64, 300, 3000))
            sent = frame(rng.choice("UUUUX"), to, size=size, tag=tag)
            if rng.random() < 0.2:
                sent = frame("M", GROUP, size=size, tag=tag)
            copies = rng.randint(1, 4)
            if rng.random() < 0.3:
                cabling.send_later(
                    number, sent, array("Q", [now + rng.randint(1, 20) for _ in range(copies)])
                )
            else:
                cabling.send(number, sent * copies, array("I", [len(sent)] * copies), now)
                drain()
            if rng.random() < 0.1:
                rx, tx = rng.choice((0.0, 0.3)), rng.choice((0.0, 0.3))
                rng.choice(switches).set_loss(rng.randrange(PORTS), rx=rx, tx=tx)
            due = cabling.next_event_us()
            target = now + rng.choice((1, 2, 15)) if due is None or rng.random() < 0.5 else max(now, due)
            while now < target:
                now = cabling.advance(target, one_step=one_step)
            drain()
        now = cabling.advance(now + 500)
        drain()
        counted = [switch.statistics(port) for switch in switches for port in range(PORTS)]
        return arrived, [*counted, *(switch.switch_statistics() for switch in switches)]


@pytest.mark.skipif(not have_compiler, reason="no C compiler")
@pytest.mark.parametrize("seed", range(60))
def test_the_engine_and_its_oracle_send_the_same_frames_at_the_same_times(seed: int) -> None:
    engines = ["compiled", "oracle"] if seed % 6 else ["compiled", "oracle", "interpreter"]
    first, *others = [drive(engine, seed) for engine in engines]
    assert all(other == first for other in others)


@pytest.mark.parametrize("engine", CABLINGS)
def test_step_by_step_is_the_same_as_at_once(engine: str) -> None:
    assert drive(engine, 3, one_step=True) == drive(engine, 3)


@pytest.mark.skipif(not have_compiler, reason="no C compiler")
def test_random_networks_carry_frames_over_cables() -> None:
    arrived = [each for seed in range(10) for each in drive("compiled", seed)[0]]
    assert len(arrived) > 300  # or the comparison above compares nothing


@pytest.mark.parametrize("engine", CABLINGS)
def test_a_frame_that_crosses_a_switch_at_once_is_at_the_next_in_time(engine: str) -> None:
    with make(engine, 0) as a, make(engine, 1) as b:
        cables = [Cable(0, 1, 1, 2, 3), Cable(1, 2, 0, 1, 3)]
        with closing(join(engine, [a, b], cables, [End(0, 0), End(1, 1)])) as cabling:
            cabling.advance(10)
            cabling.send(0, frame("U", 1, tag=9), array("I", [64]), 10)
            assert cabling.next_event_us() == 13
            assert cabling.advance(20) == 20
            assert [(time_us, seen(data).now_us) for time_us, data in b.drain_timed(1)] == [(13, 13)]


@pytest.mark.parametrize("engine", CABLINGS)
def test_a_link_loses_frames_from_a_time_on(engine: str) -> None:
    with make(engine, 0) as a, make(engine, 1) as b:
        cables = [Cable(0, 1, 1, 1, 3), Cable(1, 1, 0, 1, 3)]
        with closing(join(engine, [a, b], cables, [End(0, 0), End(1, 2)])) as cabling:
            a.set_loss(1, rx=0.0, tx=1.0)
            cabling.send(0, frame("U", 1) * 4, array("I", [64] * 4), 0)
            cabling.advance(4)
            assert (a.statistics(1).tx_lost, b.statistics(1).rx_packets) == (4, 0)
            a.set_loss(1, rx=0.0, tx=0.0)
            b.set_loss(2, rx=1.0, tx=0.0)
            cabling.send(0, frame("U", 1) * 2, array("I", [64] * 2), 4)
            cabling.send_later(1, frame("U", 2), array("Q", [6, 6]))
            cabling.advance(8)
            assert (b.statistics(1).rx_packets, b.statistics(2).rx_lost) == (2, 2)
            b.set_loss(2, rx=0.0, tx=0.0)
            assert b.drain(2) == []
            cabling.send(1, frame("U", 2) * 3, array("I", [64] * 3), 8)
            assert (cabling.discard(1), cabling.discard(1)) == (3, 0)


def refused(cables: Sequence[Cable], ports: Sequence[MemoryPort] = (MemoryPort(),)) -> str:
    with Switch(dict(enumerate(ports))) as switch, pytest.raises(SwitchError) as raised:
        connect([switch, switch], cables, [])
    return str(raised.value)


def test_what_cannot_be_connected_is_refused() -> None:
    assert refused([], [MemoryPort(cpu=True)]) == "port 0 of switch 0 is not a memory port for frames"
    cables = [Cable(1, 0, 0, 0, 1), Cable(0, 0, 1, 0, 1)]
    assert refused(cables) == "the cables must be sorted by their source switch"
    with pytest.raises(SwitchError, match="a cable's delay is 0 µs, must be 1 or more"):
        Cable(0, 0, 1, 0, 0)


@pytest.mark.skipif(not have_compiler, reason="no C compiler")
def test_a_switch_with_cables_takes_no_other_program() -> None:
    with make("compiled", 0) as switch:
        cabling = connect([switch], [], [End(0, 0)])
        with pytest.raises(SwitchError):
            load_script(switch)
        cabling.close()
        load_script(switch)
