"""The state of running testbeds: a folder each, below ``/run/ina`` (or ``$INA_TESTBEDS``).

A folder holds ``state.json`` and the switches' sockets and logs; lock files are beside it. Running testbeds
are found by the names of namespaces; the folder only describes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from bmv2_topos.testbeds.netns.commands import Program
from bmv2_topos.testbeds.netns.errors import NameTaken, NoTestbed
from controller.vocabulary import Topology


@dataclass(frozen=True, slots=True)
class State:
    """A testbed that is up, or whose start was not completed."""

    name: str
    runner: str
    topology: Topology
    program: Program
    complete: bool = False
    """True once the start has been completed."""
    switches: Mapping[str, int] = field(default_factory=dict)
    """Process ids of the switches, by name."""

    @property
    def folder(self) -> Path:
        """Folder of the testbed's files."""
        return folder(self.name)

    def socket(self, switch: str) -> Path:
        """Return the Unix socket of a switch's P4Runtime."""
        return self.folder / f"{switch}.sock"

    def log(self, switch: str) -> Path:
        """Return the file with a switch's output."""
        return self.folder / f"{switch}.log"

    def save(self) -> None:
        """Write the state to its file, atomically."""
        place = self.folder / "state.json"
        beside = place.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self), indent=1))
        beside.replace(place)


def base() -> Path:
    """Return the parent of the testbeds' folders."""
    return Path(os.environ.get("INA_TESTBEDS", "/run/ina"))


def folder(name: str) -> Path:
    """Return the folder of a testbed."""
    return base() / name


def known() -> list[str]:
    """Return the names of all testbeds that have a folder."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(path.name for path in base().iterdir() if (path / "state.json").exists())
    return []


def load(name: str) -> State:
    """Return the stored state of a testbed. Raises NoTestbed."""
    try:
        return msgspec.convert(json.loads((folder(name) / "state.json").read_text()), State)
    except FileNotFoundError:
        raise missing(name) from None


def missing(name: str) -> NoTestbed:
    """Return the error for an unknown name of a testbed; its message lists the testbeds that are up."""
    up = known()
    names = f"up are {', '.join(up)}" if up else "none is up"
    return NoTestbed(f"no testbed {name!r}; {names} (ina topo up)")


def the_only_one() -> str:
    """Return the name of the only testbed. Raises NoTestbed if there is none, or more than one."""
    names = known()
    if len(names) != 1:
        several = f"{', '.join(names)} are up: give the name of one" if names else "none is up (ina topo up)"
        raise NoTestbed(f"which testbed? {several}")
    return names[0]


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep other processes from starting or removing a testbed during the block. Raises NameTaken."""
    base().mkdir(parents=True, exist_ok=True, mode=0o755)
    place = base() / f".{name}.lock"
    with place.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(handle.fileno()), place.stat()):
                raise BlockingIOError  # its previous holder has removed the file
        except (BlockingIOError, FileNotFoundError):
            raise NameTaken(f"testbed {name!r} is being started or stopped by another process") from None
        try:
            yield
        finally:
            if not folder(name).exists():
                place.unlink()


def forget(name: str) -> None:
    """Remove the folder of a testbed."""
    shutil.rmtree(folder(name), ignore_errors=True)
