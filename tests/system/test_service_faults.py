"""Faults of a controller with real switches, jobs and disk, each of which `ina/service` has an answer to."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from benchmarks.service import live
from benchmarks.service.live import CLUSTER, Bed, Controller, running, until
from benchmarks.service.mishaps import fallback_servers, left_of_jobs
from ina.errors import RunnerGone
from ina.launch import executor, files
from ina.launch.executor import LocalRuns
from ina.service.client import Client, Refused
from ina.service.views import JobView
from tests.system.clusters import needs_namespaces
from tests.system.command import ROOT, begun, family, freeze
from tests.system.controllers import PREFIX

WIDE = ("left1", "right1")
"""Servers in two racks: their tree goes over a spine."""
WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Site:
    """A testbed with a controller whose state is on a small disk of its own."""

    bed: Bed
    controller: Controller
    client: Client
    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def submit(self, name: str, *options: str, iterations: int = 20, **keys: object) -> str:
        """Submit a job of two workers that compares its sums and makes a mark at its end."""
        saved = self.folder / name
        words = [sys.executable, "-m", "benchmarks.service.worker", "--iterations", str(iterations)]
        words += ["--compute", "0.05", "--bytes", "20000", "--saved", str(saved), "--marks", f"{saved}.marks"]
        job: dict[str, object] = {"name": name, "workers": 2, "command": [*words, *options], **keys}
        self.client.submit([{**job, "iterations": iterations, "extra": {"folder": str(ROOT)}}])
        return name

    def check(self) -> None:
        """Look, when all is done, at switches, servers, processes and the state: nothing of a job is left."""
        for job in self.client.jobs(states=["queued", "running"]):
            self.client.cancel(job["name"])
        until(lambda: not self._left(), "nothing is left", WITHIN_S)
        until(lambda: self.client.audit()["clean"], "the audit is clean", WITHIN_S)

    def _left(self) -> list[str]:
        found = left_of_jobs(self.bed, self.state, self.controller.process)
        return [each for each in found if "fallback" not in each]  # they stay for 20 s without jobs

    def over(self, name: str) -> JobView:
        """Wait until a job is over, and return it."""
        until(lambda: self.client.job(name)["over"], f"job {name} is over", WITHIN_S)
        return self.client.job(name)

    def until_running(self, name: str, iterations: float = 1.0) -> None:
        """Wait until a job has done so many iterations."""
        until(lambda: self.client.job(name)["done"] >= iterations, f"job {name} runs", WITHIN_S)

    def saved(self, name: str) -> int:
        """Return the iterations that a job has saved."""
        return int((self.folder / name).read_text())

    def marks(self, name: str) -> str:
        """Return the marks that a job has made."""
        path = self.folder / f"{name}.marks"
        return path.read_text() if path.exists() else ""


@contextlib.contextmanager
def disk(folder: Path, mib: int) -> Iterator[None]:
    """Have a file system of its own at a folder."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    cluster = folder / "cluster.toml"
    cluster.write_text(CLUSTER)
    name = f"{PREFIX}faults"
    with pytest.MonkeyPatch.context() as patch, family(), contextlib.ExitStack() as stack:
        patch.setenv("INA_TESTBEDS", str(folder / "testbeds"))
        bed = stack.enter_context(live.testbed(name, cluster, "embedded"))
        stack.enter_context(disk(folder / "state", 32))
        controller = Controller(folder, name)
        stack.enter_context(running(controller))
        found = Site(bed, controller, stack.enter_context(Client(controller.url)), folder)
        yield found
        found.check()


@needs_namespaces
@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.5])
def test_a_job_may_be_cancelled_while_it_is_admitted(site: Site, after_s: float) -> None:
    """Whether its switches, its fallback server or its workers are being started then."""
    name = site.submit(f"short{after_s}", servers=list(WIDE), iterations=10_000)
    time.sleep(after_s)
    assert site.client.cancel(name)["state"] == "cancelled"


