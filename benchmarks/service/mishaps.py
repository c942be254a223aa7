"""Mishaps of a controller, its switches, links, jobs and disk in the soak of real processes.

Each mishap is a method of `Mishaps`; it repairs its damage a few seconds later, or at the end.

Sizes of processes, and the remains of jobs when all are over.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from benchmarks.service.live import ROOT, SIZE_BYTES, Controller, Testbed, commands
from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns.testbed import controllers
from controller import Fleet
from controller.errors import ControllerError, NoSuchJob
from ina.run.client import Client, Refused, Unreachable
from ina.run.launch.files import process_of

T = TypeVar("T")

MOST_FILES = 8
"""File descriptors that a process at rest may have more than a new one: streams that are not yet closed."""
MOST_MEMORY = 1.5
"""Most memory of a process at rest, relative to a new one."""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a process: open files, threads, and resident memory in KiB."""

    files: int
    threads: int
    memory_kib: int


def size_of(process: int) -> Size | None:
    """Return the size of a process; None if it has ended."""
    folder = Path(f"/proc/{process}")
    with contextlib.suppress(OSError, KeyError):
        fields = dict(re.findall(r"^(\w+):\s*(\d+)", (folder / "status").read_text(), flags=re.M))
        return Size(len([*(folder / "fd").iterdir()]), int(fields["Threads"]), int(fields["VmRSS"]))
    return None


def grown(name: str, rests: Size, new: Size) -> Iterator[str]:
    """Yield the excess sizes of a process at rest, compared with a new one on the same state."""
    if rests.files > new.files + MOST_FILES:
        yield f"{name} has {rests.files} files open at rest, and {new.files} when it is new"
    if rests.memory_kib > MOST_MEMORY * new.memory_kib:
        yield f"{name} holds {rests.memory_kib} KiB at rest, and {new.memory_kib} KiB when it is new"


def fallback_servers(testbed: str, server: str = "") -> list[int]:
    """Return the processes of the fallback servers at the servers of a testbed, or at one."""
    wanted = f"-m ina.run.fallback.testbed {testbed} {server}"
    return [number for number, line in commands().items() if wanted in line]


def left_of_jobs(testbed: Testbed, state: Path, own: int | None) -> list[str]:
    """Return the names of all remains on switches, at servers and in the state when there is no job.

    Args:
        testbed: The testbed.
        state: The controller's state.
        own: The controller's process.
    """
    found = [f"{server}: process {line}" for server, lines in testbed.processes().items() for line in lines]
    found += [
        f"process {number}: {line}"
        for number, line in commands().items()
        if str(state) in line and number != own and "benchmarks.service" not in line
    ]
    with controllers(testbed.state) as at:
        found += [f"switches have job {job}" for job in Fleet(at).read()]
    if (runs := state / "runs").exists():
        found += [f"the folder of run {each.name}" for each in runs.iterdir()]
    with contextlib.closing(sqlite3.connect(f"file:{state}/state.sqlite?mode=ro", uri=True)) as database:
        found += [f"the row of run {run}" for (run,) in database.execute("SELECT run FROM holds")]
    return found


MOST_GOING = 10
"""Most unfinished jobs; above it none are submitted."""
BURST = 12
"""Jobs of a burst, most of which are cancelled at once."""
KINDS = {
    "submit": (10, 30),
    "burst": (1, 2),
    "duplicate": (2, 3),
    "nonsense": (1, 3),
    "absent": (1, 2),
    "endless": (1, 0),
    "cancel": (2, 4),
    "cancel at once": (3, 4),
    "retry": (1, 0),
    "kill controller": (2, 3),
    "kill controller at a step": (8, 0),
    "stop controller": (0, 2),
    "stop switch": (3, 2),
    "restart switch": (3, 3),
    "half a write": (4, 0),
    "cut link": (5, 4),
    "kill runner": (3, 3),
    "kill worker": (0, 2),
    "kill fallback": (3, 2),
    "forget job": (0, 3),
    "stops hang": (1, 0),
    "calls hang": (2, 0),
    "starts fail": (2, 0),
    "fill disk": (2, 2),
    "clock": (2, 0),
    "drain": (3, 3),
    "policies": (2, 0),
    "quota": (2, 3),
    "slow reader": (1, 2),
    "look": (0, 6),
    "cluster": (0, 0),
}
"""All kinds of mishaps of a controller, each with its relative frequencies in virtual time
(`tests.ina.run.mishaps`) and with real processes; 0: it does not happen there, or only in some tests."""

NONSENSE: tuple[tuple[str, object], ...] = (
    ("workers", 0),
    ("workers", 10_000),
    ("command", ""),
    ("deadline_s", -1),
    ("color", "red"),
)
"""Keys and values that a job cannot have."""


@dataclass(slots=True)
class Expected:
    """The soak's knowledge of a job that it has submitted.

    Attributes:
        fails: Whether it may fail: a worker was killed, or never joined.
        sums: Whether its workers sum; a burst's workers do not.
    """

    fails: bool = False
    sums: bool = True


