"""The meeting point: who may join, and who hears of a death."""

from __future__ import annotations

import errno
import json
import os
import queue
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostlib.addresses import parse_address
from hostlib.errors import NO_PACKETS, InaError, PeerLost, RendezvousError
from hostlib.meet import (
    FROM_WORKER_BYTES,
    GroupRequest,
    Lines,
    MessageError,
    encode,
    parse_from_member,
    parse_news,
    rendezvous_peers,
)
from hostlib.meet.connections import knock, next_message
from hostlib.meet.rendezvous import Rendezvous
from hostlib.meet.rendezvous_peers import RendezvousPeers
from hostlib.version import PROTOCOL
from tests.system.command import until


def join(meeting: Rendezvous, rank: int, size: int, *, job: int = 7) -> RendezvousPeers:
    return RendezvousPeers(meeting.address, job=job, rank=rank, size=size, token=meeting.token, timeout_s=600)


def join_all(meeting: Rendezvous, size: int) -> list[RendezvousPeers]:
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: join(meeting, rank, size), range(size)))


@contextmanager
def joined_job(size: int) -> Iterator[tuple[Rendezvous, list[RendezvousPeers]]]:
    """Give a meeting point and its ranks, which have joined and which leave with the block."""
    with Rendezvous(job=7, size=size) as meeting:
        peers = join_all(meeting, size)
        try:
            yield meeting, peers
        finally:
            for peer in peers:
                peer.close()


def test_all_ranks_are_let_go_together() -> None:
    with joined_job(3) as (meeting, peers):
        assert meeting.complete
        assert all(peer.alive(range(3)) and not peer.news.gone for peer in peers)


@pytest.mark.parametrize(
    ("job", "rank", "size", "reason"),
    [
        (8, 0, 2, "meeting point of job 7, not of job 8"),
        (7, 0, 3, "job 7 has 2 ranks, not 3"),
        (7, 2, 2, "rank 2 is not one of 0..1"),
        (7, -1, 2, "rank -1 is not one of 0..1"),
        (7, True, 2, "rank True is not one of 0..1"),
        (7, 0, "2", "job 7 has 2 ranks, not 2"),
        ("7", 0, 2, "meeting point of job 7, not of job 7"),
    ],
)
def test_a_wrong_rank_size_or_job_is_refused(job: Any, rank: Any, size: Any, reason: str) -> None:
    with Rendezvous(job=7, size=2) as meeting, pytest.raises(RendezvousError, match=reason):
        join(meeting, rank, size, job=job)


def test_a_rank_joins_once() -> None:
    with joined_job(1) as (meeting, _), pytest.raises(RendezvousError, match="rank 0 of job 7 has joined"):
        join(meeting, 0, 1)


def test_a_death_is_told_to_the_others_and_named_before_what_it_causes() -> None:
    """A rank that hears late has heard of its peers' ends, too."""
    with joined_job(3) as (meeting, peers):
        meeting.ended(1, 137, "killed by SIGKILL")
        until(lambda: peers[0].news.gone and peers[2].news.gone)
        assert peers[0].news.gone == {1: "killed by SIGKILL"}
        assert peers[0].alive([0, 2])
        assert not peers[0].alive([0, 1])
        meeting.ended(0, 1, "exited with status 1")
        until(lambda: len(peers[2].news.gone) == 2)
        assert str(PeerLost(peers[2].news.gone, job=7, psns=NO_PACKETS)).endswith(
            "lost rank 1: killed by SIGKILL; rank 0: exited with status 1"
        )


def test_a_farewell_is_not_a_death_but_the_rank_no_longer_counts_as_alive() -> None:
    with joined_job(2) as (meeting, (first, second)):
        second.close()
        meeting.ended(1, 0, "exited with status 0")
        until(lambda: not first.alive([1]))
        assert not first.news.gone


def test_a_rank_that_ends_before_joining_releases_those_who_wait() -> None:
    with Rendezvous(job=7, size=2) as meeting, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(join, meeting, 0, 2)
        meeting.ended(1, 3, "exited with status 3")
        with pytest.raises(RendezvousError, match=r"missing ranks before the job began: 1 \(exited"):
            waiting.result()


