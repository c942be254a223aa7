"""Commands for a controller's jobs: submit, jobs, show, explain, watch, logs, cancel, retry."""

from __future__ import annotations

import json as json_module
import re
import secrets
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from controller.vocabulary import documents, jobs_of
from ina.cli import options
from ina.cli.command import USAGE, Declared, Failure, Listing, Reply, plural, refuse, say
from ina.cli.service.common import (
    ControllerOptions,
    JobName,
    JobOptions,
    clock,
    line,
    listed,
    plain,
    state_of,
)

if TYPE_CHECKING:  # other commands need no HTTP
    from ina.run.client import Client
    from ina.run.views import JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitSettings:
    """Options of 'ina submit': jobs to submit, and the folder in which they run."""

    what: Annotated[
        list[str],
        Declared(
            argument=True,
            metavar="FILE | -- COMMAND …",
            help="Read the jobs from this file (.toml, .json or .yaml), or, with --workers, run this command "
            "as a job.",
        ),
    ]
    workers: Annotated[
        int | None,
        Declared(*options.WORKERS, min=1, help="Run the command with this number of workers."),
    ] = None
    folder: Annotated[
        Path | None,
        Declared(
            parser=Path,  # it need not exist: it is on other machines
            metavar="DIR",
            help="Run the commands in this directory of the servers, unless a job's extra.folder names "
            "another. Default: the current directory.",
        ),
    ] = None
    driver: Annotated[
        bool,
        Declared(
            "--driver",
            help="With --workers: run the command once; it starts the workers with Ray Train. The controller "
            "must run with --executor ray.",
        ),
    ] = False
    key: Annotated[
        str,
        Declared(
            metavar="TEXT",
            help="Send this idempotency key: a second submission with the same key submits nothing, and "
            "shows the jobs of the first. Default: a random key.",
        ),
    ] = ""


def submit(asked: SubmitSettings, job: JobOptions, at: ControllerOptions) -> Reply:
    """Submit jobs to a controller, which decides when, where and with which slots they run.

    The controller accepts all jobs or none. Prints the jobs' states: 'ina watch' shows further decisions, and
    'ina explain' the reasons. Options that describe a job are for a command, not for a file. Arrival times in
    a file are ignored: a job arrives when it is submitted.

    Examples:
        ina submit jobs.toml --controller http://127.0.0.1:9580

        ina submit -np 4 --deadline 600 --iterations 2000 -- python train.py

        ina submit -np 4 --name night-run --key night-run -- python train.py

    docs/reference/files.md lists the keys of a file.
    """
    what = asked.what
    given = job.keys() | ({} if job.name is None else {"name": job.name})
    if asked.workers is not None:
        refuse(
            what[0].endswith(documents.FORMATS),
            f"{what[0]}: a file of jobs has the workers and the command of each job: leave -np out",
        )
        jobs = [
            _of_command(what, asked.workers, given) | ({"extra": {"driver": True}} if asked.driver else {})
        ]
    elif given or asked.driver or len(what) != 1:
        raise Failure("want one FILE of jobs, or -np WORKERS and a command after --", USAGE)
    else:
        jobs = _of_file(Path(what[0]))
    where = str((asked.folder or Path()).absolute())
    jobs = [{**job, "extra": {"folder": where, **job.get("extra", {})}} for job in jobs]
    with at.connect() as controller:
        found = controller.submit(jobs, key=asked.key or secrets.token_urlsafe(16))
    title = f"{plural(len(found), 'job')} submitted"
    return Reply({"jobs": found}, [listed(title, found, found[0]["submitted_s"])])


def _of_command(command: list[str], workers: int, given: dict[str, Any]) -> dict[str, Any]:
    program = Path(next((part for part in command if part.endswith(".py")), command[0])).stem
    defaults: dict[str, Any] = {
        "name": f"{program}-{secrets.token_hex(3)}",
        "workers": workers,
        "command": command,
    }
    return defaults | given


