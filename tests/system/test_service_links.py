"""Links that are cut under jobs of the service, on a testbed with two ways between any two servers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns.names import interface, namespace
from bmv2_topos.testbeds.netns.ports import InterfaceWatch
from controller.p4runtime_shim.ports import SwitchWatch
from tests.system.command import WORKERS, family, ina
from tests.system.test_service import daemon, ended, until
from tests.system.test_testbeds import PREFIX, needs_namespaces

BED = f"{PREFIX}links"
CLUSTER = """
[[switch]]
name = "s1"
[[switch]]
name = "s2"
[[switch]]
name = "s3"
[[switch]]
name = "s4"
[[server]]
name = "h1"
switch = "s3"
gpus = 2
[[server]]
name = "h2"
switch = "s4"
gpus = 2
[[server]]
name = "p1"
switch = "s1"
gpus = 0
[[server]]
name = "p2"
switch = "s2"
gpus = 0
[[link]]
a = "s1"
b = "s3"
[[link]]
a = "s1"
b = "s4"
[[link]]
a = "s2"
b = "s3"
[[link]]
a = "s2"
b = "s4"
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[netns.State]:
    folder = tmp_path_factory.mktemp("testbeds")
    cluster = folder / "cluster.toml"
    cluster.write_text(CLUSTER)
    with pytest.MonkeyPatch.context() as patch, family():
        patch.setenv("INA_TESTBEDS", str(folder))
        done = ina("topo", "up", cluster, "--name", BED, "--program", "shared")
        assert done.returncode == 0, done.stderr
        try:
            yield netns.find(BED)
        finally:
            ina("topo", "down", BED)


def jobs_file(folder: Path, name: str, stop: Path) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(f"""
[[job]]
name = "{name}"
workers = 2
servers = ["h1", "h2"]
command = "{sys.executable} {WORKERS / "marks.py"} {folder}/{name} --until {stop}"
""")
    return path


def set_link(bed: netns.State, node: str, neighbour: str, to: str) -> None:
    """Set an end of a link, at a switch, up or down."""
    port = interface(node, bed.topology.port_to(node, neighbour))
    subprocess.run(["ip", "-n", namespace(bed.name, node), "link", "set", port, to], check=True)


def tree_of(found: dict[str, object], job: str) -> list[str]:
    """Return what was said of the trees of a job, in order."""
    decisions: list[tuple[str, list[str], str]] = found["decisions"]  # type: ignore[assignment]
    return [text for event, jobs, text in decisions if event == "placed" and jobs == [job]]


@needs_namespaces
def test_interfaces_say_of_links_what_a_switch_tells(bed: netns.State) -> None:
    told = SwitchWatch()

    def agree(down: set[str]) -> bool:
        for switch, ports in bed.topology.ports.items():
            address = f"unix:{bed.socket(switch)}"
            seen, said = watch(address), told(address)
            assert seen is not None
            assert said is not None
            assert seen.ports.keys() == ports.keys() == said.ports.keys()
            if any(said.ports[port].up != seen.ports[port].up for port in ports):
                return False
            if (not all(each.up for each in seen.ports.values())) != (switch in down):
                return False
        return True

    with InterfaceWatch(bed) as watch:
        until(lambda: agree(set()))
        set_link(bed, "s1", "s4", "down")
        try:
            until(lambda: agree({"s1", "s4"}))
        finally:
            set_link(bed, "s1", "s4", "up")
        until(lambda: agree(set()))


@needs_namespaces
def test_a_job_moves_to_another_tree_when_a_link_of_its_tree_is_cut(bed: netns.State, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    serving = daemon(tmp_path / "state", jobs_file(tmp_path, "moves", stop), at=BED)
    begun = tmp_path / "moves.begun"
    until(begun.exists)
    begun.unlink()
    spine = "s1"  # where the fallback server is that is chosen first
    set_link(bed, spine, "s4", "down")
    try:
        until(begun.exists)
        stop.touch()
        found = ended(serving)
    finally:
        set_link(bed, spine, "s4", "up")
    assert found["jobs"]["moves"]["state"] == "completed", found
    before, after = tree_of(found, "moves")
    assert f"its tree is {spine}," in before
    assert "its tree is s2," in after
    assert (tmp_path / "moves").read_text() == "x"
    assert found["audit"] == []


@needs_namespaces
def test_a_job_whose_server_is_cut_off_waits_for_its_link(bed: netns.State, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    serving = daemon(tmp_path / "state", jobs_file(tmp_path, "waits", stop), at=BED)
    begun = tmp_path / "waits.begun"
    until(begun.exists)
    begun.unlink()
    set_link(bed, "s4", "h2", "down")
    state = (tmp_path / "state" / "runs" / "0").exists
    until(lambda: not state())  # it was stopped, and nothing of it is left
    set_link(bed, "s4", "h2", "up")
    until(begun.exists)
    stop.touch()
    found = ended(serving)
    assert found["jobs"]["waits"]["state"] == "completed", found
    assert (tmp_path / "waits").read_text() == "x"
    assert [
        text for event, jobs, text in found["decisions"] if event == "interrupted" and jobs == ["waits"]
    ], found["decisions"]
    assert found["audit"] == []
