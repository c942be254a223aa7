"""``ina bench allreduce``: a collective of one job through real sockets, beside gloo and a bare copy."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from controller.vocabulary import Job
from hostlib.launch import command_line
from hostlib.wire.encodings import Block, why_no_room
from ina.bench import mpi
from ina.bench.allreduce import Dtype, Operation, processor_s, slowest
from ina.bench.loopback import copy_time_s
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.live import Live
from ina.cli.output import table
from ina.cli.plain import Result, parse_size, plural, rate, seconds
from ina.cli.run_options import PortKind
from ina.runtime.fabric_jobs import run_alone
from ina.runtime.spec import NAMELESS, FabricSpec, LaunchSpec

FRAME_HEADERS_BYTES = 70  # Ethernet, IPv4, UDP, INA
_LABELS: Final = {
    "ina": "ina (switch)",
    "block16": "ina, 16 bits",
    "block8": "ina, 8 bits",
    "block4": "ina, 4 bits",
    "mpi": "OpenMPI",
    "floor": "bare loopback copy",
}

EPILOG = """Examples:

  ina bench allreduce -np 4 --size 64MB --baseline gloo

  ina bench allreduce -np 4 --size 64MB --baseline gloo,mpi --block16

  ina bench allreduce -np 4 --size 4KB --dtype int32 --baseline gloo --json

  ina bench allreduce -np 4 --size 64MB --program shared

  ina bench allreduce -np 4 --size 64MB --collective reduce-scatter --baseline gloo
