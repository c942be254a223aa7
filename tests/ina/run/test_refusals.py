"""What the API refuses: every answer is a problem document, and keeps what its schema promises."""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.vocabulary.schema import JOB
from ina.api import guard, web
from ina.run.tokens import Role, Tokens
from tests import effort
from tests.extras import needs
from tests.ina.run.bed import TIMEOUT_S, Bed, job

ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
MEMBERS = {"type", "title", "status", "detail", "pointer", "parameter"}


def problem(answer: httpx.Response) -> dict[str, object]:
    """The problem that an answer tells of."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    found: dict[str, object] = answer.json()
    assert found["status"] == answer.status_code
    assert found["detail"]
    assert found.keys() <= MEMBERS
    return found


@pytest.mark.parametrize(
    ("jobs", "pointer", "said"),
    [
        ([job(workers=0)], "/jobs/0/workers", "want a whole number, 1 to 1000000"),
        ([job("a"), job("b", deadline_s=-1)], "/jobs/1/deadline_s", "want seconds, above 0"),
        ([job(deadline_s=float("inf"))], "/jobs/0/deadline_s", "want seconds"),
        ([{"name": "a", "command": "true"}], "/jobs/0", "workers is missing"),
        ([{"workers": 1, "command": "true"}], "/jobs/0", "name is missing"),
        ([{"name": "a", "workers": 1}], "/jobs/0", "command is missing"),
        ([job(wrokers=3)], "/jobs/0/wrokers", "did you mean 'workers'?"),
        ([job(workers=9)], "/jobs/0", "the cluster has 8 GPUs"),
        ([job(servers=["h1", "h1", "h2", "h9"])], "/jobs/0", "there is no server 'h9'"),
        ([job(layers_bytes=[4, "x"])], "/jobs/0/layers_bytes", "element 1"),
        ([job(stages_s=[0, 0, 0, 0])], "/jobs/0/stages_s", "job 'vision': stages_s = [0, 0, 0, 0]: want at"),
        ([job("a"), job("b", gpus_per_worker=8, workers=1)], "/jobs/1", "job 'b': 1 worker of 8 GPUs"),
        ([job(tree={})], "/jobs/0/tree", "root is missing"),
        ([job("a"), job("a")], "/jobs/1/name", "an earlier job has this name"),
        ([job("../../etc/passwd")], "/jobs/0/name", "without '/', and without"),
        ([job("..")], "/jobs/0/name", "other than '.' and '..'"),
        ([job("x" * 201)], "/jobs/0/name", "want 1 to 200 printable characters in quotes"),
        ([job("a\nb")], "/jobs/0/name", "want 1 to 200 printable characters in quotes"),
        ([job("\u202egnp.exe")], "/jobs/0/name", "want 1 to 200 printable characters in quotes"),
        ([job(" ")], "/jobs/0/name", "want 1 to 200 printable characters in quotes"),
        ([job(command=[])], "/jobs/0/command", "want the program and its arguments"),
        ([job(command="x" * 200_000)], "/jobs/0/command", "in one string of up to 131072 characters or as a"),
        ([job(command="a\0b")], "/jobs/0/command", "want no null character"),
        ([job(command=["\ud800"])], "/jobs/0/command", "and no half of a character"),
        ([7], "/jobs/0", "want a table of keys, not 7"),
        ([], "/jobs", "at least one job"),
        ("a", "/jobs", "at least one job"),
    ],
)
def test_a_wrong_value_is_named_with_the_way_to_it(
    shared: httpx.Client, jobs: object, pointer: str, said: str
) -> None:
    body = json.dumps({"jobs": jobs})
    answer = shared.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    found = problem(answer)
    assert (found["status"], found["pointer"]) == (422, pointer)
    assert said in str(found["detail"])
    assert "request.json" not in answer.text
    assert not [each for each in shared.get("/v1/jobs").json()["jobs"] if each["name"] != "a"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b'{"jobs": [], "jobs": []}', 400, "twice"),
        (b"\xff\xfe", 400, "not UTF-8"),
        (b"[" * 100_000, 400, "too deep"),
        (b'{"jobs": [{"workers": 1' + b"0" * 5000 + b"}]}", 400, "too many digits"),
        (b"[]", 400, "want a table at the top"),
        (b'{"job": []}', 422, "want"),
        (b'{"jobs": [{"name": "a"}], "more": 1}', 422, "unknown key 'more'"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(
    shared: httpx.Client, body: bytes, status: int, said: str
) -> None:
    answer = shared.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    found = problem(answer)
    assert found["status"] == status
    assert said in str(found["detail"])
    assert not str(found["detail"]).startswith(" ")


def test_a_state_that_no_job_can_have_is_refused(shared: httpx.Client) -> None:
    found = problem(shared.get("/v1/jobs", params={"state": "runnig"}))
    assert (found["status"], found["parameter"]) == (422, "state")
    assert "'running'" in str(found["detail"])


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_only_json_is_read(shared: httpx.Client, kind: str) -> None:
    answer = shared.post("/v1/jobs", content=json.dumps({"jobs": [job()]}), headers={"Content-Type": kind})
    assert problem(answer)["status"] == 415


def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    bed: Bed, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "MAX_BODY_BYTES", 1000)
    large = b"x" * 1001
    assert problem(http.post("/v1/jobs", content=large))["status"] == 413
    assert problem(http.post("/v1/jobs", content=iter([large])))["status"] == 413, "without Content-Length"
    with _connected(bed) as peer:
        peer.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
        assert peer.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_come_is_not_waited_for(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.05)
    with _connected(bed) as peer:
        peer.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
        assert peer.recv(4096).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("sent", [b"", b"GET /v1/jobs HTTP/1.1\r\nHost: local", ASKED + b"GET /v1/jobs HT"])
def test_a_head_that_does_not_come_is_not_waited_for(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Nor is one whose bytes come one by one, nor the second one of a connection."""
    monkeypatch.setattr(web, "HEAD_S", 0.3)
    with _connected(bed) as peer:
        peer.sendall(sent)
        answer = _read(peer, b"more" if sent else b"")
    _, _, last = answer.rpartition(b"HTTP/1.1 ")
    assert last.startswith(b"408 " if sent else b"")
    assert (b'"status": 408' in last) == bool(sent)


