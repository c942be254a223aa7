"""Quotas and reservations over HTTP: who sees and changes them, and what is refused."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator

import httpx
import pytest

from ina.service.tokens import Role, Tokens
from tests.ina.service.bed import TIMEOUT_S, Bed
from tests.ina.service.test_refusals import problem

USER = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def people(bed: Bed) -> Iterator[dict[str, httpx.Client]]:
    tokens = Tokens(bed.folder)
    roles = {"alice": Role.SUBMITTER, "bob": Role.SUBMITTER, "admin": Role.OPERATOR}
    clients = {
        name: httpx.Client(
            base_url=bed.url,
            headers={"Authorization": f"Bearer {tokens.add(name, role, USER)}"},
            timeout=TIMEOUT_S,
            trust_env=False,
        )
        for name, role in roles.items()
    }
    yield clients
    for client in clients.values():
        client.close()


def test_who_may_see_and_change_quotas(people: dict[str, httpx.Client]) -> None:
    admin, alice = people["admin"], people["alice"]
    for name in ("alice", "bob"):
        admin.put(f"/v1/quotas/{name}", json={"gpus": 3}).raise_for_status()
    assert [each["tenant"] for each in admin.get("/v1/quotas").json()["quotas"]] == ["alice", "bob"]
    assert [each["tenant"] for each in alice.get("/v1/quotas").json()["quotas"]] == ["alice"]
    assert alice.get("/v1/quotas/alice").json()["gpus"] == 3
    assert alice.get("/v1/quotas/bob").status_code == 404
    assert alice.put("/v1/quotas/alice", json={"gpus": 99}).status_code == 403
    assert alice.delete("/v1/quotas/alice").status_code == 403
    assert admin.get("/v1/quotas/none").status_code == 404
    assert admin.delete("/v1/quotas/none").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"gpus": -1}, 422, "/gpus"),
        ({"gpus": 1.5}, 422, "/gpus"),
        ({"gpus": "3"}, 422, "/gpus"),
        ({"reserved": True}, 422, "/reserved"),
        ({"slots": 3}, 422, "/slots"),
        ({"per_minute": 0}, 422, "/per_minute"),
        ({"gpus": 2, "reserved": 3}, 422, "/reserved"),
        ([], 422, ""),
    ],
)
def test_a_wrong_quota_is_refused_with_the_way_to_it(
    http: httpx.Client, body: object, status: int, pointer: str
) -> None:
    found = problem(http.put("/v1/quotas/alice", json=body))
    assert (found["status"], found["pointer"]) == (status, pointer)
    assert http.get("/v1/quotas").json() == {"quotas": []}


def test_no_json_is_no_quota(http: httpx.Client) -> None:
    answer = http.put("/v1/quotas/alice", content=b"{", headers={"Content-Type": "application/json"})
    assert problem(answer)["status"] == 400


def test_a_reservation_that_exceeds_the_cluster_is_refused_with_the_numbers(http: httpx.Client) -> None:
    http.put("/v1/quotas/alice", json={"reserved": 6}).raise_for_status()
    found = problem(http.put("/v1/quotas/bob", json={"gpus": 4, "reserved": 3}))
    assert found["status"] == 422
    assert "want at most 2; the cluster has 8 GPUs, and 6 are reserved for others" in str(found["detail"])
    assert http.get("/v1/quotas/alice").json() == {
        "tenant": "alice",
        "gpus": None,
        "reserved": 6,
        "per_minute": None,
        "used": 0,
        "waiting": [],
    }


def test_more_submissions_than_a_minute_allows_are_refused_until_later(
    people: dict[str, httpx.Client], bed: Bed
) -> None:
    """Repeats of a submission do not count, and neither does another tenant's."""
    people["admin"].put("/v1/quotas/alice", json={"per_minute": 6}).raise_for_status()

    def submit(who: str, *names: str, key: str = "") -> httpx.Response:
        jobs = [{"name": name, "workers": 1, "command": "true"} for name in names]
        return people[who].post("/v1/jobs", json={"jobs": jobs}, headers={"Idempotency-Key": key})

    five = [f"a{number}" for number in range(5)]
    assert submit("alice", *five, key="1").status_code == 201
    assert submit("alice", *five, key="1").status_code == 201
    refused = submit("alice", "b0", "b1")
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "10"
    assert problem(refused)["detail"] == (
        "tenant alice may submit 6 jobs a minute; 2 more can be submitted in 10.0 s"
    )
    assert people["alice"].get("/v1/jobs/b0").status_code == 404
    assert submit("bob", *(f"c{number}" for number in range(20))).status_code == 201
    bed.do(lambda: bed.service.advance(10.0))
    assert submit("alice", "b0", "b1").status_code == 201
    many = problem(submit("alice", *(f"d{number}" for number in range(7))))
    assert many["status"] == 422
    assert "7 jobs at once; tenant alice may submit 6 a minute" in str(many["detail"])


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_quota_of_no_tenant_is_not_there(people: dict[str, httpx.Client], method: str) -> None:
    """It was sent on to the list of all quotas once."""
    answer = people["admin"].request(method, "/v1/quotas/", json={"gpus": 3})
    assert answer.status_code == 404
    assert str(problem(answer)["detail"]).startswith("there is no such resource")