@pytest.mark.parametrize(
    ("machines", "size", "said"),
    [
        ({2: "h3"}, 3, "rank 2 on h3 did not join within 0.2 s"),
        ({}, 3, "rank 2 did not join within 0.2 s"),
        ({3: "h4"}, 4, "ranks 2, 3 on h4 did not join within 0.2 s"),
        ({}, 12, "ranks 2, 3, 4, 5, 6, 7, 8, 9 and 2 more did not join within 0.2 s"),
    ],
)
def test_ranks_that_do_not_join_are_named_to_all_others(
    machines: dict[int, str], size: int, said: str
) -> None:
    with Rendezvous(job=7, size=size, machines=machines) as meeting, ThreadPoolExecutor(2) as pool:
        others = pool.submit(join, meeting, 1, size)  # who would wait for ten minutes
        until(lambda: meeting._joined or others.done())
        with pytest.raises(RendezvousError, match=f"job 7, rank 0: {said}"):
            RendezvousPeers(meeting.address, job=7, rank=0, size=size, token=meeting.token, timeout_s=0.2)
        with pytest.raises(RendezvousError, match=f"job 7, rank 1: {said}"):
            others.result()
        assert meeting.broken == said
        assert not meeting.complete


def test_a_launcher_that_does_not_say_who_is_missing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rendezvous_peers, "ANSWER_S", 0.05)
    with (
        pytest.raises(
            RendezvousError, match=r"not all of 2 ranks joined within 0\.5 s, and the launcher does not"
        ),
        joined_by_hand(b"", timeout_s=0.5),
    ):
        pass


def test_a_death_told_in_one_breath_with_the_start_is_not_lost() -> None:
    with joined_by_hand(b'{"go": true}\n{"gone": {"1": "killed"}}\n') as (_, peer):
        assert peer.news.gone == {1: "killed"}


def test_reports_and_faults_travel() -> None:
    with joined_job(1) as (meeting, (peer,)):
        peer.report({"bytes": 4096.0})
        until(meeting.reports)
        assert meeting.reports() == {0: {"bytes": 4096.0}}
        meeting.fault("the switch died")
        until(lambda: peer.news.fault)
        assert peer.news.fault == "the switch died"
        assert not peer.alive([0])


def test_a_farewell_is_heard_while_the_connection_stays_open() -> None:
    with joined_job(2) as (_, (one, other)):
        one.farewell(5)
        one.farewell(6)
        until(lambda: not other.alive([0]))
        assert other.news.left == {0: 5}
        assert not other.finished()
        assert other.news.gone == {}
        other.farewell()
        until(lambda: one.finished() and other.finished())


def test_nobody_waits_for_the_farewell_of_the_dead() -> None:
    with joined_job(2) as (meeting, (one, _)):
        meeting.ended(1, 137, "killed by SIGKILL")
        one.farewell()
        until(one.finished)


def test_a_group_is_answered_once_all_its_ranks_have_asked() -> None:
    with joined_job(3) as (meeting, peers), ThreadPoolExecutor(2) as pool:
        asked: queue.SimpleQueue[GroupRequest] = queue.SimpleQueue()
        meeting.on_group(asked.put)
        first = pool.submit(peers[2].group, "a", [2, 0], 600)
        second = pool.submit(peers[0].group, "a", [2, 0], 600)
        request = asked.get(timeout=60)
        assert request == GroupRequest("a", (2, 0))
        meeting.answer(request, ["of its rank 0", "of its rank 1"])
        assert (first.result(), second.result()) == ("of its rank 0", "of its rank 1")
        again = [pool.submit(peers[rank].group, "b", [0, 1], 600) for rank in (0, 1)]
        meeting.answer(asked.get(timeout=60), "no room")
        for each in again:
            with pytest.raises(RendezvousError, match="no room"):
                each.result()
        assert asked.empty()


@pytest.mark.parametrize(
    ("key", "ranks", "reason"),
    [
        ("a", [], "must be a list of one rank or more"),
        ("a", [-1, 0], "must be a whole number, 0 or more"),
        ("a", ["1", 0], "'str' object cannot be interpreted as an integer"),
        ("a", [0.0, 1.0], "'float' object cannot be interpreted as an integer"),
        ("a", None, "'NoneType' object is not iterable"),
        ("a", range(10_000), "a group of 10000 ranks: the job has 2"),
        ("", [0, 1], "must be a text of 1 to 100 characters"),
        ("a" * 101, [0, 1], "must be a text of 1 to 100 characters"),
        (3, [0, 1], "must be a text of 1 to 100 characters"),
    ],
)
def test_wrong_arguments_of_a_group_raise_at_its_caller_and_the_job_goes_on(
    key: Any, ranks: Any, reason: str
) -> None:
    with joined_job(2) as (meeting, peers):
        asked: queue.SimpleQueue[GroupRequest] = queue.SimpleQueue()
        meeting.on_group(asked.put)
        with pytest.raises(RendezvousError, match=reason):
            peers[0].group(key, ranks, 600)
        with ThreadPoolExecutor(2) as pool:
            as_array: Any = np.array([0, 1])
            ours = pool.submit(peers[0].group, "b", as_array, 600)
            theirs = pool.submit(peers[1].group, "b", (0, 1), 600)
            meeting.answer(asked.get(timeout=60), "no room")
            for each in (ours, theirs):
                with pytest.raises(RendezvousError, match="no room"):
                    each.result()


