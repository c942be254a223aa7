"""Who may ask for what: tokens, roles, names of hosts, origins, holders of jobs; what is kept of secrets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from controller.vocabulary import BadSpec
from ina.api import Address, Certificate, guard
from ina.errors import Conflict, StoreError, Unknown
from ina.run.client import Client, ClientError, Refused, Unreachable
from ina.run.tokens import FILE, Role, Tokens
from tests.ina.run.bed import TIMEOUT_S, USER, Bed, job, serving
from tests.ina.run.test_refusals import problem
from tests.sockets import make_certificates


def test_without_tokens_the_controllers_own_user_is_operator(shared: httpx.Client) -> None:
    assert shared.get("/v1/audit").status_code == 200


@pytest.mark.parametrize("who", ["nobody", "guess"])
@pytest.mark.parametrize(
    "path", ["/v1/jobs", "/v1/cluster", "/v1/events?follow=true", "/metrics", "/v1/memory"]
)
def test_with_tokens_everybody_needs_one(people: dict[str, httpx.Client], who: str, path: str) -> None:
    answer = people[who].get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="ina"'
    assert answer.headers["content-type"] == "application/problem+json"
    assert people[who].get("/healthz").status_code == 200
    assert people[who].get("/").status_code == 200, "the page says nothing; it asks for a token"


def test_a_submitter_has_only_jobs_of_their_own(people: dict[str, httpx.Client], bed: Bed) -> None:
    alice, bob, root = people["alice"], people["bob"], people["root"]
    assert alice.post("/v1/jobs", json={"jobs": [job("hers")]}).json()["jobs"][0]["tenant"] == "alice"
    assert bob.post("/v1/jobs", json={"jobs": [job("his")]}).status_code == 201
    assert [each["name"] for each in alice.get("/v1/jobs").json()["jobs"]] == ["hers"]
    assert [each["name"] for each in root.get("/v1/jobs").json()["jobs"]] == ["hers", "his"]
    for method, path in (
        ("GET", "/v1/jobs/his"),
        ("DELETE", "/v1/jobs/his"),
        ("POST", "/v1/jobs/his/retry"),
        ("GET", "/v1/jobs/his/explanation"),
        ("GET", "/v1/jobs/his/logs/0"),
    ):
        refused = alice.request(method, path)
        assert refused.status_code == 404, "as one that is not there"
        assert refused.json() == alice.request(method, path.replace("his", "none")).json() | {
            "detail": "there is no job 'his'"
        }
    assert alice.get("/v1/jobs/his?tenant=bob").json()["detail"] == "there is no job 'bob/his'"
    seen = alice.get("/v1/events").json()["events"]
    assert seen
    assert {name for each in seen for name in each["jobs"]} == {"hers#1"}
    for path in ("/v1/cluster", "/v1/memory"):
        assert "his" not in alice.get(path).text
        assert '"hers#1"' in alice.get(path).text
        assert '"his#2"' in root.get(path).text
    assert bob.delete("/v1/jobs/his").json()["state"] == "cancelled"
    assert "by bob" in bob.get("/v1/jobs/his").json()["reason"]
    assert root.delete("/v1/jobs/hers").json()["state"] == "cancelled"


def test_names_are_a_tenants_own_and_free_again_after_the_end(people: dict[str, httpx.Client]) -> None:
    alice, bob, root = people["alice"], people["bob"], people["root"]
    for each, number in ((alice, 1), (bob, 2)):
        (made,) = each.post("/v1/jobs", json={"jobs": [job("vision", workers=1)]}).json()["jobs"]
        assert (made["name"], made["id"], made["number"]) == ("vision", f"vision#{number}", number)
    again = {"jobs": [job("vision", workers=1)]}
    refused = alice.post("/v1/jobs", json=again)
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "there is a job 'vision' that is not over; give another name",
    )
    twins = alice.post("/v1/jobs", json={"jobs": [job("twin", workers=1)] * 2})
    assert (twins.status_code, alice.get("/v1/jobs/twin").status_code) == (422, 404), "all or none"
    assert alice.delete("/v1/jobs/vision").json()["number"] == 1
    assert alice.post("/v1/jobs", json=again).json()["jobs"][0]["id"] == "vision#3"
    assert [alice.get(f"/v1/jobs/{way}").json()["number"] for way in ("vision", "vision%231", "1")] == [
        3,
        1,
        1,
    ]
    assert alice.get("/v1/jobs/2").status_code == 404, "another tenant's"
    assert alice.get("/v1/jobs/vision?tenant=bob").status_code == 404
    assert root.get("/v1/jobs/vision?tenant=bob").json()["number"] == 2
    several = root.get("/v1/jobs/vision")
    assert (several.status_code, several.json()["detail"]) == (
        409,
        "'vision' may mean several jobs: want one of alice/vision, bob/vision",
    )
    assert alice.post("/v1/jobs", json={"jobs": [job("2", workers=1)]}).status_code == 201
    assert root.post("/v1/jobs", json={"jobs": [job("2", workers=1)]}).status_code == 201
    assert root.get("/v1/jobs/2").status_code == 409, "the number of one, and the name of another"
    ids = root.post("/v1/jobs", json={"jobs": [job("vision#9")]})
    assert (ids.status_code, ids.json()["pointer"]) == (422, "/jobs/0/name")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/audit"),
        ("POST", "/v1/nodes/h1/drain"),
        ("POST", "/v1/nodes/h1/undrain"),
        ("GET", "/metrics"),
    ],
)
def test_only_operators_operate(people: dict[str, httpx.Client], method: str, path: str) -> None:
    refused = people["alice"].request(method, path)
    assert refused.status_code == 403
    assert refused.json()["detail"] == "'alice' is a submitter; only operators may do this"
    assert people["root"].request(method, path).status_code in (200, 204, 409)


def test_a_key_of_one_tenant_is_not_that_of_another(people: dict[str, httpx.Client]) -> None:
    for name in ("alice", "bob"):
        answer = people[name].post(
            "/v1/jobs", json={"jobs": [job(f"of-{name}")]}, headers={"Idempotency-Key": "1"}
        )
        assert answer.json()["jobs"][0]["name"] == f"of-{name}"


def test_a_removed_token_is_refused_at_once(people: dict[str, httpx.Client], bed: Bed) -> None:
    assert people["alice"].get("/v1/jobs").status_code == 200
    Tokens(bed.folder).remove("alice")
    assert people["alice"].get("/v1/jobs").status_code == 401
    assert people["bob"].get("/v1/jobs").status_code == 200


def test_tokens_are_kept_as_hashes_in_a_file_for_its_owner(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    token = tokens.add("alice", Role.SUBMITTER)
    text = (tmp_path / FILE).read_text()
    assert token not in text
    assert token.removeprefix("ina_") not in text
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    found = tokens.person(token)
    assert (found.name, found.role) == ("alice", Role.SUBMITTER)
    assert tokens.person(token[:-1]) is None
    assert tokens.person("ina_\ud800") is None


@pytest.mark.parametrize("name", ["", "a b", "../x", "ä", "x" * 65, "-", "a\n"])
def test_a_tenant_has_a_plain_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(Conflict, match="is no tenant's name"):
        Tokens(tmp_path).add(name, Role.OPERATOR)


def test_a_tenant_has_one_token(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    tokens.add("alice", Role.SUBMITTER)
    with pytest.raises(Conflict, match="'alice' already has a token: remove that token first"):
        tokens.add("alice", Role.OPERATOR)
    with pytest.raises(Unknown, match="'bob' has no token; tenants with a token: alice"):
        tokens.remove("bob")


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '[{"name": "a"}]', '[{"name":"a","role":"king","sha256":""}]']
)
def test_a_damaged_file_of_tokens_lets_nobody_in(bed: Bed, http: httpx.Client, text: str) -> None:
    (bed.folder / FILE).write_text(text)
    answer = http.get("/v1/jobs")
    assert answer.status_code == 503
    assert "all requests are refused" in answer.json()["detail"]
    with pytest.raises(StoreError, match="is damaged"):
        Tokens(bed.folder).add("alice", Role.OPERATOR)


# --------------------------------------------------------------------------- browsers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9580", "127.0.0.1.evil.example", "", "[::1"])
def test_another_name_that_leads_here_is_refused(shared: httpx.Client, host: str) -> None:
    answer = shared.get("/v1/jobs", headers={"Host": host})
    assert answer.status_code in (400, 421)
    assert "jobs" not in answer.text or answer.json()["status"] == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1234", "[::1]:80", "LOCALHOST"])
def test_names_of_this_machine_are_not(shared: httpx.Client, host: str) -> None:
    assert shared.get("/v1/jobs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/v1/nodes/h1/drain", "/v1/jobs/a/retry"])
def test_pages_of_other_sites_change_nothing(
    shared: httpx.Client, headers: dict[str, str], path: str
) -> None:
    answer = shared.post(path, headers=headers)
    assert answer.status_code == 403
    assert "may not send this request" in answer.json()["detail"]
    assert not [each for each in shared.get("/v1/cluster").json()["servers"] if each["down"]]


def test_the_page_itself_may_change_things(http: httpx.Client, bed: Bed) -> None:
    headers = {"Origin": bed.url, "Sec-Fetch-Site": "same-origin"}
    assert http.post("/v1/nodes/h1/drain", headers=headers).status_code == 204


@pytest.mark.parametrize("path", ["/", "/page/page.js", "/v1/jobs", "/v1/none", "/healthz"])
def test_answers_tell_browsers_what_they_may_do(shared: httpx.Client, path: str) -> None:
    headers = shared.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "set-cookie" not in headers
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


# --------------------------------------------------------------------------- the network


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate, beside that of its CA."""
    folder = make_certificates(tmp_path_factory.mktemp("certificate"))
    return Certificate(folder / "server.pem", folder / "server.key")


