"""The meeting point among strangers: they learn nothing, change nothing and hold up nobody."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostlib.addresses import parse_address
from hostlib.errors import InaError, RendezvousError
from hostlib.meet.messages import FROM_WORKER_BYTES, Join, Lines, MessageError, News, Report
from hostlib.meet.rendezvous import MAX_STRANGERS, Rendezvous
from hostlib.meet.rendezvous_peers import RendezvousPeers
from tests.hostlib.test_rendezvous import join_all

PATIENCE_S = 60.0  # for what must come; nothing here waits for it to pass


class Connection:
    """A plain TCP connection to a meeting point."""

    def __init__(self, meeting: Rendezvous) -> None:
        self.socket = socket.create_connection(parse_address(meeting.address), timeout=PATIENCE_S)
        self.lines = self.socket.makefile("rb")

    def says(self, message: dict[str, Any] | bytes) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        self.socket.sendall(data)

    def hears(self) -> dict[str, Any] | None:
        """Return the next message; None if the connection was closed instead."""
        try:
            line = self.lines.readline()
        except ConnectionResetError:  # closed with something of ours unread
            return None
        return json.loads(line) if line else None

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


@contextmanager
def connected(meeting: Rendezvous) -> Iterator[Connection]:
    connection = Connection(meeting)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def joined(meeting: Rendezvous, rank: int, size: int) -> Iterator[Connection]:
    with connected(meeting) as member:
        member.says(Join(rank, size, 7, meeting.token).encode())
        yield member


JOIN = {"join": 0, "size": 2, "job": 7}

STRANGE = {
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
    "a rank": b'{"join": 0}\n',
    "no token": json.dumps(JOIN).encode() + b"\n",
    "another token": json.dumps(JOIN | {"token": "0" * 64}).encode() + b"\n",
    "an empty token": json.dumps(JOIN | {"token": ""}).encode() + b"\n",
    "a token of another type": json.dumps(JOIN | {"token": [1]}).encode() + b"\n",
    "a token that is no Unicode": b'{"join": 0, "size": 2, "job": 7, "token": "\\ud800"}\n',
    "a report": b'{"report": {"collectives": null}}\n',
    "a farewell": b'{"bye": 1}\n',
    "a farewell of another form": b'{"bye": true}\n',
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_stranger_hears_nothing_and_the_ranks_meet_all_the_same(what: str) -> None:
    with Rendezvous(job=7, size=2, join_s=600) as meeting:
        with connected(meeting) as stranger:
            stranger.says(STRANGE[what])
            assert stranger.hears() is None
        peers = join_all(meeting, 2)
        assert all(peer.alive(range(2)) for peer in peers)
        assert meeting.reports() == {}
        for peer in peers:
            peer.close()


def test_a_silent_stranger_is_cut_off() -> None:
    with Rendezvous(job=7, size=1, join_s=0.05) as meeting, connected(meeting) as stranger:
        assert stranger.hears() is None


def test_a_stranger_that_speaks_slowly_is_cut_off_as_well() -> None:
    with Rendezvous(job=7, size=1, join_s=0.5) as meeting, connected(meeting) as stranger:
        stranger.socket.settimeout(0.01)
        with contextlib.suppress(ConnectionError):
            while True:
                stranger.says(b" ")
                with contextlib.suppress(TimeoutError):
                    assert stranger.socket.recv(1) == b""
                    break


def test_many_silent_strangers_keep_nobody_out() -> None:
    most = 2 + MAX_STRANGERS
    with Rendezvous(job=7, size=2, join_s=600) as meeting:
        strangers = [Connection(meeting) for _ in range(2 * most)]
        peers = join_all(meeting, 2)
        for stranger in strangers[:most]:
            assert stranger.hears() is None
        for connection in (*peers, *strangers):
            connection.close()


def test_who_has_joined_is_not_cut_off() -> None:
    with (
        Rendezvous(job=7, size=2, join_s=2) as meeting,
        joined(meeting, 0, 2) as early,
        connected(meeting) as stranger,
    ):
        assert stranger.hears() is None  # by now the time of the first is over too
        with joined(meeting, 1, 2):
            assert early.hears() == {"go": True}


def test_a_worker_with_another_token_is_told_what_may_be_wrong() -> None:
    with Rendezvous(job=7, size=1) as meeting, pytest.raises(RendezvousError) as caught:
        RendezvousPeers(meeting.address, job=7, rank=0, size=1, token="5ec7e7", timeout_s=PATIENCE_S)
    assert isinstance(caught.value, InaError)
    assert str(caught.value).startswith("job 7, rank 0: ")
    assert "the token in INA_JOB is not the job's" in str(caught.value)
    assert "5ec7e7" not in str(caught.value)


def test_every_meeting_has_its_own_token_and_shows_it_nowhere() -> None:
    with Rendezvous(job=7, size=1) as meeting, Rendezvous(job=7, size=1) as other:
        assert meeting.token != other.token
        assert len(meeting.token) == 64
        assert meeting.token not in repr(meeting)
        assert meeting.token not in repr(Join(0, 1, 7, meeting.token))


WRONG = {
    "a number that is null": b'{"report": {"collectives": null}}\n',
    "a number that is a text": b'{"report": {"collectives": "1"}}\n',
    "a number that is a truth value": b'{"report": {"collectives": true}}\n',
    "NaN": b'{"report": {"collectives": NaN}}\n',
    "a number beyond float64": b'{"report": {"collectives": 1e999}}\n',
    "a whole number beyond float64": b'{"report": {"collectives": 1' + b"0" * 400 + b"}}\n",
    "a list of numbers": b'{"report": [1, 2]}\n',
    "no numbers": b'{"report": null}\n',
    "too many numbers": json.dumps({"report": dict.fromkeys(map(str, range(129)), 1)}).encode() + b"\n",
    "60,000 brackets": b"[" * 60_000 + b"\n",
    "a second join": Join(1, 2, 7, "").encode(),
    "nothing known": b'{"go": true}\n',
    "a farewell without a number": b'{"bye": true}\n',
    "two things at once": b'{"bye": 1, "report": {}}\n',
}


@pytest.mark.parametrize("what", WRONG)
def test_a_member_that_speaks_wrongly_is_gone_and_the_others_hear_why(what: str) -> None:
    with Rendezvous(job=7, size=2) as meeting, joined(meeting, 0, 2) as one, joined(meeting, 1, 2) as other:
        assert other.hears() == {"go": True}
        one.says(WRONG[what])
        news = other.hears()
        assert news is not None
        assert news["gone"]["0"].startswith("the launcher cannot understand it: ")
        assert meeting.reports() == {}


def test_a_token_alone_does_not_make_a_member() -> None:
    with Rendezvous(job=7, size=2) as meeting:
        for fields, reason in (
            ({"token": meeting.token}, "must have the fields job, join, size, token and no others"),
            (JOIN | {"token": meeting.token, "join": True}, "join must be a whole number"),
            (JOIN | {"token": meeting.token, "size": "2"}, "size must be a whole number"),
            (JOIN | {"token": meeting.token, "job": None}, "job must be a whole number"),
        ):
            with connected(meeting) as worker:
                worker.says(fields)
                answer = worker.hears()
                assert answer is not None
                assert reason in answer["refused"]
                assert worker.hears() is None


def test_a_fault_reaches_those_that_join_later() -> None:
    with Rendezvous(job=7, size=2) as meeting:
        meeting.fault("the switch died")
        meeting.fault("and the fallback server too")
        with joined(meeting, 0, 2) as member:
            assert member.hears() == {"fault": "the switch died"}


def test_a_member_that_reads_nothing_holds_up_nobody_and_is_gone() -> None:
    size = 300
    with (
        Rendezvous(job=7, size=size) as meeting,
        joined(meeting, 0, size),
        joined(meeting, 1, size) as reader,
    ):
        gone: dict[str, str] = {}
        for rank in map(str, range(2, size)):  # 30 MB are more than any socket holds
            meeting.ended(int(rank), 1, "x" * 100_000)
            while rank not in gone:
                news = reader.hears()
                assert news is not None
                gone |= news["gone"]
            if "0" in gone:
                break
        assert gone["0"] == "its connection to the launcher closed"


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (b'{"gone": ["1"]}\n', "gone must be an object of reasons by rank"),
        (b'{"gone": {"1": 3}}\n', "gone must be an object of reasons by rank"),
        (b'{"left": {"1": null}}\n', "left must be a whole number"),
        (b'{"left": [1]}\n', "left must be an object of numbers by rank"),
        (b'{"fault": {}}\n', "fault must be a text"),
        (b"[" * 5_000 + b"\n", "more than 4 objects and lists"),
        (b"?\n", "not JSON"),
    ],
)
def test_a_launcher_that_cannot_be_understood_is_a_fault(said: bytes, fault: str) -> None:
    with joined_by_hand() as (launcher, peer):
        launcher.sendall(said)
        peer._thread.join(PATIENCE_S)
        assert fault in str(peer.fault())


def test_a_launcher_that_cannot_be_understood_at_once_is_no_meeting() -> None:
    match = "job 7, rank 0: cannot join at .*: a line is not JSON"
    with pytest.raises(RendezvousError, match=match), joined_by_hand(b"?\n"):
        pass


@contextmanager
def joined_by_hand(welcome: bytes = b'{"go": true}\n') -> Iterator[tuple[socket.socket, RendezvousPeers]]:
    """The launcher's end of a connection, and the worker's side of it."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        host, port = server.getsockname()
        joining = pool.submit(
            RendezvousPeers, f"{host}:{port}", job=7, rank=0, size=2, token="t", timeout_s=PATIENCE_S
        )
        connection, _ = server.accept()
        with connection:
            connection.sendall(welcome)
            peer = joining.result(timeout=PATIENCE_S)
            yield connection, peer
            peer.close()


def test_a_launcher_whose_connection_breaks_is_gone() -> None:
    with joined_by_hand() as (launcher, peer):
        # with a reset, as the kernel does for a process that was killed before it had read all
        launcher.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        launcher.close()
        peer._thread.join(PATIENCE_S)
        assert peer.fault() == "the launcher at 127.0.0.1 went away"


@settings(deadline=None)
@given(st.lists(st.one_of(st.binary(), st.sampled_from([b"{", b"[", b'"', b"\\", b"\n", b"1:", b"}", b"]"]))))
def test_whatever_arrives_is_an_object_or_an_error_of_ours(chunks: list[bytes]) -> None:
    lines = Lines(FROM_WORKER_BYTES)
    try:
        for chunk in chunks:
            for message in lines.feed(chunk):
                assert isinstance(message, dict)
                News.parse(message)
    except MessageError:
        pass


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_reports_come_through_as_they_are(numbers: dict[str, float]) -> None:
    (message,) = Lines(FROM_WORKER_BYTES * 8).feed(Report(numbers).encode())
    assert message == {"report": numbers}
