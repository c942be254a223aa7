"""Virtual time beside ns-3: the same flows on the same network, their results and their times.

``python -m benchmarks.speed.beside_ns3 [--hosts 8] [--seconds 0.01]`` needs a C++ compiler and ns-3's headers
(Debian: ``apt install g++ libns3-dev``). Every host of a rack sends at 2 Gb/s to the host of the same number
in the next rack, over links of 10 Gb/s and one spine: with 4 hosts a rack nothing is lost, with 8 the links
between switches carry all that they can. ns-3 forwards by its IPv4 stack; the switches here run
``shared.p4``, compiled, which looks for packets to sum before it forwards. A packet hop is a packet that
passes a link.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.fill import asked, console, option
from bmv2_topos.harness.rows import markdown
from bmv2_topos.testbeds.virtual import Flow, Placement, VirtualSettings, VirtualTestbed
from controller.vocabulary import Job, Link, leaf_spine

RACKS: Final = 8
RATE_BPS: Final = 2e9
QUEUE: Final = 100
LIBRARIES: Final = (
    "internet",
    "applications",
    "point-to-point",
    "traffic-control",
    "network",
    "stats",
    "core",
)


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a run."""

    arrived: int
    hops: int
    processor_s: float
    seconds: float
    """Of virtual time."""


def main() -> None:
    """Run the command."""
    given = asked(
        __doc__,
        option("--hosts", type=int, nargs="*", default=[4, 8], help="of a rack (default: 4 and 8)"),
        option("--seconds", type=float, default=0.01, help="of virtual time (default: 0.01)"),
        prog="benchmarks.speed.beside_ns3",
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for hosts in given.hosts:
            ours = run(hosts, given.seconds)
            theirs = run_ns3(program, hosts, ours.seconds)
            faster = ours.hops / ours.processor_s / (theirs.hops / theirs.processor_s)
            for name, ran in (("ns-3", theirs), ("ina", ours)):
                speed = f"{ran.hops / ran.processor_s / 1e6:.2f}"
                rows.append(
                    [f"{hosts}", name, f"{ran.arrived}", f"{ran.hops}", f"{ran.processor_s:.2f}", speed]
                )
            rows[-1].append(f"{faster:.1f}")
            rows[-2].append("1")
    headings = ["hosts of a rack", "by", "packets arrived", "packet hops", "processor time, s"]
    console().print(
        markdown([*headings, "million hops a second", "times ns-3's"], rows), markup=False, highlight=False
    )


def build(folder: Path) -> Path:
    """Compile the program for ns-3. Raises CalledProcessError if that fails, OSError without a compiler."""
    program = folder / "beside_ns3"
    source = Path(__file__).with_suffix(".cc")
    libraries = [f"-lns3-{name}" for name in LIBRARIES]
    subprocess.run(["g++", "-std=c++17", "-O2", "-o", str(program), str(source), *libraries], check=True)
    return program


def run_ns3(program: Path, hosts: int, seconds: float) -> Ran:
    """Run the flows there."""
    given = (f"--racks={RACKS}", f"--hosts={hosts}", f"--rate={RATE_BPS}", f"--queue={QUEUE}")
    done = subprocess.run(
        [str(program), *given, f"--seconds={seconds}"], check=True, capture_output=True, text=True
    )
    return Ran(**json.loads(done.stdout), seconds=seconds)


def run(hosts: int, seconds: float) -> Ran:
    """Run the flows here, beside a job of one worker that computes and sends nothing meanwhile."""
    count = RACKS * hosts
    topology = leaf_spine(1, RACKS, hosts, servers=1, link=Link("a", "b", queue_packets=QUEUE))
    flows = [
        Flow(
            source=f"h{number + 1}",
            target=f"h{(number + hosts) % count + 1}",
            rate_bps=RATE_BPS,
            start_s=100e-9 * number,
        )
        for number in range(count)
    ]
    job = Job(name="none", workers=1, iterations=1, layers_bytes=(4,), compute_s=seconds)
    testbed = VirtualTestbed(
        topology, [job], [Placement(("h1",), "p1")], VirtualSettings(samples=0), flows=flows
    )
    began = time.process_time()
    report = testbed.run()
    processor_s = time.process_time() - began
    return Ran(
        sum(flow.arrived_packets for flow in report.flows), report.packet_hops, processor_s, report.duration_s
    )


if __name__ == "__main__":
    main()
