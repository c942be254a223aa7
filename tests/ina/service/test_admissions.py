"""Jobs whose workers somebody else starts, over HTTP: who may ask for what, and what is refused."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ina.service.client import Client, Refused
from ina.service.tokens import Role, Tokens
from tests.ina.service.bed import TIMEOUT_S, Bed
from tests.ina.service.test_refusals import problem

USER = pwd.getpwuid(os.geteuid()).pw_name
SECRET = "the job's own token"


@pytest.fixture
def machines(bed: Bed) -> list[tuple[list[str], list[int]]]:
    first, *_, last = bed.service.topology.server
    return [([first], [0, 1]), (["elsewhere", last], [2, 3])]


@pytest.fixture
def alice(bed: Bed) -> Iterator[Client]:
    tokens = Tokens(bed.folder)
    tokens.add("bob", Role.SUBMITTER, USER)
    with Client(bed.url, token=tokens.add("alice", Role.SUBMITTER, USER), timeout_s=TIMEOUT_S) as client:
        yield client


def test_the_holder_of_a_job_keeps_and_ends_it_with_the_jobs_own_token(
    bed: Bed, alice: Client, machines: list[tuple[list[str], list[int]]]
) -> None:
    admitted = alice.admit("train", machines, SECRET, job={"iterations": 7, "deadline_s": 600}, key="1")
    assert alice.admit("train", machines, SECRET, job={"iterations": 7}, key="1")["name"] == "train"
    assert admitted["job"]["external"]
    assert admitted["job"]["tenant"] == "alice"
    assert admitted["job"]["workers"] == 4
    assert len(set(admitted["job"]["servers"])) == 2
    with Client(bed.url, token=SECRET, timeout_s=TIMEOUT_S) as holder:
        assert holder.renew("train", done=3)["stop"] == ""
        assert holder.grant("train")["lanes"] == 32
        for refused in (lambda: holder.job("train"), lambda: holder.admit("two", machines, SECRET)):
            with pytest.raises(Refused, match="token is not known"):
                refused()
        assert holder.leave("train", "rank 1 was killed")["state"] == "failed"
        assert "rank 1 was killed" in holder.renew("train")["stop"]
    assert alice.job("train")["reason"] == "rank 1 was killed"


def test_nobody_elses_token_keeps_a_job(
    bed: Bed, alice: Client, machines: list[tuple[list[str], list[int]]]
) -> None:
    alice.admit("train", machines, SECRET)
    alice.submit([{"name": "own", "workers": 1, "command": "true"}])
    with Client(bed.url, token="another token", timeout_s=TIMEOUT_S) as stranger:
        with pytest.raises(Refused) as refused:
            stranger.renew("train")
        assert refused.value.status == 401
        with pytest.raises(Refused) as refused:
            stranger.renew("nobody's")
        assert refused.value.status == 401
    bob = Tokens(bed.folder)
    bob.remove("bob")
    with Client(bed.url, token=bob.add("bob", Role.SUBMITTER, USER), timeout_s=TIMEOUT_S) as other:
        with pytest.raises(Refused) as refused:
            other.leave("train")
        assert refused.value.status == 404


@pytest.mark.parametrize(
    ("change", "where", "text"),
    [
        ({"machines": [{"known_as": ["x"], "ranks": [0]}]}, "/machines/0/known_as", "no server x"),
        ({"machines": []}, "/machines", "at least 1 item"),
        ({"ranks": [0, 2]}, "/machines", "want each rank of 0 to 1 once"),
        ({"ranks": [0, 0]}, "/machines", "want each rank of 0 to 1 once"),
        ({"ranks": [0, 1, 2]}, "/job", "servers: 3 GPUs of"),
        ({"job": {"deadline_s": -1}}, "/job/deadline_s", "deadline_s = -1"),
        ({"job": {"command": "true"}}, "/job/command", "must not be given"),
        ({"job": {"extra": {"user": "root"}}}, "/job/extra", "must not be given"),
        ({"name": "../x"}, "/name", "pattern"),
        ({"token_sha256": "short"}, "/token_sha256", "pattern"),
    ],
)
def test_what_is_wrong_is_named(
    http: httpx.Client, bed: Bed, change: dict[str, object], where: str, text: str
) -> None:
    (server, *_) = bed.service.topology.server
    given = dict(change)
    ranks = given.pop("ranks", [0, 1])
    asked = {"name": "a", "machines": [{"known_as": [server], "ranks": ranks}], "token_sha256": "0" * 64}
    answer = http.post("/v1/admissions", json=asked | given)
    assert answer.status_code == 422, answer.text
    found = problem(answer)
    assert found["pointer"] == where
    assert text in found["detail"]


def test_a_token_does_not_leave_the_client(bed: Bed, tmp_path: Path) -> None:
    """Only its SHA-256 does, until the holder shows it."""
    (server, *_) = bed.service.topology.server
    with Client(bed.url, timeout_s=TIMEOUT_S) as client:
        client.admit("a", [([server], [0])], SECRET)
    assert SECRET not in repr(bed.service.record("a"))
