"""`ina doctor` on a cluster in order, and on clusters that each have one fault."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.system.clusters import ANOTHER_VERSION, NETNS, Cluster
from tests.system.command import PATIENCE_S, begun, ended

pytestmark = NETNS
ELSEWHERE = "ip netns exec nowhere.{host} {command}"
OTHER = {
    "version": ANOTHER_VERSION,
    "clock": "import time; time.time = lambda of=time.time: of() + 100",
}
"""What makes a process differ from others, as it starts."""
HOLD = "import socket, time; s = socket.socket(2, 2); s.bind(('10.0.0.2', 42592)); print(1, flush=True)"


@pytest.fixture(autouse=True)
def served(here: Cluster) -> Iterator[None]:
    here.serve_fallback()
    yield
    here.end_all()
    assert not here.jobs()


def examined(
    here: Cluster, hosts: str, *, file: Path | None = None, template: str = "", token: str = ""
) -> tuple[int, list[dict[str, Any]], dict[str, float]]:
    """Return the exit status, the findings and the goodputs."""
    command = [sys.executable, "-m", "ina", "doctor", "--json", "--hosts", hosts]
    command += ["--cluster", str(file or here.file), "--launch-with", template or here.template]
    process = here.start("h1", command, {"INA_TOKEN": token} if token else {})
    status, output, errors = ended(process, PATIENCE_S)
    assert output, errors
    report = json.loads(output)
    return status, report["findings"], report["goodputs_bps"]


Change = Callable[[dict[str, Any]], None]


def says(kind: str, name: str, **keys: object) -> Change:
    """Have the cluster file say something else of a switch or a server."""

    def change(document: dict[str, Any]) -> None:
        tables = [{"name": each} if isinstance(each, str) else each for each in document[kind]]
        document[kind] = [{**each, **keys} if each["name"] == name else each for each in tables]

    return change


def swaps(first: str, second: str, key: str) -> Change:
    """Have the cluster file say of the link of one server what is so of another's."""

    def change(document: dict[str, Any]) -> None:
        links = {each["a"]: each for each in document["link"]}
        links[first][key], links[second][key] = links[second][key], links[first][key]

    return change


@dataclass(frozen=True)
class Fault:
    """What is wrong with a cluster, and what is to be found.

    Attributes:
        where: The machine, switch or server that is named.
        what: A regular expression for what is said of it.
        hosts: The machines that are looked at.
        file: Changes the cluster file.
        template: The launch command; the cluster's stands for ``{enter}``.
        token: Of who asks.
        set, unset: Commands of iproute2 on a node that make the fault, and mend it.
        status: The exit status.
    """

    where: str
    what: str
    hosts: str = "h2"
    file: Change | None = None
    template: str = ""
    token: str = ""
    set: Mapping[str, str] | None = None
    unset: Mapping[str, str] | None = None
    status: int = 1


