"""Connections of ranks to the first one: strangers, proofs, peers of other versions, who does not come."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hostlib.errors import ConfigError, RendezvousError
from hostlib.meet import PROTOCOL, encode
from hostlib.meet.connections import Door, FirstRank, MissingRanks, Place, _proof, heard, reach
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
    with contextlib.closing(FirstRank(place, range(1, SIZE), SIZE, SECRET)) as found:
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
        hello = heard(found, 10)
        assert hello["protocol"] == PROTOCOL
        yield found, hello["challenge"]


def greeting(challenge: str) -> dict[str, object]:
    said = {"rank": 1, "size": SIZE, "text": "rank 1", "protocol": PROTOCOL}
    return {**said, "proof": _proof(challenge, said, SECRET)}


def test_ranks_come_whatever_others_send_and_the_connections_are_theirs(place: Place) -> None:
    with first(place) as at_first, contextlib.ExitStack() as open_ones, ThreadPoolExecutor() as threads:
        wrong = (b"", b"[1,\n", encode({"rank": "1", "protocol": PROTOCOL}), b"x" * (1 << 17))
        strangers = [open_ones.enter_context(stranger(place))[0] for _ in wrong]
        for connection, said in zip(strangers, wrong, strict=True):
            with contextlib.suppress(ConnectionError):
                connection.sendall(said)
        others = [
            threads.submit(reach, place, rank, SIZE, SECRET, 60, text=f"rank {rank}") for rank in (1, 2)
        ]
        at_first.gather(60)
        assert at_first.texts == {1: "rank 1", 2: "rank 2"}
        for rank, connection in zip((1, 2), (each.result() for each in others), strict=True):
            at_first.connections[rank].sendall(b'{"a": 1}\n{"b": 2}\n')
            assert [heard(connection, 10), heard(connection, 10)] == [{"a": 1}, {"b": 2}]
            connection.close()
            with pytest.raises(ConnectionError, match="has ended"):
                heard(at_first.connections[rank], 10)
        for connection in strangers[1:]:
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(100) in (b"", encode({"refused": "its INA_TOKEN is another one"}))
    if isinstance(place, Path):
        assert not place.exists()


def test_a_line_recorded_from_another_connection_takes_no_ranks_place(place: Place) -> None:
    with first(place) as at_first, stranger(place) as (one, its), stranger(place) as (other, others):
        assert its != others
        recorded = encode(greeting(its))
        other.sendall(recorded)
        assert heard(other, 10) == {"refused": "its INA_TOKEN is another one"}
        assert not at_first.connections
        one.sendall(recorded)
        assert heard(one, 10) == {"welcome": True}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"secret": "another"}, "its INA_TOKEN is another one"),
        (
            {"size": 4},
            r"it is of a launch of 4 ranks, this one has 3 and the same identifiers \(.*x/socket\)",
        ),
        ({"rank": 0}, "rank 0 has come already, or is none of those that are waited for"),
        ({"rank": 3}, "rank 3 has come already, or is none of those that are waited for"),
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
        assert heard(older, 10) == {"refused": why}
        missing = f"ranks 1, 2 have not come within 0.1 s, of 3 ranks; one was refused: {why}"
        with pytest.raises(MissingRanks, match=re.escape(missing)):
            at_first.gather(0.1)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (encode({"challenge": "x", "protocol": 4}), "it speaks protocol 4, this end 3: install the same ina"),
        (b"0123456789abcdef\n", "no first rank of this ina listens at .*: a line is not JSON"),
        (b"SSH-2.0-OpenSSH\n", "no first rank of this ina listens at .*: a line is not JSON"),
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
        with contextlib.closing(FirstRank(place, [1], 2, SECRET)) as at_first:
            at_first.gather(60)
            early.result().close()
            at_first.connections[1].close()
    with pytest.raises(
        RendezvousError, match=r"rank 1: rank 0 has not come within 0\.1 s: it has ended or not"
    ):
        reach(place, 1, 2, SECRET, 0.1)


def test_an_address_of_another_machine_is_refused_and_no_thread_is_left() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen at 10\.255\.255\.1:1: Cannot assign"):
        FirstRank(("10.255.255.1", 1), [1], 2, SECRET)
    before = threading.active_count()
    FirstRank(("127.0.0.1", 0), [1], 2, SECRET).close()
    until(lambda: threading.active_count() <= before, 10)


def test_a_full_door_closes_what_comes_and_opens_again(tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with contextlib.closing(Door(place, SECRET, 2)):
        with stranger(place), stranger(place), pytest.raises(ConnectionError), stranger(place):
            pass
        until(lambda: _comes_in(place), 10)


def _comes_in(place: Place) -> bool:
    with contextlib.suppress(ConnectionError), stranger(place):
        return True
    return False
