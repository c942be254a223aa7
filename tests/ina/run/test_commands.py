"""The commands that ask a controller, and the client below them, against a service that answers over HTTP."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner, Result

from ina.cli.command import FAILED, USAGE, Failure
from ina.cli.commands import app
from ina.cli.errors import verdict
from ina.run import views
from ina.run.client import Client, ClientError, Refused, Unreachable
from ina.run.tokens import Role, Tokens
from tests.ina.run.bed import TIMEOUT_S, USER, Bed, job

JOBS = """
[[job]]
name = "vision"
workers = 4
command = "python train.py"
iterations = 1000
compute_s = 0.1
deadline_s = 500

[[job]]
name = "text"
workers = 6
command = "python train.py"
iterations = 1000
compute_s = 0.1
"""

Run = Callable[..., Result]


@pytest.fixture
def ina(bed: Bed) -> Run:
    """Run a command that asks the service."""
    environment = {
        "COLUMNS": "200",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "INA_CONTROLLER": bed.url,
        "INA_CONTROLLER_TOKEN": "",
    }

    def run(*arguments: object, **env: str) -> Result:
        done = CliRunner(env={**environment, **env}).invoke(app, [str(each) for each in arguments])
        bed.settle()
        return done

    return run


def said(done: Result) -> str:
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def refusal(done: Result) -> tuple[int, str]:
    assert isinstance(done.exception, Failure | ClientError), (done.output, done.exception)
    return done.exception.exit_code, str(done.exception)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS)
    return path


@pytest.fixture
def submitted(ina: Run, file: Path) -> None:
    """The jobs of the file are there: vision runs, text waits."""
    said(ina("submit", file))


def test_the_jobs_of_a_file_are_submitted_listed_shown_and_explained(ina: Run, bed: Bed, file: Path) -> None:
    assert "2 jobs submitted" in said(ina("submit", file))
    listed = said(ina("jobs"))
    assert "vision" in listed
    assert "needs 6 GPUs; 4 of 8 are free" in listed
    bed.advance(30)
    shown = said(ina("show", "vision"))
    assert "done       300 of 1,000 iterations" in shown
    assert "predicted  done in 1:10" in shown
    assert "deadline   in 7:50" in shown
    assert "waits        text: needs 6 GPUs; 4 of 8 are free" in said(ina("explain", "text"))


def test_a_command_is_submitted_as_a_job(ina: Run) -> None:
    found = json.loads(said(ina("submit", "-np", 2, "--deadline", 9, "--json", "--", "python", "a.py", "-x")))
    (made,) = found["jobs"]
    assert made["name"].startswith("a-")
    assert (made["command"], made["workers"], made["deadline_s"]) == (["python", "a.py", "-x"], 2, 9)
    said(ina("submit", "-np", 1, "--name", "small", "--", "true"))
    assert "workers    1 on 1 GPU\n" in said(ina("show", "small"))
    said(ina("submit", "-np", 2, "--name", "mine", "--", "true"))
    assert json.loads(said(ina("show", "mine", "--json")))["command"] == ["true"]


def test_a_key_submits_once(ina: Run, file: Path) -> None:
    for _ in range(2):
        said(ina("submit", file, "--key", "once"))
    assert len(json.loads(said(ina("jobs", "--json")))["jobs"]) == 2
    assert refusal(ina("submit", file)) == (
        FAILED,
        "there is a job 'vision' that is not over; give another name",
    )


@pytest.mark.usefixtures("submitted")
def test_jobs_that_are_over_are_listed_when_asked_for(ina: Run) -> None:
    assert said(ina("cancel", "vision", "text")).splitlines() == ["vision: cancelled", "text: cancelled"]
    assert said(ina("jobs")) == "no jobs; 2 more are over: --all lists them\n"
    assert "by its owner" in said(ina("jobs", "--all"))
    assert "vision" in said(ina("jobs", "--state", "cancelled"))
    assert "vision" not in said(ina("jobs", "--all", "--state", "running"))


@pytest.mark.usefixtures("submitted")
def test_nothing_is_done_if_one_of_several_names_is_wrong(ina: Run) -> None:
    """The first ones were drained, or cancelled, before the wrong one was looked at.

    A job that is over is no wrong name: it kept the others from being cancelled.
    """
    none = "the cluster has no server or switch 'h9', 'h8'; nothing is done"
    assert refusal(ina("drain", "h1", "h9", "h8")) == (FAILED, none)
    assert refusal(ina("cancel", "vision", "nobody")) == (FAILED, "there is no job 'nobody'")
    assert "down" not in said(ina("top"))
    assert "vision" in said(ina("jobs"))
    assert said(ina("drain", "h1", "spine2")) == "h1: drained\nspine2: drained\n"
    assert refusal(ina("undrain", "h1", "spine1")) == (FAILED, "'spine1': not drained; nothing is done")
    assert "down: drained" in said(ina("top"))
    assert said(ina("undrain", "h1", "h1")) == "h1: in use\n"
    said(ina("cancel", "vision"))
    done = ina("cancel", "vision", "text")
    assert (done.stdout, refusal(done)) == ("text: cancelled\n", (FAILED, "'vision': already over"))


def test_an_audit_that_finds_something_fails(ina: Run, bed: Bed) -> None:
    assert "nothing else" in said(ina("audit"))
    said(ina("submit", "-np", 8, "--name", "a", "--", "true"))
    bed.world.switches["leaf1"].wipe()
    done = ina("audit")
    assert "add job a: it is not there" in done.stdout
    assert refusal(done) == (FAILED, "the audit found 1 difference")
    found = TypeAdapter(views.AuditView).validate_json(ina("audit", "--json").stdout, strict=True)
    assert (found["clean"], found["found"]) == (
        False,
        [{"where": "leaf1", "what": "add job a: it is not there"}],
    )


@pytest.mark.usefixtures("submitted")
def test_logs_are_shown_whole_and_followed(ina: Run, bed: Bed) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    bed.log("vision", 2).write_text(text)
    assert said(ina("logs", "vision", "--rank", 2)) == text
    bed.advance(1000)
    assert said(ina("logs", "vision", "--rank", 2, "-f")) == text
    done = ina("logs", "vision", "--rank", 1)
    assert (done.stdout, done.stderr) == ("", "ina: rank 1 of job vision has written nothing\n")
    assert refusal(ina("logs", "vision", "--rank", 4)) == (FAILED, "job 'vision' has ranks 0 to 3, not 4")


@pytest.mark.usefixtures("submitted")
def test_what_a_rank_wrote_gives_no_commands_to_the_terminal(bed: Bed, ina: Run) -> None:
    """\x1b]0;… would give the window another title, \x1b[2J clear it; a file gets what was written."""
    wrote = "\x1b]0;hello\x07\x1b[2Jloss\t1.5 ü\r\nstep 1\rstep 2\x9b31m\u202e\n"
    bed.log("vision").write_text(wrote, newline="")
    assert said(ina("logs", "vision")) == wrote.replace("\r\n", "\n"), "as the runner of the test has it"
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "ina", "logs", "vision"],
        env={**os.environ, "INA_CONTROLLER": bed.url, "INA_CONTROLLER_TOKEN": ""},
        stdout=theirs,
        check=True,
        timeout=TIMEOUT_S,
    )
    os.close(theirs)
    with os.fdopen(ours, "rb") as terminal:
        shown = terminal.read1().decode()
    assert shown.replace("\r\n", "\n") == (
        "\\x1b]0;hello\\x07\\x1b[2Jloss\t1.5 ü\nstep 1\nstep 2\\x9b31m\\u202e\n"
    )


@pytest.mark.usefixtures("submitted")
def test_a_job_is_watched_until_it_is_over(ina: Run, bed: Bed) -> None:
    later = threading.Timer(0.3, lambda: bed.advance(1000))
    later.start()
    lines = said(ina("watch", "vision")).splitlines()
    later.join()
    assert [line.split()[2] for line in lines] == ["submitted", "placed", "memory", "started", "ended"]
    found = [json.loads(line) for line in said(ina("watch", "vision", "--json")).splitlines()]
    assert found[-1]["event"] == "ended"
    said(ina("submit", "-np", 2, "--name", "third", "--", "true"))
    said(ina("cancel", "third"))
    assert refusal(ina("watch", "third")) == (FAILED, "job third cancelled: by its owner")


@pytest.mark.usefixtures("submitted")
def test_a_job_that_fails_is_watched_listed_and_retried(ina: Run, bed: Bed) -> None:
    bed.fail("vision")
    assert refusal(ina("watch", "vision")) == (
        FAILED,
        "job vision failed: rank 1 ended with status 3; see its output: ina logs vision --rank 1",
    )
    assert "rank 1 ended with status 3" in said(ina("jobs", "--all"))
    assert said(ina("retry", "vision")) == "vision: queued\n"


@pytest.mark.usefixtures("submitted")
def test_top_shows_switches_servers_and_jobs(ina: Run) -> None:
    shown = said(ina("top"))
    assert "1 running, 1 waiting, 0 over" in shown
    assert "2 of 2 GPUs" in shown
    assert json.loads(said(ina("top", "--json"))).keys() == {"cluster", "jobs"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("submit", "-np", 2, "--deadline", -3, "--name", "a", "--", "x"),
            USAGE,
            "/jobs/0/deadline_s: job 'a'",
        ),
        (("submit", "-np", 2, "--name", "a/b", "--", "x"), USAGE, '/jobs/0/name: name = "a/b": want'),
        (("submit", "-np", 99, "--name", "a", "--", "x"), USAGE, "the cluster has 8 GPUs"),
        (("submit", "a", "b"), USAGE, "want one FILE of jobs, or -np WORKERS"),
        (("submit", "-np", 2, "a.toml", "--", "true"), USAGE, "a.toml: a file of jobs has the workers"),
        (("submit", "-np", 2, "--deadline", "inf", "--", "x"), USAGE, "--deadline inf: want a finite number"),
        (("submit", "--deadline", 3, "a.toml"), USAGE, "want one FILE of jobs, or -np WORKERS"),
        (("show", "none"), FAILED, "there is no job 'none'"),
        (("explain", "none"), FAILED, "there is no job 'none'"),
        (("jobs", "--token-file", __file__), USAGE, "want one line, as 'ina controller token add'"),
        (("explain", "\udcff"), USAGE, "this request cannot be sent: 'utf-8' codec can't encode"),
        (("submit", "-np", 1, "--key", "é", "--", "x"), USAGE, "this request cannot be sent: 'ascii' codec"),
        (
            ("show", "a", "--controller", "ftp://x"),
            USAGE,
            "want http://HOST:PORT, https://HOST:PORT or unix:",
        ),
        (("show", "a", "--controller", "http://host:port"), USAGE, "--controller: 'http://host:port'"),
        (("show", "a", "--controller", ""), USAGE, "--controller is missing: give --controller URL"),
        (("jobs", "--switch", "unix:s"), USAGE, "'ina slots --switch unix:s' lists what a switch serves"),
        (("jobs", "--controller", ""), USAGE, "--controller is missing: give --controller URL"),
        (
            ("show", "a", "--controller", "http://127.0.0.1:1"),
            FAILED,
            "no controller can be reached at http",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_exit_code(
    ina: Run, arguments: tuple[object, ...], code: int, said: str
) -> None:
    found, text = refusal(ina(*arguments))
    assert said in text
    assert found == code


def test_an_error_in_a_file_names_its_line(ina: Run, file: Path) -> None:
    file.write_text(JOBS.replace("workers = 6", "workers = 0"))
    assert str(ina("submit", file).exception).startswith(f"{file}:12: job 'text': workers = 0: want a")
    assert said(ina("jobs")) == "no jobs\n"


def test_a_token_comes_from_a_file_or_the_environment(ina: Run, bed: Bed, tmp_path: Path) -> None:
    said(ina("controller", "token", "add", "alice", "--state", tmp_path / "not made yet"))
    path = tmp_path / "token"
    added = said(ina("controller", "token", "add", "alice", "--state", bed.folder))
    path.write_text(added)
    assert refusal(ina("jobs"))[1] == "want a header 'Authorization: Bearer TOKEN'"
    assert said(ina("jobs", "--token-file", path)) == "no jobs\n"
    assert said(ina("jobs", INA_CONTROLLER_TOKEN=added.strip())) == "no jobs\n"
    assert refusal(ina("audit", "--token-file", path))[0] == FAILED
    listed = json.loads(said(ina("controller", "token", "list", "--state", bed.folder, "--json")))
    assert listed == {"tokens": [{"name": "alice", "role": "submitter", "user": ""}]}
    assert added.strip() not in said(ina("controller", "token", "list", "--state", bed.folder))
    said(ina("controller", "token", "remove", "alice", "--state", bed.folder))
    assert said(ina("jobs")) == "no jobs\n", "without tokens everybody on this machine is operator"


def test_a_state_that_can_only_be_read_is_backed_up(
    ina: Run, bed: Bed, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failure of its disk, when a backup is wanted most."""
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK or str(path) != str(bed.folder))
    said(ina("controller", "backup", tmp_path_factory.mktemp("other") / "backup", "--state", bed.folder))


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [(("jobs",), "httpx"), (("explain", "a"), "httpx"), (("controller", "--state", "x"), "fastapi")],
)
def test_a_package_that_is_missing_is_named_with_what_to_install(
    ina: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], missing: str
) -> None:
    anew = ("ina.api", "ina.run.client", "ina.cli.service.serving")
    for name in [name for name in sys.modules if name.startswith(anew)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    text, code = verdict(ina(*arguments).exception)
    assert code == FAILED
    assert f"needs {missing}: pip install 'ina[service]'" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --state DIR"),
        (("--state", "x", "--tls-cert", "a.pem"), "--tls-cert and --tls-key need each other"),
        (("--state", "x", "--listen", "nowhere"), "'nowhere': want HOST:PORT or unix:PATH"),
        (("--state", "x", "--period", "inf"), "--period inf: want a finite number"),
        (("--state", "x", "--cluster", "c.toml", "--testbed", "lab"), "are mutually exclusive"),
        (("--state", "x", "--cluster", "c.toml"), "c.toml: "),
        (("--state", "x", "--lanes", "32"), "--lanes needs --cluster"),
        (("--state", "x", "--cluster", "c.toml", "--target", "t4"), "--target t4: want embedded or bmv2"),
        (("--state", "x", "--executor", "cloud"), "--executor cloud: want local, ssh, slurm or ray"),
        (("--state", "x", "--cluster", "c.toml", "--launch-with", "rsh {host}"), "want {host} or {address}"),
    ],
)
def test_a_controller_does_not_start_with_wrong_options(
    ina: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("a.pem", "c.toml"):
        (tmp_path / file).touch()
    done = ina("controller", "--scheduler", "fifo", *arguments)
    assert said in str(done.exception)
    assert verdict(done.exception)[1] == USAGE
    assert not (tmp_path / "x").exists()


# --------------------------------------------------------------------------- the client


def test_the_client_reads_all_pages(bed: Bed) -> None:
    with Client(bed.url) as client:
        client.submit([job(f"j{number}") for number in range(1500)])
        assert [each["number"] for each in client.jobs()] == list(range(1, 1501))
        assert len(client.decisions()) > 1500


def test_ten_thousand_jobs_are_taken_in_one_request(bed: Bed) -> None:
    with Client(bed.url) as client:
        with pytest.raises(Refused, match=r"10001 jobs in one request; want at most 10000"):
            client.submit([job(f"j{number}") for number in range(10_001)])
        assert client.jobs() == []


def test_a_stream_that_breaks_goes_on_where_it_was(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    from ina.run import client as module

    monkeypatch.setattr(module, "_AGAIN_S", 0.01)
    with Client(bed.url) as client:
        client.submit([job("a")])
        every = client.decisions()
        real, breaks = client._events, [2, 1]

        def breaking(*arguments: Any) -> Any:
            left = breaks.pop(0) if breaks else 1000
            for found in real(*arguments):
                if not left:
                    raise Unreachable("the line is cut")
                left -= 1
                yield found

        monkeypatch.setattr(client, "_events", breaking)
        stream = client.watch()
        assert [next(stream) for _ in every] == every


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]
)
def test_something_else_that_answers_is_no_controller(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        client = Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
        with client, pytest.raises(Unreachable, match="controller"):
            client.cluster()
        thread.join()


def test_a_controller_that_does_not_answer_is_given_up() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        Client(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout_s=0.1) as client,
        pytest.raises(Unreachable, match="has not answered in time"),
    ):
        client.cluster()


