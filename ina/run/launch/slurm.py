"""Access to Slurm by its commands ``sbatch``, ``squeue``, ``sinfo`` and ``scancel``, without its accounting.

A Slurm job's comment names the service and the run. So the service finds the job even if ``sbatch`` was
killed before it printed the job's number.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ina.errors import EngineError

COMMAND_S = 30.0
"""Time-out of a command, in s. Without it, commands would wait forever for a controller of Slurm that hangs
or has ended."""
LIVE = frozenset(
    ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "RESIZING")
) | frozenset(("SIGNALING", "STAGE_OUT", "STOPPED", "SPECIAL_EXIT", "REQUEUE_FED", "RESV_DEL_HOLD"))
"""States of Slurm jobs that are not over."""
UNUSABLE = ("DOWN", "DRAIN", "FAIL", "ERROR", "MAINT", "POWER", "REBOOT", "FUTURE")
"""Prefixes of the states of Slurm nodes on which no job may run."""

FOREIGN = ("SLURM_JOB", "SQUEUE_", "SINFO_", "SCANCEL_")
"""Prefixes of the environment variables that Slurm's commands do not get: those of the job in which this
process runs, and a user's filters of jobs and nodes."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A Slurm job, as ``squeue`` shows it; `reason` is why a pending job waits."""

    number: int
    comment: str
    state: str
    reason: str = ""

    @property
    def live(self) -> bool:
        """True until the job is over."""
        return self.state in LIVE


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A Slurm node, as ``sinfo`` shows it; `answers` is whether it responds to Slurm's controller."""

    name: str
    state: str
    answers: bool
    reason: str = ""

    @property
    def trouble(self) -> str:
        """Why no job may run on the node; "": it can be used."""
        if not self.state.startswith(UNUSABLE):
            return ""
        return f"Slurm: node {self.name} is {self.state.lower()}" + (
            f" ({self.reason})" if self.reason else ""
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """A Slurm job to submit.

    Attributes:
        name: The job's name, for users.
        comment: The job's comment, by which it is found later.
        tasks: The number of tasks on each node, by the node's name.
        output: Path of the file for the job's output.
        licences: The licences that the job needs, in the form of ``sbatch --licenses``; "": none.
    """

    name: str
    comment: str
    tasks: Mapping[str, int]
    output: str
    licences: str = ""

    def options(self) -> list[str]:
        """Return the options of ``sbatch`` for this job; Slurm then does not restart the job by itself.

        >>> " ".join(Batch("a", "ina:1:2", {"h1": 2, "h2": 1}, "/log").options()[2:8])
        '--nodes=2 --ntasks=3 --nodelist=h1,h2 --distribution=arbitrary --no-requeue --chdir=/'
        """
        licences = [f"--licenses={self.licences}"] if self.licences else []
        output = self.output.replace("%", "%%")  # sbatch has patterns such as %j
        return [
            *(f"--job-name={self.name}", f"--comment={self.comment}", f"--nodes={len(self.tasks)}"),
            *(f"--ntasks={sum(self.tasks.values())}", f"--nodelist={','.join(self.tasks)}"),
            *("--distribution=arbitrary", "--no-requeue", "--chdir=/", "--open-mode=append"),
            *(f"--output={output}", f"--error={output}", *licences),
        ]


def submit(batch: Batch, script: str, hosts: str) -> int:
    """Submit the Slurm job `batch`, which runs the shell script `script`; return the job's number.

    `hosts` is the path of a file with the node of each task, one name per line. Raises EngineError.
    """
    variables = {"SLURM_HOSTFILE": hosts}
    output = _run(["sbatch", "--parsable", *batch.options()], script, variables)
    found = re.fullmatch(r"(\d+)(;.*)?", output.strip())
    if found is None:
        raise EngineError(f"sbatch printed {output[:200]!r}, want the number of a job")
    return int(found[1])


def jobs(comment: str) -> list[SlurmJob]:
    """Return this user's jobs whose comments begin with `comment`, including recently ended jobs.

    Raises EngineError.
    """
    found = jobs_of(_run(["squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%r|%k"]))
    return [job for job in found if job.comment.startswith(comment)]


def jobs_of(text: str) -> list[SlurmJob]:
    """Return the jobs in the output of ``squeue``.

    >>> jobs_of("7|PENDING|Licenses|ina:1:2")
    [SlurmJob(number=7, comment='ina:1:2', state='PENDING', reason='Licenses')]
    """
    # other lines are of a job's comment, which may have several, or of a part of an array
    lines = re.findall(r"^(\d+)\|(\w+)\|([^|\n]*)\|(.*)$", text, re.MULTILINE)
    return [
        SlurmJob(int(number), comment, state, "" if reason == "None" else reason)
        for number, state, reason, comment in lines
    ]


def nodes() -> dict[str, SlurmNode]:
    """Return all nodes of Slurm, by name. Raises EngineError."""
    return nodes_of(_run(["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]))


def nodes_of(text: str) -> dict[str, SlurmNode]:
    """Return the nodes in the output of ``sinfo``: a state with ``*`` means that the node does not answer.

    >>> nodes_of("h1|down*|Not responding")["h1"].trouble
    'Slurm: node h1 is down (Not responding)'
    """
    found = {}
    # other lines are of a node's reason, which may have several
    for name, state, reason in re.findall(r"^([^|\n]+)\|([^|\n]+)\|(.*)$", text, re.MULTILINE):
        plain = re.sub(r"[^a-z_]*$", "", state.lower()).upper()
        found[name] = SlurmNode(name, plain, "*" not in state, "" if reason == "none" else reason)
    return found


def cancel(numbers: Sequence[int]) -> None:
    """Cancel the Slurm jobs with these numbers; ignore jobs that are over. Raises EngineError."""
    if numbers:
        _run(["scancel", "--quiet", *map(str, numbers)])


def has_licence(name: str) -> bool:
    """Return whether Slurm's configuration has licences named `name`. Raises EngineError."""
    return f"LicenseName={name}\n" in _run(["scontrol", "show", "licenses"])


def _run(command: Sequence[str], given: str = "", variables: Mapping[str, str] | None = None) -> str:
    """Return the output of a Slurm command, with `given` as its input. Raises EngineError."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
    environment |= variables or {}
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            env=environment,
        )
    except OSError as error:
        raise EngineError(f"cannot run {command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise EngineError(f"{command[0]} has not answered within {COMMAND_S:g} s") from None
    if done.returncode:
        how = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise EngineError(f"{command[0]} ended with {how}: {' '.join(done.stderr.split())[:500]}")
    return done.stdout
