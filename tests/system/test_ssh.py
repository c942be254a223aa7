"""`ina run --hosts` by ssh, as it comes: an OpenSSH server on each machine, with keys of this test."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.clusters import NETNS, Cluster
from tests.system.command import finish, until
from tests.system.test_clusters import LOOP, SUM, all_going, said_by

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
SERVED = ("h1", "h2", "h3")
"""Machines with a server."""
pytestmark = [*NETNS, pytest.mark.skipif(not (SSHD and shutil.which("ssh")), reason="needs sshd and ssh")]


@pytest.fixture(scope="module")
def client(here: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a server on each machine; return the configuration of the client, by which names lead there."""
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user"):
        generate = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(generate, check=True, stdin=subprocess.DEVNULL)
    for machine in SERVED:
        options = {
            "HostKey": folder / "host",
            "AuthorizedKeysFile": folder / "user.pub",
            "PidFile": folder / f"{machine}.pid",
            "ListenAddress": here.state.topology.ip(machine),
            "UsePAM": "no",
            "StrictModes": "no",
            "PermitRootLogin": "yes",
            "PasswordAuthentication": "no",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        server = [str(SSHD), "-D", "-f", "/dev/null", *words]
        here.start(machine, ["sh", "-c", 'mkdir -p /run/sshd && exec "$@"', "-", *server])
    key = (folder / "host.pub").read_text().rsplit(" ", 1)[0]
    names = "".join(f"{here.state.topology.ip(each)} {key}\n" for each in SERVED)
    (folder / "known").write_text(names)
    hosts = "".join(f"Host {each}\n HostName {here.state.topology.ip(each)}\n" for each in SERVED)
    known = f" UserKnownHostsFile {folder}/known\n GlobalKnownHostsFile none\n"
    own = f"Host *\n IdentityFile {folder}/user\n{known}"
    found = folder / "config"
    found.write_text(hosts + own)
    for machine in SERVED:
        until((folder / f"{machine}.pid").exists)
    return found


def run(here: Cluster, client: Path, hosts: str, code: str) -> subprocess.Popen[str]:
    """Start ``ina run --hosts`` without a template: by ssh, which finds the test's configuration."""
    ssh = client.with_name("bin") / "ssh"
    ssh.parent.mkdir(exist_ok=True)
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {client} "$@"\n')
    ssh.chmod(0o755)
    command = [sys.executable, "-m", "ina", "run", "--hosts", hosts, "--", sys.executable, "-uc", code]
    return here.start("h1", ["env", f"PATH={ssh.parent}:/usr/sbin:/usr/bin:/bin", *command])


@pytest.fixture(autouse=True)
def served(here: Cluster) -> Iterator[None]:
    here.serve_fallback()
    yield
    until(lambda: not here.jobs())


def test_ranks_are_started_by_ssh(here: Cluster, client: Path) -> None:
    output, errors = finish(run(here, client, "h1:2,h2:2,h3:1", SUM))
    assert said_by(output) == [[rank, True, True, rank % 2 == 0] for rank in range(5)], errors


def test_ranks_end_with_their_connection_of_ssh(here: Cluster, client: Path) -> None:
    process = run(here, client, "h1,h2,h3", LOOP)
    all_going(process, 3)
    for session in here.mentioning("h2", "sshd: "):
        os.kill(session, signal.SIGKILL)
    _, errors = finish(process, 1)
    for rank in (0, 2):
        assert re.search(rf"\[{rank}\] hostlib\.errors\.PeerLost: .*lost rank 1", errors), errors
    assert "is lost with machine h2: its launch command ended with status 255" in errors, errors
    until(lambda: not here.mentioning("h2", LOOP))
