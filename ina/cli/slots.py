"""``ina slots`` and ``ina remove``: list the jobs that a switch serves, and remove jobs from it."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from textwrap import shorten
from typing import Annotated, NoReturn

from controller import Admission, Fleet, NoProgram, Registration, SwitchSession, TreeAdmission
from ina.cli import options
from ina.cli.declared import Declared, Json
from ina.cli.errors import USAGE, Failure
from ina.cli.output import out
from ina.cli.plain import Listing, Reply, Result, rate, say

LOOK_S = 0.5
SHOWN_COMMAND = 40
"""Number of characters of a command that the table shows."""
NOBODY = Registration("")
"""A registration without values, for jobs that were admitted without one."""


def slots(
    *,
    running: options.RunningSwitch,
    watch: Annotated[
        bool,
        Declared(
            "--watch",
            help="Watch the leases until each has been renewed or has expired, and show which. Takes up to "
            "the longest lease.",
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        Declared(
            min=0,
            max=65535,
            help="Serve metrics of the switch's jobs for Prometheus, instead of a list, at "
            "http://127.0.0.1:PORT/metrics until interrupted; 0: any free port, which is printed.",
        ),
    ] = None,
    json: Json = False,
) -> Reply:
    """List the jobs that a running switch serves, with their slots, leases and holders.

    Lists the jobs of all users. The holder of a job, such as 'ina run', reports name, user, command, age and
    goodput whenever it renews the lease: after a quarter of the lease, but at least every 15 s. "since" is
    this machine's time minus the age. The lease is the time for which a job stays after its holder has died:
    --watch shows which leases are still renewed. A job without a lease stays until 'ina remove'.

    Examples:
        ina slots --switch grpc://127.0.0.1:9559

        ina slots --switch grpc://127.0.0.1:9559 --watch

        ina slots --switch grpc://127.0.0.1:9559 --metrics-port 9091

        ina slots --switch grpc://switch.lab:9559 --tls-ca ca.pem --json
    """
    if metrics_port is not None:
        if watch or json:
            raise Failure("--metrics-port lists nothing: leave --watch and --json out", exit_code=USAGE)
        _serve(running, metrics_port)
    with running.connect() as controller:
        address = controller.address
        try:
            found = _watched(controller) if watch else controller.jobs()
            described = {
                str(number): _description(job, controller, watch) for number, job in sorted(found.items())
            }
        except NoProgram:
            described = {}
    result = Result("slots", {"switch": running.switch}, {"jobs": len(described)}, described)
    if not described:
        return Reply(result, [f"the switch at {address} serves no jobs"])
    columns = ["job", "name", "workers", "region", "since", "age", "goodput", "priority", "lease", "user"]
    rows = [_row(*job) for job in described.items()]
    (mode,) = {str(job["mode"]) for job in described.values()}
    title = f"{mode} jobs of the switch at {address}"
    return Reply(result, [Listing(title, [*columns, "holder", "command"], rows)])


def _serve(running: options.RunningSwitch, port: int) -> NoReturn:
    """Serve metrics to Prometheus until interrupted. Raises Failure if the port cannot be used."""
    from ina.switches.job_metrics import render
    from softswitch import serve_metrics

    with running.connect() as controller:
        turn = threading.Lock()

        def text() -> str:
            with turn:
                return render(controller)

        with contextlib.ExitStack() as stack:
            try:
                found = stack.enter_context(serve_metrics(text, port))
            except OSError as error:
                raise Failure(f"--metrics-port {port}: {error.strerror}") from error
            out.print(f"serving http://127.0.0.1:{found}/metrics", soft_wrap=True)
            while True:
                time.sleep(3600)


def _watched(controller: SwitchSession) -> Mapping[int, Admission]:
    """Wait until each lease has been renewed or has expired, and return the switch's jobs by number."""
    jobs = controller.jobs()
    if (longest_s := controller.leases.lease_wait_s()) is not None:
        say(f"watching the leases for up to {longest_s:.0f} s")
    while (left_s := controller.leases.lease_wait_s()) is not None:
        time.sleep(min(LOOK_S, left_s))
        jobs = controller.jobs()
    return jobs


