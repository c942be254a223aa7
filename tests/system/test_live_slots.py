"""Jobs under a live policy move to other slots while they run, as the memory policy decides."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from controller import connect
from controller.core import Submitted
from controller.policies.scheduling import Submission
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Job, Region, Topology, documents, parse_topology, topology_of
from ina.run.fabric_network import AT_ROOT
from ina.run.launch.spec import FabricSpec, LaunchSpec
from ina.run.live import LiveJobs, WorkerOptions
from ina.run.policies import Policies
from ina.run.switches.fabric import SwitchFabric, open_fabric
from tests.system.command import ROOT

PATIENCE_S = 300

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


class Bed:
    """Two jobs on the racks of the examples, of which the second has a deadline; each ends at its flag."""

    def __init__(self, fabric: SwitchFabric, folder: Path, network: Topology | None = None) -> None:
        self.fabric = fabric
        self.flags = {name: folder / name for name in ("easy", "urgent")}
        script = folder / "sums.py"
        script.write_text(SUMS)
        network = network or topology_of(documents.read(ROOT / "examples" / "cluster" / "racks.toml"))
        policies = Policies("fifo", AllocationSettings(placement="gpu-balance", memory="deadline"))
        commands = {name: (sys.executable, str(script), str(flag)) for name, flag in self.flags.items()}
        jobs = {
            "easy": Job(name="easy", workers=2, iterations=100_000, command=commands["easy"]),
            "urgent": Job(
                name="urgent",
                workers=2,
                iterations=1000,
                deadline_s=600.0,
                command=commands["urgent"],
            ),
        }
        specs = {
            job.name: LaunchSpec(job=Job(name=job.name, workers=2, command=job.command))
            for job in jobs.values()
        }
        how = WorkerOptions(
            on_output=lambda spec, rank, data, is_error: print(spec.name, rank, data.decode()),
            takes_turns=True,
        )
        self._live = LiveJobs(network, policies, fabric, specs, how)
        self.core = self._live.core
        self._jobs = jobs
        self._loop = asyncio.new_event_loop()
        run = self._live.run([self._event("easy")])
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(run))

    def _event(self, name: str, now_s: float = 0.0) -> Submitted:
        job = self._jobs[name]
        spec = Submission(name, now_s, job.workers, job.iterations, 1e-3, deadline_s=job.deadline_s)
        return Submitted(now_s, spec, replace(job, arrival_s=now_s))

    def start(self) -> None:
        self._thread.start()

    def submit(self, name: str) -> None:
        loop = self._live.loop
        taking_in = loop.add_jobs([self._event(name, loop.ledger.now_s)])
        asyncio.run_coroutine_threadsafe(taking_in, self._loop).result(PATIENCE_S)

    def end(self, name: str) -> None:
        self.flags[name].touch()

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self._loop.close()

    def there(self) -> dict[str, tuple[Region, bool]]:
        """Return each job's slots on the switch, by name, and whether it is moving."""
        with connect(self.fabric.fleet.controllers["s1"].address) as controller:
            served = controller.jobs().values()
        return {
            each.registration.name: (each.region, each.change is not None)
            for each in served
            if each.registration is not None
        }

    def decided(self) -> dict[str, Region]:
        """Return the slots that the core has decided on, by name."""
        places = self.core.desired().places.items()
        return {name: place.regions[place.tree.root] for name, place in places if place.tree is not None}

    def settles(self, jobs: int, easy: Region | None = None) -> dict[str, Region]:
        """Wait until the switch holds as many jobs, each with the slots decided on; return these.

        With `easy`, wait until that job has these slots.
        """
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            found, decided = self.there(), self.decided()
            settled = {name: region for name, (region, moving) in found.items() if not moving}
            if len(found) == jobs and settled == decided and easy in (None, settled["easy"]):
                return settled
            time.sleep(0.05)
        pytest.fail(f"the switch has {self.there()}, decided is {self.decided()}")


NO_FALLBACK = """
switch = [{name = "s1", slots = 2}]
server = [{name = "h1", gpus = 1}, {name = "h2", gpus = 1}]
link = [{a = "h1", b = "s1"}, {a = "h2", b = "s1"}]
"""


def test_jobs_of_a_cluster_without_a_fallback_server_have_that_of_the_command(tmp_path: Path) -> None:
    with open_fabric(FabricSpec("shared"), [2]) as fabric:
        bed = Bed(fabric, tmp_path, parse_topology(NO_FALLBACK, source="cluster.toml"))
        bed.start()
        try:
            bed.settles(1)
            with connect(fabric.fleet.controllers["s1"].address) as controller:
                (job,) = controller.jobs()
            while not fabric.fallbacks.statistics(AT_ROOT, job).get("merged", 0.0):
                assert bed.core.jobs, bed.core.finished_jobs
                time.sleep(0.1)
        finally:
            bed.end("easy")
            bed.join()
        assert [each.outcome for each in bed.core.finished_jobs] == ["completed"]


@pytest.mark.parametrize("port_kind", ["shm", "udp"])
def test_a_running_job_makes_room_for_one_with_a_deadline_and_gets_it_back(
    tmp_path: Path, port_kind: str
) -> None:
    spec = FabricSpec("shared", port_kind=port_kind)  # type: ignore[arg-type]
    with open_fabric(spec, [2, 2]) as fabric:
        bed = Bed(fabric, tmp_path)
        bed.start()
        try:
            alone = bed.settles(1)
            bed.submit("urgent")
            beside = bed.settles(2)
            bed.end("urgent")
            bed.settles(1, easy=alone["easy"])
        finally:
            bed.end("urgent")
            bed.end("easy")
            bed.join()
        assert beside["easy"].size < alone["easy"].size
        assert {each.job.spec.name: each.outcome for each in bed.core.finished_jobs} == {
            "easy": "completed",
            "urgent": "completed",
        }