def _of_file(path: Path) -> list[dict[str, Any]]:
    """Return the ``[[job]]`` tables of a file. Raises BadSpec for errors that need no controller."""
    document = documents.read(path)
    jobs = jobs_of(document, require=("command",))  # an error here names the file's line
    tables = [{**table, "name": job.name} for job, table in zip(jobs, document.data["job"], strict=True)]
    if any(table.pop("arrival_s", 0) for table in tables):
        say(f"{path}: arrival_s is ignored: jobs arrive when they are submitted")
    return tables


def jobs(
    *,
    switch: Annotated[
        str, Declared(hidden=True, help="Fail and name the command that lists a switch's jobs.")
    ] = "",
    at: ControllerOptions,
    every: Annotated[bool, Declared("--all", help="List the controller's jobs that are over, too.")] = False,
    state: Annotated[
        list[str] | None,
        Declared(
            metavar="STATE",
            help="List only the controller's jobs in this state, such as queued, running or failed. "
            "Repeatable.",
        ),
    ] = None,
    tenant: Annotated[
        str | None, Declared(metavar="NAME", help="List only the controller's jobs of this tenant.")
    ] = None,
) -> Reply:
    """List the running and the waiting jobs of a controller.

    Examples:
        ina jobs --controller http://127.0.0.1:9580

        ina jobs --all --state failed --json
    """
    refuse(switch, f"--switch {switch}: 'ina slots --switch {switch}' lists what a switch serves")
    with at.connect() as controller:
        found = controller.jobs(states=state or (), tenant=tenant)
        now_s = controller.cluster()["now_s"]
    shown = [job for job in found if every or state or not job["over"]]
    over = len(found) - len(shown)
    more = f"; {over} more {'is' if over == 1 else 'are'} over: --all lists them" if over else ""
    title = f"{plural(len(shown), 'job')}{more}"
    return Reply(
        {"now_s": now_s, "jobs": shown}, [listed(title, shown, now_s) if shown else f"no jobs{more}"]
    )


def show(job: JobName, *, at: ControllerOptions) -> Reply:
    """Show a job of a controller: its state, its place, its progress, its predicted end.

    Examples:
        ina show night-run --controller http://127.0.0.1:9580

        ina show night-run --json
    """
    with at.connect() as controller:
        found = controller.job(job)
        return Reply({**found}, _facts(found, controller.cluster()["now_s"]))


def explain(
    job: Annotated[str, Declared(argument=True, metavar="JOB", help="Name the job, or give its id.")],
    *,
    at: ControllerOptions,
) -> Reply:
    """Explain why a controller's job runs where it does, waits or has ended.

    Prints all decisions about the job, and its present needs. 'ina alloc', 'ina place', 'ina route' and
    'ina cluster simulate' explain decisions on files with --explain.

    Examples:
        ina explain night-run --controller http://127.0.0.1:9580

        ina explain night-run --json
    """
    with at.connect() as controller:
        found = controller.explain(job)
    parts: list[Listing | str] = [*_facts(found["job"], found["now_s"])]
    if found["advice"]:
        parts += [Listing("\nnow"), *(f"  {plain(sentence)}" for sentence in found["advice"])]
    return Reply({**found}, [*parts, Listing("\ndecisions"), *map(line, found["decisions"])])


def _facts(job: JobView, now_s: float) -> list[str]:
    """Return lines with the facts about a job, such as its state, deadline, servers and slots."""
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
    return [f"{name:<10} {value}" for name, value in facts.items() if value]


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


