"""What the API answers, asked over HTTP, of a service that the real core decides for."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from ina.run import views
from tests.ina.run.bed import TIMEOUT_S, Bed, job
from tests.ina.run.virtual import fill_disk

PROMTOOL = shutil.which("promtool")


def submit(http: httpx.Client, *jobs: dict[str, object], key: str = "") -> httpx.Response:
    return http.post("/v1/jobs", json={"jobs": list(jobs)}, headers={"Idempotency-Key": key} if key else {})


def get(http: httpx.Client, path: str, kind: object, **params: Any) -> Any:
    """What a path gives; it has the shape that the schema promises, and nothing beside it."""
    answer = http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return TypeAdapter(kind).validate_python(found, strict=True, extra="forbid")


def test_a_submitted_job_is_placed_and_has_slots(http: httpx.Client) -> None:
    answer = submit(http, job("vision", deadline_s=500))
    assert answer.status_code == 201
    found = get(http, "/v1/jobs/vision", views.JobView)
    assert [each["id"] for each in answer.json()["jobs"]] == [found["id"]]
    assert (found["state"], found["number"], found["gpus"]) == ("running", 1, 4)
    assert len(found["servers"]) == 4
    assert sum(each["slots"] for each in found["slots"].values()) > 0
    assert found["command"] == ["python", "train.py"]
    assert found["due_s"] == 500
    assert found["ends_s"] == pytest.approx(100, rel=0.001)


def test_health_says_when_the_state_cannot_be_written(bed: Bed) -> None:
    paths = ("/healthz", "/readyz")
    with httpx.Client(base_url=bed.url, timeout=TIMEOUT_S, trust_env=False) as http:
        assert [http.get(path).status_code for path in paths] == [200, 200]
        bed.do(lambda: fill_disk(bed.ledger))
        assert submit(http, job()).status_code == 503
        for answer in map(http.get, paths):
            assert (answer.status_code, answer.json()) == (503, {"status": "its state cannot be written"})
        assert http.get("/v1/jobs").json()["jobs"] == []


def test_jobs_are_listed_in_pages_by_state_and_tenant(http: httpx.Client) -> None:
    assert submit(http, *(job(f"j{number}") for number in range(5))).status_code == 201
    first = get(http, "/v1/jobs", views.JobsView, limit=2)
    assert [each["name"] for each in first["jobs"]] == ["j0", "j1"]
    rest = get(http, "/v1/jobs", views.JobsView, after=first["next"])
    assert [each["name"] for each in rest["jobs"]] == ["j2", "j3", "j4"]
    assert rest["next"] is None
    queued = get(http, "/v1/jobs", views.JobsView, state="queued")["jobs"]
    assert [each["name"] for each in queued] == ["j2", "j3", "j4"]
    assert queued[0]["reason"] == "needs 4 GPUs; 0 of 8 are free"
    both = get(http, "/v1/jobs", views.JobsView, state=["queued", "running"])["jobs"]
    assert len(both) == 5
    assert get(http, "/v1/jobs", views.JobsView, tenant="nobody")["jobs"] == []
    latest = get(http, "/v1/jobs", views.JobsView, after=-2)["jobs"]
    assert [each["name"] for each in latest] == ["j3", "j4"]


def test_the_same_key_again_adds_nothing(http: httpx.Client) -> None:
    first = submit(http, job("a"), job("b"), key="once").json()["jobs"]
    again = submit(http, job("a"), job("b"), key="once")
    assert again.status_code == 201
    assert [each["number"] for each in again.json()["jobs"]] == [each["number"] for each in first]
    assert len(get(http, "/v1/jobs", views.JobsView)["jobs"]) == 2


def test_a_job_is_cancelled_and_one_that_is_over_cannot_be(http: httpx.Client) -> None:
    submit(http, job("a"))
    assert http.delete("/v1/jobs/a").json()["state"] == "cancelled"
    assert http.delete("/v1/jobs/a").status_code == 409


def test_a_job_that_failed_is_retried_and_another_is_not(http: httpx.Client, bed: Bed) -> None:
    submit(http, job("a"), job("b"))
    bed.fail("a")
    assert get(http, "/v1/jobs/a", views.JobView)["reason"] == "rank 1 ended with status 3"
    assert http.post("/v1/jobs/a/retry").json()["state"] == "queued"
    assert get(http, "/v1/jobs/a", views.JobView)["state"] == "running"
    refused = http.post("/v1/jobs/b/retry")
    assert (refused.status_code, refused.headers["content-type"]) == (409, "application/problem+json")
    assert "only a failed job can be retried" in refused.json()["detail"]


def test_an_explanation_has_every_decision_of_the_job_with_its_numbers(http: httpx.Client) -> None:
    submit(http, job("a"), job("b"), job("c"))
    found = get(http, "/v1/jobs/c/explanation", views.ExplanationView)
    assert found["job"]["state"] == "queued"
    waits = next(each for each in found["decisions"] if each["event"] == "waits")
    assert waits["numbers"] == {"needs": 4, "free": 0, "gpus": 8}
    assert found["advice"]


def test_the_cluster_shows_who_has_what(http: httpx.Client) -> None:
    submit(http, job("a"))
    found = get(http, "/v1/cluster", views.ClusterView)
    assert sum(each["used"] for each in found["servers"]) == 4
    shares = {each["name"]: each["shares"] for each in found["switches"] if each["shares"]}
    assert {share["job"] for of in shares.values() for share in of} == {"a"}
    assert all(each["free"] == (0 if each["shares"] else 1024) for each in found["switches"])
    assert found["policies"]["scheduler"] == "fifo-backfill"
    assert len(found["links"]) == 9
    assert (found["jobs"], found["began_at"]) == ({"running": 1}, 0)


def test_memory_has_every_division_with_its_time(http: httpx.Client, bed: Bed) -> None:
    get(http, "/v1/memory", views.MemoryView)
    bed.advance(5)
    submit(http, job("a", workers=8))
    get(http, "/v1/memory", views.MemoryView)
    bed.advance(200)
    found = get(http, "/v1/memory", views.MemoryView)
    moments = found["switches"]["leaf1"]
    assert [each["at_s"] for each in moments] == [0, 5, 200]
    assert [[share["job"] for share in each["shares"]] for each in moments] == [[], ["a"], []]
    assert found["slots"]["leaf1"] == 1024


def test_a_drained_server_is_used_by_nobody_until_it_is_back(http: httpx.Client) -> None:
    assert http.post("/v1/nodes/h1/drain").status_code == 204
    submit(http, job("a", workers=8))
    found = get(http, "/v1/cluster", views.ClusterView)
    assert {each["name"]: each["down"] for each in found["servers"] if each["down"]} == {"h1": "drained"}
    assert get(http, "/v1/jobs/a", views.JobView)["state"] == "queued"
    assert http.post("/v1/nodes/h1/undrain").status_code == 204
    assert get(http, "/v1/jobs/a", views.JobView)["state"] == "running"
    assert http.post("/v1/nodes/h9/drain").status_code == 404


def test_events_come_in_pages(http: httpx.Client) -> None:
    submit(http, *(job(f"j{number}") for number in range(4)))
    every = get(http, "/v1/events", views.DecisionsView)["events"]
    assert [each["number"] for each in every] == list(range(1, len(every) + 1))
    found: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = get(http, "/v1/events", views.DecisionsView, after=after, limit=3)
        assert len(page["events"]) <= 3
        found += page["events"]
        after = page["next"]
    assert found == every
    assert get(http, "/v1/events", views.DecisionsView, after=-2)["events"] == every[-2:]


def test_logs_are_read_in_pieces_from_either_end(http: httpx.Client, bed: Bed) -> None:
    submit(http, job("a"))
    assert get(http, "/v1/jobs/a/logs/0", views.LogView) == {"offset": 0, "next": 0, "size": 0, "text": ""}
    bed.log("a", 2).write_text("grün\n" * 20_000)
    first = get(http, "/v1/jobs/a/logs/2", views.LogView)
    second = get(http, "/v1/jobs/a/logs/2", views.LogView, offset=first["next"])
    assert first["text"] + second["text"] == "grün\n" * 20_000
    assert second["next"] == second["size"] == 120_000
    assert get(http, "/v1/jobs/a/logs/2", views.LogView, offset=-6)["text"] == "grün\n"
    assert http.get("/v1/jobs/a/logs/4").status_code == 404


def test_a_service_that_is_not_ready_says_so(http: httpx.Client, bed: Bed) -> None:
    assert http.get("/readyz").status_code == 200
    bed.daemon.ready = "replaying 7 events"
    assert http.get("/readyz").json() == {"status": "replaying 7 events"}
    assert http.get("/readyz").status_code == 503
    assert http.get("/healthz").status_code == 200
    refused = submit(http, job("a"))
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert http.get("/metrics").status_code == 200


def test_the_schema_describes_every_resource(http: httpx.Client) -> None:
    schema = http.get("/v1/openapi.json").json()
    assert schema["openapi"].startswith("3.")
    assert {path for path in schema["paths"] if path.startswith("/v1")} == {
        "/v1/jobs",
        "/v1/jobs/{name}",
        "/v1/jobs/{name}/retry",
        "/v1/jobs/{name}/explanation",
        "/v1/jobs/{name}/logs/{rank}",
        "/v1/cluster",
        "/v1/memory",
        "/v1/nodes/{name}/drain",
        "/v1/nodes/{name}/undrain",
        "/v1/admissions",
        "/v1/admissions/{name}",
        "/v1/admissions/{name}/end",
        "/v1/audit",
        "/v1/quotas",
        "/v1/reallocation",
        "/v1/reload",
        "/v1/quotas/{tenant}",
        "/v1/events",
    }
    for path, methods in schema["paths"].items():
        for method in methods.values():
            assert method.get("description") or method.get("summary"), path
    assert {"JobView", "ClusterView", "MemoryView"} <= schema["components"]["schemas"].keys()


def figures(http: httpx.Client) -> str:
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


def test_figures_say_what_is(http: httpx.Client) -> None:
    submit(http, job("a"), job("b"), job("c"))
    lines = figures(http).splitlines()
    assert 'ina_controller_jobs{state="running"} 2' in lines
    assert 'ina_controller_jobs{state="queued"} 1' in lines
    assert 'ina_controller_server_gpus_used{server="h1"} 2' in lines
    assert 'ina_controller_http_responses_total{code="201"} 1' in lines
    assert 'ina_controller_switch_up{switch="spine1"} 1' in lines


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH")
def test_prometheus_own_tool_finds_nothing_wrong_with_the_figures(http: httpx.Client) -> None:
    submit(http, job("a"))
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=figures(http), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
