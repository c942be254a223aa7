"""``ina bench allreduce``: a collective of one job through real sockets, beside gloo and a bare copy."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from controller.vocabulary import Job
from hostlib.launch import command_line
from hostlib.wire.encodings import Block, why_no_room
from ina.bench import mpi
from ina.bench.allreduce import Dtype, Operation, processor_s, slowest
from ina.bench.loopback import copy_time_s
from ina.cli import options
from ina.cli.declared import Declared
from ina.cli.errors import USAGE, Failure
from ina.cli.live import Live
from ina.cli.plain import Listing, Reply, Result, parse_size, plural, rate, seconds
from ina.cli.run_options import PortKind
from ina.launch.spec import NAMELESS, FabricSpec, LaunchSpec
from ina.service.live import run_alone

FRAME_HEADERS_BYTES = 70  # Ethernet, IPv4, UDP, INA
_LABELS: Final = {
    "ina": "ina (switch)",
    "block16": "ina, 16 bits",
    "block8": "ina, 8 bits",
    "block4": "ina, 4 bits",
    "mpi": "OpenMPI",
    "floor": "bare loopback copy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllreduceSettings:
    """A collective, what it is compared with, and the switch."""

    workers: Annotated[int, Declared(*options.WORKERS, help="Set the number of workers, 1 to 32.")] = 4
    size: Annotated[
        str, Declared(help="Sum arrays of this many bytes, such as 64MB (1MB is 1024 x 1024 bytes).")
    ] = "64MB"
    collective: Annotated[
        Operation,
        Declared(
            help="Measure this collective; --size is of the arrays of all ranks together, where each has a "
            "shard, rounded down to whole shards."
        ),
    ] = Operation.ALLREDUCE
    dtype: Annotated[
        Dtype,
        Declared(help="Sum arrays of this type; int32 needs no exponents, which saves a round trip."),
    ] = Dtype.FLOAT32
    baseline: Annotated[
        str | None,
        Declared(
            metavar="gloo,mpi",
            help="Compare with gloo (torch.distributed in the same processes, alternating) or mpi "
            "(OpenMPI, afterwards), or both: gloo,mpi.",
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
        bool, Declared("--block8", help="Measure 8-bit values, too, of at most 127 workers.")
    ] = False
    block4: Annotated[bool, Declared("--block4", help="Measure 4-bit values, too, of at most 7 workers.")] = (
        False
    )
    port_kind: Annotated[
        PortKind, Declared(help="Connect workers to the switch in this way, as in 'ina run'.")
    ] = PortKind.AUTO
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
        """Whether each rank has a shard: another collective than allreduce."""
        return self.collective is not Operation.ALLREDUCE

    @property
    def baselines(self) -> list[str]:
        """What to compare with."""
        return self.baseline.split(",") if self.baseline else []

    @property
    def blocks(self) -> list[Block]:
        """Encodings with fewer bits that are measured, too."""
        asked: dict[Block, bool] = {"block16": self.block16, "block8": self.block8, "block4": self.block4}
        return [name for name, wanted in asked.items() if wanted]

    def payload(self) -> int:
        """Return the bytes to sum. Raises Failure for settings that contradict each other."""
        if unknown := [name for name in self.baselines if name not in ("gloo", "mpi")]:
            raise Failure(f"--baseline {unknown[0]!r}: want gloo, mpi or gloo,mpi", exit_code=USAGE)
        if "gloo" in self.baselines:
            _require_torch()
        if "mpi" in self.baselines and (why := mpi.missing()):
            raise Failure(why)
        try:
            payload = parse_size(self.size)
        except ValueError as error:
            raise Failure(f"--size {error}", exit_code=USAGE) from error
        if payload < 4:
            raise Failure(f"--size {self.size!r}: one {self.dtype} value takes 4 bytes", exit_code=USAGE)
        least = 4 * self.workers
        if self.moves and payload < least:
            raise Failure(
                f"--size {self.size!r}: {plural(self.workers, 'shard')} take at least {least} bytes",
                exit_code=USAGE,
            )
        if self.blocks and self.dtype is Dtype.INT32:
            raise Failure(
                f"--{self.blocks[0]} needs --dtype float32: int32 values are summed as they are",
                exit_code=USAGE,
            )
        if self.moves and (self.blocks or "mpi" in self.baselines):
            other = f"--{self.blocks[0]}" if self.blocks else "--baseline mpi"
            raise Failure(f"{other} needs --collective allreduce", exit_code=USAGE)
        if why := next(filter(None, (why_no_room(name, self.workers) for name in self.blocks)), None):
            raise Failure(f"-np {self.workers}: {why}", exit_code=USAGE)
        return payload - (payload % least if self.moves else 0)


def allreduce(asked: AllreduceSettings) -> Reply:
    """Measure allreduce, or another collective, through sockets and a switch process on loopback.

    The times are medians of the iterations.

    Examples:
        ina bench allreduce -np 4 --size 64MB --baseline gloo

        ina bench allreduce -np 4 --size 64MB --baseline gloo,mpi --block16

        ina bench allreduce -np 4 --size 4KB --dtype int32 --baseline gloo --json

        ina bench allreduce -np 4 --size 64MB --program shared

        ina bench allreduce -np 4 --size 64MB --collective reduce-scatter --baseline gloo
    """
    payload = asked.payload()
    repeats = asked.iterations or max(5, min(500, (512 << 20) // payload))
    times, processor, resent = _measured(asked, payload, repeats)
    numbers = _numbers(
        times, _floor_s(payload * asked.workers * (1 if asked.moves else 2), asked.lanes), payload
    )
    numbers |= _processor_time(processor, asked.workers, payload)
    numbers["resent_packets"] = resent
    setup: dict[str, object] = {
        "program": asked.program,
        "baseline": asked.baseline,
        "port_kind": asked.port_kind.value,
        "workers": asked.workers,
        "collective": asked.collective.value,
        "size_bytes": payload,
        "dtype": asked.dtype.value,
        "iterations": repeats,
        "lanes": asked.lanes,
        "slots": asked.slots,
    }
    rows = []
    for name in [*times, "floor"]:
        prefix = "" if name == "ina" else f"{name}_"
        median = numbers[f"{prefix}time_s"]
        ratio = "1" if name == "ina" else f"{numbers[f'ratio_vs_{name}']:.2f}"
        busy = numbers.get(f"{prefix}processor_s_per_gb")
        spent = "" if busy is None else f"{busy:.2f} s"
        rows.append((_LABELS.get(name, name), seconds(median), rate(payload * 8 / median), ratio, spent))
    of = f"{asked.collective} of {asked.size} of {asked.dtype}, {plural(asked.workers, 'worker')}"
    columns = ["", "time", "algorithm bandwidth", "time relative to ina", "processor time per worker and GB"]
    table = Listing(f"{of}, {asked.lanes} lanes, median of {repeats}", columns, rows)
    return Reply(Result("bench allreduce", setup, numbers), [table])


def _measured(
    asked: AllreduceSettings, payload: int, repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[float]], float]:
    """Return times and processor times of each way, in seconds, and how many packets were sent again."""
    with tempfile.TemporaryDirectory() as directory:
        command = command_line.module("ina.bench.allreduce", "--bytes", str(payload))
        command += ["--iterations", str(repeats), "--output", directory, "--dtype", asked.dtype.value]
        command += ["--collective", asked.collective.value]
        if "gloo" in asked.baselines:
            command += ["--gloo-store", str(Path(directory) / "store")]
        command += ["--blocks", *asked.blocks] if asked.blocks else []
        job = Job(name=NAMELESS, workers=asked.workers, command=tuple(command), slots=asked.slots)
        fabric = FabricSpec(program=asked.program, lanes=asked.lanes, port_kind=asked.port_kind.value)
        with Live({"": asked.workers}, quiet=True) as live:
            result = run_alone(fabric, LaunchSpec(job=job), on_output=live.output, on_progress=live.update)
        times = slowest(Path(directory), asked.workers)
        processor = processor_s(Path(directory), asked.workers)
        if "mpi" in asked.baselines:
            beside = Path(directory) / "mpi"
            beside.mkdir()
            if why := mpi.run(beside, asked.workers, payload, repeats, asked.dtype):
                raise Failure(why)
            times |= slowest(beside, asked.workers)
            processor |= processor_s(beside, asked.workers)
    resent = sum(report.get("packets_resent", 0.0) for report in result.reports.values())
    return times, processor, resent


def _require_torch() -> None:
    try:
        import torch.distributed  # noqa: F401 - only whether it is there
    except ImportError:
        raise Failure("the gloo baseline needs torch: pip install 'ina[bench]'") from None


def _processor_time(busy: Mapping[str, Sequence[float]], workers: int, payload: int) -> dict[str, float]:
    """Return a worker's processor time per gigabyte summed, for each way."""
    return {
        f"{'' if name == 'ina' else f'{name}_'}processor_s_per_gb": statistics.median(of_all)
        / workers
        * 1e9
        / payload
        for name, of_all in busy.items()
    }


def _floor_s(lane_bytes: int, lanes: int) -> float:
    """Time the frames with these bytes, of all workers' links both ways together, through loopback alone.

    An allreduce has its array on each link up and down; what moves shards has it once on each in the sum.
    """
    packets = -(-lane_bytes // (4 * lanes))
    frame = FRAME_HEADERS_BYTES + 4 * lanes
    return min(copy_time_s(packets * frame, frame) for _ in range(3))


def _numbers(times: dict[str, list[float]], floor: float, payload: int) -> dict[str, float]:
    ina = statistics.median(times["ina"])
    numbers = {
        "time_s": ina,
        "time_min_s": min(times["ina"]),
        "algbw_bps": payload * 8 / ina,
        "floor_time_s": floor,
        "ratio_vs_floor": floor / ina,
    }
    for name in times.keys() - {"ina"}:
        other = statistics.median(times[name])
        numbers |= {
            f"{name}_time_s": other,
            f"{name}_time_min_s": min(times[name]),
            f"{name}_algbw_bps": payload * 8 / other,
            f"ratio_vs_{name}": other / ina,
        }
    return numbers
