"""Jobs without `ina run`: the first rank has the job admitted, and the others learn their places from it.

The ranks are started by somebody else (torchrun, mpirun, srun), all on this machine (`hostlib.machines` has
those of several). Rank 0 starts
``ina admit``, a process of its own that starts or finds a switch, admits the job, and serves it until its
ranks have left. The configurations, with the token of the job, reach the other ranks by a file that only this
user can read, and that is removed once all have joined. A launcher's own channels (torch's TCP store, say)
are open to whoever can connect, and carry no token.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from hostlib import command_line
from hostlib.config import JobConfig
from hostlib.errors import RendezvousError
from hostlib.placement import Placement
from hostlib.private_folder import private_folder, publish
from hostlib.settings import EMBEDDED, Settings

MEETING_S: Final = 300.0
"""Longest wait for the first rank: the first use of a switch program has it compiled."""

_LOOK_S: Final = 0.02
_running: list[subprocess.Popen[str]] = []
"""Those of this process: their standard input tells them that it lives."""


@contextlib.contextmanager
def meeting(rank: int, size: int, key: str, settings: Settings) -> Iterator[JobConfig]:
    """Have a job of `size` ranks on this machine admitted, and give each rank its configuration.

    The context is to last until the rank has joined. `key` is a text that the ranks of this job have in
    common, and no others on this machine.

    Raises:
        ConfigError: the settings are wrong.
        RendezvousError: the job was not admitted, or the first rank is not there.
    """
    file = private_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    if rank:
        yield _config(_await(file, rank), rank)
        return
    with contextlib.ExitStack() as stack:
        stack.callback(file.unlink, missing_ok=True)
        try:
            configs = admit(settings, [range(size)], hierarchical=bool(settings.hierarchical))
        except RendezvousError as error:
            publish(file, json.dumps({"failed": str(error)}))
            stack.pop_all()  # for the others to read
            raise
        publish(file, json.dumps({"configs": configs}))
        yield _config(configs, 0)


@contextlib.contextmanager
def launched(place: Placement, settings: Settings) -> Iterator[JobConfig]:
    """Do as `meeting`, for a launcher's ranks, all of which are on this machine."""
    with meeting(place.rank, place.size, f"{place.launch} {_parent()}", settings) as config:
        yield config


def admit(
    settings: Settings,
    machines: Sequence[Sequence[int]],
    *,
    hierarchical: bool,
    listen: str | None = None,
) -> Sequence[Any]:
    """Start ``ina admit`` for the ranks of these machines; return the configurations that it prints, by rank.

    Raises:
        RendezvousError: it has not admitted them.
    """
    options = admit_options(settings, machines, hierarchical=hierarchical, listen=listen)
    process = subprocess.Popen(
        command_line.ina("admit", *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt from the keyboard is for the ranks
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RendezvousError(f"'ina admit' ended with status {process.wait()}; it has said why")
    _running[:] = [other for other in _running if other.poll() is None] + [process]
    configs: Sequence[Any] = json.loads(line)["configs"]
    return configs


def admit_options(
    settings: Settings, machines: Sequence[Sequence[int]], *, hierarchical: bool, listen: str | None
) -> list[str]:
    """Return the options with which `admit` starts ``ina admit``."""
    options = ["-np", str(sum(map(len, machines)))]
    options += ["--machines", "/".join(",".join(map(str, ranks)) for ranks in machines)]
    options += ["--hierarchical"] * hierarchical
    options += [] if settings.switch == EMBEDDED else ["--switch", settings.switch]
    options += [] if listen is None else ["--listen", listen]
    return [*options, *settings.options]


def _await(file: Path, rank: int) -> Sequence[Any]:
    deadline = time.monotonic() + MEETING_S
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            told = json.loads(file.read_text(encoding="utf-8"))
            if "failed" in told:
                raise RendezvousError(
                    f"rank {rank}: rank 0 could not have the job admitted: {told['failed']}"
                )
            configs: Sequence[Any] = told["configs"]
            return configs
        time.sleep(_LOOK_S)
    raise RendezvousError(
        f"rank {rank}: rank 0 has not had the job admitted within {MEETING_S:g} s, or runs on another "
        f"machine or as another user ({file} is not there)"
    )


def _config(configs: Sequence[Any], rank: int) -> JobConfig:
    return JobConfig.from_json(json.dumps(configs[rank]))


def _parent() -> str:
    """Name the process that has started this one so that no other ever has the same name."""
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    parent = stat[1]
    began = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{parent} {began}"