def _description(job: Admission, controller: SwitchSession, watched: bool) -> dict[str, object]:
    of = job.registration or NOBODY
    leases = controller.leases
    age_s = of.age_s
    expired = leases.has_expired(job)
    return {
        "mode": controller.info().mode,
        "workers": sum(member.rank is not None for member in job.members),
        "first_slot": job.region.offset,
        "slots": job.region.size,
        "name": of.name,
        "user": of.user,
        "command": of.command,
        "priority": of.priority,
        "since": None if age_s is None or expired else _since(age_s),  # the last renewal's time is unknown
        "age_s": age_s,
        "goodput_bps": of.goodput_bps,
        "lease_s": None if of.lease_s in (None, math.inf) else of.lease_s,
        "lease": _lease(job, expired=expired, renewed=leases.was_renewed(job)),
        "renewals": of.renewals,
        "holder": of.holder,
    }


def _since(age_s: float) -> str | None:
    """Return the date and time `age_s` seconds ago, in ISO format; None if that is before the year 1."""
    try:
        return (datetime.now().astimezone() - timedelta(seconds=age_s)).isoformat(timespec="seconds")
    except OverflowError:
        return None


def _lease(job: Admission, *, expired: bool, renewed: bool) -> str:
    """Return the state of a job's lease as a text, such as "renewed" or "expired"."""
    if job.registration is None or job.registration.lease_s is None:
        return "none"
    if job.registration.lease_s == math.inf:
        return "of another version"
    if expired:
        return "expired"
    return "renewed" if renewed else "not watched"


def _row(number: str, job: Mapping[str, object]) -> list[str]:
    first, slots = job["first_slot"], job["slots"]
    assert isinstance(first, int)
    assert isinstance(slots, int)
    age_s, goodput_bps, lease_s = (job[name] for name in ("age_s", "goodput_bps", "lease_s"))
    length = f"{lease_s:.0f} s" if isinstance(lease_s, float | int) else ""
    known = "" if job["lease"] == "not watched" else str(job["lease"])
    return [
        number,
        _shown(job["name"]),
        str(job["workers"]),
        f"{first} to {first + slots - 1}" if slots else "none",
        str(job["since"] or "unknown")[:19].replace("T", " "),
        f"{age_s:.0f} s" if isinstance(age_s, float | int) else "unknown",
        rate(goodput_bps) if isinstance(goodput_bps, float | int) and goodput_bps else "",
        "" if job["priority"] is None else str(job["priority"]),
        ", ".join(filter(None, (length, known))),
        _shown(job["user"]),
        _shown(job["holder"]),
        _shown(shorten(str(job["command"]), SHOWN_COMMAND, placeholder="…")),
    ]


def _shown(text: object) -> str:
    """Return another user's text; quoted, with escapes, if it has characters that could move the cursor."""
    return str(text) if str(text).isprintable() else ascii(str(text))


def remove(
    *,
    jobs: Annotated[
        list[int],
        Declared(argument=True, metavar="JOB...", help="Remove these jobs: numbers as in 'ina slots'."),
    ],
    running: options.RunningSwitch,
) -> Reply:
    """Remove jobs from a running switch.

    The switch drops and counts further packets of these jobs. A job on several switches is removed from this
    switch alone. Removes nothing if one of the numbers is unknown.

    Examples:
        ina remove --switch grpc://127.0.0.1:9559 40961

        ina remove --switch grpc://switch.lab:9559 --tls-ca ca.pem 40961 17 --json
    """
    wanted = list(dict.fromkeys(jobs))
    with running.connect() as controller:
        present = controller.jobs()
        fleet = Fleet({running.switch: controller})
        if unknown := sorted(set(wanted) - present.keys()):
            known = ", ".join(map(str, sorted(present))) or "none"
            numbers = ", ".join(map(str, unknown))
            raise Failure(f"the switch at {controller.address} has no job {numbers}; its jobs: {known}")
        for job in wanted:
            fleet.remove(TreeAdmission({running.switch: present[job]}))
    result = Result("remove", {"switch": running.switch, "jobs": wanted}, {"removed": len(wanted)})
    return Reply(result, [f"removed job {job}" for job in wanted])
