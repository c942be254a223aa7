"""Libraries that `ina bench allreduce --baseline` compares with ina: gloo, Open MPI and MPICH.

Each runs in processes of its own.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from hostlib.launch import command_line
from hostlib.launch.launcher import end_process

END_S: Final = 5.0
_ANY_NUMBER: Final = ("--map-by", ":OVERSUBSCRIBE", "--bind-to", "none")
"""Options of Open MPI's launcher that allow more ranks than cores."""
_AGENT: Final = """\
#!/bin/sh
# Run a command line on a host of the testbed, as ssh would: `agent HOST COMMAND LINE`.
host=$1; shift
exec ip netns exec "{testbed}.$host" unshare --uts sh -c "hostname $host; $*"
"""
"""Open MPI starts all ranks on one of the hosts if their names are equal up to the first dot."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library, and how its ranks are started."""

    title: str
    module: str
    """The Python module that a rank imports."""
    install: str
    """The command that installs the module."""
    launcher: tuple[str, ...] = ()
    """The launcher's command up to the option ``-np``; (): ranks are started without a launcher."""
    shared_object: str = ""
    """File name of the MPI library that mpi4py must load, because two MPI libraries may be installed."""

    def missing(self, name: str) -> str | None:
        """Return a message with the missing requirement and how to install it; None if nothing is missing."""
        lacking = f"the {name} baseline needs {{}}, which is missing: {self.install}"
        if self.launcher and self.path is None:
            return lacking.format(f"{self.launcher[0]} of {self.title}")
        return lacking.format(self.module) if find_spec(self.module) is None else None

    @property
    def path(self) -> str | None:
        """The launcher's path, beside this Python interpreter or on PATH; None: no launcher is installed."""
        beside = Path(sys.executable).with_name(self.launcher[0])
        return str(beside) if beside.exists() else shutil.which(self.launcher[0])

    def commands(
        self, rank: Sequence[str], ranks: int, places: Sequence[HostPlace], folder: Path
    ) -> list[list[str]]:
        """Return the commands of the processes to start: the launcher, or each rank.

        Args:
            rank: The command of a rank.
            ranks: Number of ranks.
            places: The testbed host of each rank; (): the ranks run on this machine, without a testbed.
            folder: An empty folder for files by which the ranks find each other.
        """
        if not self.launcher:
            each = [[*rank, "--meet", str(folder / "gloo"), str(at), str(ranks)] for at in range(ranks)]
            return [[*place.prefix, *of] for place, of in zip(places, each, strict=False)] or each
        launched = [str(self.path), *self.launcher[1:], "-np", str(ranks)]
        if not places:
            return [[*launched, *rank]]
        agent = folder / "agent"
        testbeds, hosts = zip(*(place.namespace.rsplit(".", 1) for place in places), strict=True)
        agent.write_text(_AGENT.format(testbed=testbeds[0]))
        agent.chmod(0o755)
        launched += [
            *("--host", ",".join(f"{host}:1" for host in hosts)),
            *("--prefix", str(Path(launched[0]).parents[1]), "--prtemca", "plm_ssh_agent", str(agent)),
            # UCX would go around the links, and ranks that never yield share the cores with all other hosts
            *shlex.split("--mca pml ob1 --mca btl tcp,self --mca mpi_yield_when_idle 1"),
        ]
        return [[str(agent), hosts[0], shlex.join([*launched, *rank])]]

    def environment(self) -> dict[str, str]:
        """Return the environment variables for the launcher, or, without a launcher, for the ranks."""
        if not self.launcher:
            return dict(os.environ)
        library = Path(sysconfig.get_path("data")) / "lib" / self.shared_object
        return {**os.environ, **({"MPI4PY_LIBMPI": str(library)} if library.exists() else {})}


LIBRARIES: Final[Mapping[str, Library]] = {
    "gloo": Library("gloo", "torch", "pip install 'ina[bench]'"),
    "openmpi": Library(
        "Open MPI",
        "mpi4py",
        "pip install 'ina[mpi]'",
        ("prterun", "--personality", "ompi", "--allow-run-as-root", *_ANY_NUMBER),
        "libmpi.so.40",
    ),
    "mpich": Library(
        "MPICH", "mpi4py", "pip install 'ina[mpi]'", ("mpiexec.hydra", "-bind-to", "none"), "libmpi.so.12"
    ),
}
"""The libraries, by their names as values of ``--baseline``."""


@dataclass(frozen=True, slots=True)
class HostPlace:
    """A host of a testbed: a network namespace, and its interface there."""

    namespace: str
    interface: str

    @property
    def prefix(self) -> list[str]:
        """Start of a command line that runs a command in this namespace."""
        return ["ip", "netns", "exec", self.namespace, "env", f"GLOO_SOCKET_IFNAME={self.interface}"]


class Baselines:
    """Running ranks of other libraries, which measure in turns with ina's ranks."""

    def __init__(self) -> None:
        self._running: list[tuple[str, subprocess.Popen[bytes], IO[bytes]]] = []

    def failed(self) -> str | None:
        """Return how a process failed, with its first line of output; None: no process failed."""
        for title, process, output in self._running:
            if process.poll():
                output.seek(0)
                lines = output.read().decode(errors="replace").strip().splitlines() or ["no output"]
                return f"{title} ended with status {process.returncode}: {lines[0]}"
        return None

    @contextlib.contextmanager
    def started(
        self,
        names: Sequence[str],
        ranks: int,
        words: Sequence[str],
        folder: Path,
        places: Sequence[HostPlace] = (),
    ) -> Iterator[None]:
        """Start the ranks of libraries, and end them after the block.

        Args:
            names: The libraries.
            ranks: Number of ranks of each.
            words: Arguments of ``ina.bench.allreduce`` for a rank, without ``--library``.
            folder: An empty folder for files by which the ranks find each other.
            places: The testbed host of each rank of gloo or Open MPI; (): the ranks run on this machine.
        """
        with contextlib.ExitStack() as stack:
            for name in names:
                library = LIBRARIES[name]
                rank = command_line.module("ina.bench.allreduce", *words, "--library", name)
                for command in library.commands(rank, ranks, places, folder):
                    output = stack.enter_context(TemporaryFile())
                    process = subprocess.Popen(
                        command,
                        env=library.environment(),
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                    stack.callback(_end, process)
                    self._running.append((library.title, process, output))
            yield


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    process.terminate()
    end_process(process, END_S)
