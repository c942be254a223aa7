"""Quotas and reservations: who waits for them, who sees and changes them, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.core import Cancelled, Ended, Retried, Submitted
from controller.core.compose import submission_of
from controller.errors import BadSpec
from controller.vocabulary import Job
from ina.run.ledger import Ledger
from ina.run.quotas import Quota, Quotas
from tests.ina.run.bed import Bed
from tests.ina.run.test_policies import ledger_in
from tests.ina.run.test_refusals import problem


def submit(ledger: Ledger, name: str, tenant: str, workers: int = 2, **keys: Any) -> None:
    job = Job(name=name, workers=workers, layers_bytes=(1000,), iterations=1000, **keys)
    event = Submitted(ledger.now_s, submission_of(job, ledger.topology), job)
    ledger.record([event], tenant=tenant)


def waiting(ledger: Ledger) -> list[str]:
    return [name for each in ledger.quotas.states() for name in each["waiting"]]


def test_a_job_waits_for_its_tenants_quota_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with ledger_in(tmp_path) as ledger:
        ledger.set_quota(Quota("a", gpus=4))
        for name in ("one", "two", "three", "four"):
            submit(ledger, name, "a")
        submit(ledger, "other", "b")
        ledger.decide()
        assert [*ledger.core.jobs] == ["one", "two", "other"]
        assert ledger.quotas.waits("three") == "tenant a: 4 of 4 GPUs are in use; the job needs 2"
        ledger.record([Cancelled(ledger.now_s, "three", "by its owner")])
        assert ledger.left == {"three": ("cancelled", "by its owner")}
        ledger.record([Ended(ledger.now_s, "one")])
        assert [*ledger.core.jobs] == ["two", "other", "four"]
        ledger.record([Ended(ledger.now_s, "two", "exited with status 1"), Retried(ledger.now_s, "two")])
        assert [*ledger.core.jobs] == ["other", "four", "two"]
        ledger.decide()
        wanted = ledger.core.desired()
    with ledger_in(tmp_path) as again:
        assert again.core.desired() == wanted
        assert again.quotas.states() == ledger.quotas.states()
        assert again.left == ledger.left


def test_a_larger_quota_lets_jobs_in_that_wait(tmp_path: Path) -> None:
    with ledger_in(tmp_path) as ledger:
        ledger.set_quota(Quota("a", gpus=2))
        submit(ledger, "one", "a")
        submit(ledger, "two", "a")
        assert waiting(ledger) == ["two"]
        ledger.set_quota(Quota("a", gpus=4))
        assert waiting(ledger) == []
        submit(ledger, "three", "a")
        ledger.remove_quota("a")
        assert [*ledger.core.jobs] == ["one", "two", "three"]


def test_what_is_reserved_is_left_free_by_others() -> None:
    quotas = Quotas(8, {"a": Quota("a", reserved=4)})
    assert quotas.take("b1", "b", 4) == ""
    why = quotas.take("b2", "b", 2)
    assert (
        why == "4 of 8 GPUs are reserved for other tenants, and 4 of the other 4 are in use; the job needs 2"
    )
    assert quotas.take("a1", "a", 4) == ""
    assert quotas.never("b", 5) == "tenant b may use 4 GPUs; the job needs 5"
    assert quotas.end("b1") == ["b2"]
    assert quotas.take("b3", "b", 4)
    assert quotas.resize(10) == ["b3"]


def test_quotas_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadSpec, match="reserved = 5: want 0 or more, and at most its gpus, 4"):
        Quota("a", gpus=4, reserved=5)
    with pytest.raises(
        BadSpec, match="want at most 4; the cluster has 8 GPUs, and 4 are reserved for other tenants"
    ):
        Quotas(8, {"a": Quota("a", reserved=4)}).check(Quota("b", reserved=6))


@pytest.mark.parametrize("seed", range(20))
def test_no_tenant_uses_more_than_its_quota_and_all_jobs_get_in(seed: int) -> None:
    rng = random.Random(seed)
    quotas = Quotas(
        16, {"a": Quota("a", gpus=6, reserved=2), "b": Quota("b", gpus=8), "c": Quota("c", reserved=4)}
    )
    inside: list[tuple[str, str, int]] = []
    known: dict[str, tuple[str, str, int]] = {}
    entered: dict[str, list[int]] = {each: [] for each in "abcd"}

    def enter(names: list[str]) -> None:
        for name in names:
            inside.append(known[name])
            entered[known[name][1]].append(int(name[1:]))

    for number in range(60):
        tenant = rng.choice("abcd")
        gpus = rng.randint(1, 4)
        wish = known[f"j{number}"] = (f"j{number}", tenant, gpus)
        if not quotas.take(*wish):
            enter([wish[0]])
        while inside and rng.random() < 0.5:
            gone = inside.pop(rng.randrange(len(inside)))
            enter(quotas.end(gone[0]))
        used = {each: sum(n for _, tenant, n in inside if tenant == each) for each in "abcd"}
        assert used["a"] <= 6
        assert used["b"] <= 8
        assert max(0, used["a"] - 2) + used["b"] + max(0, used["c"] - 4) + used["d"] <= 16 - 6
    while inside:
        enter(quotas.end(inside.pop(0)[0]))
    assert all(each == sorted(each) for each in entered.values()), "a tenant's jobs enter in their order"
    assert not [name for name in known if quotas.waits(name) is not None], "nobody is left outside"


def test_who_may_see_and_change_quotas(people: dict[str, httpx.Client]) -> None:
    admin, alice = people["root"], people["alice"]
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
        ('{"gpus": -1}', 422, "/gpus"),
        ('{"gpus": 1.5}', 422, "/gpus"),
        ('{"gpus": "3"}', 422, "/gpus"),
        ('{"reserved": true}', 422, "/reserved"),
        ('{"slots": 3}', 422, "/slots"),
        ('{"per_minute": 0}', 422, "/per_minute"),
        ('{"gpus": 2, "reserved": 3}', 422, "/reserved"),
        ("[]", 422, ""),
        ("{", 400, None),
    ],
)
def test_a_wrong_quota_is_refused_with_the_way_to_it(
    http: httpx.Client, body: str, status: int, pointer: str | None
) -> None:
    json = {"Content-Type": "application/json"}
    found = problem(http.put("/v1/quotas/alice", content=body, headers=json))
    assert (found["status"], found.get("pointer")) == (status, pointer)
    assert http.get("/v1/quotas").json() == {"quotas": []}


def test_a_reservation_that_exceeds_the_cluster_is_refused_with_the_numbers(http: httpx.Client) -> None:
    http.put("/v1/quotas/alice", json={"reserved": 6}).raise_for_status()
    found = problem(http.put("/v1/quotas/bob", json={"gpus": 4, "reserved": 3}))
    assert found["status"] == 422
    assert "want at most 2; the cluster has 8 GPUs, and 6 are reserved for other tenants" in str(
        found["detail"]
    )
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
    people["root"].put("/v1/quotas/alice", json={"per_minute": 6}).raise_for_status()

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
    bed.advance(10.0)
    assert submit("alice", "b0", "b1").status_code == 201
    many = problem(submit("alice", *(f"d{number}" for number in range(7))))
    assert many["status"] == 422
    assert "7 jobs at once; tenant alice may submit 6 a minute" in str(many["detail"])


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_quota_of_no_tenant_is_not_there(people: dict[str, httpx.Client], method: str) -> None:
    """It was sent on to the list of all quotas once."""
    answer = people["root"].request(method, "/v1/quotas/", json={"gpus": 3})
    assert answer.status_code == 404
    assert str(problem(answer)["detail"]).startswith("there is no such resource")
