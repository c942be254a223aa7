"""A testbed of namespaces, a controller on it, and faults of both."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns.names import interface, namespace, prefix
from bmv2_topos.testbeds.netns.namespaces import existing
from bmv2_topos.testbeds.netns.serving import await_service, start_switch
from controller.interrupts import exit_on_signals
from controller.vocabulary.lists import by_key
from ina.run.client import Client

ROOT = Path(__file__).parents[2]
SPINES, LEAVES = ("s1", "s2"), ("s3", "s4")
RATE_BPS = 100e6
"""Rate of all links: slow, so that two cores suffice for all switches and hosts."""
SIZE_BYTES = 100_000
"""Size of a gradient."""
SIZES = {"embedded": SIZE_BYTES, "bmv2": 10_000}
"""The same by the kind of switches: BMv2 takes a few thousand packets a second, of 32 values each."""
SLOTS = 256
"""Slots of each switch: few, so that slots for deadlines are missing for other jobs."""
CLUSTER = "\n".join(
    [
        'name = "two racks under two spines"',
        f"link_defaults = {{ rate_bps = {RATE_BPS:g} }}",
        *(f'[[switch]]\nname = "{switch}"\nslots = {SLOTS}' for switch in (*SPINES, *LEAVES)),
        *(
            f'[[server]]\nname = "{name}"\ncount = 4\nswitch = "{leaf}"\ngpus = 1'
            for name, leaf in zip(("left", "right"), LEAVES, strict=True)
        ),
        *(
            f'[[server]]\nname = "{name}"\nswitch = "{spine}"\ngpus = 0'
            for name, spine in zip(("sums1", "sums2"), SPINES, strict=True)
        ),
        *(f'[[link]]\na = "{spine}"\nb = "{leaf}"' for spine in SPINES for leaf in LEAVES),
    ]
)
"""Two servers with sums only, one at each spine: any tree has a fallback server at its root."""
POLICIES: Mapping[str, str] = {
    "scheduler": "fifo",
    "placement": "netpack",
    "routing": "shortest-path",
    "memory": "deadline",
}
"""Policies of both, the service and the simulation."""
PERIOD_S = 60.0
"""Interval at which both divide memory again."""
TICK_S = 0.02
UP_S = 900.0
"""Longest time for a testbed to be made: p4c may compile its program."""
PATIENCE_S = 120.0
"""Longest time for a controller to serve, and for a command to end."""


class TrialFailed(Exception):
    """An event that a trial needs did not happen; the text names it."""


def until(holds: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds. Raises TrialFailed, with `what` did not happen."""
    give_up_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > give_up_s:
            raise TrialFailed(f"not within {within_s:g} s: {what}")
        time.sleep(TICK_S)


