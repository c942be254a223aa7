"""Answers that several ask for at about the same time are worked out once."""

from __future__ import annotations

from itertools import count
from typing import Any

import httpx
from starlette.requests import Request

from ina.service.api.shared import FRESH_S, MOST, Shared
from ina.service.tokens import Person, Role
from tests.ina.service.bed import TIMEOUT_S, Bed, job

ANN, BOB = Person("ann", Role.SUBMITTER), Person("bob", Role.SUBMITTER)


def asked(path: str = "/v1/jobs", query: str = "") -> Request:
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [],
            "server": ("h", 80),
        }
    )


def test_an_answer_is_shared_until_something_changes_or_time_has_passed() -> None:
    class Changing:
        changes = 0

    now_s, made = 100.0, count()
    service: Any = Changing()
    shared = Shared(service, clock_s=lambda: now_s)

    def answer(request: Request, person: Person = ANN) -> bytes:
        return bytes(shared.answer(request, person, lambda: next(made)).body)

    assert [answer(asked()), answer(asked())] == [b"0", b"0"]
    assert answer(asked(query="after=3")) == b"1"
    assert answer(asked("/v1/cluster")) == b"2"
    assert answer(asked(), BOB) == b"3", "it may not show the same to everybody"
    service.changes = 1
    assert answer(asked()) == b"4"
    now_s += FRESH_S
    assert answer(asked()) == b"5"
    for number in range(2 * MOST):
        answer(asked(query=f"after={number}"))
    assert len(shared._answers) <= MOST + 1


def test_pages_share_lists_of_jobs_until_one_is_submitted(bed: Bed) -> None:
    with httpx.Client(base_url=bed.url, trust_env=False, timeout=TIMEOUT_S) as client:
        assert client.get("/v1/jobs").json()["jobs"] == []
        answer = client.post("/v1/jobs", json={"jobs": [job("a")]})
        assert answer.status_code == 201, answer.text
        found = client.get("/v1/jobs")
        assert found.headers["content-type"] == "application/json"
        assert [each["name"] for each in found.json()["jobs"]] == ["a"]
        assert sum(client.get("/v1/cluster").json()["jobs"].values()) == 1
