"""Jobs without `ina run`: the first rank has the job admitted, and the others learn their places from it.

The ranks are started by somebody else (torchrun, mpirun, srun), all on this machine
(`hostlib.launch.machines` has those of several). Rank 0 starts ``ina admit``, a process of its own that
starts or finds a switch, admits the job, and serves it until its ranks have left. The configurations, with
the token of the job, reach the other ranks by a file that only this user can read, and that is removed once
all have joined. A launcher's own channels (torch's TCP store, say) are open to all who can connect, and carry
no token.

The file's name is a digest of the launcher's own identifiers, which all ranks of a launch have. Rank 0 writes
it as soon as it comes, with its process, and again when the job was admitted or refused; so the others need
not wait for a first rank that has died, or that does not come.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hostlib.config import JobConfig
from hostlib.errors import RendezvousError
from hostlib.io.interfaces import known_as
from hostlib.launch import command_line
from hostlib.meet.private_folder import private_folder, publish
from hostlib.settings import EMBEDDED, Settings

MEETING_S: Final = 300.0
"""Longest wait for the first rank: the first use of a switch program has it compiled."""

HERE_S: Final = 60.0
"""Longest wait for the first rank to come; an older refusal is one of an earlier launch."""

FINISH_S: Final = 2.0
"""Longest wait at the end of a job for the others to leave it, too."""

_LOOK_S: Final = 0.02


@dataclass(slots=True)
class _Admission:
    """An ``ina admit`` of this process: it ends with it, or some time after its job."""

    options: list[str]
    process: subprocess.Popen[str]
    over: bool = False
    """Its job is, and was removed."""

    def hear(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Return its next message; nothing if there is none within the time, or it has ended."""
        stdout = self.process.stdout
        assert stdout is not None
        if timeout_s is not None and not select.select([stdout], [], [], timeout_s)[0]:
            return {}
        line = stdout.readline()
        said: dict[str, Any] = json.loads(line) if line else {}
        return said

    def again(self) -> dict[str, Any]:
        """Have it admit one more job like the last; return what it says of it, nothing if it does not."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{command_line.AGAIN}\n")
            self.process.stdin.flush()
        except OSError:
            return {}  # it has ended
        self.over = False
        while (said := self.hear()) and "configs" not in said:
            if "failed" in said:
                return {}
        return said


_running: list[_Admission] = []


@contextlib.contextmanager
def meeting(rank: int, size: int, key: str, settings: Settings) -> Iterator[JobConfig]:
    """Have a job of `size` ranks on this machine admitted, and give each rank its configuration.

    Keep the context open until the rank has joined.

    Args:
        rank: of this process.
        size: number of ranks of the job.
        key: text that the ranks of this job have in common, and no others on this machine.
        settings: of this process.

    Raises:
        ConfigError: the settings are wrong.
        RendezvousError: the job was not admitted, or the first rank is not there.
    """
    file = private_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    if rank:
        yield _config(_await(file, rank, size), rank)
        return
    here = {"process": os.getpid(), "began": _began(os.getpid()), "size": size}
    with contextlib.ExitStack() as stack:
        stack.callback(file.unlink, missing_ok=True)
        publish(file, json.dumps(here))
        try:
            # at a port of a cluster's switch there is one worker
            of_cluster = settings.cluster or settings.given or settings.controller
            hierarchical = bool(settings.hierarchical or of_cluster)
            configs = admit(settings, [range(size)], [known_as()], hierarchical=hierarchical)
        except RendezvousError as error:
            publish(file, json.dumps({**here, "failed": str(error)}))
            stack.pop_all()  # for the others to read
            raise
        publish(file, json.dumps({**here, "configs": configs}))
        yield _config(configs, 0)


def admit(
    settings: Settings,
    machines: Sequence[Sequence[int]],
    names: Sequence[Sequence[str]],
    *,
    hierarchical: bool,
    listen: str | None = None,
) -> Sequence[Any]:
    """Have ``ina admit`` admit a job: start it, or use the one of an earlier job like this, and its switch.

    Args:
        settings: of this process.
        machines: the ranks of each machine.
        names: names and addresses of each machine, by which a cluster file may know it.
        hierarchical: whether the ranks of a machine are summed there first.
        listen: address of this machine where ranks of other machines join; None: all are on this machine.

    Returns:
        The ranks' configurations in the order of the ranks, each as `JobConfig.from_json` reads it as JSON.

    Raises:
        RendezvousError: it has not admitted them.
    """
    options = admit_options(settings, machines, names, hierarchical=hierarchical, listen=listen)
    _running[:] = [each for each in _running if each.process.poll() is None]
    last = next((each for each in _running if each.options == options), None)
    told = last.again() if last else {}
    if not told:
        told = _started(options)
    configs: Sequence[Any] = told["configs"]
    return configs


def _started(options: list[str]) -> dict[str, Any]:
    """Start ``ina admit``; return what it says of the job that it has admitted. Raises RendezvousError."""
    process = subprocess.Popen(
        command_line.ina("admit", *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt from the keyboard is for the ranks
    )
    admission = _Admission(options, process)
    told = admission.hear()
    if "configs" not in told:
        why = told.get("failed") or "its messages say why, where rank 0 runs"
        raise RendezvousError(f"'ina admit' ended with status {process.wait()}: {why}")
    _running.append(admission)
    return told


def finish() -> None:
    """Wait, not for long, until the jobs that this process has had admitted are removed.

    Launchers such as Ray kill what a rank has started as soon as it ends: its job would stay for a lease.
    """
    deadline = time.monotonic() + FINISH_S
    for admission in _running:
        if not admission.over:
            admission.over = bool(admission.hear(max(0.0, deadline - time.monotonic())))


def admit_options(
    settings: Settings,
    machines: Sequence[Sequence[int]],
    names: Sequence[Sequence[str]],
    *,
    hierarchical: bool,
    listen: str | None,
) -> list[str]:
    """Return the options with which `admit` starts ``ina admit``.

    Args:
        settings: The user's settings.
        machines: The ranks of each machine.
        names: Names and addresses of each machine.
        hierarchical: Ranks of one machine are summed there first.
        listen: Address at which the ranks meet; None: one that only this machine reaches.
    """
    options = ["-np", str(sum(map(len, machines)))]
    options += ["--machines", "/".join(",".join(map(str, ranks)) for ranks in machines)]
    options += ["--hierarchical"] * hierarchical
    if not settings.given and not settings.controller:
        options += ["--repeat"]
    if settings.given:
        options += ["--given", *(f"--machine={','.join(each)}" for each in names)]
    elif settings.cluster:
        options += ["--cluster", settings.cluster, *(f"--machine={','.join(each)}" for each in names)]
    elif settings.controller:
        options += ["--controller", settings.controller, f"--name={_name()}"]
        options += [f"--machine={','.join(each)}" for each in names]
    elif settings.switch != EMBEDDED:
        options += ["--switch", settings.switch]
    options += [] if listen is None else ["--listen", listen]
    return [*options, *settings.options]


def _name() -> str:
    """Return a name for this job that no other has: the program's, and a random number."""
    program = re.sub(r"[^A-Za-z0-9_.-]", "-", Path(sys.argv[0]).stem).lstrip("-._") or "job"
    return f"{program[:100]}-{secrets.token_hex(4)}"


