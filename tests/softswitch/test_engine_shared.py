"""Shared memory ports: frames, wake-ups, and far ends that die or write whatever they like."""

from __future__ import annotations

import ctypes
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from softswitch.engine.build import load
from softswitch.engine.compiled import CProgram
from softswitch.engine.pcapng import CaptureSettings
from softswitch.engine.ports import PortError, PortImpairments, SharedPort
from softswitch.engine.switch import Switch
from tests.programs import program_of
from tests.softswitch import shared_peer
from tests.softswitch.script_program import SCRIPT, frame, have_compiler, load_script, seen
from tests.softswitch.shared_peer import Peer, connected

pytestmark = pytest.mark.skipif(not have_compiler, reason="no C compiler")


def started(ports: dict[int, SharedPort], impairments: str = "") -> Switch:
    switch = Switch(ports, impairments={0: PortImpairments.parse(impairments)} if impairments else None)
    load_script(switch)
    switch.start()
    return switch


@pytest.fixture
def switch() -> Iterator[Switch]:
    with started({0: SharedPort(), 1: SharedPort()}) as switch:
        yield switch


def exchange(a: Peer, b: Peer, count: int, size: int = 1090, to: int = 1) -> None:
    """Frames from one port to the other, none lost, in order."""
    frames = [frame("U", to, size=size, tag=tag) for tag in range(count)]
    for at in range(0, count, 16):
        a.send(frames[at : at + 16])
        received = b.receive(len(frames[at : at + 16]))
        assert [(seen(each).tag, len(each)) for each in received] == [
            (at + i, size) for i in range(len(received))
        ]


def test_thousands_of_frames_go_round_the_rings(switch: Switch) -> None:
    with Peer(switch.shared_path(0)) as a, Peer(switch.shared_path(1), slots=128) as b:
        exchange(a, b, 2000)
        exchange(b, a, 300, size=70, to=0)
    assert switch.statistics(0).rx_packets == switch.statistics(1).tx_packets == 2000
    assert switch.statistics(1).tx_bytes == 2000 * 1090
    assert switch.statistics(0).tx_packets == 300


def test_the_program_is_shown_frames_that_wait_in_the_ring() -> None:
    """In their order: as it looks nothing up, it has to be told that it waits for memory."""
    shown: list[bytes] = []
    waits = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)(lambda state: 1)
    ahead = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint16)(
        lambda state, data, length, port: shown.append(ctypes.string_at(data, length))
    )
    pipeline = load(program_of(SCRIPT), backend="compiled")
    pipeline._ops = CProgram.from_buffer_copy(pipeline._ops)
    pipeline._ops.waits, pipeline._ops.ahead = (ctypes.cast(each, ctypes.c_void_p) for each in (waits, ahead))
    with Switch({0: SharedPort(), 1: SharedPort()}) as switch:
        switch.load(pipeline)
        switch.start()
        with Peer(switch.shared_path(0), slots=128) as a, Peer(switch.shared_path(1), slots=128) as b:
            sent = [frame("U", 1, size=100 if tag % 64 < 32 else 1090, tag=tag) for tag in range(640)]
            for at in range(0, len(sent), 64):  # more than are looked at ahead of one
                a.send(sent[at : at + 64])
                assert len(b.receive(64)) == 64
    assert shown == [each[:128] for each in sent]


def test_a_port_may_be_added_while_others_are_served(switch: Switch) -> None:
    with Peer(switch.shared_path(0)) as a, Peer(switch.shared_path(1)) as b:
        exchange(a, b, 10)
        switch.add_port(2, SharedPort())
        with Peer(switch.shared_path(2)) as c:
            exchange(a, c, 200, to=2)
            exchange(c, b, 200)
        exchange(a, b, 10)
    assert switch.statistics(2).tx_packets == 200
    for number, reason in ((2, "port 2: exists already"), (511, "want 0..510")):
        with pytest.raises(PortError, match=reason):
            switch.add_port(number, SharedPort())


