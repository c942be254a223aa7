"""Connections of ranks to the first one: strangers, proofs, peers of other versions, who does not come."""

from __future__ import annotations

import contextlib
import errno
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hostlib.errors import ConfigError, RendezvousError
from hostlib.meet import encode
from hostlib.meet.connections import (
    STRANGERS,
    Door,
    FirstRank,
    MissingRanks,
    Place,
    _proof,
    knock,
    next_message,
    reach,
)
from hostlib.version import PROTOCOL
from tests.system.command import until

SECRET = "known to all ranks, and to no others"
SIZE = 3


@pytest.fixture(params=["address", "path", "long path"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "address":
        with socket.create_server(("127.0.0.1", 0)) as probe:
            return "127.0.0.1", probe.getsockname()[1]
    folder = tmp_path / ("x" * 200 if request.param == "long path" else "x")
    folder.mkdir()
    return folder / "socket"


@contextlib.contextmanager
def first(place: Place) -> Iterator[FirstRank]:
    with FirstRank(place, range(1, SIZE), SIZE, SECRET) as found:
        yield found
        for connection in found.connections.values():
            connection.close()


@contextlib.contextmanager
def stranger(place: Place) -> Iterator[tuple[socket.socket, str]]:
    """Give a connection, and the challenge that came over it."""
    path = f"/proc/self/cwd/{place.name}" if isinstance(place, Path) else place
    with socket.socket(socket.AF_UNIX if isinstance(place, Path) else socket.AF_INET) as found:
        with contextlib.chdir(place.parent) if isinstance(place, Path) else contextlib.nullcontext():
            found.connect(path)
        hello = next_message(found, 10)
        assert hello["protocol"] == PROTOCOL
        yield found, hello["challenge"]


def greeting(challenge: str) -> dict[str, object]:
    said = {"rank": 1, "size": SIZE, "text": "rank 1", "protocol": PROTOCOL}
    return {**said, "proof": _proof(challenge, said, SECRET)}


STRANGE = {
    "nothing": b"",
    "60,000 brackets": b"[" * 60_000 + b"\n",
    "brackets that fit a line": b"[" * 5_000 + b"\n",
    "objects": b'{"a":' * 2_000 + b"\n",
    "brackets between quotes of another encoding": ('"\u225c"' + "[" * 5_000).encode("utf-16-le") + b"\n",
    "a long line": b'{"join": "' + b"x" * 60_000 + b'"}\n',
    "a line without an end": b"x" * 70_000,
    "escaped quotes": b'\\"' * 8_000 + b"\n",
    "no UTF-8": b"\xff\xfe\xfd\n",
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "a list": b"[1]\n",
    "a long number": b'{"join": ' + b"9" * 10_000 + b"}\n",
    "an empty object": b"{}\n",
    "a rank": b'{"rank": 1}\n',
    "no proof": encode({"rank": 1, "size": SIZE, "text": "", "protocol": PROTOCOL}),
    "a proof of another type": encode({"rank": 1, "proof": [1], "protocol": PROTOCOL}),
    "a proof that is no Unicode": b'{"rank": 1, "proof": "\\ud800", "protocol": 3}\n',
    "a protocol of another type": b'{"rank": 1, "proof": "", "protocol": {"3": 3}}\n',
}


def test_ranks_come_whatever_others_send_and_the_connections_are_theirs(place: Place) -> None:
    with first(place) as at_first, contextlib.ExitStack() as open_ones, ThreadPoolExecutor() as threads:
        strangers = [open_ones.enter_context(stranger(place))[0] for _ in STRANGE]
        for connection, said in zip(strangers, STRANGE.values(), strict=True):
            with contextlib.suppress(ConnectionError):
                connection.sendall(said)
        others = [
            threads.submit(reach, place, rank, SIZE, SECRET, 60, text=f"rank {rank}") for rank in (1, 2)
        ]
        at_first.gather(60)
        assert at_first.texts == {1: "rank 1", 2: "rank 2"}
        for rank, connection in zip((1, 2), (each.result() for each in others), strict=True):
            at_first.connections[rank].sendall(b'{"a": 1}\n{"b": 2}\n')
            assert [next_message(connection, 10), next_message(connection, 10)] == [{"a": 1}, {"b": 2}]
            connection.close()
            with pytest.raises(ConnectionError, match="has ended"):
                next_message(at_first.connections[rank], 10)
        for connection in strangers[1:]:
            connection.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(20) in (
                    b"",
                    b'{"refused": "its INA'[:20],
                    b'{"refused": "it spea'[:20],
                )
    if isinstance(place, Path):
        assert not place.exists()


def test_a_line_recorded_from_another_connection_takes_no_ranks_place(place: Place) -> None:
    with first(place) as at_first, stranger(place) as (one, its), stranger(place) as (other, others):
        assert its != others
        recorded = encode(greeting(its))
        other.sendall(recorded)
        assert next_message(other, 10) == {"refused": "its INA_TOKEN differs"}
        assert not at_first.connections
        one.sendall(recorded)
        assert next_message(one, 10) == {"welcome": True}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"secret": "another"}, "its INA_TOKEN differs"),
        (
            {"size": 4},
            r"it is in a launch of 4 ranks, this launch has 3 ranks and the same identifiers \(.*x/socket\)",
        ),
        ({"rank": 0}, "rank 0 has connected already, or is not expected here"),
        ({"rank": 3}, "rank 3 has connected already, or is not expected here"),
    ],
)
def test_a_rank_that_does_not_belong_here_hears_why(
    changed: dict[str, object], why: str, tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    place = tmp_path / "x" / "socket"
    known = {"rank": 1, "size": SIZE, "secret": SECRET} | changed
    with first(place) as at_first:
        with pytest.raises(RendezvousError, match=f"rank {known['rank']}: refused by rank 0: {why}"):
            reach(place, **known, patience_s=60)
        assert not at_first.connections


def test_an_older_rank_and_the_first_one_hear_why(place: Place) -> None:
    """One of protocol 2, which began by itself."""
    with first(place) as at_first, stranger(place) as (older, _):
        older.sendall(encode({"token": SECRET, "rank": 1, "protocol": 2}))
        why = f"it speaks protocol 2, this end {PROTOCOL}: install the same ina at both"
        assert next_message(older, 10) == {"refused": why}
        missing = f"ranks 1, 2 have not connected within 0.1 s, of 3 ranks; one was refused: {why}"
        with pytest.raises(MissingRanks, match=re.escape(missing)):
            at_first.gather(0.1)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (encode({"challenge": "x", "protocol": 5}), "it speaks protocol 5, this end 4: install the same ina"),
        (b"0123456789abcdef\n", "no first rank of this version of ina listens at .*: a line is not JSON"),
        (b"SSH-2.0-OpenSSH\n", "no first rank of this version of ina listens at .*: a line is not JSON"),
    ],
)
def test_a_rank_at_a_first_one_of_another_version_says_so(says: bytes, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(says)
                connection.recv(100)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(RendezvousError, match=why):
            reach(listener.getsockname(), 1, SIZE, SECRET, 60)


def test_a_rank_waits_for_the_first_one_and_takes_no_other_launchs_socket(tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(place))  # of a first rank that was killed: nobody listens there
    with ThreadPoolExecutor() as threads:
        early = threads.submit(reach, place, 1, 2, SECRET, 60)
        with FirstRank(place, [1], 2, SECRET) as at_first:
            at_first.gather(60)
            early.result().close()
            at_first.connections[1].close()
    with pytest.raises(
        RendezvousError, match=r"rank 1: rank 0 does not listen after 0\.1 s: it has ended or not"
    ):
        reach(place, 1, 2, SECRET, 0.1)


def test_an_address_of_another_machine_is_refused_and_no_thread_is_left() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen at 10\.255\.255\.1:1: Cannot assign"):
        FirstRank(("10.255.255.1", 1), [1], 2, SECRET)
    before = threading.active_count()
    FirstRank(("127.0.0.1", 0), [1], 2, SECRET).close()
    until(lambda: threading.active_count() <= before, 10)


def is_cut_off(connection: socket.socket) -> bool:
    connection.settimeout(60)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_strangers_that_are_silent_or_slow_are_cut_off(tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with contextlib.closing(Door(place, SECRET, 2, stranger_s=0.3)):
        with stranger(place) as (silent, _):
            assert is_cut_off(silent)
        with stranger(place) as (slow, _):
            slow.settimeout(0.01)
            with contextlib.suppress(ConnectionError):
                while True:
                    slow.sendall(b" ")
                    with contextlib.suppress(TimeoutError):
                        assert slow.recv(1) == b""
                        break


def test_of_too_many_strangers_the_oldest_give_way(tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with contextlib.closing(Door(place, SECRET, 2, stranger_s=600)), contextlib.ExitStack() as open_ones:
        most = 2 + STRANGERS
        strangers = [open_ones.enter_context(stranger(place))[0] for _ in range(2 * most)]
        assert all(map(is_cut_off, strangers[:most]))
        open_ones.enter_context(knock(place, {}, SECRET, 60)[0])


def test_a_door_without_descriptors_makes_room_and_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with contextlib.closing(Door(place, SECRET, 2)) as door, stranger(place) as (oldest, _):
        listener = door._listener

        class Full:
            """Has no descriptor left for one connection; stands for the kernel."""

            def accept(self) -> tuple[socket.socket, object]:
                door._listener = listener
                raise OSError(errno.EMFILE, "Too many open files")

        with stranger(place):
            door._listener = Full()  # type: ignore[assignment]
        with stranger(place):
            pass
        assert is_cut_off(oldest)
        with stranger(place):
            pass
