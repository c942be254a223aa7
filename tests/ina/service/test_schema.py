"""The API keeps what its OpenAPI document promises: judged by schemathesis, and by what it has found."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.vocabulary.schema import JOB
from ina.service.tokens import Role, Tokens
from tests import effort
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


def _fitting(schema: dict[str, Any]) -> st.SearchStrategy[object]:
    """Values that fit a schema of those that `json_schema` makes."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "oneOf" in schema:
        return st.one_of(*map(_fitting, schema["oneOf"]))
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema["minimum"], schema["maximum"])
        case "number":
            above = "exclusiveMinimum" in schema
            least = schema.get("minimum", schema.get("exclusiveMinimum"))
            return st.floats(least, schema["maximum"], exclude_min=above)
        case "string":
            pattern = schema["pattern"]
            texts = st.from_regex(pattern).filter(
                lambda text: not any("\ud800" <= each <= "\udfff" for each in text)
            )
            return texts.filter(lambda text: len(text) <= schema.get("maxLength", 1000))
        case "array":
            return st.lists(
                _fitting(schema["items"]), min_size=schema["minItems"], max_size=max(3, schema["minItems"])
            )
        case "object" if schema.get("additionalProperties"):
            return st.dictionaries(
                _fitting(schema["propertyNames"]), _fitting(schema["additionalProperties"]), max_size=3
            )
        case "object":
            return st.fixed_dictionaries(
                {name: _fitting(each) for name, each in schema.get("properties", {}).items()}
            )
    return st.sampled_from(["text", 1, 0.5])


@settings(max_examples=effort.cases(25))
@given(data=st.data())
@pytest.mark.parametrize("key", JOB)
def test_a_value_that_fits_its_schema_is_taken(shared: httpx.Client, key: str, data: st.DataObject) -> None:
    """Each key alone: whether values fit each other, and the cluster, no schema says."""
    body = shared.get("/v1/openapi.json").json()["paths"]["/v1/jobs"]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]["properties"]["jobs"]["items"]["properties"][key]
    assert {"type", "enum", "oneOf"} & schema.keys(), "any value fits"
    assert JOB[key].check(data.draw(_fitting(schema))) is None


@pytest.mark.slow
@needs("schemathesis")
def test_schemathesis_finds_nothing(bed: Bed, http: httpx.Client, tmp_path: Path) -> None:
    http.post("/v1/jobs", json={"jobs": [job("0")]}).raise_for_status()
    token = Tokens(bed.folder).add("tester", Role.OPERATOR, pwd.getpwuid(os.geteuid()).pw_name)
    configured = tmp_path / "schemathesis.toml"
    configured.write_text(f'headers = {{ Authorization = "Bearer {token}" }}\n')
    found = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(configured)),
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