def command(*words: object, within_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    """Run ``ina words…`` to its end, in the folder of the clone."""
    return subprocess.run(
        [sys.executable, "-m", "ina", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=within_s,
        stdin=subprocess.DEVNULL,
    )


def commands() -> Mapping[int, str]:
    """Return the command lines of all processes, by number."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found[int(folder.name)] = " ".join(words).strip()
    return found


@dataclass(slots=True)
class Controller:
    """``ina controller`` as a process: started, killed, started again on the same state.

    Attributes:
        folder: The folder for its state, its socket and its log.
        testbed: The name of the testbed that it controls.
        policies: The names of its policies by kind.
        period_s: Interval at which it divides memory again.
    """

    folder: Path
    testbed: str
    policies: Mapping[str, str] = field(default_factory=lambda: POLICIES)
    period_s: float = PERIOD_S
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def process(self) -> int | None:
        """Its process; None: it does not run, or has ended."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    @property
    def url(self) -> str:
        """The address of its API."""
        return f"unix:{self.folder / 'api'}"

    def start(self) -> None:
        """Start it, and wait until it serves. Raises TrialFailed."""
        options = [word for kind, name in self.policies.items() for word in (f"--{kind}", name)]
        with (self.folder / "controller.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ina", "controller", "--state", str(self.folder / "state")),
                    *("--testbed", self.testbed, "--listen", self.url),
                    *("--period", str(self.period_s), *options),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._serves, f"the controller serves; see {self.folder / 'controller.log'}")

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE_S)
            self._process = None

    def _serves(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            log = (self.folder / "controller.log").read_text()
            raise TrialFailed(f"the controller has ended with {self._process.returncode}: {log[-2000:]}")
        path = str(self.folder / "api")
        with contextlib.suppress(OSError, httpx.HTTPError):
            with socket.socket(socket.AF_UNIX) as probe:  # httpx leaves one open if no process listens
                probe.connect(path)
            with httpx.Client(transport=httpx.HTTPTransport(uds=path)) as client:
                return client.get("http://localhost/readyz").is_success
        return False


@dataclass(slots=True)
class Testbed:
    """A testbed that is up."""

    name: str
    _again: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)

    @property
    def state(self) -> netns.State:
        """Its topology, and its processes."""
        return netns.find(self.name)

    def switch_process(self, switch: str) -> int:
        """Return the process of a switch."""
        again = self._again.get(switch)
        return self.state.switches[switch] if again is None else again.pid

    def restart_switch(self, switch: str, down_s: float) -> None:
        """Kill a switch, and start it again, empty, after `down_s` seconds. Raises StepFailed."""
        state = self.state
        process = self.switch_process(switch)
        argv = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        if switch in self._again:
            self._again[switch].kill()
            self._again[switch].wait()
        else:
            os.kill(process, signal.SIGKILL)
        time.sleep(down_s)
        if argv[:3] != ["ip", "netns", "exec"]:  # the process of `ip` has become it
            argv = ["ip", "netns", "exec", namespace(self.name, switch), *argv]
        self._again[switch] = started = start_switch(argv, state.log(switch))
        await_service(switch, started, state.socket(switch), state.log(switch))

    def set_link(self, node: str, neighbour: str, to: str) -> None:
        """Set the port of a switch to a neighbour up or down."""
        port = interface(node, self.state.topology.port_to(node, neighbour))
        subprocess.run(["ip", "-n", namespace(self.name, node), "link", "set", port, to], check=True)

    def processes(self) -> dict[str, list[str]]:
        """Return the command lines of the processes at each server."""
        servers = [server.name for server in self.state.topology.servers]
        listing = {name: ("ip", "netns", "pids", namespace(self.name, name)) for name in servers}
        found = {
            name: subprocess.run(argv, capture_output=True, text=True).stdout.split()
            for name, argv in listing.items()
        }
        lines = commands()
        pairs = ((name, int(process)) for name, processes in found.items() for process in processes)
        return by_key((name, lines[process]) for name, process in pairs if process in lines)

    def reap(self) -> None:
        """End the restarted switches, which are children of this process."""
        for process in self._again.values():
            process.kill()
            process.wait()


@contextlib.contextmanager
def opened_testbed(name: str, cluster: Path, target: str) -> Iterator[Testbed]:
    """Run a testbed of the program `shared` on switches of a kind for the time of the block.

    Raises TrialFailed.
    """
    options = ("--name", name, "--program", "shared", "--target", target)
    testbed = Testbed(name)
    with exit_on_signals():
        try:
            done = command("topo", "up", cluster, *options, within_s=UP_S)
            if done.returncode:
                raise TrialFailed(f"ina topo up: {done.stderr.strip()}")
            yield testbed
        finally:
            testbed.reap()
            gone = command("topo", "down", name)
    if left := existing(prefix(name)):
        raise TrialFailed(f"ina topo down: there still is {', '.join(left)}: {gone.stderr.strip()}")


@contextlib.contextmanager
def running(controller: Controller) -> Iterator[None]:
    """Run a controller for the time of the block. Jobs that still run at its end are cancelled."""
    controller.start()
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception), Client(controller.url, timeout_s=10) as client:
            for job in client.jobs():
                if not job["over"]:
                    client.cancel(job["name"])
        raise
    finally:
        controller.end()