FAULTS = {
    "a switch that does not answer": Fault(
        *("s2", "its P4Runtime does not answer: .*", "h1"),
        file=says("switch", "s2", p4runtime="unix:/nowhere/s2.sock"),
    ),
    "a machine on which nothing can be started": Fault(
        *("h1", r"no process can be started on it: status 255.*nowhere\.h1.*", "h1"), template=ELSEWHERE
    ),
    "another version": Fault(
        *("h2", r".*\.post9 \(header 2\), but this machine has .*"),
        template="{enter} {host} env PYTHONPATH={version} {command}",
    ),
    "another clock, which is harmless": Fault(
        *("h2", r"its clock is \+(9\d|10\d|110) s off this machine's clock"),  # plus the answer's time
        template="{enter} {host} env PYTHONPATH={clock} {command}",
        status=0,
    ),
    "another MAC address": Fault(
        *("h2", "h2-eth0 has the MAC address 02:00:00:00:00:02, but the cluster file says 02:00:00:00:00:99"),
        file=says("server", "h2", mac="02:00:00:00:00:99"),
    ),
    "an address that no interface has": Fault(
        *("h2", r"has no interface with the address 10\.0\.7\.7; it has 10\.0\.0\.2"),
        file=says("server", "h2", ip="10.0.7.7"),
    ),
    "an MTU that is too small": Fault(
        *("h2", "the MTU of h2-eth0 is 150, and packets of 32 values have 184 bytes"),
        set={"h2": "link set h2-eth0 mtu 150"},
        unset={"h2": "link set h2-eth0 mtu 1500"},
    ),
    "a wrong port": Fault(
        *("h2", "its packets reach switch s2, but not at port 2, its port in the cluster file"),
        file=swaps("h1", "h2", "b_port"),
    ),
    "a wrong switch": Fault(
        *("h3", "its packets reach switch s3, but the cluster file says s2", "h3"),
        file=swaps("h1", "h3", "b"),
    ),
    "packets that reach nobody, as with a firewall": Fault(
        *("h2", r"none of its packets reach switch s2 at port 3, or no answer comes back \(.*"),
        set={"h2": "route add 10.0.255.1/32 dev lo"},
        unset={"h2": "route delete 10.0.255.1/32 dev lo"},
    ),
    "a fallback server with another secret": Fault(
        *("fallback server", ".*refuses this machine: its INA_TOKEN differs.*"),
        token="another secret, as long",
    ),
    "few files may be open": Fault(
        *("h2", "a process may open only 100 files"),
        template="{enter} {host} sh -c 'ulimit -n 100; exec {command}'",
    ),
    "a link without a carrier": Fault(
        *("h2", "h2-eth0 has no carrier"),
        set={"s2": "link set s2-eth3 down"},
        unset={"s2": "link set s2-eth3 up"},
    ),
}


def test_nothing_is_found_where_all_is_well(here: Cluster) -> None:
    status, findings, goodputs = examined(here, "h1,h2,h3,h4")
    assert (status, findings) == (0, [])
    assert set(goodputs) == {"h1", "h2", "h3", "h4", "all", "all, in the fallback server"}
    assert min(goodputs.values()) > 0


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found_and_no_other(here: Cluster, fault: Fault, tmp_path: Path) -> None:
    document = json.loads(here.file.read_text())
    if fault.file is not None:
        fault.file(document)
    (file := here.file.with_name("changed.json")).write_text(json.dumps(document))
    template = fault.template.replace("{enter}", f"sh {here.enter}")
    for name, text in OTHER.items():
        (folder := tmp_path / name).mkdir()
        (folder / "sitecustomize.py").write_text(text)
        template = template.replace(f"{{{name}}}", str(folder))
    with contextlib.ExitStack() as stack:
        for node, command in (fault.unset or {}).items():
            stack.callback(here.ip, node, *command.split())
        for node, command in (fault.set or {}).items():
            here.ip(node, *command.split())
        status, findings, _ = examined(here, fault.hosts, file=file, template=template, token=fault.token)
    assert len(findings) == 1, findings
    assert (status, findings[0]["where"]) == (fault.status, fault.where)
    assert re.fullmatch(fault.what, findings[0]["what"], re.DOTALL), findings


def test_a_udp_port_that_somebody_has_is_found(here: Cluster) -> None:
    holder = here.start("h2", [sys.executable, "-c", f"{HOLD}; time.sleep(1000)"])
    begun(holder, word="1")
    status, [found], _ = examined(here, "h2")
    assert (status, found["where"]) == (1, "h2")
    assert found["what"] == "UDP port 42592 of 10.0.0.2 cannot be used: Address already in use"


def test_it_sums_on_the_fallback_servers_machine_together_with_others(here: Cluster) -> None:
    with here.serving_on("h2"):
        status, findings, goodputs = examined(here, "h1,h2,h3")
    assert (status, findings) == (0, [])
    assert {*goodputs} == {"h1", "h3", "all", "all, in the fallback server"}
