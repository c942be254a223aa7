"""Common parts of commands for a controller: options, the connection, and tables of jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ina.cli.command import FAILED, Declared, Listing, failing_at, refuse

if TYPE_CHECKING:
    from ina.run.client import Client
    from ina.run.views import DecisionView, JobView

CONTROLLER = "Controller"

JobName = Annotated[
    str,
    Declared(
        argument=True,
        metavar="JOB",
        help="Give the job's name, or its id or number as in 'ina jobs'. Operators can also give "
        "TENANT/NAME.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Options for the connection to a running controller: its URL, a token, a CA."""

    controller: Annotated[
        str,
        Declared(
            "--controller",
            metavar="URL",
            envvar="INA_CONTROLLER",
            show_envvar=False,
            rich_help_panel=CONTROLLER,
            help="Connect to the controller at this URL: http://HOST:PORT, https://HOST:PORT or unix:PATH. "
            "Default: the environment variable INA_CONTROLLER.",
        ),
    ] = ""
    token_file: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            rich_help_panel=CONTROLLER,
            help="Present the token in this file, if the controller requires one. Default: the "
            "environment variable INA_CONTROLLER_TOKEN.",
        ),
    ] = None
    controller_ca: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            rich_help_panel=CONTROLLER,
            help="Check the controller's certificate against this CA (PEM). Default: the system's CAs.",
        ),
    ] = None

    @contextmanager
    def connect(self, token: str = "") -> Iterator[Client]:
        """Connect to the controller inside the context. If `token` is given, it replaces the options' token.

        Raises Failure if there is no connection, or if the controller refuses a request inside the context.
        """
        from ina.run.client import Client

        refuse(not self.controller, "--controller is missing: give --controller URL, or set INA_CONTROLLER")
        bad_ca = failing_at(f"--controller-ca {self.controller_ca}", OSError, exit_code=FAILED)
        with bad_ca, failing_at("--controller", ValueError):
            client = Client(self.controller, token=token or self._token(), ca=self.controller_ca)
        with client, failing_at("this request cannot be sent", UnicodeError):
            yield client

    def _token(self) -> str:
        """Return the token from a file or the environment; other users could see the value of an option."""
        file = self.token_file
        token = os.environ.get("INA_CONTROLLER_TOKEN", "") if file is None else file.read_text("utf-8")
        refuse(  # otherwise the error of the request's header would show the token
            not (token.strip().isascii() and token.strip().isprintable()),
            f"{file or 'INA_CONTROLLER_TOKEN'}: want one line, as 'ina controller token add' has printed it",
        )
        return token.strip()


JOB = "The job, for a controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Options that describe a job for a controller, in place of a ``[[job]]`` table."""

    name: Annotated[
        str | None,
        Declared(
            metavar="NAME",
            rich_help_panel=JOB,
            help="Give the job this name. Default: a random number after the program's name, or, with 'ina "
            "admit', after 'admitted'.",
        ),
    ] = None
    deadline: Annotated[
        float | None,
        Declared(
            metavar="SECONDS",
            rich_help_panel=JOB,
            help="Give the job a deadline, in seconds after its submission. Default: none.",
        ),
    ] = None
    iterations: Annotated[
        int | None,
        Declared(metavar="COUNT", rich_help_panel=JOB, help="Expect this many iterations. Default: 100."),
    ] = None
    compute: Annotated[
        float | None,
        Declared(
            metavar="SECONDS",
            rich_help_panel=JOB,
            help="Expect an iteration to compute for this many seconds. Default: 0.001.",
        ),
    ] = None
    model_bytes: Annotated[
        int | None,
        Declared(
            metavar="BYTES",
            rich_help_panel=JOB,
            help="Expect an iteration to sum this many bytes. Default: 262144. With 'ina admit', the "
            "controller counts iterations by summed bytes, if this option is given.",
        ),
    ] = None

    def keys(self) -> dict[str, object]:
        """Return the given options as entries of a ``[[job]]`` table, without the name."""
        own = {
            "deadline_s": self.deadline,
            "iterations": self.iterations,
            "compute_s": self.compute,
            "model_bytes": self.model_bytes,
        }
        return {key: value for key, value in own.items() if value is not None}


# --------------------------------------------------------------------------- how things are shown


def clock(time_s: float | None) -> str:
    """Format a duration for people: in seconds below a minute, then as [H:]MM:SS; None as "".

    >>> clock(3.21), clock(75), clock(-3700), clock(None)
    ('3.2 s', '1:15', '-1:01:40', '')
    """
    if time_s is None:
        return ""
    sign, left_s = ("-", -time_s) if time_s < 0 else ("", time_s)
    if left_s < 60:
        return f"{sign}{left_s:.1f} s"
    minutes, seconds = divmod(round(left_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}:{minutes:02}:{seconds:02}" if hours else f"{sign}{minutes}:{seconds:02}"


def plain(text: str) -> str:
    """Return another user's text with escapes in place of characters that could move the cursor."""
    return text if text.isprintable() else ascii(text)[1:-1]


def state_of(job: JobView) -> str:
    """Return a job's state, such as "running" or "failed"; "completed late" after its deadline."""
    return "completed late" if job["state"] == "completed" and job["late"] else job["state"]


_COLUMNS = ("job", "tenant", "state", "workers", "done", "left", "deadline", "slots", "why")


def rows(jobs: Sequence[JobView], now_s: float) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of a table of jobs; without the column for tenants if no job has a tenant."""
    found = [list(_COLUMNS), *(_row(job, now_s) for job in jobs)]
    if not any(job["tenant"] for job in jobs):
        for line in found:
            del line[1]
    return found[0], found[1:]


def _row(job: JobView, now_s: float) -> list[str]:
    due_s, over = job["due_s"], job["over"]
    due = ""
    if due_s is not None and not over:
        late = ", late" if job["late"] else ""
        due = f"{clock(now_s - due_s)} ago" if due_s < now_s else f"in {clock(due_s - now_s)}{late}"
    slots = ", ".join(f"{switch}: {each['slots']}" for switch, each in sorted(job["slots"].items()))
    return [
        plain(job["id"]),
        plain(job["tenant"]),
        state_of(job),
        str(job["workers"]),
        f"{min(1.0, job['done'] / job['iterations']):.0%}",
        "" if over else clock(job["left_s"]),
        due,
        slots,
        plain(job["reason"]),
    ]


def listed(title: str, jobs: Sequence[JobView], now_s: float) -> Listing:
    """Return a table of jobs; `now_s` is the time on the controller's clock."""
    return Listing(title, *rows(jobs, now_s), left=("job", "tenant", "state", "slots", "why"))


def line(decision: DecisionView) -> str:
    """Format a decision of the controller as a line: time, event, jobs, reason."""
    names = ", ".join(plain(name) for name in decision["jobs"])
    what = f"{names}: {plain(decision['text'])}" if names else plain(decision["text"])
    return f"{decision['at_s']:>10.1f} s  {decision['event']:<11}  {what}"
