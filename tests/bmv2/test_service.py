"""The service with BMv2 switches: windows that fit them, and the program that they take."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import bmv2, testbed
from bmv2_topos.testbeds.netns.serving import start_switch
from controller import Fleet
from hostlib import window_for
from ina.run.views import JobView
from tests.softswitch.namespaces import why_not
from tests.system import test_service_links as links
from tests.system.controllers import CLUSTER, Controller, laid_out
from tests.system.test_service import FAR

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.netns,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.skipif(bool(bmv2.missing()), reason=bmv2.missing()),
]
BED = f"t{os.getpid()}-bmv2-service"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[netns.State]:
    with laid_out(tmp_path_factory.mktemp("testbeds"), BED, CLUSTER, "--target", "bmv2") as state:
        yield state


def running(folder: Path, testbed: str) -> Controller:
    """Return a controller of a testbed; its jobs end when the file ``stop`` is there."""
    return Controller(folder, ["--testbed", testbed])


def completes(command: Controller, name: str) -> JobView:
    """Let a job end, and return it; nothing of it may be left."""
    (command.folder / "stop").touch()
    command.until(lambda: command.job(name)["over"])
    command.until(command.clean)
    assert command.job(name)["state"] == "completed", command.said()
    return command.job(name)


def test_the_window_of_a_job_fits_the_queues_of_bmv2(bed: netns.State, tmp_path: Path) -> None:
    command = running(tmp_path, BED)
    with command.serving():
        for name, keys in (("far", FAR), ("near", {})):
            command.submit(name, "--until", tmp_path / "stop", **keys)
        command.until(lambda: command.begun("far") and command.begun("near"))
        with testbed.controllers(bed) as at:
            trees = Fleet(at).read().values()
        for name in ("far", "near"):
            completes(command, name)
    queue = bmv2.Bmv2Target.queue_packets
    assert queue is not None
    windows = [admission.window for tree in trees for admission in tree.switches.values()]
    assert windows
    assert max(windows) == window_for(queue // 4), "two hosts have half of the queue under way together"


def test_a_bmv2_that_is_started_again_gets_its_program_and_its_job_goes_on(
    bed: netns.State, tmp_path: Path
) -> None:
    command = running(tmp_path, BED)
    with command.serving():
        command.submit("far", "--until", tmp_path / "stop", **FAR)
        command.until(lambda: command.begun("far"))
        (switch,) = subprocess.run(
            ["pgrep", "-o", "-f", f"^simple_switch_grpc.*{bed.socket('s1')}"], capture_output=True, text=True
        ).stdout.split()
        os.kill(int(switch), signal.SIGKILL)
        with start_switch(testbed._switch_commands(bed)["s1"].argv, bed.log("s1")) as again:
            try:
                assert completes(command, "far")["starts"] == 1, "it was not restarted"
            finally:
                again.kill()


def test_a_job_moves_to_another_tree_when_a_link_of_a_bmv2_is_cut(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("testbeds")
    with laid_out(folder, f"{BED}-links", links.CLUSTER, "--target", "bmv2") as state:
        links.test_a_job_moves_to_another_tree_when_a_link_of_its_tree_is_cut(state, tmp_path)
