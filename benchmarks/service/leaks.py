"""What processes have open and hold in memory, and what is left of jobs when all are over."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.service.live import Bed
from bmv2_topos.testbeds.netns.testbed import controllers
from controller import Fleet

MOST_FILES = 8
"""File descriptors that a process at rest may have more than a new one: streams that are not yet closed."""
MOST_MEMORY = 1.5
"""Times the memory of a new process that one at rest may have."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a process has: open files, threads, and resident memory in KiB."""

    files: int
    threads: int
    memory_kib: int


def size_of(process: int) -> Size | None:
    """Return the size of a process; None if it has ended."""
    folder = Path(f"/proc/{process}")
    try:
        fields = dict(
            line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
        )
        files = len(list((folder / "fd").iterdir()))
        return Size(files, int(fields["Threads"]), int(fields["VmRSS"].split()[0]))
    except (OSError, KeyError):
        return None


@dataclass(slots=True)
class Sizes:
    """The sizes of one process while it lived."""

    name: str
    samples: list[Size] = field(default_factory=list)

    def add(self, process: int) -> None:
        """Look at it once more."""
        if (size := size_of(process)) is not None:
            self.samples.append(size)

    @property
    def most(self) -> Size:
        """The largest of each number."""
        return Size(
            max(each.files for each in self.samples),
            max(each.threads for each in self.samples),
            max(each.memory_kib for each in self.samples),
        )


def grown(name: str, rests: Size, new: Size) -> Iterator[str]:
    """Say what a process at rest has too much of, compared with a new one on the same state."""
    if rests.files > new.files + MOST_FILES:
        yield f"{name} has {rests.files} files open at rest, and {new.files} when it is new"
    if rests.memory_kib > MOST_MEMORY * new.memory_kib:
        yield f"{name} holds {rests.memory_kib} KiB at rest, and {new.memory_kib} KiB when it is new"


def commands() -> Mapping[int, str]:
    """Return the command lines of all processes, by number."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def fallback_servers(testbed: str, server: str = "") -> list[int]:
    """Return the processes of the fallback servers at the servers of a testbed, or at one."""
    wanted = f"-m ina.machine.fallback {testbed} {server}"
    return [number for number, line in commands().items() if wanted in line]


def left_of_jobs(bed: Bed, state: Path, own: int | None) -> list[str]:
    """Return the names of all that is left on switches, at servers and in the state when no job is there.

    Args:
        bed: The testbed.
        state: The controller's state.
        own: The controller's process.
    """
    found = [f"{server}: process {line}" for server, lines in bed.processes().items() for line in lines]
    found += [
        f"process {number}: {line}"
        for number, line in commands().items()
        if str(state) in line and number != own and "benchmarks.service" not in line
    ]
    with controllers(bed.state) as at:
        found += [f"switches have job {job}" for job in Fleet(at).read()]
    if (runs := state / "runs").exists():
        found += [f"the folder of run {each.name}" for each in runs.iterdir()]
    with contextlib.closing(sqlite3.connect(f"file:{state}/state.sqlite?mode=ro", uri=True)) as database:
        found += [f"the row of run {run}" for (run,) in database.execute("SELECT run FROM holds")]
    return found
