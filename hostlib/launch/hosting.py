"""Jobs without `ina run`: the first rank admits the job by ``ina admit``.

``ina admit`` is a process of its own, which starts or finds a switch, admits the job, and serves it until its
ranks have left. `hostlib.launch.machines` informs the other ranks.
"""

from __future__ import annotations

import json
import re
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hostlib.errors import RendezvousError
from hostlib.launch import command_line
from hostlib.settings import EMBEDDED, Settings
from hostlib.version import other_protocol

MEETING_S: Final = 300.0
"""Longest wait, in seconds, for the first rank's answer. It is long because the first use of a switch program
compiles the program."""

FINISH_S: Final = 2.0
"""Longest wait, in seconds, at the end of a job for the other ranks to leave the job."""


@dataclass(slots=True)
class _Admission:
    """An ``ina admit`` process.

    It ends when this process ends, or if it gets no request for a further job for 30 s after a job's end.
    """

    options: list[str]
    process: subprocess.Popen[str]
    over: bool = False
    """True once the job has ended and was removed."""

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the process's next message; {} if none arrives in `timeout_s`, or the process has ended."""
        stdout = self.process.stdout
        assert stdout is not None
        if timeout_s is not None and not select.select([stdout], [], [], timeout_s)[0]:
            return {}
        line = stdout.readline()
        message: dict[str, Any] = json.loads(line) if line else {}
        return message

    def again(self) -> dict[str, Any]:
        """Request one more job like the last one; return the answer, {} if the process refuses."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{command_line.AGAIN}\n")
            self.process.stdin.flush()
        except OSError:
            return {}  # it has ended
        self.over = False
        while (message := self.receive()) and "configs" not in message:
            if "failed" in message:
                return {}
        return message


_running: list[_Admission] = []


def admit(
    settings: Settings,
    machines: Sequence[Sequence[int]],
    names: Sequence[Sequence[str]],
    *,
    hierarchical: bool,
    listen: str | None = None,
) -> Sequence[Any]:
    """Admit a job by ``ina admit``.

    If an ``ina admit`` with the same options still runs, it admits the job to its switch; otherwise a new one
    is started.

    Args:
        settings: settings of this process.
        machines: the ranks of each machine.
        names: names and addresses of each machine, as a cluster file may have them.
        hierarchical: whether the ranks of a machine are summed there first.
        listen: address of this machine where ranks of other machines join; None: all ranks are on this one.

    Returns:
        The ranks' configurations in the order of the ranks, each as `JobConfig.from_json` reads it as JSON.

    Raises:
        RendezvousError: the job was not admitted.
    """
    options = admit_options(settings, machines, names, hierarchical=hierarchical, listen=listen)
    _running[:] = [each for each in _running if each.process.poll() is None]
    last = next((each for each in _running if each.options == options), None)
    message = (last.again() if last else {}) or _started(options)
    configs: Sequence[Any] = message["configs"]
    return configs


def _started(options: list[str]) -> dict[str, Any]:
    """Start ``ina admit``; return its message about the admitted job. Raises RendezvousError."""
    process = subprocess.Popen(
        command_line.ina("admit", *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt from the keyboard goes to the ranks only
    )
    admission = _Admission(options, process)
    message = admission.receive()
    failed = message.get("failed") or "see its messages in the output of rank 0"
    if why := other_protocol(message) if "configs" in message else failed:
        process.communicate()  # it ends with its input
        raise RendezvousError(f"'ina admit' ended with status {process.returncode}: {why}")
    _running.append(admission)
    return message


def finish() -> None:
    """Wait, for `FINISH_S` at most, until the jobs that this process admitted are removed.

    Launchers such as Ray kill a rank's child processes when the rank ends. Without this wait the rank's job
    would then stay on the switches until the job's lease ends.
    """
    deadline = time.monotonic() + FINISH_S
    for admission in _running:
        if not admission.over:
            admission.over = bool(admission.receive(max(0.0, deadline - time.monotonic())))


def admit_options(
    settings: Settings,
    machines: Sequence[Sequence[int]],
    names: Sequence[Sequence[str]],
    *,
    hierarchical: bool,
    listen: str | None,
) -> list[str]:
    """Return the command-line options with which `admit` starts ``ina admit``.

    Args:
        settings: The user's settings.
        machines: The ranks of each machine.
        names: Names and addresses of each machine.
        hierarchical: Whether the ranks of one machine are summed there first.
        listen: Address at which the ranks meet; None: an address that only this machine can reach.
    """
    of_names = [f"--machine={','.join(each)}" for each in names]
    where = []
    if settings.given:
        where = ["--given", *of_names]
    elif settings.cluster:
        where = ["--cluster", settings.cluster, *of_names]
    elif settings.controller:
        where = ["--controller", settings.controller, f"--name={_name()}", *of_names]
    elif settings.switch != EMBEDDED:
        where = ["--switch", settings.switch]
    return [
        *("-np", str(sum(map(len, machines)))),
        *("--machines", "/".join(",".join(map(str, ranks)) for ranks in machines)),
        *(["--hierarchical"] if hierarchical else []),
        *([] if settings.given or settings.controller else ["--repeat"]),
        *where,
        *([] if listen is None else ["--listen", listen]),
        *settings.options,
    ]


def _name() -> str:
    """Return a unique name for this job: the program's name and a random number."""
    program = re.sub(r"[^A-Za-z0-9_.-]", "-", Path(sys.argv[0]).stem).lstrip("-._") or "job"
    return f"{program[:100]}-{secrets.token_hex(4)}"
