"""Turn server and members on a real socket, in threads; and their errors when one of them is gone."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from hostlib.interleave import GroupBroken, GroupError, TurnServer, join
from hostlib.interleave.member import VARIABLE, Membership
from hostlib.interleave.stages import STAGES

WAIT_S = 600.0


def train(server: TurnServer, job: str, rank: int, iterations: int, log: list[tuple[str, str]]) -> None:
    with join(rank, server.environment(job)) as timer:
        for _ in range(iterations):
            with timer.iteration():
                for stage in STAGES:
                    with timer.stage(stage):
                        log.append((job, stage))


def test_processes_on_other_machines_join_over_tcp_with_the_token() -> None:
    with TurnServer({"a": 0}, {"a": 1}, host="127.0.0.1") as server:
        place = json.loads(server.environment("a")[VARIABLE])
        with pytest.raises(GroupBroken, match="refused: it does not have this group's token"):
            Membership(tuple(place["address"]), "a", 0)
        train(server, "a", 0, 2, [])
        assert (server.iterations("a"), server.broken) == (2, None)


def test_a_long_path_of_the_folder_for_temporary_files_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket's address has room for 107 bytes."""
    deep = tmp_path / ("a" * 110)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with TurnServer({"a": 0}, {"a": 1}) as server:
        train(server, "a", 0, 1, [])
        assert server.broken is None
    assert list(deep.iterdir()) == []


def test_jobs_interleave_as_the_offsets_say() -> None:
    log: list[tuple[str, str]] = []
    with ThreadPoolExecutor() as pool, TurnServer({"a": 0, "b": 3}, {"a": 1, "b": 1}) as server:
        futures = [pool.submit(train, server, job, 0, 3, log) for job in "ab"]
        for future in futures:
            future.result(WAIT_S)
        assert server.iterations("a") == server.iterations("b") == 3
        ((first, *_),) = server.measured("a")
        assert sum(first.stages_s) <= first.total_s
        assert server.broken is None
    # b is one slot behind: when a has its stage, b has the one before
    order = [*STAGES] * 3
    expected = [{("a", order[0])}]
    expected += [{("a", now), ("b", before)} for before, now in pairwise(order)]
    expected += [{("b", order[-1])}]
    position = 0
    for slot in expected:
        assert set(log[position : position + len(slot)]) == slot
        position += len(slot)
    assert position == len(log) == 24


def test_jobs_of_different_lengths_all_end() -> None:
    log: list[tuple[str, str]] = []
    lengths = {"a": 1, "b": 7, "c": 0}
    offsets = {"a": 0, "b": 1, "c": 2}
    with ThreadPoolExecutor(6) as pool, TurnServer(offsets, dict.fromkeys(offsets, 2)) as server:
        futures = [
            pool.submit(train, server, job, rank, length, log)
            for job, length in lengths.items()
            for rank in (0, 1)
        ]
        for future in futures:
            future.result(WAIT_S)
        assert {job: server.iterations(job) for job in lengths} == lengths
    assert len(log) == 2 * 4 * 8


def waiting(server: TurnServer, pool: ThreadPoolExecutor, job: str = "a") -> Future[None]:
    """Start a job that stands before its first stage because the others are not there."""
    return pool.submit(train, server, job, 0, 1, [])


def test_an_exception_in_one_job_reaches_the_others_by_name() -> None:
    def fail(server: TurnServer) -> None:
        with join(0, server.environment("b")) as timer, timer.iteration(), timer.stage("storage"):
            raise OSError("sample 7 is unreadable")

    with ThreadPoolExecutor() as pool, TurnServer({"a": 1, "b": 0}, {"a": 1, "b": 1}) as server:
        other, failing = waiting(server, pool), pool.submit(fail, server)
        with pytest.raises(OSError, match="sample 7"):
            failing.result(WAIT_S)
        with pytest.raises(GroupBroken, match="job b, rank 0: OSError: sample 7 is unreadable"):
            other.result(WAIT_S)
        assert server.broken == "job b, rank 0: OSError: sample 7 is unreadable"


