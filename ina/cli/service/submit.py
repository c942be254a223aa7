"""``ina submit``: jobs for a controller."""

from __future__ import annotations

import json as json_module
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from controller.vocabulary import documents, jobs_of
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.plain import plural, say
from ina.cli.service.common import ControllerOptions, show_jobs
from ina.cli.service.job_options import JobOptions

EPILOG = """Examples:

  ina submit jobs.toml --controller http://127.0.0.1:9580

  ina submit -np 4 --deadline 600 --iterations 2000 -- python train.py

  ina submit -np 4 --name night-run --key night-run -- python train.py

A file has the keys of docs/files.md; all of its jobs are taken, or none.
"""


def submit(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE | -- COMMAND …",
            help="Read the jobs from this file (.toml, .json or .yaml), or, with --workers, run this command "
            "as a job.",
        ),
    ],
    *,
    workers: Annotated[
        int | None,
        typer.Option(*options.WORKERS, min=1, help="Run the command with this number of workers."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            parser=Path,  # and not looked for: it is on other machines
            metavar="DIR",
            help="Run the commands in this directory of the servers, unless a job's extra.folder names "
            "another. Default: the current directory.",
        ),
    ] = None,
    driver: Annotated[
        bool,
        typer.Option(
            "--driver",
            help="With --workers: run the command once; it has Ray Train start the workers. The controller "
            "needs --executor ray.",
        ),
    ] = False,
    key: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Send this idempotency key: the same key again submits nothing, and shows the same jobs. "
            "Default: a random one.",
        ),
    ] = "",
    job: JobOptions,
    at: ControllerOptions,
    json: options.Json = False,
) -> None:
    """Submit jobs to a controller, which decides when, where and with which slots they run.

    Takes all jobs or none. Prints them as they stand then: 'ina watch' shows what becomes of them, and
    'ina explain' why. The options of a job are for a command. Times of arrival in a file do not count: a job
    arrives when it is submitted.
    """
    given = job.keys() | ({} if job.name is None else {"name": job.name})
    if workers is not None:
        if what[0].endswith(documents.FORMATS):
            raise Failure(
                f"{what[0]}: a file of jobs says itself how many workers and which command: want FILE alone",
                USAGE,
            )
        jobs = [_of_command(what, workers, given) | ({"extra": {"driver": True}} if driver else {})]
    elif given or driver or len(what) != 1:
        raise Failure("want one FILE of jobs, or -np WORKERS and a command behind --", USAGE)
    else:
        jobs = _of_file(Path(what[0]))
    where = str((folder or Path()).absolute())
    jobs = [{**job, "extra": {"folder": where, **job.get("extra", {})}} for job in jobs]
    with at.connect() as controller:
        found = controller.submit(jobs, key=key or secrets.token_urlsafe(16))
    if json:
        print(json_module.dumps({"jobs": found}, indent=2))
        return
    show_jobs(f"{plural(len(found), 'job')} submitted", found, found[0]["submitted_s"])


def _of_command(command: list[str], workers: int, given: dict[str, Any]) -> dict[str, Any]:
    program = Path(next((part for part in command if part.endswith(".py")), command[0])).stem
    made: dict[str, Any] = {
        "name": f"{program}-{secrets.token_hex(3)}",
        "workers": workers,
        "command": command,
    }
    return made | given


def _of_file(path: Path) -> list[dict[str, Any]]:
    """Return the tables of a file's jobs, which are right as far as can be told here. Raises BadSpec."""
    document = documents.read(path)
    jobs = jobs_of(document, require=("command",))  # an error here names the file's line
    tables = [{**table, "name": job.name} for job, table in zip(jobs, document.data["job"], strict=True)]
    if any(table.pop("arrival_s", 0) for table in tables):
        say(f"{path}: arrival_s does not count: jobs arrive when they are submitted")
    return tables
