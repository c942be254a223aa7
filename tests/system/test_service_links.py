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
from tests.system.controllers import PREFIX, Controller, laid_out

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


def set_link(bed: netns.State, node: str, neighbour: str, to: str) -> None:
    """Set an end of a link, at a switch, up or down."""
    port = interface(node, bed.topology.port_to(node, neighbour))
    subprocess.run(["ip", "-n", namespace(bed.name, node), "link", "set", port, to], check=True)


def test_interfaces_say_of_links_what_a_switch_tells(bed: netns.State) -> None:
    told = SwitchWatch()

    def agree(down: set[str]) -> bool:
        for switch, ports in bed.topology.ports.items():
            address = f"unix:{bed.socket(switch)}"
            seen, said = watch(address), told(address)
            assert seen.ports.keys() == ports.keys() == said.ports.keys()
            same = all(said.ports[port].up == seen.ports[port].up for port in ports)
            if not same or all(each.up for each in seen.ports.values()) == (switch in down):
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
    command, stop = Controller(tmp_path, ["--testbed", bed.name]), tmp_path / "stop"
    with command.serving():
        command.submit("moves", "--until", stop, servers=["h1", "h2"])
        command.until(lambda: command.begun("moves"))
        root = command.job("moves")["tree"]["root"]
        (tmp_path / "moves.begun").unlink()
        set_link(bed, root, "s4", "down")
        try:
            command.until(lambda: command.begun("moves"))
            assert {command.job("moves")["tree"]["root"], root} == {"s1", "s2"}
            stop.touch()
            command.until(lambda: command.job("moves")["over"])
        finally:
            set_link(bed, root, "s4", "up")
        assert command.job("moves")["state"] == "completed", command.said()
        assert (tmp_path / "moves").read_text() == "x"
        command.until(command.clean)