def test_frames_of_all_sizes_keep_their_edges(switch: Switch) -> None:
    sizes = [64, 63, 1094, 100, 36, 37, 1000] * 10
    with Peer(switch.shared_path(0)) as a, Peer(switch.shared_path(1), slots=256) as b:  # room for all
        for tag, size in enumerate(sizes):
            a.send([frame("U", 1, size=size, tag=tag)])
        received = b.receive(len(sizes))
    assert [(seen(each).tag, len(each)) for each in received] == list(enumerate(sizes))


def test_a_switch_with_nothing_to_do_sleeps_until_a_byte_comes(switch: Switch) -> None:
    with Peer(switch.shared_path(0)) as a, Peer(switch.shared_path(1)) as b:
        for _ in range(3):
            while not a.word(shared_peer.SWITCH_ASLEEP) or not b.word(shared_peer.SWITCH_ASLEEP):
                os.sched_yield()
            exchange(a, b, 10)
        assert a.word(shared_peer.IN_TAIL) == 30


def test_a_peer_that_sleeps_is_woken_once(switch: Switch) -> None:
    with Peer(switch.shared_path(0)) as a, Peer(switch.shared_path(1)) as b:
        b.set_word(shared_peer.PEER_ASLEEP, 1)
        a.send([frame("U", 1, tag=tag) for tag in range(5)])
        assert b.socket.recv(64) == b"\0"
        assert b.word(shared_peer.PEER_ASLEEP) == 0
        assert len(b.receive(5)) == 5


@pytest.mark.parametrize("count", [200, 900])
def test_a_peer_that_sleeps_hears_of_many_frames_at_once(switch: Switch, count: int) -> None:
    """All of them if the switch has nothing else to do then, else a quarter of the ring at least."""
    with Peer(switch.shared_path(0), slots=1024) as a, Peer(switch.shared_path(1), slots=1024) as b:
        b.set_word(shared_peer.PEER_ASLEEP, 1)
        with switch.locked():  # it finds all of them
            a.send([frame("U", 1, tag=tag) for tag in range(count)])
        assert b.socket.recv(64) == b"\0"
        assert b.word(shared_peer.OUT_HEAD) >= min(count, 256)
        assert len(b.receive(count)) == count
        assert b.word(shared_peer.PEER_ASLEEP) == 0


def test_a_peer_that_waits_for_room_is_woken(switch: Switch) -> None:
    with Peer(switch.shared_path(0)) as a, Peer(switch.shared_path(1), slots=256) as b:
        with switch.locked():  # it takes nothing meanwhile
            a.send([frame("U", 1, tag=tag) for tag in range(64)])
            a.set_word(shared_peer.PEER_ASLEEP, 2)
        assert a.socket.recv(64) == b"\0"
        assert len(b.receive(64)) == 64


def test_a_full_ring_loses_frames_and_counts_them(switch: Switch) -> None:
    with Peer(switch.shared_path(0)) as a, Peer(switch.shared_path(1)) as b:
        a.send([frame("U", 1, tag=tag) for tag in range(60)])
        a.send([frame("U", 0, tag=99)])
        a.receive(1)  # all before it have been through
        sent = switch.statistics(1).tx_packets
        assert 0 < sent < 60
        assert sent + switch.statistics(1).tx_blocked == 60
        assert [seen(each).tag for each in b.receive(sent)] == list(range(sent))
        exchange(a, b, 100)


def test_frames_for_nobody_and_frames_that_fit_no_slot_are_counted(switch: Switch) -> None:
    with Peer(switch.shared_path(0)) as a:
        exchange(a, a, 1, to=0)
        a.send([frame("U", 1)])
        exchange(a, a, 1, to=0)
        assert switch.statistics(1).tx_no_peer == 1
        with Peer(switch.shared_path(1), frame_bytes=100) as b:
            a.send([frame("U", 1, size=200), frame("U", 1, size=60, tag=3)])
            assert [seen(each).tag for each in b.receive(1)] == [3]
    assert switch.statistics(1).tx_too_long == 1


def test_a_peer_that_has_gone_makes_room_for_the_next(switch: Switch) -> None:
    with Peer(switch.shared_path(0)) as a:
        for _ in range(3):
            with Peer(switch.shared_path(1)) as b:
                exchange(a, b, 20)
        with Peer(switch.shared_path(1)) as old, Peer(switch.shared_path(1)) as new:
            assert old.ended()
            exchange(a, new, 20)