def watch(
    job: Annotated[
        str | None,
        Declared(argument=True, metavar="[JOB]", help="Show decisions about this job, until it is over."),
    ] = None,
    *,
    at: ControllerOptions,
    json: Annotated[bool, Declared("--json", help="Print one JSON object per line instead of text.")] = False,
) -> None:
    """Watch a controller: every decision with its reason, as it happens.

    With JOB: shows its decisions since its submission, until it is over; exits with status 1 unless it
    completed. Without JOB: shows all decisions from now on, until interrupted.

    Examples:
        ina watch --controller http://127.0.0.1:9580

        ina watch night-run

        ina watch --json | jq .text
    """
    with at.connect() as controller:
        latest = controller.decisions(-1) if job is None else []
        if job is not None:
            job = controller.job(job)["id"]
        for decision in controller.watch(latest[0]["number"] if latest else 0):
            if job is not None and job not in decision["jobs"]:
                continue
            print(json_module.dumps(decision) if json else line(decision), flush=True)
            if job is not None and (found := controller.job(job))["over"]:
                last = [
                    each
                    for each in controller.explain(job)["decisions"]
                    if each["number"] > decision["number"]
                ]
                for each in last:
                    print(json_module.dumps(each) if json else line(each), flush=True)
                _fail(found)
                return


def _fail(job: JobView) -> None:
    """Raise Failure if an ended job has not completed; name the command that shows a failed rank's output."""
    if job["state"] == "completed":
        return
    text = f"job {plain(job['id'])} {job['state']}: {plain(job['reason'])}"
    rank = re.match(r"rank (\d+) ", job["reason"])
    if rank and not job["external"]:
        text += f"; see its output: {shlex.join(['ina', 'logs', job['id'], '--rank', rank[1]])}"
    raise Failure(text)


def logs(
    job: JobName,
    *,
    rank: Annotated[int, Declared(min=0, metavar="RANK", help="Show the output of this rank.")] = 0,
    follow: Annotated[
        bool,
        Declared("--follow", "-f", help="Show further output of the rank, too, until the job is over."),
    ] = False,
    at: ControllerOptions,
) -> None:
    """Show the output of a rank of a controller's job.

    On a terminal, control characters in the output are shown as escapes, as Python writes them; otherwise the
    output is unchanged.

    Examples:
        ina logs night-run --controller http://127.0.0.1:9580

        ina logs night-run --rank 3 -f
    """
    with at.connect() as controller:
        pieces = controller.follow_log(job, rank) if follow else _pieces(controller, job, rank)
        wrote = False
        for text in pieces:
            sys.stdout.write(_shown(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()
            wrote = True
        if not wrote:
            say(f"ina: rank {rank} of job {plain(job)} has written nothing")


def _pieces(controller: Client, job: str, rank: int) -> Iterator[str]:
    offset, size = 0, 1
    while offset < size:
        found = controller.log(job, rank, offset)
        if found["next"] <= offset:
            return
        yield found["text"]
        offset, size = found["next"], found["size"]


def _shown(text: str) -> str:
    """Return a program's output with escapes in place of control characters; line ends and tabs stay."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in lines)


def cancel(
    jobs: Annotated[list[str], Declared(argument=True, metavar="JOB …", help="Name the jobs.")],
    *,
    at: ControllerOptions,
) -> Reply:
    """Cancel jobs of a controller, whether they run or wait.

    Exits with status 1 if some were over already; the others are cancelled nevertheless. If there is no job
    of one of the names, nothing is cancelled.

    Examples:
        ina cancel night-run --controller http://127.0.0.1:9580

        ina cancel first second third
    """
    with at.connect() as controller:
        by_id = {job["id"]: job for job in map(controller.job, jobs)}
        over = [name for name, job in by_id.items() if job["over"]]
        found = [controller.cancel(name) for name in by_id if name not in over]
    return Reply(
        {"jobs": found},
        [f"{plain(job['id'])}: {job['state']}" for job in found],
        failure=f"{', '.join(map(repr, over))}: already over" if over else "",
    )


def retry(job: JobName, *, at: ControllerOptions) -> Reply:
    """Retry a failed job, from its last checkpoint.

    Examples:
        ina retry night-run --controller http://127.0.0.1:9580
    """
    with at.connect() as controller:
        found = controller.retry(job)
    return Reply({**found}, [f"{plain(found['id'])}: {found['state']}"])
