"""How fast eight ranks on four machines sum, and how soon they begin.

Machines are network namespaces at one switch, with links of 1 Gb/s; `ina run --hosts` starts two ranks on
each, whose sums are made there first. Needs root. Everything, the switch included, shares the processors of
this machine: its load is printed, and ratios are of runs that take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.fill import asked, option
from benchmarks.pages.real import wire_s
from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns.names import namespace
from controller.vocabulary import Link, Topology
from controller.vocabulary.catalog import star
from controller.vocabulary.files import topology_document
from hostlib.launch import command_line
from ina.bench.allreduce import slowest

MACHINES, RANKS = 4, 8
RATE_BPS = 1e9
LANES = 256
HOSTS = ",".join(f"h{machine + 1}:{RANKS // MACHINES}" for machine in range(MACHINES))
JOINED = "import time, hostlib; hostlib.init(); print(time.time(), flush=True); hostlib.shutdown()"


@dataclass(frozen=True, slots=True)
class Case:
    """A testbed: its switch's program, and the loss of all links of workers."""

    name: str
    program: str
    loss: float = 0.0

    @property
    def shared(self) -> bool:
        """Whether slots are shared, and a fallback server is there."""
        return self.program == "shared"


CASES = (
    Case("exclusive", "exclusive"),
    Case("shared, fallback server", "shared"),
    Case("shared, fallback server, 0.1 % loss", "shared", loss=0.001),
)


class Machines:
    """A running testbed, and what starts jobs on it."""

    def __init__(self, case: Case, name: str, folder: Path) -> None:
        """Use a testbed that is up."""
        self.case = case
        self._name = name
        self._folder = folder
        self._file = folder / "cluster.json"
        self._file.write_text(json.dumps(topology_document(netns.exported(netns.find(name)))))
        self._environment = {
            **os.environ,
            "INA_CLUSTER": str(self._file),
            "INA_TOKEN": secrets.token_hex(32),
            "OMP_NUM_THREADS": "1",
        }

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """Have a fallback server, where one is needed, as long as the context lasts."""
        if not self.case.shared:
            yield
            return
        serve = command_line.ina("fallback", "--serve", "--machine", "p1", "--lanes", str(LANES))
        process = subprocess.Popen(
            self._inside("p1", serve), env=self._environment, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            if "ready" not in process.stdout.readline():
                raise SystemExit("the fallback server has not started")
            yield
        finally:
            process.terminate()
            process.communicate()

    def run(self, *command: str) -> str:
        """Run a job on all machines; return its output. Raises SystemExit with its errors."""
        template = f"ip netns exec {namespace(self._name, '{host}')} {{command}}"
        ina = command_line.ina("run", "--hosts", HOSTS, "--launch-with", template, "--", *command)
        done = subprocess.run(self._inside("h1", ina), env=self._environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{self.case.name}: {done.stderr}")
        return done.stdout

    def _inside(self, host: str, command: list[str]) -> list[str]:
        return ["ip", "netns", "exec", namespace(self._name, host), *command]

    def times_s(self, size_bytes: int, iterations: int) -> list[float]:
        """Return the times of sums of this size, each checked; that of the slowest rank counts."""
        options = ["--bytes", str(size_bytes), "--iterations", str(iterations), "--dtype", "float32"]
        worker = [sys.executable, "-m", "ina.bench.allreduce", *options, "--output", str(self._folder)]
        self.run(*worker)
        return slowest(self._folder, RANKS)["ina"]

    def start_s(self) -> float:
        """Return the time from the command to the moment when the last rank has joined."""
        began = time.time()
        said = self.run(sys.executable, "-c", JOINED)
        return max(float(line.split()[-1]) for line in said.splitlines() if line.startswith("[")) - began


def topology(case: Case) -> Topology:
    """Return the switch with its machines, and the fallback server's machine."""
    made = star(MACHINES, servers=1, link=Link("a", "b", rate_bps=RATE_BPS, loss=case.loss))
    workers = tuple(
        replace(server, gpus=RANKS // MACHINES) if server.name.startswith("h") else server
        for server in made.servers
    )
    reliable = tuple(replace(link, loss=0.0) if "p1" in (link.a, link.b) else link for link in made.links)
    return replace(made, servers=workers, links=reliable)


def main() -> None:
    """Print the table, and the same as JSON."""
    options = asked(
        __doc__,
        option("--bytes", type=int, default=16 << 20, help="Size of an array. Default: 16 MiB."),
        option("--iterations", type=int, default=5, help="Sums in a run. Default: 5."),
        option("--rounds", type=int, default=3, help="Runs of each case, in turns. Default: 3."),
        option("--json", action="store_true", help="Print JSON only."),
    )
    netns.check_here()
    times: dict[str, list[float]] = {case.name: [] for case in CASES}
    starts: list[float] = []
    with contextlib.ExitStack() as stack:
        beds = []
        for number, case in enumerate(CASES):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ina-machines-")))
            name = f"m{os.getpid()}x{number}"
            stack.enter_context(
                netns.standing(name, topology(case), netns.Program(case.program, lanes=LANES))
            )
            machines = Machines(case, name, folder)
            stack.enter_context(machines.served())
            beds.append(machines)
        for _ in range(options.rounds):
            for machines in beds:
                times[machines.case.name] += machines.times_s(options.bytes, options.iterations)
            starts.append(beds[1].start_s())
    report(options, times, starts)


def report(options: argparse.Namespace, times: dict[str, list[float]], starts: list[float]) -> None:
    """Print what was measured."""
    line_s = wire_s(options.bytes, RATE_BPS)
    medians = {name: statistics.median(of) for name, of in times.items()}
    lossless, lossy = (medians[case.name] for case in CASES[1:])
    found = {
        "line_rate": {name: line_s / median for name, median in medians.items()},
        "best_of_line_rate": {name: line_s / min(of) for name, of in times.items()},
        "lossy_of_lossless": lossless / lossy,
        "start_s": starts,
        "times_s": times,
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    if options.json:
        print(json.dumps(found))
        return
    print(
        f"{RANKS} ranks on {MACHINES} machines, 1 Gb/s, {options.bytes / 1e6:.1f} MB, {LANES} lanes; ", end=""
    )
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.0f}")
    print("| | median ms | of line rate | best of line rate |\n| --- | --- | --- | --- |")
    for name, median in medians.items():
        print(f"| {name} | {1e3 * median:.0f} | {line_s / median:.1%} | {line_s / min(times[name]):.1%} |")
    print(f"with loss, of lossless: {lossless / lossy:.1%}")
    print(f"start of the job: {min(starts):.1f} to {max(starts):.1f} s")


if __name__ == "__main__":
    main()