def _read(peer: socket.socket, more: bytes) -> bytes:
    """Return what comes until the end; say a bit more whenever nothing comes."""
    answer, until = b"", time.monotonic() + TIMEOUT_S
    peer.settimeout(0.05)
    while time.monotonic() < until:
        try:
            if not (piece := peer.recv(4096)):
                return answer
            answer += piece
        except TimeoutError:
            peer.sendall(more)
    raise AssertionError(f"it has not ended within {TIMEOUT_S:g} s")


def test_a_head_in_time_may_be_followed_by_silence_and_another(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "HEAD_S", 1.0)
    with _connected(bed) as peer, peer.makefile("rb") as answers:
        for _ in range(3):
            peer.sendall(ASKED)
            assert answers.readline().startswith(b"HTTP/1.1 200 ")
            while answers.readline() != b"\r\n":
                pass
            assert answers.read(15) == b'{"status":"ok"}'
            time.sleep(0.5)  # longer than the limit together


def test_a_head_that_is_too_large_is_answered_by_a_problem(http: httpx.Client) -> None:
    found = problem(http.get("/healthz", headers={"X-Large": "x" * 100_000}))
    assert found["status"] == 431
    assert "want at most 65536 bytes" in str(found["detail"])
    assert http.get("/healthz", headers={"X-Large": "x" * 60_000}).status_code == 200


def test_what_is_no_request_is_answered_by_a_problem(bed: Bed) -> None:
    with _connected(bed) as peer:
        peer.sendall(b"\x16\x03\x01\x02\r\n\r\n")
        answer = peer.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["detail"].startswith("not a valid HTTP/1.1 request: ")


def _connected(bed: Bed) -> socket.socket:
    url = urlsplit(bed.url)
    assert url.port is not None
    return socket.create_connection(("127.0.0.1", url.port), timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/jobs", 404),
        ("GET", "/v1/jobs/none", 404),
        ("DELETE", "/v1/jobs/none", 404),
        ("GET", "/v1/jobs/none/logs/0", 404),
        ("GET", "/v1/jobs/a/logs/4", 404),
        ("GET", "/v1/jobs/a/logs/-1", 404),
        ("GET", "/v1/jobs/a/logs/x", 422),
        ("GET", "/v1/jobs/%2e%2e%2f%2e%2e%2fetc%2fpasswd/logs/0", 404),
        ("GET", "/v1/jobs/a%00b", 404),
        ("GET", "/v1/jobs/%ff%fe", 404),
        ("GET", "/..%2f..%2fetc/passwd", 404),
        ("GET", "/page/../../service.py", 404),
        ("PUT", "/v1/jobs", 405),
        ("POST", "/v1/cluster", 405),
        ("DELETE", "/v1/jobs", 405),
        ("POST", "/", 405),
        ("GET", "/v1/jobs?limit=0", 422),
        ("GET", "/v1/jobs?limit=1001", 422),
        ("GET", "/v1/jobs?after=x", 422),
        ("GET", "/v1/events?after=-1001", 422),
        ("GET", "/v1/events?follow=perhaps", 422),
        ("GET", f"/v1/jobs/a/logs/0?offset={10**30}", 422),
    ],
)
def test_what_is_not_there_or_not_meant_is_a_problem(
    shared: httpx.Client, method: str, path: str, status: int
) -> None:
    once = {"Idempotency-Key": "once"}
    assert shared.post("/v1/jobs", json={"jobs": [job("a")]}, headers=once).status_code == 201
    found = problem(shared.request(method, path))
    assert found["status"] == status
    if status == 405:
        assert "want one of" in str(found["detail"])