@pytest.mark.parametrize(
    "said",
    [b"", b"\0", bytes(16), bytes(64)]
    + [
        bytes.fromhex(words)
        for words in (
            "494e4152 01000000 41000000 46040000",  # slots no power of two
            "494e4152 01000000 20000000 46040000",  # too few
            "494e4152 01000000 00000080 46040000",  # too many
            "494e4152 01000000 40000000 00000000",  # no frame
            "494e4152 01000000 40000000 ffffffff",  # too long a frame
            "494e4152 02000000 40000000 46040000",  # another version
        )
    ],
)
def test_a_request_that_cannot_be_ends_the_connection(switch: Switch, said: bytes) -> None:
    with connected(switch.shared_path(0)) as end:
        end.send(said) if said else end.shutdown(1)
        assert end.recv(64) == b""
    with Peer(switch.shared_path(0)) as a:
        exchange(a, a, 3, to=0)


@pytest.mark.parametrize("at", [shared_peer.IN_HEAD, shared_peer.OUT_TAIL])
def test_counts_that_cannot_be_end_the_connection(switch: Switch, at: int) -> None:
    with Peer(switch.shared_path(0)) as a, Peer(switch.shared_path(1)) as b:
        exchange(a, b, 3)
        b.set_word(at, 0x7FFF0000)
        b.knock()
        for tag in range(200):  # results for it make the switch look at its count
            a.send([frame("U", 1, tag=tag)])
        assert b.ended()
    assert switch.statistics(1).rx_malformed == 1
    with Peer(switch.shared_path(0)) as a, Peer(switch.shared_path(1)) as b:
        exchange(a, b, 3)


def test_memory_full_of_anything_harms_nobody_else(switch: Switch) -> None:
    """It is rewritten all the time: counts, lengths and frames, also while the switch reads them."""
    draw = random.Random(7)
    with Peer(switch.shared_path(0)) as a:
        for _ in range(60):
            with Peer(switch.shared_path(1)) as hostile:
                for _ in range(10):
                    at = draw.randrange(0, hostile.area_bytes - 512)
                    hostile.memory[at : at + 512] = draw.randbytes(512)
                    for word in (0, 64, 128, 192, 256, 320):
                        if draw.random() < 0.3:
                            hostile.set_word(word, draw.choice((0, 1, 63, 64, 65, draw.getrandbits(32))))
                    try:
                        hostile.socket.send(b"\0")
                    except (BrokenPipeError, ConnectionResetError):  # the switch has had enough
                        break
            exchange(a, a, 2, to=0)


def test_the_memory_cannot_be_made_smaller_or_larger(switch: Switch) -> None:
    with Peer(switch.shared_path(0)) as a:
        for size in (0, a.area_bytes + 4096):
            with pytest.raises(PermissionError):
                os.ftruncate(a.descriptor, size)


def test_only_this_user_can_connect_and_nothing_stays() -> None:
    with started({0: SharedPort()}) as switch:
        path = Path(switch.shared_path(0))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()


def test_a_path_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "port"
    with started({0: SharedPort(str(path))}), pytest.raises(PortError, match="cannot listen"):
        Switch({0: SharedPort(str(path))})
    assert not path.exists()
    with pytest.raises(PortError, match="too long"):
        Switch({0: SharedPort("/tmp/" + "x" * 120)})


def test_impairments_and_captures_see_what_passes() -> None:
    with started({0: SharedPort(), 1: SharedPort()}, "tx.loss=1,rx.delay=0.001") as switch:
        switch.capture(CaptureSettings())
        with Peer(switch.shared_path(0)) as a, Peer(switch.shared_path(1)) as b:
            a.send([frame("U", 1, tag=tag) for tag in range(5)])
            assert [seen(each).tag for each in b.receive(5)] == list(range(5))
            b.send([frame("U", 0, tag=9), frame("U", 1, tag=10)])
            assert [seen(each).tag for each in b.receive(1)] == [10]
        assert switch.statistics(0).tx_lost == 1
        assert b"fate=lost" in switch.captured(0)[0]
        assert len(switch.captured(1)[0]) > 6 * 64