"""


def allreduce(
    workers: Annotated[int, typer.Option(*options.WORKERS, help="Set the number of workers, 1 to 32.")] = 4,
    size: Annotated[
        str, typer.Option(help="Sum arrays of this many bytes, such as 64MB (1MB is 1024 x 1024 bytes).")
    ] = "64MB",
    collective: Annotated[
        Operation,
        typer.Option(
            help="Measure this collective; --size is of the arrays of all ranks together, where each has a "
            "shard, rounded down to whole shards."
        ),
    ] = Operation.ALLREDUCE,
    dtype: Annotated[
        Dtype,
        typer.Option(help="Sum arrays of this type; int32 needs no exponents, which saves a round trip."),
    ] = Dtype.FLOAT32,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="gloo,mpi",
            help="Compare with gloo (torch.distributed in the same processes, alternating) or mpi "
            "(OpenMPI, afterwards), or both: gloo,mpi.",
        ),
    ] = None,
    block16: Annotated[
        bool,
        typer.Option(
            "--block16",
            help="Measure 16-bit values, too, alternating with 32-bit ones (see --numbers of 'ina run').",
        ),
    ] = False,
    block8: Annotated[
        bool, typer.Option("--block8", help="Measure 8-bit values, too, of at most 127 workers.")
    ] = False,
    block4: Annotated[
        bool, typer.Option("--block4", help="Measure 4-bit values, too, of at most 7 workers.")
    ] = False,
    port_kind: Annotated[
        PortKind, typer.Option(help="Connect workers to the switch in this way, as in 'ina run'.")
    ] = PortKind.AUTO,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Measure this many iterations. Default: depends on --size.")
    ] = None,
    program: options.Program = "exclusive",
    lanes: options.Lanes = 256,
    slots: Annotated[
        int | None, typer.Option(min=0, help="Allocate this many aggregator slots, as in 'ina run'.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure allreduce, or another collective, through sockets and a switch process on loopback.

    The times are medians of the iterations.
    """
    baselines = baseline.split(",") if baseline else []
    if unknown := [name for name in baselines if name not in ("gloo", "mpi")]:
        raise Failure(f"--baseline {unknown[0]!r}: want gloo, mpi or gloo,mpi", exit_code=USAGE)
    if "gloo" in baselines:
        _require_torch()
    if "mpi" in baselines and (why := mpi.missing()):
        raise Failure(why)
    try:
        payload = parse_size(size)
    except ValueError as error:
        raise Failure(f"--size {error}", exit_code=USAGE) from error
    if payload < 4:
        raise Failure(f"--size {size!r}: one {dtype} value takes 4 bytes", exit_code=USAGE)
    moves = collective is not Operation.ALLREDUCE
    if moves and payload < 4 * workers:
        raise Failure(
            f"--size {size!r}: {plural(workers, 'shard')} take at least {4 * workers} bytes", exit_code=USAGE
        )
    payload -= payload % (4 * workers) if moves else 0
    asked: dict[Block, bool] = {"block16": block16, "block8": block8, "block4": block4}
    blocks = [name for name, wanted in asked.items() if wanted]
    if blocks and dtype is Dtype.INT32:
        raise Failure(
            f"--{blocks[0]} needs --dtype float32: int32 values are summed as they are", exit_code=USAGE
        )
    if moves and (blocks or "mpi" in baselines):
        other = f"--{blocks[0]}" if blocks else "--baseline mpi"
        raise Failure(f"{other} needs --collective allreduce", exit_code=USAGE)
    if why := next(filter(None, (why_no_room(name, workers) for name in blocks)), None):
        raise Failure(f"-np {workers}: {why}", exit_code=USAGE)
    repeats = iterations or max(5, min(500, (512 << 20) // payload))
    with tempfile.TemporaryDirectory() as directory:
        command = command_line.module("ina.bench.allreduce", "--bytes", str(payload))
        command += ["--iterations", str(repeats), "--output", directory, "--dtype", dtype.value]
        command += ["--collective", collective.value]
        if "gloo" in baselines:
            command += ["--gloo-store", str(Path(directory) / "store")]
        command += ["--blocks", *blocks] if blocks else []
        job = Job(name=NAMELESS, workers=workers, command=tuple(command), slots=slots)
        fabric = FabricSpec(program=program, lanes=lanes, port_kind=port_kind.value)
        with Live({"": workers}, quiet=True) as live:
            result = run_alone(fabric, LaunchSpec(job=job), on_output=live.output, on_progress=live.update)
        times = slowest(Path(directory), workers)
        processor = processor_s(Path(directory), workers)
        if "mpi" in baselines:
            beside = Path(directory) / "mpi"
            beside.mkdir()
            if why := mpi.run(beside, workers, payload, repeats, dtype):
                raise Failure(why)
            times |= slowest(beside, workers)
            processor |= processor_s(beside, workers)
    floor = _floor_s(payload * workers * (1 if moves else 2), lanes)
    numbers = _numbers(times, floor, payload)
    numbers |= _processor_time(processor, workers, payload)
    numbers["resent_packets"] = sum(report.get("packets_resent", 0.0) for report in result.reports.values())
    if json:
        setup: dict[str, int | str | None] = {
            "program": program,
            "baseline": baseline,
            "port_kind": port_kind.value,
            "workers": workers,
            "collective": collective.value,
            "size_bytes": payload,
            "dtype": dtype.value,
            "iterations": repeats,
            "lanes": lanes,
            "slots": slots,
        }
        Result("bench allreduce", setup, numbers).print_json()
        return
    rows = []
    for name in [*times, "floor"]:
        label = _LABELS.get(name, name)
        prefix = "" if name == "ina" else f"{name}_"
        median = numbers[f"{prefix}time_s"]
        ratio = "1" if name == "ina" else f"{numbers[f'ratio_vs_{name}']:.2f}"
        busy = numbers.get(f"{prefix}processor_s_per_gb")
        rows.append(
            (
                label,
                seconds(median),
                rate(payload * 8 / median),
                ratio,
                "" if busy is None else f"{busy:.2f} s",
            )
        )
    table(
        f"{collective} of {size} of {dtype}, {plural(workers, 'worker')}, {lanes} lanes, median of {repeats}",
        ["", "time", "algorithm bandwidth", "time relative to ina", "processor time per worker and GB"],
        rows,
    )


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
