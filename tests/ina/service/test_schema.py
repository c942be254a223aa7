"""The API keeps what its OpenAPI document promises: judged by schemathesis, and by what it has found."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from ina.service.tokens import Role, Tokens
from tests.extras import needs
from tests.ina.service.bed import Bed, job

METHODS = {"get", "post", "put", "delete"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/jobs", "GET, POST"),
        ("OPTIONS", "/v1/jobs/a", "DELETE, GET"),
        ("PATCH", "/v1/audit", "GET"),
        ("DELETE", "/metrics", "GET"),
    ],
)
def test_a_wrong_method_is_told_all_right_ones(
    shared: httpx.Client, method: str, path: str, allowed: str
) -> None:
    answer = shared.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["detail"] == f"want one of {allowed}"


def test_refusals_are_documented_as_the_problems_that_they_are(shared: httpx.Client) -> None:
    schema = shared.get("/v1/openapi.json").json()
    operations = [
        operation
        for path in schema["paths"].values()
        for method, operation in path.items()
        if method in METHODS
    ]
    assert len(operations) > 12
    for operation in operations:
        for status in ("401", "403", "404", "409", "422", "503"):
            assert list(operation["responses"][status]["content"]) == ["application/problem+json"]
    assert "415" in schema["paths"]["/v1/jobs"]["post"]["responses"]


def test_streams_and_figures_are_documented_by_their_types(shared: httpx.Client) -> None:
    paths = shared.get("/v1/openapi.json").json()["paths"]
    for path in ("/v1/events", "/v1/jobs/{name}/logs/{rank}"):
        assert {*paths[path]["get"]["responses"]["200"]["content"]} == {
            "application/json",
            "text/event-stream",
        }
    assert "text/plain" in paths["/metrics"]["get"]["responses"]["200"]["content"]


def test_a_jobs_keys_are_documented(shared: httpx.Client) -> None:
    body = shared.get("/v1/openapi.json").json()["paths"]["/v1/jobs"]["post"]["requestBody"]
    found = body["content"]["application/json"]["schema"]["properties"]["jobs"]["items"]
    assert found["required"] == ["name", "workers", "command"]
    assert "seconds from its own arrival" in found["properties"]["deadline_s"]["description"]


@pytest.mark.slow
@needs("schemathesis")
def test_schemathesis_finds_nothing(bed: Bed, http: httpx.Client, tmp_path: Path) -> None:
    http.post("/v1/jobs", json={"jobs": [job("0")]}).raise_for_status()
    token = Tokens(bed.folder).add("tester", Role.OPERATOR, pwd.getpwuid(os.geteuid()).pw_name)
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(f'headers = {{ Authorization = "Bearer {token}" }}\n')
    found = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings)),
            *("run", f"{bed.url}/v1/openapi.json", "--checks", "all", "--no-color"),
            # What a job may be depends on the cluster, and on its other keys.
            *("--exclude-checks", "positive_data_acceptance"),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "15"),
            *("--request-timeout", "1", "--seed", "1"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
    assert "Tested: 20" in found.stdout