def test_a_group_that_cannot_be_is_refused_at_once() -> None:
    with joined_job(3) as (meeting, peers), ThreadPoolExecutor(1) as pool:
        with pytest.raises(RendezvousError, match="the launcher of this job admits no groups"):
            peers[0].group("a", [0, 1], 600)
        meeting.on_group(lambda request: None)
        for ranks, reason in (
            ([0, 0], "must have ranks of the job, each once"),
            ([0, 3], "must have ranks of the job, each once"),
            ([1, 2], "rank 0 is none of the ranks"),
        ):
            with pytest.raises(RendezvousError, match=reason):
                peers[0].group("b", ranks, 600)
        waiting = pool.submit(peers[0].group, "c", [0, 1], 600)
        until(lambda: meeting._requests)
        meeting.ended(1, 137, "killed by SIGKILL")
        with pytest.raises(RendezvousError, match="rank 1 is gone: killed by SIGKILL"):
            waiting.result()
        with pytest.raises(RendezvousError, match="rank 1 has ended"):
            peers[0].group("d", [0, 1], 600)
        waiting = pool.submit(peers[0].group, "e", [0, 2], 600)
        until(lambda: meeting._requests)
        meeting.fault("the switch died")
        with pytest.raises(RendezvousError, match="the switch died"):
            waiting.result()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"group": "", "ranks": [0]}, "group must be a text of 1 to 100 characters"),
        ({"group": "a", "ranks": []}, "ranks must be a list"),
        ({"group": "a", "ranks": [-1]}, "a rank must be a whole number"),
        ({"group": "a"}, "must have the fields group, ranks"),
    ],
)
def test_a_group_is_read_strictly(message: dict[str, object], reason: str) -> None:
    with pytest.raises(MessageError, match=reason):
        parse_from_member(message)


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:x", "host:70000"])
def test_addresses_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_address(text)


def test_a_grant_is_told_to_all_and_to_those_who_join_later() -> None:
    with Rendezvous(job=7, size=2) as meeting:
        meeting.grant(40)
        peers = join_all(meeting, 2)
        assert [peer.news.granted for peer in peers] == [40, 40]
        meeting.grant(0)
        until(lambda: not any(peer.news.granted for peer in peers))
        for peer in peers:
            peer.close()


PATIENCE_S = 60.0  # for what must come; nothing here waits for it to pass


@contextmanager
def joined(meeting: Rendezvous, rank: int, size: int) -> Iterator[socket.socket]:
    said = {"join": rank, "size": size, "job": 7}
    member, _ = knock(parse_address(meeting.address), said, meeting.token, PATIENCE_S)
    with member:
        yield member


def hears(member: socket.socket) -> dict[str, Any]:
    return next_message(member, PATIENCE_S, longest=1 << 20)


def test_who_has_joined_is_not_cut_off() -> None:
    with (
        Rendezvous(job=7, size=2, join_s=1) as meeting,
        joined(meeting, 0, 2) as early,
        socket.create_connection(parse_address(meeting.address)) as stranger,
    ):
        assert b"challenge" in stranger.recv(1000)
        assert stranger.recv(1) == b"", "by now the time of the first is over, too"
        with joined(meeting, 1, 2):
            assert hears(early) == {"go": True}


def test_a_worker_with_another_token_is_told_what_may_be_wrong() -> None:
    with Rendezvous(job=7, size=1) as meeting, pytest.raises(RendezvousError) as caught:
        RendezvousPeers(meeting.address, job=7, rank=0, size=1, token="5ec7e7", timeout_s=PATIENCE_S)
    assert isinstance(caught.value, InaError)
    assert str(caught.value).startswith("job 7, rank 0: ")
    assert "refused: its token in INA_JOB differs" in str(caught.value)
    assert "5ec7e7" not in str(caught.value)


def test_every_meeting_has_its_own_token_and_shows_it_nowhere() -> None:
    with Rendezvous(job=7, size=1) as meeting, Rendezvous(job=7, size=1) as other:
        assert meeting.token != other.token
        assert len(meeting.token) == 64
        assert meeting.token not in repr(meeting)


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
    "a second join": encode({"join": 1, "size": 2, "job": 7}),
    "nothing known": b'{"go": true}\n',
    "a farewell without a number": b'{"bye": true}\n',
    "two things at once": b'{"bye": 1, "report": {}}\n',
}


