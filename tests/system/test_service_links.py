"""Links that are cut under jobs of the service, on a testbed with two ways between any two servers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns.names import interface, namespace
from bmv2_topos.testbeds.netns.ports import InterfaceWatch
from controller.p4runtime_shim.ports import SwitchWatch
from tests.system.clusters import NETNS
from tests.system.command import until
from tests.system.controllers import PREFIX, became, daemon, jobs_file, laid_out, marks

pytestmark = NETNS
BED = f"{PREFIX}links"
CLUSTER = """
switch = ["s1", "s2", "s3", "s4"]
server = [
    {name = "h1", switch = "s3", gpus = 2},
    {name = "h2", switch = "s4", gpus = 2},
    {name = "p1", switch = "s1", gpus = 0},
    {name = "p2", switch = "s2", gpus = 0},
]
link = [["s1", "s3"], ["s1", "s4"], ["s2", "s3"], ["s2", "s4"]]
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[netns.State]:
    with laid_out(tmp_path_factory.mktemp("testbeds"), BED, CLUSTER) as up:
        yield up


def one_job(folder: Path, name: str) -> Path:
    """Write a job of two servers that sums until the file ``stop`` is there."""
    command = marks(folder / name, "--until", folder / "stop")
    return jobs_file(folder / f"{name}.toml", {"name": name, "servers": ["h1", "h2"], "command": command})


def set_link(bed: netns.State, node: str, neighbour: str, to: str) -> None:
    """Set an end of a link, at a switch, up or down."""
    port = interface(node, bed.topology.port_to(node, neighbour))
    subprocess.run(["ip", "-n", namespace(bed.name, node), "link", "set", port, to], check=True)


def tree_of(found: dict[str, object], job: str) -> list[str]:
    """Return what was said of the trees of a job, in order."""
    decisions: list[tuple[str, list[str], str]] = found["decisions"]  # type: ignore[assignment]
    return [text for event, jobs, text in decisions if event == "placed" and jobs == [job]]


def test_interfaces_say_of_links_what_a_switch_tells(bed: netns.State) -> None:
    told = SwitchWatch()

    def agree(down: set[str]) -> bool:
        for switch, ports in bed.topology.ports.items():
            address = f"unix:{bed.socket(switch)}"
            seen, said = watch(address), told(address)
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


def test_a_job_moves_to_another_tree_when_a_link_of_its_tree_is_cut(bed: netns.State, tmp_path: Path) -> None:
    serving = daemon(tmp_path / "state", one_job(tmp_path, "moves"), at=BED)
    begun = tmp_path / "moves.begun"
    until(begun.exists)
    begun.unlink()
    set_link(bed, "s1", "s4", "down")  # s1: where the fallback server is that is chosen first
    try:
        until(begun.exists)
        (tmp_path / "stop").touch()
        found = became(serving)
    finally:
        set_link(bed, "s1", "s4", "up")
    assert found["jobs"]["moves"]["state"] == "completed", found
    before, after = tree_of(found, "moves")
    assert "its tree is s1," in before
    assert "its tree is s2," in after
    assert (tmp_path / "moves").read_text() == "x"
    assert found["audit"] == []


def test_a_job_whose_server_is_cut_off_waits_for_its_link(bed: netns.State, tmp_path: Path) -> None:
    serving = daemon(tmp_path / "state", one_job(tmp_path, "waits"), at=BED)
    begun = tmp_path / "waits.begun"
    until(begun.exists)
    begun.unlink()
    set_link(bed, "s4", "h2", "down")
    until(lambda: not (tmp_path / "state" / "runs" / "0").exists())  # stopped, and nothing of it is left
    set_link(bed, "s4", "h2", "up")
    until(begun.exists)
    (tmp_path / "stop").touch()
    found = became(serving)
    assert found["jobs"]["waits"]["state"] == "completed", found
    assert (tmp_path / "waits").read_text() == "x"
    assert [event for event, jobs, _ in found["decisions"] if event == "interrupted" and jobs == ["waits"]]
    assert found["audit"] == []
