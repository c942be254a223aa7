"""Runs of an experiment on testbeds of network namespaces, whose results depend on the machine.

Not in virtual time: real processes, the kernel's UDP and TCP, HTB's and the switch's rates.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import ClassVar

from bmv2_topos.harness import ResultRow, RunFailed, Scenario
from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns import bmv2
from bmv2_topos.testbeds.netns.names import interface, namespace
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Link, Topology, float32_bytes
from controller.vocabulary.catalog import star
from hostlib.core.state import RtoLimits
from hostlib.launch import command_line
from hostlib.wire.encodings import Block
from ina.bench.allreduce import Operation
from ina.bench.baselines import LIBRARIES, Baselines, HostPlace
from ina.bench.turns import ContenderTimes, MeasuringTurns, processor_s
from ina.errors import WorkerFailed
from ina.run.launch.spec import NAMELESS, LaunchSpec
from ina.run.live import WorkerOptions, run_one
from ina.run.switches.testbeds import opened

DELAY_S = 2e-6
WINDOW = 512
LANES = 256
FRAME_HEADERS_BYTES = 70  # Ethernet, IPv4, UDP, INA
COALESCE_US = 500
"""Interval at which hosts process packets in virtual time: long, because the links are slow."""
RTO = RtoLimits()


def wire_s(size_bytes: int, rate_bps: float) -> float:
    """Return the time of an array's data packets on a link, payload and headers counted."""
    packets = -(-size_bytes // (4 * LANES))
    return packets * (4 * LANES + FRAME_HEADERS_BYTES) * 8 / rate_bps


def missing(*beside: str, target: str = "embedded") -> str:
    """Return the missing requirement for testbeds of this target and these libraries; "": none."""
    if lacks := next(filter(None, (LIBRARIES[name].missing(name) for name in beside)), None):
        return lacks
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
    """Times of allreduces by ina and by other libraries, which took turns on the same links."""

    of: RealAllreduce
    found: Mapping[str, ContenderTimes]
    """Times by ina, by ina in fewer bits, and by the requested libraries."""
    load: float
    """Load of the machine at the run's start: processes that need a processor, mean over a minute."""
    resent_packets: float
    sent_packets: float
    """All packets that workers sent, also in warm-up and barriers."""
    switch_s: float
    """Processor time of the switch from its first packet to its last, other libraries' included."""


def measured(found: Report | Times) -> ResultRow:
    """Return the columns of a run in virtual time or of real processes: the `measure` of pages of both."""
    if isinstance(found, Report):
        (job,) = found.jobs
        counts = {"resent_packets": job.resent_packets, "sent_packets": job.sent_packets}
        return {"time_s": job.iteration_s[-1], **counts}
    ina = found.found["ina"]
    return {
        **{
            f"{'time' if name == 'ina' else name}_s": median(series.times_s)
            for name, series in found.found.items()
        },
        "processor_s": median(ina.processor_s),
        "best_s": min(ina.times_s),
        "worst_s": max(ina.times_s),
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
    beside: tuple[str, ...] = ("gloo",)
    """Libraries of `LIBRARIES` to measure, too."""
    blocks: tuple[Block, ...] = ()
    """Encodings in fewer bits to measure, too."""
    delay_s: float = DELAY_S
    loss: float = 0.0
    window: int = WINDOW
    lanes: int = LANES
    target: str = "embedded"
    operation: Operation = Operation.ALLREDUCE
    """A function to measure instead, with arrays of that size."""

    real: ClassVar[bool] = True
    """Rows differ between runs."""

    @property
    def missing(self) -> str:
        """The missing requirement for its testbed; "": none."""
        return missing(*self.beside, target=self.target)

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
        """Run it. Raises NetnsError, WorkerFailed."""
        load = os.getloadavg()[0]
        name = f"experiment-{os.getpid()}"
        program = netns.Program(lanes=self.lanes, target=self.target)
        with (
            netns.temporary(name, self.topology(), program) as state,
            tempfile.TemporaryDirectory() as folder,
            opened(state) as fabric,
        ):
            path, others = Path(folder) / "turns", Baselines()
            contenders = [("ina", name) for name in ("ina", *self.blocks)] + [
                (library, library) for library in self.beside
            ]
            turns = MeasuringTurns(path, contenders, self.workers, self.iterations, others.failed)
            before_s = processor_s(state.switches.values())
            words = [f"--bytes={self.size_bytes}", f"--turns={path}", "--dtype=float32"]
            words.append(f"--collective={self.operation.value}")
            blocks = ["--blocks", *self.blocks] if self.blocks else []
            command = command_line.module("ina.bench.allreduce", *words, *blocks)
            job = Job(name=NAMELESS, workers=self.workers, command=tuple(command), slots=2 * self.window)
            places = [
                HostPlace(namespace(name, f"h{1 + at}"), interface(f"h{1 + at}"))
                for at in range(self.workers)
            ]
            with others.started(self.beside, self.workers, words, Path(folder), places), turns:
                try:
                    result = run_one(fabric, LaunchSpec(job=job), WorkerOptions(on_output=to_stderr))
                except WorkerFailed as error:
                    raise (RunFailed(turns.failure) if turns.failure is not None else error) from None
            switch_s = processor_s(state.switches.values()) - before_s
            reports = result.reports.values()
            resent, sent = (
                sum(report[f"packets_{name}"] for report in reports) for name in ("resent", "sent")
            )
        if turns.failure is not None:
            raise RunFailed(turns.failure)
        return Times(self, turns.found, load, resent, sent, switch_s)


def to_stderr(spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
    """Show the output of workers, beside the command's tables."""
    sys.stderr.buffer.write(data)
