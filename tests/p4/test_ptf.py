"""The PTF tests of tests/p4/ptf, run by PTF on the embedded switch, where it and namespaces are there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from softswitch.compiler import compile_file, p4info, p4info_text, preprocess_file
from tests.p4.make_scripts import FOLDER
from tests.softswitch.namespaces import why_not
from tests.system.command import ROOT

PORTS = (1, 2, 9)
WHY_NOT = why_not() if shutil.which("ptf") else "no ptf on PATH: pip install -e '.[ptf]'"


def test_every_script_of_ours_is_a_ptf_test() -> None:
    text = (FOLDER / "ptf" / "aggregation.py").read_text()
    named = set(re.findall(r'^    name = "(\w+)"$', text, re.MULTILINE))
    assert named == {path.name.removeprefix("aggregation_") for path in FOLDER.glob("aggregation_*")}


@contextmanager
def links() -> Iterator[list[str]]:
    """Give a namespace with a veth for each port, s<port> to h<port>: the beginning of commands inside."""
    name = f"ina-ptf-{os.getpid()}"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    ip("netns", "add", name)
    try:
        inside = ["ip", "netns", "exec", name]
        settings = [f"net.ipv6.conf.{which}.disable_ipv6=1" for which in ("all", "default")]
        subprocess.run(
            [*inside, "sysctl", "-qw", *settings], check=True
        )  # the kernel's own packets stay away
        for port in PORTS:
            ip("-n", name, "link", "add", f"s{port}", "type", "veth", "peer", "name", f"h{port}")
            for end in "sh":
                ip("-n", name, "link", "set", f"{end}{port}", "up")
        yield inside
    finally:
        ip("netns", "delete", name)


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_ptf_passes_on_the_embedded_switch(tmp_path: Path) -> None:
    source = FOLDER / "aggregation_exclusive" / "program.p4"
    info, config, socket = tmp_path / "p4info.txtpb", tmp_path / "config", tmp_path / "p4runtime"
    info.write_text(p4info_text(p4info(compile_file(source))))
    config.write_text(preprocess_file(source))
    ports = [word for port in PORTS for word in ("-i", f"{port}@s{port}")]
    switch = [sys.executable, "-P", "-m", "ina", "switch", *ports, "--p4runtime", f"unix:{socket}"]
    told = f"address='unix:{socket}';p4info='{info}';config='{config}';quiet_s=0.2"
    taken = [word for port in PORTS for word in ("--interface", f"{port}@h{port}")]
    command = [
        "ptf",
        "--test-dir",
        str(FOLDER / "ptf"),
        *taken,
        "--test-params",
        told,
        "aggregation.Exclusive",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
    with (
        links() as inside,
        subprocess.Popen([*inside, *switch], stdout=subprocess.PIPE, env=environment) as running,
    ):
        try:
            assert running.stdout.readline()  # it is up
            done = subprocess.run(
                [*inside, *command], cwd=tmp_path, env=environment, capture_output=True, text=True
            )
        finally:
            running.terminate()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ran 1 test" in done.stderr + done.stdout
