"""Jobs under a live policy move to other slots while they run, as the memory policy decides."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controller import connect
from controller.core import Submitted
from controller.policies.scheduling import Submission
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Job, Region, documents, topology_of
from ina.run.launch.spec import FabricSpec, LaunchSpec
from ina.run.live import LiveJobs, WorkerOptions
from ina.run.policies import Policies
from ina.run.switches.fabric import open_fabric
from tests.system.command import PATIENCE_S, ROOT, good, until, worker

# Sums until the flag is there, and fails on a wrong sum.
SUMS = """
import sys
from pathlib import Path
import numpy as np
import hostlib as ina
from hostlib import interleave

flag = Path(sys.argv[1])
ina.init()
mine = np.arange(4096, dtype=np.int32) + ina.rank()
right = ina.size() * np.arange(4096) + sum(range(ina.size()))
with interleave.join(ina.rank()) as timer:
    while True:
        with timer.iteration(), timer.stage("network"):
            done = ina.allreduce(np.full(1, flag.exists(), np.int32))
            assert (ina.allreduce(mine) == right).all()
        if done[0]:
            break
ina.shutdown()
"""


@dataclass
class Bed:
    """A service on the racks of the examples, and jobs that each end at a flag."""

    live: LiveJobs
    specs: dict[str, LaunchSpec]
    folder: Path
    switch: str
    """The address of the real switch."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def submitted(self, name: str, now_s: float = 0.0, **more: Any) -> Submitted:
        command = (sys.executable, str(self.folder / "sums.py"), str(self.folder / name))
        job = Job(name=name, workers=2, iterations=1000, command=command, arrival_s=now_s, **more)
        self.specs[name] = LaunchSpec(job=Job(name=name, workers=2, command=command))
        return Submitted(now_s, Submission(name, now_s, 2, 1000, 1e-3, deadline_s=job.deadline_s), job)

    def submit(self, name: str, **more: Any) -> None:
        loop = self.live.loop
        taking_in = loop.add_jobs([self.submitted(name, loop.ledger.now_s, **more)])
        asyncio.run_coroutine_threadsafe(taking_in, self.loop).result(PATIENCE_S)

    def end(self, *names: str) -> None:
        for name in names:
            (self.folder / name).touch()

    def there(self) -> dict[str, tuple[Region, bool]]:
        """Return each job's slots on the switch, by name, and whether it is moving."""
        with connect(self.switch) as controller:
            served = controller.jobs().values()
        return {
            each.registration.name: (each.region, each.change is not None)
            for each in served
            if each.registration is not None
        }

    def decided(self) -> dict[str, Region]:
        """Return the slots that the core has decided on, by name."""
        places = self.live.core.desired().places.items()
        return {name: place.regions[place.tree.root] for name, place in places if place.tree is not None}

    def settles(self, jobs: int, easy: Region | None = None) -> dict[str, Region]:
        """Wait until the switch holds as many jobs, each with the slots decided on; return these.

        With `easy`, wait until that job has these slots.
        """

        def settled() -> dict[str, Region]:
            found = {name: region for name, (region, moving) in self.there().items() if not moving}
            done = len(found) == jobs and found == self.decided() and easy in (None, found["easy"])
            return found if done else {}

        return until(settled, state=lambda: f"{self.there()}, decided is {self.decided()}")


NO_FALLBACK = """
switch = [{name = "s1", slots = 2}]
server = [{name = "h1", gpus = 1}, {name = "h2", gpus = 1}]
link = [{a = "h1", b = "s1"}, {a = "h2", b = "s1"}]
"""


def test_jobs_of_a_cluster_without_a_fallback_server_have_that_of_the_command(tmp_path: Path) -> None:
    (cluster := tmp_path / "cluster.toml").write_text(NO_FALLBACK)
    command = worker("exact.py", 20_000)[1:]  # which two slots do not sum alone
    (jobs := tmp_path / "jobs.json").write_text(json.dumps({"job": [{"workers": 2, "command": command}]}))
    done = good("schedule", "live", "--jobs", jobs, "--cluster", cluster, "--policy", "fifo", "--json")
    assert json.loads(done.stdout)["metrics"]["ended"] == 1


@pytest.mark.parametrize("port_kind", ["shm", "udp"])
def test_a_running_job_makes_room_for_one_with_a_deadline_and_gets_it_back(
    tmp_path: Path, port_kind: str
) -> None:
    (tmp_path / "sums.py").write_text(SUMS)
    network = topology_of(documents.read(ROOT / "examples" / "cluster" / "racks.toml"))
    policies = Policies("fifo", AllocationSettings(placement="gpu-balance", memory="deadline"))
    specs: dict[str, LaunchSpec] = {}
    how = WorkerOptions(on_output=lambda spec, *said: print(spec.name, *said), takes_turns=True)
    spec = FabricSpec("shared", port_kind=port_kind)  # type: ignore[arg-type]
    with open_fabric(spec, [2, 2]) as fabric:
        live = LiveJobs(network, policies, fabric, specs, how)
        bed = Bed(live, specs, tmp_path, fabric.fleet.controllers["s1"].address)
        running = live.run([bed.submitted("easy")])
        with contextlib.closing(bed.loop):
            (thread := threading.Thread(target=bed.loop.run_until_complete, args=[running])).start()
            try:
                alone = bed.settles(1)
                bed.submit("urgent", deadline_s=600.0)
                beside = bed.settles(2)
                bed.end("urgent")
                bed.settles(1, easy=alone["easy"])
            finally:
                bed.end("easy", "urgent")
                thread.join(PATIENCE_S)
        assert beside["easy"].size < alone["easy"].size
        assert {each.job.spec.name: each.outcome for each in live.core.finished_jobs} == {
            "easy": "completed",
            "urgent": "completed",
        }
