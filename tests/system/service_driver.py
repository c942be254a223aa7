"""A daemon without its HTTP side: submits the jobs of a file as they arrive, and serves until all are over.

``python -m tests.system.service_driver STATE TESTBED JOBS MEMORY SCHEDULER`` prints what became of them, and
the last audit. The environment variable ``GONE_S`` may set for how long a switch is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from itertools import groupby
from pathlib import Path

from controller.policies.settings import AllocationSettings
from controller.vocabulary import Job
from controller.vocabulary.files import read_jobs
from ina.service import switches
from ina.service.daemon import Daemon
from ina.service.policies import Policies
from ina.service.serve import opened
from ina.service.site import TestbedSite


async def serve(daemon: Daemon, jobs: Path) -> None:
    """Submit, wait for the ends, and print."""
    serving = asyncio.create_task(daemon.run())
    until_over = asyncio.create_task(_until_over(daemon, jobs))
    done, _ = await asyncio.wait({serving, until_over}, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    audit = await daemon.audit()
    found = {
        each.name: {"state": each.state, "reason": each.reason, "starts": each.starts}
        for each in daemon.records()
    }
    differences = [f"{each.where}: {each.what}" for each in audit.found]
    said = [[each.entry.event, list(each.entry.jobs), each.entry.text] for each in daemon.decisions()]
    print(
        json.dumps({"jobs": found, "audit": differences, "left_out": dict(audit.left_out), "decisions": said})
    )
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def _until_over(daemon: Daemon, jobs: Path) -> None:
    while daemon.ready:
        await asyncio.sleep(0.02)
    began_s = daemon.now_s
    for arrival_s, group in groupby(sorted(read_jobs(jobs), key=_arrival_s), key=_arrival_s):
        await asyncio.sleep(max(0.0, began_s + arrival_s - daemon.now_s))
        await daemon.submit(list(group), key=f"{jobs.name} {arrival_s}")
    while not all(each.over for each in daemon.records()) or daemon.holds:
        await asyncio.sleep(0.02)


def _arrival_s(job: Job) -> float:
    return job.arrival_s


async def _main(state: Path, testbed: str, jobs: Path, memory: str, scheduler: str) -> None:
    site, policies = TestbedSite.find(testbed), Policies(scheduler, AllocationSettings(memory=memory))
    async with opened(state, site, policies) as daemon:
        await serve(daemon, jobs)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    switches.GONE_S = float(os.environ.get("GONE_S", switches.GONE_S))
    state, testbed, jobs, memory, scheduler = sys.argv[1:]
    asyncio.run(_main(Path(state), testbed, Path(jobs), memory, scheduler))
