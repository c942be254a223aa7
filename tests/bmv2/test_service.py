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
from tests.softswitch.namespaces import why_not
from tests.system import test_service_links as links
from tests.system.command import until
from tests.system.controllers import CLUSTER, became, daemon, laid_out
from tests.system.test_service import two_jobs

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


def test_the_window_of_a_job_fits_the_queues_of_bmv2(bed: netns.State, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    serving = daemon(tmp_path / "state", two_jobs(tmp_path, "w", "--until", stop), at=BED)
    until(lambda: (tmp_path / "w-far.begun").exists() and (tmp_path / "w-near.begun").exists())
    with testbed.controllers(bed) as at:
        trees = Fleet(at).read().values()
    stop.touch()
    found = became(serving)
    assert {job: each["state"] for job, each in found["jobs"].items()} == {
        "w-far": "completed",
        "w-near": "completed",
    }
    assert found["audit"] == []
    queue = bmv2.Bmv2Target.queue_packets
    assert queue is not None
    windows = [admission.window for tree in trees for admission in tree.switches.values()]
    assert windows
    assert max(windows) == window_for(queue // 4), "two hosts have half of the queue under way together"


def test_a_bmv2_that_is_started_again_gets_its_program_and_its_job_goes_on(
    bed: netns.State, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    serving = daemon(tmp_path / "state", two_jobs(tmp_path, "s", "--until", stop), at=BED)
    until((tmp_path / "s-far.begun").exists)
    (switch,) = subprocess.run(
        ["pgrep", "-o", "-f", f"^simple_switch_grpc.*{bed.socket('s1')}"], capture_output=True, text=True
    ).stdout.split()
    os.kill(int(switch), signal.SIGKILL)
    with start_switch(testbed._switch_commands(bed)["s1"].argv, bed.log("s1")) as again:
        try:
            stop.touch()
            found = became(serving)
        finally:
            again.kill()
    assert found["jobs"]["s-far"]["state"] == "completed"
    assert found["jobs"]["s-far"]["starts"] == 1, "it was not restarted"
    assert found["audit"] == []


def test_a_job_moves_to_another_tree_when_a_link_of_a_bmv2_is_cut(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    begun, name = tmp_path / "moves.begun", f"{BED}-links"
    with laid_out(tmp_path_factory.mktemp("testbeds"), name, links.CLUSTER, "--target", "bmv2") as state:
        serving = daemon(tmp_path / "state", links.one_job(tmp_path, "moves"), at=name)
        until(begun.exists)
        begun.unlink()
        links.set_link(state, "s1", "s4", "down")
        until(begun.exists)
        (tmp_path / "stop").touch()
        found = became(serving)
    assert found["jobs"]["moves"]["state"] == "completed", found
    before, after = links.tree_of(found, "moves")
    assert "its tree is s1," in before
    assert "its tree is s2," in after
    assert found["audit"] == []