def test_other_machines_need_tls_and_tokens(tmp_path: Path, certificate: Certificate) -> None:
    everywhere = Address("0.0.0.0", 0)
    with (
        pytest.raises(
            BadSpec, match=r"0\.0\.0\.0:0 can be reached by other machines: want a TLS certificate"
        ),
        serving(tmp_path, everywhere),
    ):
        pass
    with pytest.raises(BadSpec, match="add a token first"), serving(tmp_path, everywhere, certificate):
        pass


def test_over_tls_a_token_is_needed_even_when_the_last_has_been_removed(
    tmp_path: Path, certificate: Certificate
) -> None:
    token, ca = Tokens(tmp_path).add("root", Role.OPERATOR), certificate.certificate.with_name("ca.pem")
    with serving(tmp_path, Address("0.0.0.0", 0), certificate) as bed:
        url = bed.url.replace("0.0.0.0", "localhost")
        assert url.startswith("https://")
        with Client(url, token=token, ca=ca) as client:
            assert client.audit()["clean"]
            Tokens(tmp_path).remove("root")
            with pytest.raises(Refused, match="this token is not known"):
                client.audit()
        with Client(url, ca=ca) as client, pytest.raises(Refused, match="Authorization"):
            client.jobs()
        with (
            Client(url, token=token) as client,
            pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            client.jobs()


def test_a_token_does_not_leave_the_machine_without_tls() -> None:
    with pytest.raises(ValueError, match="a token is sent to another machine over TLS only"):
        Client("http://10.0.0.1:9580", token="ina_x")
    Client("http://127.0.0.1:9580", token="ina_x").close()


def test_a_unix_socket_is_for_its_owner_and_taken_over_when_its_holder_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    for _ in range(2):
        with serving(tmp_path, Address(path=path)) as bed:
            assert bed.url == f"unix:{path}"
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(FileExistsError, match="another process listens there"):
                Address(path=path).bound()
            with Client(bed.url) as client:  # when this is answered, the connection before it has been taken
                assert client.jobs() == []
        assert not path.exists()
        left = Address(path=path).bound()  # by somebody who was killed
        left.close()


def test_connections_to_a_unix_socket_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They took all descriptors, and each wait for another one was a traceback in the log."""
    monkeypatch.setattr(guard, "MOST", 40)
    with serving(tmp_path, Address(path=tmp_path / "s")) as bed, contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(f"{tmp_path}/s")
        with Client(bed.url) as client, pytest.raises(ClientError, match=r"too many connections|reset"):
            client.jobs()


@pytest.mark.parametrize("text", ["", "9580", ":9580", "host:x", "host:65536", "host:-1", "unix:"])
def test_an_address_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(BadSpec, match="want HOST:PORT or unix:PATH"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/run/x", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("example.org:1", False),
        ("localhost.evil.example:1", False),
    ],
)
def test_it_is_known_who_can_reach_an_address(text: str, local: bool) -> None:
    assert Address.parse(text).local is local


def test_no_answer_waits_for_acknowledgements() -> None:
    async def delays() -> bool:
        accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ours = writer.get_extra_info("socket")
            accepted.set_result(ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with Address().bound() as bound:
            async with await asyncio.start_server(take, sock=bound):
                _, writer = await asyncio.open_connection(*bound.getsockname())
                writer.close()
                return not await accepted

    assert not asyncio.run(delays()), "an answer's body waits for the acknowledgement of its header"


def test_a_certificate_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    Tokens(tmp_path).add("root", Role.OPERATOR)
    (tmp_path / "x.pem").write_text("no certificate")

    certificate = Certificate(tmp_path / "x.pem", tmp_path / "x.pem")
    with (
        pytest.raises(BadSpec, match="want a certificate and its key"),
        serving(tmp_path, certificate=certificate),
    ):
        pass


def test_no_token_is_logged(people: dict[str, httpx.Client], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    people["guess"].get("/v1/jobs")
    people["alice"].post("/v1/jobs", json={"jobs": [job(workers=0)]})
    people["alice"].get("/v1/audit")
    told = [
        record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))
    ]
    assert not [line for line in told if "ina_" in line]
    assert json.dumps(people["guess"].get("/v1/jobs").json()).find("ina_guess") == -1


SECRET = "the job's own token"


@pytest.fixture
def machines(bed: Bed) -> list[tuple[list[str], list[int]]]:
    first, *_, last = bed.daemon.ledger.topology.servers_for("worker")
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
        holder.leave("train", "rank 1 was killed")
        bed.settle()
        assert "rank 1 was killed" in holder.renew("train")["stop"]
    assert alice.job("train")["reason"] == "rank 1 was killed"


def test_nobody_elses_token_keeps_a_job(
    bed: Bed, alice: Client, machines: list[tuple[list[str], list[int]]]
) -> None:
    alice.admit("train", machines, SECRET)
    alice.submit([{"name": "own", "workers": 1, "command": "true"}])
    with Client(bed.url, token="another token", timeout_s=TIMEOUT_S) as stranger:
        for name in ("train", "nobody's"):
            with pytest.raises(Refused) as refused:
                stranger.renew(name)
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
        (
            {"machines": [{"known_as": ["x"], "ranks": [0]}]},
            "/machines/0/known_as",
            "x is not in the cluster",
        ),
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
    (server, *_) = bed.daemon.ledger.topology.server
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
    (server, *_) = bed.daemon.ledger.topology.server
    with Client(bed.url, timeout_s=TIMEOUT_S) as client:
        client.admit("a", [([server], [0])], SECRET)
    assert SECRET not in repr(bed.daemon.reports.record("a"))