def test_a_killed_process_reaches_the_others_by_name() -> None:
    program = (
        "import os, signal\n"
        "from hostlib.interleave import join\n"
        "timer = join(0)\n"
        "with timer.iteration(), timer.stage('storage'): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with ThreadPoolExecutor() as pool, TurnServer({"a": 1, "b": 0}, {"a": 1, "b": 1}) as server:
        other = waiting(server, pool)
        done = subprocess.run([sys.executable, "-c", program], env=server.environment("b"), check=False)
        assert done.returncode == -9
        with pytest.raises(GroupBroken, match="job b, rank 0: its process ended"):
            other.result(WAIT_S)


def test_a_job_that_ends_before_it_joins_reaches_the_others_by_name() -> None:
    with ThreadPoolExecutor() as pool, TurnServer({"a": 0, "b": 1}, {"a": 1, "b": 1}) as server:
        other = waiting(server, pool)
        server.ended("b", "exited with status 2")
        with pytest.raises(GroupBroken, match="job b, rank 0: exited with status 2"):
            other.result(WAIT_S)
        with pytest.raises(GroupBroken, match="job b, rank 0: exited with status 2"):
            waiting(server, pool, "b").result(WAIT_S)


def test_the_end_of_a_job_that_said_farewell_is_no_loss() -> None:
    with ThreadPoolExecutor() as pool, TurnServer({"a": 0, "b": 1}, {"a": 1, "b": 1}) as server:
        with join(0, server.environment("b")):
            pass
        server.ended("b", "exited with status 0")
        waiting(server, pool).result(WAIT_S)
        assert server.broken is None


def test_patience_ends() -> None:
    with (
        ThreadPoolExecutor() as pool,
        TurnServer({"a": 0, "b": 1}, {"a": 1, "b": 1}, patience_s=0.2) as server,
    ):
        idle = join(0, server.environment("b"))
        with pytest.raises(GroupBroken, match=r"job b, rank 0: the others have waited 0\.2 s for it"):
            waiting(server, pool).result(WAIT_S)
        idle.close()


def test_closing_lets_those_who_wait_go() -> None:
    with ThreadPoolExecutor() as pool:
        with TurnServer({"a": 0, "b": 1}, {"a": 1, "b": 1}) as server:
            member = Membership(json.loads(server.environment("a")[VARIABLE])["socket"], "a", 0)
            other = pool.submit(member.take, "cpu")
        with pytest.raises(GroupBroken, match="turn server is gone"):
            other.result(WAIT_S)
        member.leave()
        member.leave()


def test_strangers_are_refused() -> None:
    with TurnServer({"a": 0}, {"a": 1}) as server:
        place = json.loads(server.environment("a")[VARIABLE])
        with pytest.raises(GroupBroken, match="refused: job z, rank 0 is not in this group"):
            Membership(place["socket"], "z", 0)
        with pytest.raises(GroupBroken, match="refused: job a, rank 1 is not in this group"):
            join(1, server.environment("a"))
        member = Membership(place["socket"], "a", 0)
        with pytest.raises(GroupBroken, match="refused: job a, rank 0 has joined already"):
            Membership(place["socket"], "a", 0)
        with socket.socket(socket.AF_UNIX) as noise:
            noise.connect(place["socket"])
            noise.sendall(b"hello\n")
            assert b"refused" in noise.recv(1000)
        with socket.socket(socket.AF_UNIX) as older:
            older.connect(place["socket"])
            older.sendall(b'{"job": "a", "rank": 0}\n')
            assert b"refused: it speaks protocol 1, this end 2: install" in older.recv(1000)
        member.leave()
        assert server.broken is None


def test_without_a_group_a_timer_is_just_a_timer() -> None:
    with join(0, {}) as timer, timer.iteration(), timer.stage("cpu"):
        pass
    assert timer.profile().iterations == 1


@pytest.mark.parametrize("text", ["", "{}", "7", '{"socket": "x"}', '{"job": "a", "address": "h:1"}'])
def test_a_senseless_variable_is_refused(text: str) -> None:
    with pytest.raises(GroupError, match='must be a JSON object with "job", and "socket" or "address"'):
        join(0, {VARIABLE: text})


def test_a_group_that_is_not_there_is_named() -> None:
    with pytest.raises(GroupBroken, match="job a, rank 0: cannot join the group at /nowhere"):
        join(0, {VARIABLE: '{"socket": "/nowhere", "job": "a"}'})
