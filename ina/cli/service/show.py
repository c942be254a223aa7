"""``ina show``: a job of a controller."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING

from ina.cli import options
from ina.cli.output import out
from ina.cli.plain import plural
from ina.cli.service.common import ControllerOptions, JobName, clock, plain, state_of

if TYPE_CHECKING:
    from ina.service.views import JobView

EPILOG = """Examples:

  ina show night-run --controller http://127.0.0.1:9580

  ina show night-run --json
"""


def show(job: JobName, *, at: ControllerOptions, json: options.Json = False) -> None:
    """Show a job of a controller: its state, its place, its progress, its predicted end."""
    with at.connect() as controller:
        found = controller.job(job)
        now_s = controller.cluster()["now_s"]
    if json:
        print(json_module.dumps(found, indent=2))
        return
    print_job(found, now_s)


def print_job(job: JobView, now_s: float) -> None:
    """Print what there is to say of a job, a line each."""
    due_s, ends_s = job["due_s"], job["ends_s"]
    tree = job["tree"]
    facts = {
        "job": f"{plain(job['name'])} (id {plain(job['id'])}, number {job['number']})",
        "tenant": job["tenant"],
        "state": state_of(job),
        "why": plain(job["reason"]),
        "command": " ".join(map(plain, job["command"])),
        "workers": f"{job['workers']} on {plural(job['gpus'], 'GPU')}",
        "gradient": f"{job['model_bytes']:,} bytes",
        "done": f"{job['done']:,.0f} of {job['iterations']:,} iterations",
        "submitted": f"{clock(now_s - job['submitted_s'])} ago",
        "started": "" if job["started_s"] is None else f"{clock(now_s - job['started_s'])} ago",
        "ended": "" if job["ended_s"] is None else f"{clock(now_s - job['ended_s'])} ago",
        "deadline": "" if due_s is None else _deadline(due_s, job["ended_s"], now_s),
        "predicted": ""
        if ends_s is None
        else f"done in {clock(ends_s - now_s)}" + (", too late" if job["late"] else ""),
        "servers": ", ".join(job["servers"]),
        "engine": plain(job["engine"]),
        "tree": ""
        if tree is None
        else f"root {tree['root']}; summed at {', '.join(tree['aggregators']) or 'no switch'}",
        "slots": ", ".join(
            f"{each['slots']} at {switch}, from slot {each['first']} on"
            for switch, each in sorted(job["slots"].items())
        ),
        "fallback": _fallback(job),
        "starts": str(job["starts"]),
    }
    for name, value in facts.items():
        if value:
            out.print(f"{name:<10} {value}", soft_wrap=True)


def _deadline(due_s: float, ended_s: float | None, now_s: float) -> str:
    at_s = now_s if ended_s is None else ended_s
    when = f"in {clock(due_s - at_s)}" if at_s <= due_s else f"passed {clock(at_s - due_s)} ago"
    return (
        when
        if ended_s is None
        else f"{clock(abs(due_s - at_s))} {'after' if at_s <= due_s else 'before'} its end"
    )


def _fallback(job: JobView) -> str:
    server, share = job["fallback"], job["fallback_share"]
    if not server or share is None:
        return server or ""
    return f"{server}; {share:.1%} of its packets found no slot lately"