@pytest.mark.parametrize("what", WRONG)
def test_a_member_that_speaks_wrongly_is_gone_and_the_others_hear_why(what: str) -> None:
    with Rendezvous(job=7, size=2) as meeting, joined(meeting, 0, 2) as one, joined(meeting, 1, 2) as other:
        assert hears(other) == {"go": True}
        one.sendall(WRONG[what])
        news = hears(other)
        assert news["gone"]["0"].startswith("the launcher cannot understand it: ")
        assert meeting.reports() == {}


def test_a_fault_reaches_those_that_join_later() -> None:
    with Rendezvous(job=7, size=2) as meeting:
        meeting.fault("the switch died")
        meeting.fault("and the fallback server too")
        with pytest.raises(RendezvousError, match="job 7, rank 0: the switch died"):
            join(meeting, 0, 2)


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
                gone |= hears(reader)["gone"]
            if "0" in gone:
                break
        assert gone["0"] == "its connection to the launcher closed"


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (b'{"gone": ["1"]}\n', "gone must be an object with a reason for each rank"),
        (b'{"gone": {"1": 3}}\n', "gone must be an object with a reason for each rank"),
        (b'{"left": {"1": null}}\n', "left must be a whole number"),
        (b'{"left": [1]}\n', "left must be an object with a number for each rank"),
        (b'{"fault": {}}\n', "fault must be a text"),
        (b"[" * 5_000 + b"\n", "more than 4 objects and lists"),
        (b"?\n", "not JSON"),
    ],
)
def test_a_launcher_that_cannot_be_understood_is_a_fault(said: bytes, fault: str) -> None:
    with joined_by_hand() as (launcher, peer):
        launcher.sendall(said)
        peer._thread.join(PATIENCE_S)
        assert fault in str(peer.news.fault)


def test_a_launcher_that_cannot_be_understood_at_once_is_no_meeting() -> None:
    match = "job 7, rank 0: cannot join at .*: a line is not JSON"
    with pytest.raises(RendezvousError, match=match), joined_by_hand(b"?\n"):
        pass


@contextmanager
def joined_by_hand(
    first: bytes = b'{"go": true}\n', timeout_s: float = PATIENCE_S
) -> Iterator[tuple[socket.socket, RendezvousPeers]]:
    """The launcher's end of a connection, and the worker's side of it; `first` comes with the welcome."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        host, port = server.getsockname()
        joining = pool.submit(
            RendezvousPeers, f"{host}:{port}", job=7, rank=0, size=2, token="t", timeout_s=timeout_s
        )
        connection, _ = server.accept()
        with connection:
            connection.sendall(encode({"challenge": "", "protocol": PROTOCOL}))
            hears(connection)
            connection.sendall(encode({"welcome": True}) + first)
            peer = joining.result(timeout=PATIENCE_S)
            yield connection, peer
            peer.close()


def test_a_launcher_whose_connection_breaks_is_gone() -> None:
    with joined_by_hand() as (launcher, peer):
        # with a reset, as the kernel does for a process that was killed before it had read all
        launcher.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        launcher.close()
        peer._thread.join(PATIENCE_S)
        assert peer.news.fault == "the launcher at 127.0.0.1 went away"


class TimedOut(socket.socket):
    """A connection whose next send reports a time-out; as in the kernel, a reader then gets the end only."""

    def send(self, *_: object) -> NoReturn:
        self.shutdown(socket.SHUT_RDWR)
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    sendall = send


def test_a_machine_that_is_cut_off_is_named_as_such_also_if_a_sender_hears_of_it_first() -> None:
    with joined_job(2) as (_, (first, _)):
        first._socket = TimedOut(fileno=first._socket.detach())
        first.report({})
        first._thread.join(PATIENCE_S)
        assert first.news.fault == "the launcher at 127.0.0.1 has not answered for 10 s"
    with joined_job(2) as (meeting, (_, second)):
        with TimedOut(fileno=meeting._joined[0].detach()) as meeting._joined[0]:
            meeting.grant(1)
            until(lambda: second.news.gone)
        assert second.news.gone == {0: "its machine has not answered for 10 s"}


@settings(deadline=None)
@given(st.lists(st.one_of(st.binary(), st.sampled_from([b"{", b"[", b'"', b"\\", b"\n", b"1:", b"}", b"]"]))))
def test_whatever_arrives_is_an_object_or_an_error_of_ours(chunks: list[bytes]) -> None:
    lines = Lines(FROM_WORKER_BYTES)
    try:
        for chunk in chunks:
            for message in lines.feed(chunk):
                assert isinstance(message, dict)
                parse_news(message)
    except MessageError:
        pass


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_reports_come_through_as_they_are(numbers: dict[str, float]) -> None:
    (message,) = Lines(FROM_WORKER_BYTES * 8).feed(encode({"report": numbers}))
    assert message == {"report": numbers}
