"""Who may ask without a token, and as whom commands run."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys

import httpx
import pytest

from controller.vocabulary import Job
from ina.api import guard
from ina.api.access import as_user
from ina.api.guard import uid_of
from ina.api.problems import Problem
from ina.run.effects import _command
from ina.run.launch.agents import Agents, RemoteWorkers
from ina.run.tokens import Person, Role, Tokens
from tests.ina.run.bed import TIMEOUT_S, USER, Bed, job

NOBODY = pwd.getpwnam("nobody").pw_uid
as_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root becomes another user"
)
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
AS_NOBODY = ("setpriv", "--reuid=nobody", "--clear-groups", PYTHON, "-c")
ASK = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
connection.request("GET", "/v1/jobs")
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_says_whose_a_connection_is(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        place = server.getsockname()[:2]
        with socket.create_connection(place) as client:
            assert uid_of(client.getsockname()[:2], place) == os.geteuid()
            assert uid_of((host, 1), place) is None


@as_root
def test_another_user_of_the_machine_needs_a_token(bed: Bed) -> None:
    port = bed.url.rpartition(":")[2]
    found = subprocess.run(
        [*AS_NOBODY, ASK, port],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
        cwd="/",
    )
    assert found.stdout.startswith("401 "), found.stdout
    assert "only the controller's own user and root may ask" in found.stdout
    assert httpx.get(f"{bed.url}/v1/jobs", trust_env=False).status_code == 200


CROWD = """
import socket, sys
taken = []
for _ in range(int(sys.argv[2])):
    made = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
    made.sendall(b"GET /v1/jobs HTTP/1.1")
    taken.append(made)
print("made", flush=True)
refused = 0
for made in taken:
    made.settimeout(0 if made is not taken[-1] else 60)
    try:
        refused += b" 503 " in made.recv(4096)
    except OSError:
        pass
print(refused, flush=True)
sys.stdin.read()
"""


@as_root
@pytest.mark.parametrize(("most", "made"), [(1000, guard.PER_PEER + guard.UNASKED + 9), (100, 60)])
def test_a_user_cannot_take_all_connections(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, most: int, made: int
) -> None:
    """Each has a limit; and of all connections some are kept for root."""
    monkeypatch.setattr(guard, "MOST", most)
    port = bed.url.rpartition(":")[2]
    with subprocess.Popen(
        [*AS_NOBODY, CROWD, port, str(made)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as crowd:
        assert crowd.stdin is not None
        assert crowd.stdout.readline() == "made\n"
        assert int(crowd.stdout.readline()) >= 1
        one_more = subprocess.run(
            [*AS_NOBODY, ASK, port], capture_output=True, text=True, timeout=TIMEOUT_S, cwd="/"
        )
        assert one_more.stdout.startswith("503 ") or "reset" in one_more.stderr.lower(), one_more
        assert httpx.get(f"{bed.url}/v1/jobs", trust_env=False).status_code == 200
        crowd.stdin.close()
    assert httpx.get(f"{bed.url}/v1/jobs", trust_env=False).status_code == 200


def named(user: str = "", name: str = "alice") -> Person:
    return Person(name, Role.SUBMITTER, user)


A = Job(name="a", workers=1, command=("id", "-u"))


def test_a_root_controller_runs_commands_as_the_tokens_user() -> None:
    assert as_user([A], named("nobody"), 0)[0].extra == {"user": "nobody"}
    assert as_user([A], named("root"), 0)[0].extra == {}
    assert as_user([A], Person("", Role.OPERATOR), 0)[0].extra == {}


@pytest.mark.parametrize(
    ("person", "own_uid", "said"),
    [
        (named(name="root"), 0, "the token of 'root' has no user for its commands"),
        (named(name="nobody"), 0, "the token of 'nobody' has no user for its commands"),
        (named("no-such-user"), 0, "there is no user 'no-such-user' on this machine"),
        (named("no-such-user"), 1, "there is no user 'no-such-user'"),
        (named("nobody"), 1, "which only root may become"),
        (named("root"), NOBODY, "which only root may become"),
    ],
)
def test_what_cannot_run_as_its_user_is_refused(person: Person, own_uid: int, said: str) -> None:
    with pytest.raises(Problem, match=said) as refused:
        as_user([A], person, own_uid)
    assert refused.value.status == 403


def test_nobody_chooses_a_user_in_a_job(bed: Bed) -> None:
    token = Tokens(bed.folder).add("alice", Role.SUBMITTER, "nobody" if os.geteuid() == 0 else USER)
    with httpx.Client(
        base_url=bed.url, trust_env=False, headers={"Authorization": f"Bearer {token}"}
    ) as http:
        body = {"jobs": [job("a", extra={"user": "root", "folder": "/"})]}
        assert http.post("/v1/jobs", json=body).status_code == 201
    extra = bed.daemon.reports.record("a#1").job.extra
    assert extra == {"folder": "/", **({"user": "nobody"} if os.geteuid() == 0 else {})}


@as_root
def test_a_command_runs_as_its_user_in_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/root/private")
    told = Job(
        name="a",
        workers=1,
        command=("sh", "-c", "id -u; id -g; pwd; echo $USER ${TMPDIR-no}; grep NoNewPrivs /proc/self/status"),
        extra={"user": "nobody", "folder": "/tmp"},
    )
    found = subprocess.run(_command(told), capture_output=True, text=True, check=True)
    gid = pwd.getpwnam("nobody").pw_gid
    assert found.stdout.split() == [str(NOBODY), str(gid), "/tmp", "nobody", "no", "NoNewPrivs:", "1"]


def test_a_commands_environment_names_its_folder() -> None:
    told = Job(name="a", workers=1, command=("printenv", "PWD"), extra={"folder": "/tmp"})
    found = subprocess.run(("env", "PWD=/", *_command(told)), capture_output=True, text=True, check=True)
    assert found.stdout == "/tmp\n"


class _Ends:
    def ended(self, rank: int, status: int, reason: str) -> None:
        assert status == 0, reason


@as_root
@pytest.mark.parametrize(("user", "gets"), [("root", True), ("nobody", False)])
def test_ranks_that_run_as_another_user_do_not_get_the_starters_environment(
    monkeypatch: pytest.MonkeyPatch, user: str, gets: bool
) -> None:
    """`ina run --hosts` with a launch command that becomes another user, and keeps the environment."""
    monkeypatch.chdir("/")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-key-of-root")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("TMPDIR", "/root/private")
    written: list[bytes] = []
    keep = "--inh-caps=+dac_override --ambient-caps=+dac_override"  # to reach an interpreter in root's home
    become = f"sh -c 'exec setpriv --reuid={user} --clear-groups {keep} {{command}}' {{host}}"
    with Agents.launched({"h1": "127.0.0.1"}, become) as agents:
        agents.ready()
        RemoteWorkers(
            agents, {"h1": [0]}, ["env"], [{"RANK": "0"}], _Ends(), lambda *said: written.append(said[1])
        ).wait(on_tick=lambda: None)
    variables = b"".join(written).decode().split("\n")
    assert {"RANK=0", "OMP_NUM_THREADS=3"} <= {*variables}
    assert ("AWS_SECRET_ACCESS_KEY=a-key-of-root" in variables) == gets
    assert ("TMPDIR=/root/private" in variables) == gets
    assert f"USER={user}" in variables or gets
    assert not [each for each in variables if each.startswith("INA_STARTER")]
