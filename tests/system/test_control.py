"""Who controls the switch of a run: its own controller, and others only where somebody asked for it."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
from pathlib import Path

import grpc
import pytest

from controller import connect
from controller.p4runtime_shim.client import ArbitrationStream
from p4src.messages import p4runtime_pb2_grpc
from tests.sockets import make_certificates
from tests.system.attached import open_switch
from tests.system.command import begun, children, ended, good, here, refused, start, worker

LANES = ("--lanes", 32)
FOREIGN = Path(__file__).parents[1] / "softswitch" / "p4runtime" / "entries.p4"
SUMS = worker("sums.py", "--times", 3, "--length", 100)


def sockets(pid: int) -> set[str]:
    """Return the inodes of the sockets that a process has."""
    links = (str(fd.readlink()) for fd in (Path("/proc") / str(pid) / "fd").iterdir() if fd.is_symlink())
    return {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:")}


def rows(*tables: str) -> list[list[str]]:
    """Return the rows of tables of /proc/net."""
    return [
        line.split() for table in tables for line in (Path("/proc/net") / table).read_text().splitlines()[1:]
    ]


def switch_of(process: subprocess.Popen[str]) -> tuple[int, Path]:
    """Return the process of an embedded switch, and the socket at which it listens to controllers."""
    ((pid, command),) = ((p, c) for p, c in children(process.pid).items() if "-m ina switch" in c)
    assert "--p4runtime unix " in command
    ours = sockets(pid)
    (path,) = {row[7] for row in rows("unix") if row[6] in ours and row[7:] and row[7].endswith("/p4runtime")}
    return pid, Path(path)


def listening_tcp(pid: int) -> list[str]:
    """Return the TCP addresses that a process listens at."""
    ours = sockets(pid)
    return [row[1] for row in rows("tcp", "tcp6") if row[3] == "0A" and row[9] in ours]


@pytest.mark.parametrize("end", ["done", "run killed", "switch killed"])
def test_the_switch_of_a_run_is_controlled_through_a_private_socket_only(end: str) -> None:
    process = begun(start("run", *LANES, *worker("sums.py")))
    pid, path = switch_of(process)
    switch = os.pidfd_open(pid)
    assert listening_tcp(pid) == []
    assert path.is_socket()
    assert path.parent.stat().st_mode & 0o777 == 0o700
    if end == "run killed":
        process.kill()
    elif end == "switch killed":
        os.kill(pid, signal.SIGKILL)
    else:
        process.terminate()
    process.communicate()
    select.select([switch], [], [], 60)  # it ends a little later than a run that is killed
    os.close(switch)
    assert not path.parent.exists()


def test_a_port_is_opened_on_purpose() -> None:
    process = begun(start("run", *LANES, "--p4runtime", 0, *worker("sums.py")))
    address = process.stderr.readline().removeprefix("ina: P4Runtime of s1 at ").strip()
    with connect(address) as controller:
        assert len(controller.jobs()) == 1
    ended(process, by=signal.SIGTERM)


def test_a_run_attaches_to_a_unix_socket(tmp_path: Path) -> None:
    with open_switch(p4runtime=f"unix:{tmp_path}/s1") as attached:
        done = here("run", "-np", 2, *LANES, *attached.options, *SUMS)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    return make_certificates(tmp_path_factory.mktemp("tls"))


def test_a_run_attaches_with_tls_and_a_client_certificate(pem: Path) -> None:
    server = ("--tls-cert", pem / "server.pem", "--tls-key", pem / "server.key")
    with open_switch(*server, "--tls-ca", pem / "ca.pem", p4runtime="localhost:0") as attached:
        run = ("run", "-np", 2, *LANES, *attached.options)
        ours = ("--tls-cert", pem / "client.pem", "--tls-key", pem / "client.key")
        good(*run, "--tls-ca", pem / "ca.pem", *ours, *SUMS)
        for options, reason in (
            ((), "it speaks TLS, and the request was without TLS (check --tls-ca, --tls-cert and --tls-key)"),
            (("--tls-ca", pem / "client.pem"), "its certificate is not valid by the CA in"),
            (("--tls-ca", pem / "ca.pem"), "it ends the connection: it may want a client certificate"),
            (
                ("--tls-ca", pem / "ca.pem", "--tls-cert", pem / "ca.pem", "--tls-key", pem / "client.key"),
                "ca.pem and {pem}/client.key are not a PEM certificate and its key: key values mismatch",
            ),
            (("--tls-ca", pem / "ca.key"), "ca.key holds no certificate in PEM"),
        ):
            said = refused(*run, *options, *SUMS, status=1)
            assert f"no connection to the switch at {attached.address}: " in said
            assert reason.format(pem=pem) in said


def test_tls_with_a_switch_that_has_none_is_said(pem: Path) -> None:
    with open_switch() as attached:
        done = here("run", *LANES, *attached.options, "--tls-ca", pem / "ca.pem", *SUMS)
    assert done.returncode == 1
    assert "it does not speak TLS" in done.stderr


# ---------------------------------------------------------------------- program


def test_a_foreign_program_is_replaced_on_request_only() -> None:
    with open_switch("--program", FOREIGN) as attached:
        run = ("run", "-np", 2, *LANES, *attached.options)
        said = refused(*run, *SUMS)
        assert re.search(
            r"runs another program than 'exclusive' \(only one of the two is for aggregation; its cookie is"
            r" 0x[0-9a-f]+, not 0x[0-9a-f]+\), with \d+ table entries; give --replace-program to replace it",
            said,
        )
        good(*run, "--replace-program", *SUMS)
        good(*run, *SUMS)  # it is there now
        errors = refused(*run, "--program", "shared", *SUMS)
        assert "than 'shared' (it is for exclusive jobs, not for shared ones; its cookie" in errors


# ---------------------------------------------------------------------- election ids


@pytest.mark.parametrize("stays", [False, True])
def test_a_training_ends_well_though_a_stranger_claims_the_highest_election_id(stays: bool) -> None:
    with open_switch() as attached:
        process = start(
            "run", "-np", 2, *LANES, *attached.options, *worker("sums.py", "--times", 1000, "--length", 100)
        )
        begun(process, 2)
        with grpc.insecure_channel(attached.address) as channel:
            stranger = ArbitrationStream(p4runtime_pb2_grpc.P4RuntimeStub(channel), 0)
            stranger.ask(2**128 - 1)
            assert stranger.answer(60).status.code == 0
            if not stays:
                stranger.release()
            output, errors = process.communicate()
            if stays:
                stranger.release()
        assert process.returncode == 0, errors
        assert "allreduces" in output
        if stays:
            assert "may still be on the switch" in errors
            assert f"another controller (election id {2**128 - 1}) is the primary of the switch" in errors
            return
        assert errors == ""
        with connect(attached.address) as controller:
            assert controller.jobs() == {}