class NotNow(Exception):
    """A mishap cannot happen now: there is nothing that it could happen to."""


class Wrong(Exception):
    """The controller has answered a request, or ended a job, otherwise than it must; the text says how."""


@dataclass(slots=True)
class Mishaps:
    """Causes faults of a testbed and its controller, and remembers the pending repairs."""

    testbed: Testbed
    controller: Controller
    client: Client
    folder: Path
    rng: random.Random
    size_bytes: int = SIZE_BYTES
    expected: dict[str, Expected] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _repairs: dict[str, tuple[float, Callable[[], None]]] = field(default_factory=dict)
    """Time and function of each pending repair, by what it repairs."""
    _readers: list[socket.socket] = field(default_factory=list)
    _number: int = 0

    def one(self) -> None:
        """Cause a random mishap."""
        name = self.rng.choices([*KINDS], [real for _, real in KINDS.values()])[0]
        with (self.folder / "mishaps.log").open("a") as log:
            log.write(f"{datetime.now(UTC):%H:%M:%S.%f} {name}\n")
        try:
            getattr(self, "_" + name.replace(" ", "_"))()
            self.happened[name] += 1
        except NotNow:
            pass
        except Refused as error:
            if error.status not in (404, 409, 503):  # it is over by now, or the disk is full
                self.wrong.append(f"{name}: {error.status}: {error}")
        except (Wrong, Unreachable, ControllerError, netns.NetnsError) as error:
            self.wrong.append(f"{name}: {error}")

    def mend(self, *, all_of_it: bool = False) -> None:
        """Make the due repairs, or all, in the order of their times."""
        for what, (at_s, repair) in sorted(self._repairs.items(), key=lambda each: each[1][0]):
            if all_of_it or at_s <= time.monotonic():
                repair()
                del self._repairs[what]

    def close(self) -> None:
        """End the connections of readers."""
        for reader in self._readers:
            reader.close()

    def _after(self, least_s: float, most_s: float, what: str, repair: Callable[[], None]) -> None:
        self._repairs[what] = (time.monotonic() + self.rng.uniform(least_s, most_s), repair)

    def _one_of(self, found: Collection[T]) -> T:
        """Return a random item. Raises NotNow if there is none."""
        if not found:
            raise NotNow
        return self.rng.choice([*found])

    # ------------------------------------------------------------------ jobs

    def _going(self) -> list[str]:
        return [job["name"] for job in self.client.jobs(states=["queued", "running"])]

    def _submit(self, *, absent: bool = False) -> str:
        """Submit a job, and return its name; `absent`: one of its workers never joins."""
        if len(self._going()) >= MOST_GOING:
            raise NotNow
        self._number += 1
        name, iterations = f"j{self._number}", self.rng.randint(5, 120)
        saved = self.folder / "saved" / name
        job: dict[str, object] = {
            "name": name,
            "workers": 2 if absent else self.rng.randint(1, 4),
            "iterations": iterations,
            "compute_s": 0.05,
            "model_bytes": self.size_bytes,
            "command": f"{sys.executable} -m benchmarks.service.worker --iterations {iterations}"
            f" --compute 0.05 --bytes {self.size_bytes} --saved {saved} --marks {saved}.marks"
            + " --absent"
            * absent,
            "extra": {"folder": str(ROOT)},
        }
        if self.rng.random() < 0.3:
            job |= {"deadline_s": self.rng.uniform(60, 300), "on_late": "best-effort"}
        self.expected[name] = Expected(fails=absent)
        try:
            self.client.submit([job], key=name)
        except Refused:
            del self.expected[name]
            raise
        return name

    def _absent(self) -> None:
        self._submit(absent=True)

    def _cancel(self) -> None:
        self.client.cancel(self._one_of(self._going()))

    def _cancel_at_once(self) -> None:
        name = self._submit()
        time.sleep(self.rng.uniform(0.0, 1.0))  # its switches, fallback server or workers are being started
        self.client.cancel(name)

    def _burst(self) -> None:
        names = [f"j{self._number + at}" for at in range(1, 1 + BURST)]
        self._number += BURST
        jobs = [{"name": name, "workers": 1, "command": "sleep 0.1", "iterations": 1} for name in names]
        self.client.submit(jobs)
        self.expected |= {name: Expected(sums=False) for name in names}
        for name in names[2:]:
            with contextlib.suppress(Refused):  # it has ended
                self.client.cancel(name)

    def _duplicate(self) -> None:
        name = self._one_of(self.expected)
        if self.client.job(name)["over"]:
            raise NotNow
        self._refused({"name": name, "workers": 1, "command": "true"}, f"a second job {name}", 404, 409)

    def _nonsense(self) -> None:
        key, value = self.rng.choice(NONSENSE)
        job = {"name": "nonsense", "workers": 1, "command": "true", key: value}
        self._refused(job, f"{key} = {value!r}", 422)

    def _refused(self, job: Mapping[str, object], what: str, *statuses: int) -> None:
        """Submit a job. Raises Wrong unless it is refused with one of these statuses."""
        try:
            self.client.submit([job])
        except Refused as error:
            if error.status not in statuses:
                raise Wrong(f"{what}: {error.status}: {error}") from error
        else:
            raise Wrong(f"{what} was accepted")

    # ------------------------------------------------------------------ processes

    def _kill_controller(self) -> None:
        self.controller.end(signal.SIGKILL)
        time.sleep(self.rng.uniform(0.0, 3.0))
        self._free_disk()  # it refuses to start on a full one
        self.controller.start()

    def _stop_controller(self) -> None:
        process = self.controller.process
        assert process is not None
        os.kill(process, signal.SIGSTOP)
        time.sleep(self.rng.uniform(1.0, 5.0))
        os.kill(process, signal.SIGCONT)

    def _kill_runner(self) -> None:
        runs = (self.folder / "state" / "runs").glob("*")
        self._kill([process for each in runs if (process := process_of(each)) is not None])

    def _kill_fallback(self) -> None:
        self._kill(fallback_servers(self.testbed.state.name))

    def _kill_worker(self) -> None:
        marks = f"--saved {self.folder / 'saved'}/"
        found = {
            number: line.partition(marks)[2].split()[0]
            for number, line in commands().items()
            if marks in line and "benchmarks.service.worker" in line
        }
        number = self._kill([number for number, name in found.items() if name in self.expected])
        self.expected[found[number]].fails = True

    def _kill(self, alive: Collection[int]) -> int:
        """Kill one of these processes, and return its number. Raises NotNow if there is none."""
        process = self._one_of(alive)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        return process

    # ------------------------------------------------------------------ switches and links

    def _restart_switch(self) -> None:
        self.testbed.restart_switch(
            self._intact(self.testbed.state.topology.switch), self.rng.uniform(0.2, 6.0)
        )

    def _stop_switch(self) -> None:
        switch = self._intact(self.testbed.state.topology.switch)
        process = self.testbed.switch_process(switch)
        os.kill(process, signal.SIGSTOP)
        self._after(1.0, 8.0, switch, lambda: os.kill(process, signal.SIGCONT))

    def _intact(self, names: Iterable[str]) -> str:
        """Return a random name among those that wait for no repair. Raises NotNow if there is none."""
        return self._one_of([name for name in names if name not in self._repairs])

    def _cut_link(self) -> None:
        topology = self.testbed.state.topology
        links = {f"link {link.a}-{link.b}": link for link in topology.links}
        name = self._intact(links)
        end = links[name].a if links[name].a in topology.switch else links[name].b
        other = links[name].other(end)
        self.testbed.set_link(end, other, "down")
        self._after(0.5, 15.0, name, lambda: self.testbed.set_link(end, other, "up"))

    def _forget_job(self) -> None:
        """Remove a job from its switches without the controller."""
        if self._repairs.keys() & self.testbed.state.topology.switch.keys():
            raise NotNow
        with controllers(self.testbed.state) as at, contextlib.suppress(NoSuchJob):  # it has ended since
            fleet = Fleet(at)
            fleet.remove(self._one_of(fleet.read().values()))

    # ------------------------------------------------------------------ the rest

    def _drain(self) -> None:
        topology = self.testbed.state.topology
        what = self._intact(f"drain {name}" for name in (*topology.server, *topology.switch))
        name = what.removeprefix("drain ")
        self.client.drain(name)
        self._after(2.0, 15.0, what, lambda: self._undrain(name))

    def _undrain(self, name: str) -> None:
        until_s = time.monotonic() + 60.0
        while True:
            try:
                self.client.drain(name, back=True)
                return
            except (Refused, Unreachable) as error:  # the disk is full
                if time.monotonic() > until_s:
                    self.wrong.append(f"undrain {name}: {error}")
                    return
                time.sleep(0.5)
                self._free_disk()

    def _quota(self) -> None:
        if self.rng.random() < 0.5 and (quotas := self.client.quotas()):
            self.client.remove_quota(quotas[0]["tenant"])
            return
        tenant = self._one_of(self.client.jobs())["tenant"] or "nobody"
        self.client.set_quota(tenant, gpus=self.rng.randint(4, 8), reserved=self.rng.randint(0, 4))

    @property
    def _ballast(self) -> Path:
        return self.folder / "state" / "ballast"

    def _fill_disk(self) -> None:
        disk = self._intact(["disk"])
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        self._after(1.0, 8.0, disk, self._free_disk)

    def _free_disk(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def _slow_reader(self) -> None:
        """Request all events, and read none of them."""
        reader = socket.socket(socket.AF_UNIX)
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(self.controller.url.removeprefix("unix:"))
        reader.sendall(b"GET /v1/events?after=0&follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self._readers.append(reader)

    def _look(self) -> None:
        """Send the page's requests."""
        self.client.cluster()
        self.client.memory()
        for job in self.client.jobs(states=["running"])[:3]:
            self.client.explain(job["name"])
            self.client.log(job["name"], 0, -4096)
        self.client.audit()