def test_an_operator_names_a_job_by_its_tenant_number_or_id(bed: Bed, ina: Run) -> None:
    tokens = Tokens(bed.folder)
    for tenant in ("one", "other"):
        with Client(bed.url, token=tokens.add(tenant, Role.SUBMITTER, USER)) as client:
            client.submit([job("vision", workers=1)])
    root = {"INA_CONTROLLER_TOKEN": tokens.add("root", Role.OPERATOR)}
    assert refusal(ina("show", "vision", **root)) == (
        FAILED,
        "'vision' may mean several jobs: want one of one/vision, other/vision",
    )
    for way in ("other/vision", "2", "vision#2"):
        assert "(id vision#2, number 2)\ntenant     other\n" in said(ina("show", way, **root)), way
    assert said(ina("cancel", "one/vision", **root)) == "vision#1: cancelled\n"
    assert refusal(ina("cancel", "1", **root))[1] == "'vision#1': already over"


def test_quotas_are_shown_set_and_removed(ina: Run, bed: Bed) -> None:
    assert "alice" in said(ina("quota", "alice", "--gpus", "3", "--reserved", "2", "--per-minute", "40"))
    (found,) = json.loads(said(ina("quota", "--json")))["quotas"]
    wanted = {"tenant": "alice", "gpus": 3, "reserved": 2, "per_minute": 40, "used": 0, "waiting": []}
    assert found == wanted
    assert said(ina("quota", "alice", "--remove")) == "alice: quota removed\n"
    assert refusal(ina("quota", "alice", "--remove"))[0] == FAILED
    assert refusal(ina("quota", "--gpus", "3"))[0] == USAGE
    assert refusal(ina("quota", "alice", "--gpus", "3", "--remove"))[0] == USAGE