def _await(file: Path, rank: int, size: int) -> Sequence[Any]:
    """Wait for what the first rank says. Raises RendezvousError."""
    began = time.monotonic()
    first: tuple[int, str] | None = None
    while (waited_s := time.monotonic() - began) < MEETING_S:
        told = _read(file)
        if told is not None:
            if told["size"] != size:
                raise RendezvousError(
                    f"rank {rank} of {size}: rank 0 of a launch of {told['size']} ranks has the same "
                    f"identifiers ({file}): start one after the other"
                )
            if "failed" in told:
                raise RendezvousError(
                    f"rank {rank}: rank 0 could not have the job admitted: {told['failed']}"
                )
            if "configs" in told:
                configs: Sequence[Any] = told["configs"]
                return configs
            first = told["process"], told["began"]
        elif first and _began(first[0]) != first[1]:
            raise RendezvousError(
                f"rank {rank}: rank 0, process {first[0]}, ended before it had the job admitted; its own "
                "output says why"
            )
        elif first is None and waited_s > HERE_S:
            found = "is of a process that has ended" if file.exists() else "is not there"
            raise RendezvousError(
                f"rank {rank}: rank 0 has not come within {HERE_S:g} s: it has ended or not called init(), "
                "or runs as another user, in another container, or with another XDG_RUNTIME_DIR or TMPDIR "
                f"({file} {found})"
            )
        time.sleep(_LOOK_S)
    raise RendezvousError(f"rank {rank}: rank 0 has not had the job admitted within {MEETING_S:g} s")


def _read(file: Path) -> dict[str, Any] | None:
    """Return the text that this launch's first rank wrote; None before, or if it is of an earlier launch."""
    try:
        told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        age_s = time.time() - file.stat().st_mtime
    except FileNotFoundError:
        return None
    lives = _began(told["process"]) == told["began"]
    return told if lives or ("failed" in told and age_s < HERE_S) else None


def _config(configs: Sequence[Any], rank: int) -> JobConfig:
    return JobConfig.from_json(json.dumps(configs[rank]))


def _began(process: int) -> str:
    """Return when a process began, in clock ticks since the machine did; nothing if it has ended."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state in "ZX" else fields[18]
