"""``ina bench allreduce``: measures a collective through real sockets, also with other libraries."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from controller.vocabulary import Job
from hostlib.launch import command_line
from hostlib.wire.encodings import Block, why_no_room
from ina.bench.allreduce import Dtype, Operation
from ina.bench.baselines import LIBRARIES, Baselines
from ina.bench.turns import ContenderTimes, MeasuringTurns, machine_kind
from ina.cli import options
from ina.cli.command import (
    USAGE,
    Declared,
    Failure,
    Listing,
    Reply,
    Result,
    parse_size,
    plural,
    rate,
    refuse,
    seconds,
)
from ina.cli.execute import Live
from ina.errors import WorkerFailed
from ina.run.launch.spec import NAMELESS, FabricSpec, LaunchSpec, PortKind
from ina.run.live import WorkerOptions, run_one
from ina.run.switches.fabric import open_fabric

_LABELS: Final = {
    "ina": "ina (switch)",
    "block16": "ina, 16 bits",
    "block8": "ina, 8 bits",
    "block4": "ina, 4 bits",
    **{name: library.title for name, library in LIBRARIES.items()},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllreduceSettings:
    """Options of 'ina bench allreduce': a collective, the libraries to compare with, and the switch."""

    workers: Annotated[int, Declared(*options.WORKERS, min=1, help="Set the number of workers, 1 to 32.")] = 4
    size: Annotated[
        str, Declared(help="Sum arrays of this many bytes, such as 64MB (1MB is 1024 x 1024 bytes).")
    ] = "64MB"
    collective: Annotated[
        Operation,
        Declared(
            help="Measure this collective. If each rank gives or gets one shard, --size is the size of all "
            "shards together, rounded down so that all shards are equal."
        ),
    ] = Operation.ALLREDUCE
    dtype: Annotated[
        Dtype,
        Declared(help="Sum arrays of this type; int32 needs no exponents, which saves a round trip."),
    ] = Dtype.FLOAT32
    baseline: Annotated[
        str | None,
        Declared(
            metavar="gloo,openmpi,mpich",
            help="Compare with these libraries, each in processes of its own, in turns: gloo "
            "(torch.distributed), openmpi, mpich.",
        ),
    ] = None
    block16: Annotated[
        bool,
        Declared(
            "--block16",
            help="Measure 16-bit values, too, alternating with 32-bit ones (see --numbers of 'ina run').",
        ),
    ] = False
    block8: Annotated[
        bool, Declared("--block8", help="Measure 8-bit values, too, for up to 127 workers.")
    ] = False
    block4: Annotated[bool, Declared("--block4", help="Measure 4-bit values, too, for up to 7 workers.")] = (
        False
    )
    port_kind: Annotated[
        PortKind, Declared(help="Connect workers to the switch in this way, as in 'ina run'.")
    ] = "auto"
    iterations: Annotated[
        int | None, Declared(min=1, help="Measure this many iterations. Default: depends on --size.")
    ] = None
    program: options.Program = "exclusive"
    lanes: options.Lanes = 256
    slots: Annotated[
        int | None, Declared(min=0, help="Allocate this many aggregator slots, as in 'ina run'.")
    ] = None

    @property
    def moves(self) -> bool:
        """True for collectives other than allreduce, for which each rank has a shard of the array."""
        return self.collective is not Operation.ALLREDUCE

    @property
    def baselines(self) -> list[str]:
        """Names of the libraries to compare with."""
        return self.baseline.split(",") if self.baseline else []

    @property
    def blocks(self) -> list[Block]:
        """Encodings to measure besides 32-bit values: some of block16, block8 and block4."""
        flags: dict[Block, bool] = {"block16": self.block16, "block8": self.block8, "block4": self.block4}
        return [name for name, wanted in flags.items() if wanted]

    def payload(self) -> int:
        """Return the size of the array in bytes. Raises Failure for options that contradict each other."""
        if unknown := [name for name in self.baselines if name not in LIBRARIES]:
            raise Failure(f"--baseline {unknown[0]!r}: want some of {','.join(LIBRARIES)}", exit_code=USAGE)
        if lacking := [why for name in self.baselines if (why := LIBRARIES[name].missing(name))]:
            raise Failure(lacking[0])
        payload = parse_size("--size", self.size)
        refuse(payload < 4, f"--size {self.size!r}: want 4 bytes or more, one {self.dtype} value")
        least = 4 * self.workers
        refuse(
            self.moves and payload < least,
            f"--size {self.size!r}: {plural(self.workers, 'shard')} take at least {least} bytes",
        )
        if self.blocks and self.dtype is Dtype.INT32:
            raise Failure(
                f"--{self.blocks[0]} needs --dtype float32: int32 values are summed without encoding",
                exit_code=USAGE,
            )
        if self.moves and self.blocks:
            raise Failure(f"--{self.blocks[0]} needs --collective allreduce", exit_code=USAGE)
        if why := next(filter(None, (why_no_room(name, self.workers) for name in self.blocks)), None):
            raise Failure(f"-np {self.workers}: {why}", exit_code=USAGE)
        return payload - (payload % least if self.moves else 0)


def allreduce(asked: AllreduceSettings) -> Reply:
    """Measure allreduce, or another collective, through sockets and a switch process on loopback.

    Times are medians over the iterations. Processor times are of all ranks together, and of the switch. All
    iterations sum the same values under the same name, as training does with a gradient: the exponents are
    known from the iteration before.

    Examples:
        ina bench allreduce -np 4 --size 64MB --baseline gloo

        ina bench allreduce -np 4 --size 64MB --baseline gloo,openmpi,mpich --block16

        ina bench allreduce -np 4 --size 4KB --dtype int32 --baseline gloo --json

        ina bench allreduce -np 4 --size 64MB --program shared

        ina bench allreduce -np 4 --size 64MB --collective reduce-scatter --baseline gloo
    """
    payload = asked.payload()
    repeats = asked.iterations or max(5, min(500, (512 << 20) // payload))
    here = machine_kind()
    found, resent = _measured(asked, payload, repeats)
    numbers = _numbers(found, payload) | {"resent_packets": resent}
    setup: dict[str, object] = {
        "program": asked.program,
        "baseline": asked.baseline,
        "port_kind": asked.port_kind,
        "workers": asked.workers,
        "collective": asked.collective.value,
        "size_bytes": payload,
        "dtype": asked.dtype.value,
        "iterations": repeats,
        "lanes": asked.lanes,
        "slots": asked.slots,
        "machine": here,
    }
    rows = []
    for name in found:
        prefix = "" if name == "ina" else f"{name}_"
        median = numbers[f"{prefix}time_s"]
        ratio = "1" if name == "ina" else f"{numbers[f'ratio_vs_{name}']:.2f}"
        spent = [numbers.get(f"{prefix}{of}processor_s") for of in ("", "switch_")]
        cells = ["" if of is None else seconds(of) for of in spent]
        rows.append((_LABELS.get(name, name), seconds(median), rate(payload * 8 / median), ratio, *cells))
    of = f"{asked.collective} of {asked.size} of {asked.dtype}, {plural(asked.workers, 'worker')}"
    where = f"{here['processor']}, {here['processors']} processors, load {here['load']:.1f}"
    columns = ["", "time", "algorithm bandwidth", "time relative to ina", "processor time: ranks", "switch"]
    table = Listing(f"{of}, {asked.lanes} lanes, median of {repeats}; {where}", columns, rows)
    return Reply(Result("bench allreduce", setup, numbers), [table])


def _measured(
    settings: AllreduceSettings, payload: int, repeats: int
) -> tuple[dict[str, ContenderTimes], float]:
    """Return each contender's measurements, and the number of packets sent again."""
    names: list[str] = ["ina", *settings.blocks]
    contenders = [("ina", name) for name in names] + [(name, name) for name in settings.baselines]
    baselines = Baselines()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "turns"
        turns = MeasuringTurns(path, contenders, settings.workers, repeats, baselines.failed)
        words = ["--bytes", str(payload), "--turns", str(path), "--dtype", settings.dtype.value]
        words += ["--collective", settings.collective.value]
        command = command_line.module("ina.bench.allreduce", *words)
        command += ["--blocks", *settings.blocks] if settings.blocks else []
        job = Job(name=NAMELESS, workers=settings.workers, command=tuple(command), slots=settings.slots)
        fabric_spec = FabricSpec(program=settings.program, lanes=settings.lanes, port_kind=settings.port_kind)
        spec = LaunchSpec(job=job)
        with contextlib.ExitStack() as stack:
            fabric = stack.enter_context(open_fabric(fabric_spec, [spec.children]))
            turns.switches = [process.pid for process in fabric.processes.values()]
            stack.enter_context(baselines.started(settings.baselines, settings.workers, words, path.parent))
            stack.enter_context(turns)
            live = stack.enter_context(Live({"": settings.workers}, quiet=True))
            try:
                result = run_one(fabric, spec, WorkerOptions(on_output=live.output), live.update)
            except WorkerFailed:
                if turns.failure is None:
                    raise
                raise Failure(turns.failure) from None
    if turns.failure is not None:
        raise Failure(turns.failure)
    return turns.found, sum(report.get("packets_resent", 0.0) for report in result.reports.values())


def _numbers(found: Mapping[str, ContenderTimes], payload: int) -> dict[str, float]:
    ina_s = statistics.median(found["ina"].times_s)
    numbers: dict[str, float] = {}
    for name, of in found.items():
        prefix, median = "" if name == "ina" else f"{name}_", statistics.median(of.times_s)
        numbers |= {
            f"{prefix}time_s": median,
            f"{prefix}time_min_s": min(of.times_s),
            f"{prefix}algbw_bps": payload * 8 / median,
            f"{prefix}processor_s": statistics.median(of.processor_s),
        }
        if name != "ina":
            numbers[f"ratio_vs_{name}"] = median / ina_s
        if name not in LIBRARIES:
            numbers[f"{prefix}switch_processor_s"] = statistics.median(of.switch_s)
    return numbers