@pytest.mark.parametrize(
    "name", ["Müller's job", "任务", "a b", "100%", "a?b#c", "x" * 200, "-rf", "~", "a\\b"]
)
def test_a_job_may_have_any_printable_name(http: httpx.Client, bed: Bed, name: str) -> None:
    assert http.post("/v1/jobs", json={"jobs": [job(name)]}).status_code == 201
    bed.log(name).write_text("here")
    way = f"/v1/jobs/{quote(name, safe='')}"
    assert http.get(way).json()["name"] == name
    assert http.get(f"{way}/logs/0").json()["text"] == "here"
    assert http.get(f"{way}/explanation").json()["job"]["name"] == name
    assert http.delete(way).json()["state"] == "cancelled"


def test_an_idempotency_key_that_is_too_long_is_refused(shared: httpx.Client) -> None:
    answer = shared.post("/v1/jobs", json={"jobs": [job()]}, headers={"Idempotency-Key": "k" * 201})
    found = problem(answer)
    assert (found["status"], found["parameter"]) == (422, "Idempotency-Key")


# --------------------------------------------------------------------------- anything at all

KEYS = ("name", "workers", "command", "deadline_s", "layers_bytes", "tree", "servers", "extra", "straggler")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
JOBS = st.lists(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), VALUES, max_size=6), max_size=3)


@settings(max_examples=effort.cases(60))
@given(body=st.fixed_dictionaries({"jobs": JOBS}) | VALUES)
def test_no_json_makes_it_fail(shared: httpx.Client, body: object) -> None:
    answer = shared.post("/v1/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code in (201, 400, 409, 422), answer.text
    if answer.status_code != 201:
        problem(answer)
    assert shared.get("/v1/jobs").status_code == 200


PARTS = st.sampled_from(
    ["v1", "jobs", "cluster", "logs", "nodes", "h1", "drain", "..", ".", "", "%00", "events"]
)


@settings(max_examples=effort.cases(60))
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]),
    parts=st.lists(PARTS | st.text(max_size=6).map(lambda text: quote(text, safe="")), max_size=5),
    query=st.dictionaries(
        st.sampled_from(["after", "limit", "state", "offset"]), st.text(max_size=6), max_size=2
    ),
)
def test_no_address_makes_it_fail(
    shared: httpx.Client, method: str, parts: list[str], query: dict[str, str]
) -> None:
    answer = shared.request(method, "/" + "/".join(parts), params=query)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400 and method != "HEAD":
        problem(answer)


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


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/v1/jobs"])
def test_head_is_answered_as_get_without_the_body(shared: httpx.Client, path: str) -> None:
    """Probes of load balancers were refused with 405."""
    answer = shared.head(path)
    assert (answer.status_code, answer.content) == (200, b"")


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


def test_no_parameter_has_a_default_below_its_minimum(shared: httpx.Client) -> None:
    """FastAPI 0.115 to 0.120 check defaults, too, and refuse requests without such a parameter."""
    paths = shared.get("/v1/openapi.json").json()["paths"]
    schemas = [
        each["schema"]
        for path in paths.values()
        for operation in path.values()
        for each in operation.get("parameters", ())
    ]
    bounded = [each for each in schemas if {"default", "minimum"} <= each.keys()]
    assert [each for each in bounded if each["default"] < each["minimum"]] == []


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
            lists = st.lists(
                _fitting(schema["items"]), min_size=schema["minItems"], max_size=max(3, schema["minItems"])
            )
            return lists.filter(any) if "contains" in schema else lists  # one above 0
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
