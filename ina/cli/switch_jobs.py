"""``ina jobs``: what a switch serves."""

from __future__ import annotations

import time
from collections.abc import Mapping

from controller import Admission, NoProgram
from ina.cli import options
from ina.cli.output import out, table
from ina.cli.plain import Result

EPILOG = """Examples:

  ina jobs --switch grpc://127.0.0.1:9559

  ina jobs --switch grpc://switch.lab:9559 --tls-ca ca.pem --json
"""


def jobs(*, running: options.RunningSwitch, json: options.Json = False) -> None:
    """List the jobs that a running switch serves.

    A lease shows for how long 'ina run' has promised to renew or remove a job. An expired lease belongs to a
    run that was killed; the next admission removes its job. A job without a lease stays until 'ina remove'.
    """
    with running.connect() as controller:
        address = controller.address
        try:
            program = controller.info().mode
            described = _describe(controller.jobs(), program)
        except NoProgram:
            described = {}
    if json:
        Result("jobs", {"switch": running.switch}, {"jobs": len(described)}, described).print_json()
    elif not described:
        out.print(f"the switch at {address} serves no jobs", markup=False, highlight=False, soft_wrap=True)
    else:
        columns = ["job", "mode", "workers", "region", "age", "lease", "holder"]
        table(f"jobs of the switch at {address}", columns, [_row(*job) for job in described.items()])


def _describe(jobs: Mapping[int, Admission], program: str) -> dict[str, dict[str, object]]:
    now_ms = int(time.time() * 1000)
    return {str(number): _description(job, program, now_ms) for number, job in sorted(jobs.items())}


def _description(job: Admission, program: str, now_ms: int) -> dict[str, object]:
    return {
        "mode": program,
        "workers": sum(member.rank is not None for member in job.members),
        "first_slot": job.region.offset,
        "slots": job.region.size,
        # The generation counts milliseconds, modulo 49 days (controller/switches/planning.py).
        "age_s": (now_ms - job.generation) % (1 << 32) / 1000,
        "lease_s": None if job.lease is None else (job.lease.until_ms - now_ms) / 1000,
        "holder": "" if job.lease is None else job.lease.holder,
    }


def _row(number: str, job: dict[str, object]) -> list[str]:
    first, slots, lease_s = job["first_slot"], job["slots"], job["lease_s"]
    assert isinstance(first, int)
    assert isinstance(slots, int)
    assert lease_s is None or isinstance(lease_s, float)
    region = f"{first} to {first + slots - 1}" if slots else "none"
    left = (
        "none" if lease_s is None else f"{lease_s:.0f} s" if lease_s >= 0 else f"expired {-lease_s:.0f} s ago"
    )
    age = f"{job['age_s']:.0f} s"
    holder = str(job["holder"])
    shown = holder if holder.isprintable() else ascii(holder)  # whoever wrote it, nothing moves the cursor
    return [number, str(job["mode"]), str(job["workers"]), region, age, left, shown]
