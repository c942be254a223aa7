"""Runs of an experiment on testbeds of network namespaces: what the machine decides.

Not in virtual time: real processes, the kernel's UDP and TCP, HTB's and the switch's rates.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from bmv2_topos.harness import ResultRow, Scenario
from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import bmv2
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Link, Topology, float32_bytes
from controller.vocabulary.catalog import star
from hostlib.core.state import RtoLimits
from hostlib.launch import command_line
from hostlib.wire.encodings import Block
from ina.bench.allreduce import Operation, processor_s, slowest
from ina.launch.spec import NAMELESS, LaunchSpec
from ina.service.live import WorkerOptions, run_one
from ina.switches.testbeds import opened

DELAY_S = 2e-6
WINDOW = 512
LANES = 256
FRAME_HEADERS_BYTES = 70  # Ethernet, IPv4, UDP, INA
COALESCE_US = 500
"""Hosts look at their packets so often in virtual time: seldom, for the links are slow."""
RTO = RtoLimits()


def wire_s(size_bytes: int, rate_bps: float) -> float:
    """Return how long the data packets of an array take on a link, payload and headers counted."""
    packets = -(-size_bytes // (4 * LANES))
    return packets * (4 * LANES + FRAME_HEADERS_BYTES) * 8 / rate_bps


def _processor_s(processes: Iterable[int]) -> float:
    """Return the processor time that processes have used."""
    fields = [Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split() for process in processes]
    return sum(int(of[11]) + int(of[12]) for of in fields) / os.sysconf("SC_CLK_TCK")


def missing(*, gloo: bool = True, target: str = "embedded") -> str:
    """Return why testbeds of this target cannot be made here, or gloo not be asked; empty if they can."""
    if gloo and find_spec("torch") is None:
        return "gloo's ring needs torch: pip install 'ina[bench]'"
    if target == "bmv2" and (lacking := bmv2.missing()):
        return f"BMv2 needs {lacking}"
    try:
        netns.check_here()
    except netns.MissingRequirement as error:
        return str(error)
    return ""


def in_virtual_time(
    real: RealAllreduce,
    labels: ResultRow,
    *,
    rto: RtoLimits = RTO,
    coalesce_us: int = COALESCE_US,
    seed: int = 0,
    iterations: int = 1,
) -> Scenario:
    """Return one of the same allreduces in virtual time, by default with real workers' time-outs."""
    job = Job(
        name="job",
        workers=real.workers,
        window=real.window,
        iterations=iterations,
        layers_bytes=float32_bytes((real.size_bytes // 4,)),
        compute_s=0.0,
    )
    (link, *_) = real.topology().links
    settings = VirtualSettings(
        program="exclusive",
        lanes=real.lanes,
        slots=2 * real.window,
        rto=rto,
        coalesce_us=coalesce_us,
        seed=seed,
        samples=0,
    )
    return Scenario(labels=labels, jobs=(job,), settings=settings, link=link)


@dataclass(frozen=True, slots=True)
class Times:
    """Times of allreduces by ina and by gloo, which took turns in the same processes on the same links."""

    of: RealAllreduce
    ina_s: Sequence[float]
    gloo_s: Sequence[float]
    """Empty if it was not asked for."""
    blocks_s: Mapping[Block, Sequence[float]]
    """By ina in fewer bits, those that were asked for."""
    processor_s: Sequence[float]
    """Of all workers together, by ina's allreduces; not the switch's."""
    load: float
    """Load of the machine when the run began: processes that want a processor, averaged over a minute."""
    resent_packets: float
    sent_packets: float
    """Packets that workers sent in all, of warming up and barriers, too."""
    switch_s: float
    """Processor time of the switch from its first packet to its last, gloo's included."""


def measured(found: Report | Times) -> ResultRow:
    """Return the columns of a run in virtual time or of real processes: the `measure` of pages of both."""
    if isinstance(found, Report):
        (job,) = found.jobs
        counts = {"resent_packets": job.resent_packets, "sent_packets": job.sent_packets}
        return {"time_s": job.iteration_s[-1], **counts}
    times: dict[str, Sequence[float]] = {
        "time": found.ina_s,
        "processor": found.processor_s,
        "gloo": found.gloo_s,
        **{str(block): of for block, of in found.blocks_s.items()},
    }
    return {
        **{f"{name}_s": median(of) for name, of in times.items() if of},
        "best_s": min(found.ina_s),
        "worst_s": max(found.ina_s),
        "load": found.load,
        "resent_packets": found.resent_packets,
        "sent_packets": found.sent_packets,
        "switch_s": found.switch_s,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RealAllreduce:
    """Allreduces of one job, a worker on each host of one switch, in network namespaces."""

    labels: ResultRow
    workers: int
    rate_bps: float
    size_bytes: int
    iterations: int
    gloo: bool = True
    blocks: tuple[Block, ...] = ()
    """Encodings in fewer bits to measure, too."""
    delay_s: float = DELAY_S
    loss: float = 0.0
    window: int = WINDOW
    lanes: int = LANES
    target: str = "embedded"
    operation: Operation = Operation.ALLREDUCE
    """What is measured in its place, of arrays of that size."""

    @property
    def real(self) -> bool:
        """True."""
        return True

    @property
    def missing(self) -> str:
        """What keeps its testbed from being made here."""
        return missing(gloo=self.gloo, target=self.target)

    @property
    def elements(self) -> int:
        """Elements that all workers send."""
        return self.workers * self.iterations * self.size_bytes // 4

    @property
    def packets(self) -> int:
        """Data packets of all workers per allreduce."""
        return self.workers * -(-self.size_bytes // (4 * self.lanes))

    def topology(self) -> Topology:
        """Return the testbed: one switch."""
        link = Link("a", "b", rate_bps=self.rate_bps, delay_s=self.delay_s, loss=self.loss)
        return star(self.workers, link=link)

    def run(self) -> Times:
        """Run it. Raises LiveError, WorkerFailed."""
        load = os.getloadavg()[0]
        name = f"experiment-{os.getpid()}"
        program = netns.Program(lanes=self.lanes, target=self.target)
        with (
            netns.temporary(name, self.topology(), program) as state,
            tempfile.TemporaryDirectory() as folder,
            opened(state) as fabric,
        ):
            command = tuple(self._command(folder))
            job = Job(name=NAMELESS, workers=self.workers, command=command, slots=2 * self.window)
            before_s = _processor_s(state.switches.values())
            result = run_one(fabric, LaunchSpec(job=job), WorkerOptions(on_output=to_stderr))
            switch_s = _processor_s(state.switches.values()) - before_s
            reports = result.reports.values()
            resent, sent = (
                sum(report[f"packets_{name}"] for report in reports) for name in ("resent", "sent")
            )
            times, busy = (of(Path(folder), self.workers) for of in (slowest, processor_s))
        return Times(
            of=self,
            ina_s=times["ina"],
            gloo_s=times.get("gloo", ()),
            blocks_s={block: times[block] for block in self.blocks},
            processor_s=busy["ina"],
            load=load,
            resent_packets=resent,
            sent_packets=sent,
            switch_s=switch_s,
        )

    def _command(self, folder: str) -> list[str]:
        store = ["--gloo-store", f"{folder}/store"] if self.gloo else []
        sizes = ["--bytes", str(self.size_bytes), "--iterations", str(self.iterations), "--dtype", "float32"]
        sizes += ["--collective", self.operation.value]
        blocks = ["--blocks", *self.blocks] if self.blocks else []
        return command_line.module("ina.bench.allreduce", *sizes, "--output", folder, *store, *blocks)


def to_stderr(spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
    """Show the output of workers: what the command itself prints is its tables."""
    sys.stderr.buffer.write(data)
