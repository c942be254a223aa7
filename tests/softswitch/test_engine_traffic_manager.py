"""The traffic manager on memory ports in virtual time."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator

import pytest

from softswitch.engine.interpreter import Interpreter
from softswitch.engine.pipeline import INGRESS_CLONE, NORMAL, RECIRCULATED, REPLICATED, RESUBMITTED
from softswitch.engine.ports import Impairments, MemoryPort, PortImpairments, SwitchError, UdpPort
from softswitch.engine.switch import Switch
from tests.softswitch.script_program import (
    ENGINES,
    digest,
    frame,
    have_compiler,
    scripted,
    seen,
)


def make(engine: str, *, seed: int = 0, **impairments: PortImpairments) -> Switch:
    """A switch of ports 0 to 4; impairments as ``p1=…``."""
    links = {int(name[1:]): value for name, value in impairments.items()}
    return scripted(engine, {number: MemoryPort() for number in range(5)}, seed=seed, impairments=links)


def slow(**fields: int) -> PortImpairments:
    """Return a port that sends 1,000 bytes in a millisecond."""
    return PortImpairments(tx=Impairments(rate_bps=8e6, **fields))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def switch(engine: str) -> Iterator[Switch]:
    with make(engine) as switch:
        yield switch


def drained(switch: Switch) -> dict[int, list[bytes]]:
    return {port: frames for port in switch.ports if (frames := switch.drain(port))}


def test_unicast(switch: Switch) -> None:
    switch.inject(0, [frame("U", 3, tag=7)], now_us=11)
    out = drained(switch)
    assert list(out) == [3]
    assert (seen(out[3][0]).tag, seen(out[3][0]).instance_type, seen(out[3][0]).now_us) == (7, NORMAL, 11)
    assert switch.statistics(0).rx_packets == switch.statistics(3).tx_packets == 1
    assert switch.statistics(0).rx_bytes == switch.statistics(3).tx_bytes == 64


def test_drop_in_ingress_and_in_egress(switch: Switch) -> None:
    switch.inject(0, [frame("D"), frame("U", 511), frame("X", 2)], now_us=0)
    assert drained(switch) == {}
    assert (switch.statistics(0).ingress_dropped, switch.statistics(2).egress_dropped) == (2, 1)


def test_multicast_makes_a_copy_per_member_with_its_replication_id(switch: Switch) -> None:
    switch.set_multicast_group(9, [(1, 100), (2, 200), (1, 101)])
    switch.inject(0, [frame("M", 9)], now_us=0)
    out = drained(switch)
    assert [(seen(f).rid, seen(f).instance_type) for f in out[1]] == [(100, REPLICATED), (101, REPLICATED)]
    assert [seen(f).rid for f in out[2]] == [200]


def test_unknown_group_is_counted_and_an_empty_one_is_not(switch: Switch) -> None:
    switch.set_multicast_group(9, [])
    switch.inject(0, [frame("M", 9), frame("M", 10)], now_us=0)
    assert (drained(switch), switch.switch_statistics().no_group) == ({}, 1)
    assert switch.multicast_groups() == {9: []}
    switch.set_multicast_group(9, None)
    assert switch.multicast_groups() == {}


def test_ingress_clone_leaves_beside_the_packet_and_even_if_it_is_dropped(switch: Switch) -> None:
    switch.set_clone_session(5, [(2, 7), (3, 8)], truncate=40)
    switch.inject(0, [frame("U", 1, clone=5, where="i"), frame("D", clone=5, where="i")], now_us=0)
    out = drained(switch)
    assert [seen(f).instance_type for f in out[1]] == [NORMAL]
    for port, rid in ((2, 7), (3, 8)):
        found = [(seen(f).instance_type, seen(f).rid, len(f)) for f in out[port]]
        assert found == [(INGRESS_CLONE, rid, 40)] * 2


@pytest.mark.parametrize(
    ("sent", "left", "counted"),
    [
        pytest.param(frame("U", 1, clone=6, where="i"), [1], {"no_group": 1}, id="clone to no session"),
        pytest.param(frame("R", 1, times=200), [], {"loops": 1}, id="endless recirculation"),
        pytest.param(frame("Z", 1, times=200), [], {"loops": 1}, id="endless resubmission"),
        pytest.param(frame("U", 77), [], {"no_port": 1}, id="a port that does not exist"),
        # only the last pass sends
        pytest.param(frame("Z", 500, times=3), [], {"no_port": 1}, id="no real port until the last pass"),
    ],
)
def test_what_goes_nowhere_is_counted(
    switch: Switch, sent: bytes, left: list[int], counted: dict[str, int]
) -> None:
    switch.inject(0, [sent], now_us=0)
    assert list(drained(switch)) == left
    statistics = switch.switch_statistics()
    assert {name: getattr(statistics, name) for name in ("no_group", "loops", "no_port")} == {
        "no_group": 0,
        "loops": 0,
        "no_port": 0,
        **counted,
    }
    assert switch.statistics(0).egress_dropped == 0


@pytest.mark.parametrize(("what", "instance_type"), [("R", RESUBMITTED), ("Z", RECIRCULATED)])
def test_packets_enter_again_with_the_metadata_of_their_field_list(
    switch: Switch, what: str, instance_type: int
) -> None:
    switch.inject(2, [frame(what, 1, times=5)], now_us=0)
    (out,) = drained(switch)[1]
    assert (seen(out).turns, seen(out).instance_type) == (5, instance_type)


def test_a_clone_bomb_ends(switch: Switch) -> None:
    switch.set_multicast_group(1, [(1, 0), (2, 0), (3, 0), (4, 0)])
    switch.set_clone_session(1, [(1, 0), (2, 0), (3, 0), (4, 0)])
    # every turn doubles: recirculated, and its clone recirculated
    switch.inject(0, [frame("Z", 1, times=60, clone=1, where="e")], now_us=0)
    assert switch.switch_statistics().loops > 0


def test_frames_of_impossible_length(switch: Switch) -> None:
    switch.inject(0, [b"", bytes(9217), frame("U", 1, size=9216), b"short"], now_us=0)
    assert [len(f) for f in switch.drain(1)] == [9216]
    assert switch.statistics(0).rx_malformed == 2
    assert switch.statistics(0).ingress_dropped == 1


def test_without_a_program_frames_are_dropped(switch: Switch) -> None:
    switch.load(None)
    switch.inject(0, [frame("U", 1)], now_us=0)
    assert drained(switch) == {}
    assert switch.statistics(0).rx_no_program == 1


def test_a_queue_shows_its_depth_and_is_finite(engine: str) -> None:
    with make(engine, p1=slow(queue_packets=3)) as switch:
        switch.inject(0, [frame("U", 1, size=1000, tag=i) for i in range(6)], now_us=0)
        arrivals = []
        while (now := switch.next_event_us()) is not None:
            switch.advance(now)
            arrivals += [(when, seen(f)) for when, f in switch.drain_timed(1)]
        assert [(when, s.tag, s.enq_qdepth, s.deq_qdepth, s.waited_us) for when, s in arrivals] == [
            (1000, 0, 0, 0, 0),
            (2000, 1, 0, 2, 1000),
            (3000, 2, 1, 1, 2000),
            (4000, 3, 2, 0, 3000),
        ]
        assert switch.statistics(1).tx_queue_full == 2


def leaving(switch: Switch) -> list[tuple[int, int, int]]:
    """All that leaves at port 1, in order: tag, depths of its queue when it came and when it left."""
    out = []
    while (now := switch.next_event_us()) is not None:
        switch.advance(now)
        out += [(s.tag, s.enq_qdepth, s.deq_qdepth) for s in map(seen, switch.drain(1))]
    return out


def test_the_highest_priority_with_a_packet_is_served(engine: str) -> None:
    with make(engine, p1=slow(queue_packets=10)) as switch:
        urgency = (0, 0, 3, 7, 3, 0, 7)  # the first is on the link before the others are there
        frames = [frame("U", 1, size=1000, tag=i, times=each) for i, each in enumerate(urgency)]
        switch.inject(0, frames, now_us=0)
        assert leaving(switch) == [
            (0, 0, 0),
            (3, 0, 1),
            (6, 1, 0),
            (2, 0, 1),
            (4, 1, 0),
            (1, 0, 1),
            (5, 1, 0),
        ]


def test_a_full_queue_leaves_room_in_those_of_other_priorities(engine: str) -> None:
    with make(engine, p1=slow(queue_packets=1)) as switch:
        frames = [frame("U", 1, size=1000, tag=i, times=each) for i, each in enumerate((0, 0, 0, 1, 1))]
        switch.inject(0, frames, now_us=0)
        assert [tag for tag, _, _ in leaving(switch)] == [0, 3, 1]
        assert switch.statistics(1).tx_queue_full == 2


def test_copies_have_their_packets_priority_and_clones_the_lowest(engine: str) -> None:
    with make(engine, p1=slow(queue_packets=10)) as switch:
        switch.set_multicast_group(5, [(1, 7)])
        switch.set_clone_session(1, [(1, 9)])
        switch.inject(
            0,
            [
                frame("U", 1, size=1000, tag=0),
                frame("U", 1, size=1000, tag=1, times=1),
                frame("D", size=1000, tag=2, times=5, clone=1, where="i"),
                frame("M", 5, size=1000, tag=3, times=2),
            ],
            now_us=0,
        )
        assert [tag for tag, _, _ in leaving(switch)] == [0, 3, 1, 2]


def test_a_burst_passes_above_the_rate(engine: str) -> None:
    bucket = PortImpairments(tx=Impairments(rate_bps=8e6, burst_bytes=3000))
    with make(engine, p1=bucket) as switch:
        switch.inject(0, [frame("U", 1, size=1000) for _ in range(5)], now_us=0)
        switch.advance(10_000)
        assert [when for when, _ in switch.drain_timed(1)] == [0, 0, 0, 1000, 2000]


def test_an_rx_rate_delays_and_drops_before_the_program(engine: str) -> None:
    slow = PortImpairments(rx=Impairments(rate_bps=8e6, queue_packets=2))
    with make(engine, p0=slow) as switch:
        switch.inject(0, [frame("U", 1, size=1000, tag=i) for i in range(5)], now_us=0)
        switch.advance(10_000)
        assert [(when, seen(f).tag) for when, f in switch.drain_timed(1)] == [(1000, 0), (2000, 1), (3000, 2)]
        assert switch.statistics(0).rx_queue_full == 2


def test_loading_a_program_discards_what_is_queued(engine: str) -> None:
    with make(engine, p1=slow()) as switch:
        switch.inject(0, [frame("U", 1, size=1000) for _ in range(4)], now_us=0)
        switch.load(None)
        switch.advance(10_000)
        assert len(switch.drain(1)) == 1  # was on the link already
        assert switch.switch_statistics().unloaded == 3


def test_packet_in_and_packet_out(engine: str) -> None:
    ports = {0: MemoryPort(), 510: MemoryPort(cpu=True)}
    with scripted(engine, ports) as switch:
        received: list[tuple[int, int]] = []
        switch.on_packet_in(lambda port, data: received.append((port, seen(data).tag)))
        switch.inject(0, [frame("U", 510, tag=1)])
        switch.packet_out(510, frame("U", 0, tag=2))
        assert received == [(510, 1)]
        assert [seen(f).tag for f in switch.drain(0)] == [2]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda switch: switch.inject(9, []), "port 9"),
        (lambda switch: switch.drain(9), "port 9"),
        (lambda switch: switch.statistics(9), "port 9"),
        (lambda switch: switch.port_address(0), "port 0"),
        (lambda switch: switch.set_multicast_group(0, []), r"multicast group 0: want 1\.\.65535"),
        (lambda switch: switch.set_multicast_group(1, [(70000, 0)]), "70000"),
        (
            lambda switch: switch.inject_batch(0, b"abc", array("I", [8])),
            "3 bytes of data for frames of 8 bytes",
        ),
        (lambda switch: Switch({511: MemoryPort()}), r"0\.\.510"),
        (
            lambda switch: Switch({1: UdpPort()}, impairments={3: PortImpairments()}),
            "port 3, which does not exist",
        ),
    ],
)
def test_refusals(switch: Switch, call: Callable[[Switch], object], why: str) -> None:
    with pytest.raises((SwitchError, ValueError), match=why):
        call(switch)


def test_a_closed_switch_refuses_and_may_be_closed_again(engine: str) -> None:
    switch = make(engine)
    switch.close()
    with pytest.raises(SwitchError, match="closed"):
        switch.advance(0)
    switch.close()


@pytest.mark.skipif(not have_compiler, reason="no C compiler")
def test_random_frames_leave_as_they_always_did() -> None:
    """Random frames, impairments and clocks: same frames out, at the same times, same counters."""
    transcripts = [_transcript(seed, "compiled") for seed in range(20)]
    # no clone bombs: the interpreter takes minutes for them
    assert all(transcripts[seed] == _transcript(seed, "interpreter") for seed in (1, 3, 4, 5, 18))
    assert digest(transcripts) == "e8761b81cebc571d", "was compared with an engine in Python"


def _transcript(seed: int, engine: str) -> list[object]:
    chance = random.Random(seed)
    links = {f"p{port}": PortImpairments(rx=_some(chance), tx=_some(chance)) for port in range(4)}
    with make(engine, seed=seed, **links) as switch:
        switch.set_multicast_group(1, [(1, 1), (2, 2), (9, 9)])
        switch.set_multicast_group(2, [(port, port) for port in range(5)])
        switch.set_clone_session(1, [(3, 3), (4, 4)], truncate=chance.choice([0, 50]))
        transcript: list[object] = []
        now = 0
        for step in range(150):
            event = switch.next_event_us()
            jump = event is not None and event > now and chance.random() < 0.5
            now = event if jump else now + chance.randrange(200)
            if chance.random() < 0.3:
                switch.advance(now)
            frames = [_any(chance, tag=step * 100 + i) for i in range(chance.randrange(6))]
            switch.inject(chance.randrange(5), frames, now_us=now)
            transcript.append([now, switch.next_event_us(), *map(switch.drain_timed, range(5))])
        transcript.append([switch.statistics(port) for port in range(5)])
        transcript.append(switch.switch_statistics())
    return transcript


def _some(chance: random.Random) -> Impairments:
    def maybe(value: float) -> float:
        return value if chance.random() < 0.4 else 0.0

    return Impairments(
        loss=maybe(0.1),
        duplicate=maybe(0.1),
        reorder=maybe(0.2),
        corrupt=maybe(0.1),
        delay_s=maybe(100e-6),
        jitter_s=maybe(50e-6),
        reorder_s=chance.choice([0.0, 300e-6]),
        rate_bps=maybe(50e6),
        burst_bytes=chance.choice([0, 500]),
        queue_packets=chance.randrange(8),
    )


def _any(chance: random.Random, *, tag: int) -> bytes:
    what, where = chance.choice("UUUMMDRZX"), chance.choice("ie")
    return frame(
        what,
        chance.choice([0, 1, 2, 3, 4, 1, 2, 77]),
        times=chance.randrange(4 if what in "RZ" else 8),
        clone=chance.choice([0, 0, 0, 1, 2]),
        where=where,
        size=chance.randrange(36, 400),
        tag=tag,
    )


def test_what_an_interpreted_program_raises_reaches_whoever_drives_the_switch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Interpreter, "egress", lambda *_: {}[0])
    with scripted("interpreter", {0: MemoryPort()}) as switch:
        with pytest.raises(KeyError, match="0"):
            switch.inject(0, [frame("U", 0)], now_us=1)
        assert switch.statistics(0).egress_dropped == 1
        switch.advance(2)
