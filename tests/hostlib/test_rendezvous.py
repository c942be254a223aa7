"""The meeting point: who may join, and who hears of a death."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from hostlib.addresses import parse_address
from hostlib.errors import RendezvousError
from hostlib.meet import rendezvous_peers
from hostlib.meet.messages import GroupRequest, MessageError, parse_from_member
from hostlib.meet.rendezvous import Rendezvous
from hostlib.meet.rendezvous_peers import RendezvousPeers


def join(meeting: Rendezvous, rank: int, size: int, *, job: int = 7) -> RendezvousPeers:
    return RendezvousPeers(meeting.address, job=job, rank=rank, size=size, token=meeting.token, timeout_s=600)


def join_all(meeting: Rendezvous, size: int) -> list[RendezvousPeers]:
    with ThreadPoolExecutor(size) as pool:
        return list(
            pool.map(
                lambda rank: join(meeting, rank, size),
                range(size),
            )
        )


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait for a thread's news; fails the test if they do not come."""
    event = threading.Event()
    for _ in range(int(timeout_s / 0.01)):
        if condition():
            return
        event.wait(0.01)
    pytest.fail("the news did not arrive")


def test_all_ranks_are_let_go_together() -> None:
    with Rendezvous(job=7, size=3) as meeting:
        peers = join_all(meeting, 3)
        assert meeting.complete
        assert all(peer.alive(range(3)) and not peer.gone() for peer in peers)
        for peer in peers:
            peer.close()


@pytest.mark.parametrize(
    ("job", "rank", "size", "reason"),
    [
        (8, 0, 2, "meeting point of job 7, not of job 8"),
        (7, 0, 3, "job 7 has 2 ranks, not 3"),
        (7, 2, 2, "rank 2 is not one of 0..1"),
        (7, -1, 2, "join must be a whole number, 0 or more"),
    ],
)
def test_a_wrong_rank_size_or_job_is_refused(job: int, rank: int, size: int, reason: str) -> None:
    with Rendezvous(job=7, size=2) as meeting, pytest.raises(RendezvousError, match=reason):
        join(meeting, rank, size, job=job)


def test_a_rank_joins_once() -> None:
    with Rendezvous(job=7, size=1) as meeting:
        (peer,) = join_all(meeting, 1)
        with pytest.raises(RendezvousError, match="rank 0 of job 7 has joined already"):
            join(meeting, 0, 1)
        peer.close()


def test_a_death_is_told_to_the_others() -> None:
    with Rendezvous(job=7, size=3) as meeting:
        peers = join_all(meeting, 3)
        meeting.ended(1, 137, "killed by SIGKILL")
        until(lambda: peers[0].gone() and peers[2].gone())
        assert peers[0].gone() == {1: "killed by SIGKILL"}
        assert peers[0].alive([0, 2])
        assert not peers[0].alive([0, 1])
        for peer in peers:
            peer.close()


def test_a_farewell_is_not_a_death_but_the_rank_no_longer_counts_as_alive() -> None:
    with Rendezvous(job=7, size=2) as meeting:
        first, second = join_all(meeting, 2)
        second.close()
        meeting.ended(1, 0, "exited with status 0")
        until(lambda: not first.alive([1]))
        assert not first.gone()
        first.close()


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
        while not (meeting._joined or others.done()):
            time.sleep(0.01)
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
    with socket.create_server(("127.0.0.1", 0)) as launcher:
        host, port = launcher.getsockname()
        with pytest.raises(
            RendezvousError, match=r"not all of 2 ranks joined within 0\.05 s, and the launcher"
        ):
            RendezvousPeers(f"{host}:{port}", job=7, rank=0, size=2, token="t", timeout_s=0.05)


def test_a_death_told_in_one_breath_with_the_start_is_not_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as launcher, ThreadPoolExecutor(1) as pool:
        host, port = launcher.getsockname()
        joining = pool.submit(
            RendezvousPeers, f"{host}:{port}", job=7, rank=0, size=2, token="t", timeout_s=600
        )
        connection, _ = launcher.accept()
        with connection:
            connection.sendall(b'{"go": true}\n{"gone": {"1": "killed"}}\n')
            peer = joining.result()
            assert peer.gone() == {1: "killed"}
            peer.close()


def test_reports_and_faults_travel() -> None:
    with Rendezvous(job=7, size=1) as meeting:
        (peer,) = join_all(meeting, 1)
        peer.report({"bytes": 4096.0})
        until(meeting.reports)
        assert meeting.reports() == {0: {"bytes": 4096.0}}
        meeting.fault("the switch died")
        until(peer.fault)
        assert peer.fault() == "the switch died"
        assert not peer.alive([0])
        peer.close()


def test_a_farewell_is_heard_while_the_connection_stays_open() -> None:
    with Rendezvous(job=7, size=2) as meeting:
        one, other = join_all(meeting, 2)
        one.farewell(5)
        one.farewell(6)
        until(lambda: not other.alive([0]))
        assert other.left() == {0: 5}
        assert not other.finished()
        assert other.gone() == {}
        other.farewell()
        until(lambda: one.finished() and other.finished())
        one.close()
        other.close()


def test_nobody_waits_for_the_farewell_of_the_dead() -> None:
    with Rendezvous(job=7, size=2) as meeting:
        one, other = join_all(meeting, 2)
        meeting.ended(1, 137, "killed by SIGKILL")
        one.farewell()
        until(one.finished)
        one.close()
        other.close()


def test_a_group_is_answered_once_all_its_ranks_have_asked() -> None:
    with Rendezvous(job=7, size=3) as meeting, ThreadPoolExecutor(2) as pool:
        peers = join_all(meeting, 3)
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
        for peer in peers:
            peer.close()


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
    with Rendezvous(job=7, size=2) as meeting:
        asked: queue.SimpleQueue[GroupRequest] = queue.SimpleQueue()
        meeting.on_group(asked.put)
        peers = join_all(meeting, 2)
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
        for peer in peers:
            peer.close()


def test_a_group_that_cannot_be_is_refused_at_once() -> None:
    with Rendezvous(job=7, size=3) as meeting, ThreadPoolExecutor(1) as pool:
        peers = join_all(meeting, 3)
        with pytest.raises(RendezvousError, match="whoever started this job admits no groups"):
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
        for peer in peers:
            peer.close()


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


def test_garbage_does_not_disturb_the_meeting() -> None:
    with Rendezvous(job=7, size=1) as meeting:
        with socket.create_connection(parse_address(meeting.address)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            stranger.settimeout(600)
            assert stranger.recv(1) == b""
        (peer,) = join_all(meeting, 1)
        peer.close()


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:x", "host:70000"])
def test_addresses_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_address(text)


def test_a_grant_is_told_to_all_and_to_those_who_join_later() -> None:
    with Rendezvous(job=7, size=2) as meeting:
        meeting.grant(40)
        peers = join_all(meeting, 2)
        assert [peer.granted() for peer in peers] == [40, 40]
        meeting.grant(0)
        until(lambda: not any(peer.granted() for peer in peers))
        for peer in peers:
            peer.close()
