"""A cluster for tests: two racks of machines, each a network namespace with its own host name and files.

Machines share nothing but the Python sources and the switches' P4Runtime sockets: ``/dev/shm`` and the
folder for a user's own files are each machine's own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns.names import namespace
from bmv2_topos.testbeds.netns.namespaces import FOLDER, processes
from controller import connect
from controller.vocabulary import Topology
from controller.vocabulary.catalog import named
from controller.vocabulary.files import topology_document
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.command import FAMILY, ROOT, children

NO_NAMESPACES = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
NETNS = [pytest.mark.netns, pytest.mark.skipif(bool(NO_NAMESPACES), reason=NO_NAMESPACES)]
"""Marks of tests that need network namespaces."""
TOKEN = "a secret of all machines"
ANOTHER_VERSION = "import importlib.metadata as m; m.version = lambda name, of=m.version: of(name) + '.post9'"
"""Gives a process, as its ``sitecustomize``, another version of the package."""
_NUMBERS = itertools.count()
_PATIENT_INA = """
from ina.cli import main
from ina.run.launch import agents
from ina.run.fallback import remote as remote_fallback
agents.HANG_S = remote_fallback.PATIENCE_S = 300.0
main()
"""


def needs_namespaces(test: Any) -> Any:
    """Mark a test, as `NETNS` marks all of a module."""
    for mark in NETNS:
        test = mark(test)
    return test


@dataclass(frozen=True)
class Cluster:
    """Four machines ``h1`` to ``h4`` in two racks, and ``p1`` for the fallback server; a root above."""

    state: netns.State
    file: Path
    private: Path
    enter: Path
    """Script that runs a command on a machine."""
    holders: Mapping[str, int]
    """By machine: the process that keeps its host name and files."""
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    served: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    """By machine: its fallback server."""
    family: str = field(default_factory=lambda: os.environ.get(FAMILY, ""))
    """Of whoever has made the cluster: fallback servers outlive the test that asks for one first."""

    def on(self, machine: str) -> list[str]:
        """Return the prefix of a command on a machine."""
        return ["sh", str(self.enter), machine]

    @property
    def template(self) -> str:
        """Return what ``--launch-with`` gets."""
        return f"sh {self.enter} {{host}} {{command}}"

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment of whoever starts something."""
        own = {
            "INA_CLUSTER": str(self.file),
            "INA_TOKEN": TOKEN,
            "OMP_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "1",
        }
        return {**os.environ, **own, "XDG_RUNTIME_DIR": str(self.private), "INA_MEETING_S": "120"}

    def start(
        self, machine: str, command: Sequence[str], variables: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command on a machine."""
        process = subprocess.Popen(
            [*self.on(machine), *command],
            cwd=ROOT,
            env=self.variables | (variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def run(self, hosts: str, command: Sequence[str], *options: str) -> subprocess.Popen[str]:
        """Start ``ina run`` on the first machine."""
        ina = [sys.executable, "-m", "ina", "run", "--hosts", hosts, "--launch-with", self.template]
        return self.start("h1", [*ina, *options, "--", *command])

    def run_patiently(self, hosts: str, command: Sequence[str], *options: str) -> subprocess.Popen[str]:
        """Start an ``ina run`` that is to succeed however slow the machine is: nobody is taken for lost."""
        ina = [sys.executable, "-c", _PATIENT_INA, "run", "--hosts", hosts, "--launch-with", self.template]
        return self.start("h1", [*ina, "--timeout", "300", *options, "--", *command])

    def serve_fallback(self, machine: str = "p1") -> subprocess.Popen[str]:
        """Start ``ina fallback --serve`` on a machine unless it serves there; return once it does."""
        if process := self.served.get(machine):
            if process.poll() is None:
                return process
            assert process.returncode == -signal.SIGKILL, process.communicate()
        command = [sys.executable, "-m", "ina", "fallback", "--serve", "--lanes", "32"]
        process = self.served[machine] = self.start(machine, command, {FAMILY: self.family})
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        assert json.loads(line)["ready"]["machine"] == machine
        return process

    @contextlib.contextmanager
    def serving_on(self, machine: str) -> Iterator[None]:
        """Serve a fallback server on a machine with workers, the only one that the cluster file names."""
        written = self.file.read_text()
        document = json.loads(written)
        for server in document["server"]:
            if server["name"] == machine:
                server["fallback_port"] = 9560
        gone = [each["name"] for each in document["server"] if each.get("role") == "fallback"]
        document["server"] = [each for each in document["server"] if each["name"] not in gone]
        document["link"] = [each for each in document["link"] if not {each["a"], each["b"]} & {*gone}]
        self.file.write_text(json.dumps(document))
        self.serve_fallback(machine)
        try:
            yield
        finally:
            self.file.write_text(written)
            del self.served[machine]

    def jobs(self) -> list[int]:
        """Return the jobs on all switches."""
        found: set[int] = set()
        for switch in self.state.topology.ports:
            with connect(f"unix:{self.state.socket(switch)}") as controller:
                found.update(controller.jobs())
        return sorted(found)

    def signal_machine(self, machine: str, number: int, *, but: Sequence[int] = ()) -> None:
        """Send a signal to every process of a machine, but for some."""
        for process in self.processes(machine):
            if process not in (*but, self.holders[machine]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)

    def processes(self, machine: str) -> list[int]:
        """Return the processes of a machine."""
        found = (FOLDER / namespace(self.state.name, machine)).stat()
        return list(processes([(found.st_dev, found.st_ino)]))

    def cable(self, machine: str, state: str) -> None:
        """Cut the cable of a machine (``down``), or plug it in (``up``)."""
        topology = self.state.topology
        rack = topology.rack_of[machine]
        self.ip(rack, "link", "set", f"{rack}-eth{topology.port_to(rack, machine)}", state)

    def ip(self, node: str, *arguments: str) -> None:
        """Run iproute2's ``ip`` on a machine or a switch."""
        command = ["ip", "-n", namespace(self.state.name, node), *arguments]
        subprocess.run(command, check=True, capture_output=True)

    def mentioning(self, machine: str, text: str) -> list[int]:
        """Return the processes of a machine in whose command a text is."""
        return [
            process
            for process in self.processes(machine)
            if text.encode() in b" ".join(arguments(process)) and process != self.holders[machine]
        ]

    def end_all(self, *, also_served: bool = False) -> None:
        """End what was started and still runs, but for switches and, unless asked to, fallback servers."""
        served = [each for each in self.served.values() if not also_served and each.poll() is None]
        kept = [pid for each in served for pid in (each.pid, *children(each.pid))]
        for machine in self.holders:
            self.signal_machine(machine, signal.SIGKILL, but=kept)
        for process in self.running:
            if process not in served:
                process.kill()
                process.communicate()
        self.running[:] = served


@contextlib.contextmanager
def cluster(
    folder: Path,
    program: str = "shared",
    gpus: int = 1,
    shape: Topology | None = None,
    target: str = "embedded",
) -> Iterator[Cluster]:
    """Make one, for as long as the context lasts.

    `gpus` is how many workers a machine takes; another `shape` than the two racks may be given, and another
    `target` than the embedded switch.
    """
    name = f"t{os.getpid()}-{next(_NUMBERS)}"
    private = Path(tempfile.mkdtemp(prefix="ina"))  # short: Unix sockets are made below it
    racks = shape or named("two-racks:2")
    servers = [replace(each, gpus=min(gpus, gpus * each.gpus)) for each in racks.servers]
    described = folder / "racks.json"
    described.write_text(json.dumps(topology_document(replace(racks, name="racks", servers=tuple(servers)))))
    up = ("topo", "up", str(described), "--name", name, "--program", program, "--lanes", "32")
    up += ("--target", target)
    subprocess.run([sys.executable, "-m", "ina", *up], check=True, capture_output=True)
    state = netns.find(name)
    holders = {}
    try:
        (
            groups := folder / "cgroup"
        ).mkdir()  # `ip netns exec` makes a /sys without them, and slurmd wants them
        own = f"mount -t tmpfs none {private} && mount -t tmpfs none /dev/shm"
        own = f"{own} && mount --rbind {groups} /sys/fs/cgroup"
        for server in state.topology.servers:
            script = f"{own} && hostname {server.name} && echo ready && exec sleep 100000"
            network = f"ip netns exec {namespace(name, server.name)}"
            outer = f"mount --rbind /sys/fs/cgroup {groups} && exec {network} sh -c '{script}'"
            inside = ["unshare", "--mount", "--uts", "sh", "-c", outer]
            holders[server.name] = subprocess.Popen(inside, stdout=subprocess.PIPE)
        for machine, holder in holders.items():
            assert holder.stdout.readline() == b"ready\n", machine
            for known in (machine, state.topology.ip(machine)):
                (folder / f"{known}.pid").write_text(f"{holder.pid}")
        enter = folder / "enter"
        enter.write_text(
            f'machine=$1; shift; here=$(pwd)\nexec nsenter -t "$(cat {folder}/"$machine".pid)" -m -u -n '
            'sh -c \'cd "$0" && exec "$@"\' "$here" "$@"\n'
        )
        file = folder / "cluster.json"
        file.write_text(json.dumps(topology_document(netns.cluster_topology(state))))
        found = Cluster(state, file, private, enter, {name: each.pid for name, each in holders.items()})
        try:
            yield found
        finally:
            found.end_all(also_served=True)
    finally:
        for holder in holders.values():
            holder.kill()
            holder.communicate()
        netns.down(name)
        private.rmdir()


def arguments(process: int) -> list[bytes]:
    """Return the arguments of a process; none if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
