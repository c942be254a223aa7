"""Quotas: what a tenant may have submitted at a time."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ina.service.errors import StoreError
from ina.service.quotas import FILE, Quota, Quotas
from ina.service.tokens import Role, Tokens
from tests.ina.service.bed import TIMEOUT_S, Bed, job
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


def submit(http: httpx.Client, *names: str, key: str = "") -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return http.post("/v1/jobs", json={"jobs": [job(name) for name in names]}, headers=headers)


def test_what_exceeds_a_quota_is_refused_with_the_numbers(people: dict[str, httpx.Client]) -> None:
    alice, admin = people["alice"], people["admin"]
    assert admin.put("/v1/quotas/alice", json={"jobs": 2, "gpus": 8}).json()["used_jobs"] == 0
    assert submit(alice, "a").status_code == 201
    refused = problem(submit(alice, "b", "c"))
    assert refused["status"] == 409
    assert refused["detail"] == (
        "the quota of tenant 'alice' is 2 jobs at a time; 1 are in use by jobs that are not over, and 2 more"
        " are asked for"
    )
    assert [each["name"] for each in alice.get("/v1/jobs").json()["jobs"]] == ["a"], "all or none"
    assert submit(people["bob"], "d", "e", "f").status_code == 201, "another tenant has no quota"
    admin.put("/v1/quotas/alice", json={"gpus": 7}).raise_for_status()
    assert "is 7 GPUs at a time; 4 are in use" in str(problem(submit(alice, "b"))["detail"])
    assert alice.delete("/v1/jobs/a").status_code == 200
    assert submit(alice, "b").status_code == 201, "what is over does not count"
    assert admin.delete("/v1/quotas/alice").status_code == 204
    assert submit(alice, "c", "g").status_code == 201


def test_the_same_submission_again_is_none_above_a_quota(people: dict[str, httpx.Client]) -> None:
    people["admin"].put("/v1/quotas/alice", json={"jobs": 1}).raise_for_status()
    first = submit(people["alice"], "a", key="k")
    assert first.status_code == 201
    assert submit(people["alice"], "a", key="k").json()["jobs"] == first.json()["jobs"]


def test_who_may_see_and_change_quotas(people: dict[str, httpx.Client]) -> None:
    admin, alice = people["admin"], people["alice"]
    for name in ("alice", "bob"):
        admin.put(f"/v1/quotas/{name}", json={"jobs": 3}).raise_for_status()
    assert [each["tenant"] for each in admin.get("/v1/quotas").json()["quotas"]] == ["alice", "bob"]
    assert [each["tenant"] for each in alice.get("/v1/quotas").json()["quotas"]] == ["alice"]
    assert alice.get("/v1/quotas/alice").json()["jobs"] == 3
    assert alice.get("/v1/quotas/bob").status_code == 404
    assert alice.put("/v1/quotas/alice", json={"jobs": 99}).status_code == 403
    assert alice.delete("/v1/quotas/alice").status_code == 403
    assert admin.get("/v1/quotas/none").status_code == 404
    assert admin.delete("/v1/quotas/none").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"jobs": -1}, 422, "/jobs"),
        ({"jobs": 1.5}, 422, "/jobs"),
        ({"jobs": "3"}, 422, "/jobs"),
        ({"gpus": True}, 422, "/gpus"),
        ({"slots": 3}, 422, "/slots"),
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


def test_quotas_outlast_the_service(tmp_path: Path) -> None:
    Quotas(tmp_path).set(Quota("alice", 2, None))
    assert Quotas(tmp_path).all() == [Quota("alice", 2, None)]
    Quotas(tmp_path).remove("alice")
    assert Quotas(tmp_path).all() == []


def test_a_damaged_file_lets_nobody_submit(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('[{"tenant": "alice"')
    with pytest.raises(StoreError, match="nobody may submit"):
        Quotas(tmp_path).limits("alice")
