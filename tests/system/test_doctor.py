"""`ina doctor` on a cluster in order, and on clusters that each have one fault."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.clusters import PATIENCE_S, Cluster, cluster

REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(REASON), reason=REASON)]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INA_TESTBEDS", str(tmp_path_factory.mktemp("testbeds")))
        with cluster(tmp_path_factory.mktemp("cluster")) as made:
            yield made


@pytest.fixture(autouse=True)
def served(here: Cluster) -> Iterator[None]:
    here.serve_fallback()
    yield
    here.end_all()
    assert not here.jobs()


def examined(
    here: Cluster, hosts: str, *, file: Path | None = None, template: str | None = None, token: str = ""
) -> tuple[int, list[dict[str, Any]], dict[str, float]]:
    """Return the exit status, the findings and the goodputs."""
    command = [sys.executable, "-m", "ina", "doctor", "--json", "--hosts", hosts]
    command += ["--cluster", str(file or here.file), "--launch-with", template or here.template]
    process = here.start("h1", command, {"INA_TOKEN": token} if token else {})
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert output, errors
    report = json.loads(output)
    return process.returncode, report["findings"], report["goodputs_bps"]


def changed(here: Cluster, kind: str, name: str, change: Mapping[str, object]) -> Path:
    """Return the cluster file with other values of a switch, server or link (by its first end)."""
    document = json.loads(here.file.read_text())
    entries = document[kind]
    for number, each in enumerate(entries):
        table = {"name": each} if isinstance(each, str) else each
        if name in (table.get("name"), table.get("a")):
            entries[number] = {**table, **change}
    file = here.file.with_name("changed.json")
    file.write_text(json.dumps(document))
    return file


def only(findings: list[dict[str, Any]]) -> tuple[str, str]:
    assert len(findings) == 1, findings
    return findings[0]["where"], findings[0]["what"]


def test_nothing_is_found_where_all_is_well(here: Cluster) -> None:
    status, findings, goodputs = examined(here, "h1,h2,h3,h4")
    assert (status, findings) == (0, [])
    assert set(goodputs) == {"h1", "h2", "h3", "h4", "all", "all, in the fallback server"}
    assert min(goodputs.values()) > 0


def test_1_a_switch_that_does_not_answer(here: Cluster) -> None:
    file = changed(here, "switch", "s2", {"p4runtime": "unix:/nowhere/s2.sock"})
    status, findings, _ = examined(here, "h1", file=file)
    where, what = only(findings)
    assert (status, where) == (1, "s2")
    assert what.startswith("its P4Runtime does not answer: ")


def test_2_a_machine_on_which_nothing_can_be_started(here: Cluster) -> None:
    status, findings, _ = examined(here, "h1", template="ip netns exec nowhere.{host} {command}")
    where, what = only(findings)
    assert (status, where) == (1, "h1")
    assert "nothing can be started on it: status 255" in what
    assert "nowhere.h1" in what


def test_3_another_version(here: Cluster, tmp_path: Path) -> None:
    other = "import importlib.metadata as m; m.version = lambda name, of=m.version: of(name) + '.post9'"
    (tmp_path / "sitecustomize.py").write_text(other)
    template = here.template.replace("{command}", f"env PYTHONPATH={tmp_path} {{command}}")
    status, findings, _ = examined(here, "h2", template=template)
    where, what = only(findings)
    assert (status, where) == (1, "h2")
    assert ".post9 (header 2), this machine " in what


def test_4_another_clock_which_is_harmless(here: Cluster, tmp_path: Path) -> None:
    other = "import time; time.time = lambda of=time.time: of() + 100"
    (tmp_path / "sitecustomize.py").write_text(other)
    template = here.template.replace("{command}", f"env PYTHONPATH={tmp_path} {{command}}")
    status, findings, _ = examined(here, "h2", template=template)
    where, what = only(findings)
    assert (status, where) == (0, "h2")
    found = re.fullmatch(r"its clock is \+(\d+) s off", what)
    assert found, what
    assert 90 <= int(found[1]) <= 110, "to within what the machine takes to answer"


def test_5_another_mac_address(here: Cluster) -> None:
    status, findings, _ = examined(
        here, "h2", file=changed(here, "server", "h2", {"mac": "02:00:00:00:00:99"})
    )
    where, what = only(findings)
    assert (status, where) == (1, "h2")
    assert what == "h2-eth0 has the MAC address 02:00:00:00:00:02, the file says 02:00:00:00:00:99"


def test_6_an_address_that_no_interface_has(here: Cluster) -> None:
    status, findings, _ = examined(here, "h2", file=changed(here, "server", "h2", {"ip": "10.0.7.7"}))
    where, what = only(findings)
    assert (status, where) == (1, "h2")
    assert what == "has no interface with the address 10.0.7.7; it has 10.0.0.2"


def test_7_an_mtu_that_is_too_small(here: Cluster) -> None:
    here.ip("h2", "link", "set", "h2-eth0", "mtu", "150")
    try:
        status, findings, _ = examined(here, "h2")
    finally:
        here.ip("h2", "link", "set", "h2-eth0", "mtu", "1500")
    where, what = only(findings)
    assert (status, where) == (1, "h2")
    assert what == "the MTU of h2-eth0 is 150, and packets of 32 values have 184 bytes"


def test_8_a_wrong_port(here: Cluster) -> None:
    document = json.loads(here.file.read_text())
    links = {each["a"]: each for each in document["link"]}
    links["h1"]["b_port"], links["h2"]["b_port"] = links["h2"]["b_port"], links["h1"]["b_port"]
    file = here.file.with_name("swapped.json")
    file.write_text(json.dumps(document))
    status, findings, _ = examined(here, "h2", file=file)
    where, what = only(findings)
    assert (status, where) == (1, "h2")
    assert what == "its packets reach switch s2, but not at port 2, which the file says"


def test_9_a_wrong_switch(here: Cluster) -> None:
    document = json.loads(here.file.read_text())
    links = {each["a"]: each for each in document["link"]}
    links["h1"]["b"], links["h3"]["b"] = links["h3"]["b"], links["h1"]["b"]
    file = here.file.with_name("swapped.json")
    file.write_text(json.dumps(document))
    status, findings, _ = examined(here, "h3", file=file)
    where, what = only(findings)
    assert (status, where) == (1, "h3")
    assert what == "its packets reach switch s3, and the file says s2"


def test_10_packets_that_reach_nobody(here: Cluster) -> None:
    """As with a firewall: what the machine sends to the switch goes nowhere."""
    nowhere = ("10.0.255.1/32", "dev", "lo")
    here.ip("h2", "route", "add", *nowhere)
    try:
        status, findings, _ = examined(here, "h2")
    finally:
        here.ip("h2", "route", "delete", *nowhere)
    where, what = only(findings)
    assert (status, where) == (1, "h2")
    assert what.startswith("none of its packets reach switch s2 at port 3, or no answer comes back (")


def test_11_a_udp_port_that_somebody_has(here: Cluster) -> None:
    hold = "import socket, time; s = socket.socket(2, 2); s.bind(('10.0.0.2', 42592)); print(1, flush=True)"
    holder = here.start("h2", [sys.executable, "-c", f"{hold}; time.sleep(1000)"])
    assert holder.stdout is not None
    assert holder.stdout.readline() == "1\n"
    status, findings, _ = examined(here, "h2")
    where, what = only(findings)
    assert (status, where) == (1, "h2")
    assert what == "UDP port 42592 of 10.0.0.2 cannot be had: Address already in use"


def test_12_a_fallback_server_with_another_secret(here: Cluster) -> None:
    status, findings, _ = examined(here, "h2", token="another secret, as long")
    where, what = only(findings)
    assert (status, where) == (1, "fallback server")
    assert "refuses this machine: its INA_TOKEN is another one" in what


def test_13_few_files_may_be_open(here: Cluster) -> None:
    template = here.template.replace("{command}", "sh -c 'ulimit -n 100; exec {command}'")
    status, findings, _ = examined(here, "h2", template=template)
    where, what = only(findings)
    assert (status, where) == (1, "h2")
    assert what == "a process may open 100 files"


def test_14_a_link_without_a_carrier(here: Cluster) -> None:
    here.ip("s2", "link", "set", "s2-eth3", "down")
    try:
        status, findings, _ = examined(here, "h2")
    finally:
        here.ip("s2", "link", "set", "s2-eth3", "up")
    where, what = only(findings)
    assert (status, where) == (1, "h2")
    assert what == "h2-eth0 has no carrier"
