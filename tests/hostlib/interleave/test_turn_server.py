"""Turn server and members on a real socket, in threads; and their errors when one of them is gone."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from hostlib.addresses import parse_address
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


def member(server: TurnServer, job: str = "a", rank: int = 0, token: str | None = None) -> Membership:
    place = json.loads(server.environment("a")[VARIABLE])
    at = Path(place["socket"]) if "socket" in place else parse_address(place["address"])
    return Membership(at, job, rank, place["token"] if token is None else token)


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
def test_processes_join_here_and_over_tcp_with_the_token(host: str | None) -> None:
    with TurnServer({"a": 0}, {"a": 1}, host=host) as server:
        socket = json.loads(server.environment("a")[VARIABLE]).get("socket")
        with pytest.raises(GroupBroken, match="refused: its INA_GROUP differs"):
            member(server, token="")
        train(server, "a", 0, 2, [])
        assert (server.iterations("a"), server.broken) == (2, None)
    assert socket is None or not Path(socket).exists()


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
        closing(join(0, server.environment("b"))),
        pytest.raises(GroupBroken, match=r"job b, rank 0: the others have waited 0\.2 s for it"),
    ):
        waiting(server, pool).result(WAIT_S)


def test_closing_lets_those_who_wait_go() -> None:
    with ThreadPoolExecutor() as pool:
        with TurnServer({"a": 0, "b": 1}, {"a": 1, "b": 1}) as server:
            waits = member(server)
            other = pool.submit(waits.take, "cpu")
        with pytest.raises(GroupBroken, match="turn server is gone"):
            other.result(WAIT_S)
        waits.leave()
        waits.leave()


def test_strangers_are_refused() -> None:
    with TurnServer({"a": 0}, {"a": 1}) as server:
        with pytest.raises(GroupBroken, match="refused: job z, rank 0 is not in this group"):
            member(server, "z")
        with pytest.raises(GroupBroken, match="refused: job a, rank 1 is not in this group"):
            join(1, server.environment("a"))
        with pytest.raises(GroupBroken, match="refused: job 7 and rank 0 must be a name and a number"):
            member(server, 7)  # type: ignore[arg-type]
        joined = member(server)
        with pytest.raises(GroupBroken, match="refused: job a, rank 0 has joined already"):
            member(server)
        joined.leave()
        assert server.broken is None


def test_without_a_group_a_timer_is_just_a_timer() -> None:
    with join(0, {}) as timer, timer.iteration(), timer.stage("cpu"):
        pass
    assert timer.profile().iterations == 1


@pytest.mark.parametrize("text", ["", "{}", "7", '{"socket": "x"}', '{"job": "a", "address": "h:1"}'])
def test_a_senseless_variable_is_refused(text: str) -> None:
    with pytest.raises(GroupError, match='a JSON object with "job", "token", and "socket" or "address"'):
        join(0, {VARIABLE: text})


def test_a_group_that_is_not_there_is_named() -> None:
    with pytest.raises(GroupBroken, match="job a, rank 0: cannot join the group at /nowhere"):
        join(0, {VARIABLE: '{"socket": "/nowhere", "job": "a", "token": ""}'})