@needs_namespaces
def test_a_job_whose_switch_hangs_gets_another_tree_and_the_switch_is_used_again(site: Site) -> None:
    name = site.submit("hung", servers=list(WIDE), iterations=60)
    site.until_running(name)
    tree = site.client.job(name)["tree"]
    root = site.bed.switch_process(tree["root"])
    freeze(root)
    try:
        until(lambda: tree["root"] in down(site), "the switch counts as gone", WITHIN_S)
        job = site.over(name)
    finally:
        os.kill(root, signal.SIGCONT)
    assert job["state"] == "completed", (job, site.client.decisions())
    assert "x" in site.marks(name)
    until(lambda: tree["root"] not in down(site), "the switch is back", WITHIN_S)


def fill(folder: Path) -> Path:
    """Fill a disk; return the file that does."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        for size in (1 << 14, 1):  # the last one: to the end of a page
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


def down(site: Site) -> list[str]:
    return [each["name"] for each in site.client.cluster()["switches"] if each["down"]]


@needs_namespaces
def test_on_a_full_disk_jobs_run_on_and_new_ones_are_refused_until_there_is_room(site: Site) -> None:
    name = site.submit("before", servers=list(WIDE), iterations=80)
    site.until_running(name)

    def fill_the_last_page() -> None:
        for number in range(1000):
            site.submit(f"more{number}", iterations=1)

    ballast = fill(site.state)
    try:
        with pytest.raises(Refused, match="full") as refused:
            fill_the_last_page()
        assert refused.value.status == 503
        done = site.saved(name)
        until(lambda: site.saved(name) > done, "the job goes on", WITHIN_S)
    finally:
        ballast.unlink()
    for job in site.client.jobs(states=["queued", "running"]):
        if job["name"].startswith("more"):
            site.client.cancel(job["name"])
    job = site.over(name)
    assert job["state"] == "completed", (job, site.client.log(name, 0))
    assert site.marks(name) == "x"


@needs_namespaces
def test_a_job_that_ends_on_a_full_disk_has_ended_once(site: Site) -> None:
    """Found by the soak: nobody heard of the end, so it was started again and again, and failed."""
    name = site.submit("ending", iterations=60)
    site.until_running(name)
    until((site.folder / name).exists, "the job has begun", WITHIN_S)
    ballast = fill(site.state)
    try:
        until(lambda: site.saved(name) == 60, "all is done", WITHIN_S)
        waited_s = time.monotonic() + 5.0  # a runner that ended would be noticed, and start again
        while time.monotonic() < waited_s:
            assert site.client.job(name)["starts"] == 1
            time.sleep(0.2)
    finally:
        ballast.unlink()
    job = site.over(name)
    assert (job["state"], job["starts"]) == ("completed", 1), (job, site.client.log(name, 0))
    assert site.marks(name) == "x"


@needs_namespaces
def test_a_fallback_server_that_is_killed_is_started_again_and_its_job_goes_on(site: Site) -> None:
    name = site.submit("summed", servers=list(WIDE), iterations=60)
    site.until_running(name)
    server = site.client.job(name)["fallback"]
    assert server is not None
    (killed,) = fallback_servers(site.bed.state.name, server)
    os.kill(killed, signal.SIGKILL)
    until(
        lambda: fallback_servers(site.bed.state.name, server) not in ([], [killed]), "another one", WITHIN_S
    )
    job = site.over(name)
    assert job["state"] == "completed", (job, site.client.log(name, 0))
    assert "x" in site.marks(name)


HANGING = """
import signal, sys, time
from pathlib import Path
from ina.launch import files
with files.alive(Path(sys.argv[1])):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("lives", flush=True)
    time.sleep(600)
"""


def test_a_runner_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "STOP_S", 0.5)
    folder = tmp_path / "7"
    folder.mkdir()
    command = [sys.executable, "-c", HANGING, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as runner:
        try:
            begun(runner, word="lives")
            assert files.process_of(folder) == runner.pid
            with contextlib.suppress(RunnerGone):  # the machine is slow: it is tried again
                LocalRuns(tmp_path).stop(7)
            assert runner.wait(WITHIN_S) == -signal.SIGKILL
            assert not LocalRuns(tmp_path).lives(7)
        finally:
            runner.kill()
