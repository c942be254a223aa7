"""Samples per second of training on shaped links, gradients summed by gloo and in the switch.

``python -m benchmarks.training.speed --output docs/results`` makes a testbed of network namespaces for each
rate. A rank on each host trains a character-level transformer by DistributedDataParallel: by gloo, in the
switch, and in 16 bits there, all in turn in the same processes on the same links. ``--sharded`` uses FSDP2
instead, by gloo and in the switch. ``--collectives`` trains nothing: it compares collectives in the switch
with those of gloo and of Open MPI over TCP, and with the links' limit: a rank's link carries the array, or
the shards of all other ranks, in one direction. Needs root and torch; ``--quick`` makes a short trial.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fill import check, console, fill, option, parse_options, print_rows
from benchmarks.pages.real import DELAY_S, RealAllreduce, missing, to_stderr, wire_s
from bmv2_topos.harness import markdown
from bmv2_topos.harness.errors import RunFailed
from bmv2_topos.testbeds import netns
from controller.vocabulary import Job, Link
from controller.vocabulary.catalog import star
from ina.bench.allreduce import Operation
from ina.run.launch.spec import NAMELESS, LaunchSpec
from ina.run.live import WorkerOptions, run_one
from ina.run.switches.testbeds import opened

if TYPE_CHECKING:  # the command can report without torch that it needs it
    import torch

NAME: Final = "benchmarks.training.speed"
GLOO: Final = "gloo"
LIBRARIES: Final = (GLOO, "openmpi")
RATES: Final = (1e9, 1e8)
WINDOW: Final = 1024
"""Packets in flight: 9 ms at 1 Gb/s, a time for which the scheduler may pause a host."""
SIZES: Final = (4 << 10, 1 << 20, 64 << 20)
QUICK: Final = {"turns": 1, "steps": 1, "width": 64, "sizes": (1 << 20,), "iterations": 1}
PASSED: Final = ("turns", "steps", "width")
"""Options with a value that ranks get, too."""

Row = Mapping[str, Any]


def main() -> None:
    """Train, print tables or JSON, and fill a page on request."""
    options = parse_options(
        __doc__,
        option("--sharded", action="store_true", help="train by FSDP2"),
        option("--collectives", action="store_true", help="measure collectives instead of training"),
        option("--hosts", type=int, default=4),
        option("--rates", type=float, nargs="+", default=RATES, metavar="BPS", help="bits/s"),
        option("--turns", type=int, default=7, help="turns of each way to train"),
        option("--steps", type=int, default=3, help="steps of a turn"),
        option("--width", type=int, default=192, help="size of the model; a multiple of 4"),
        option("--sizes", type=int, nargs="+", default=SIZES, help="bytes of the collectives' arrays"),
        option("--libraries", nargs="+", default=LIBRARIES, help="libraries to compare collectives with"),
        option("--iterations", type=int, default=7, help="iterations of each collective"),
        option("--quick", action="store_true", help="make a short trial, whose figures do not count"),
        option("--json", action="store_true", help="print one JSON object"),
        option("--output", type=Path, metavar="DIR", help="fill training.md there, without --sharded"),
        option("--rank", type=Path, metavar="DIR", help=argparse.SUPPRESS),
        prog=NAME,
    )
    if options.rank:
        be_rank(options)
        return
    if why := missing(*(options.libraries if options.collectives else (GLOO,))):
        raise SystemExit(f"{NAME}: {why}")
    page = None if options.output is None else options.output / "training.md"
    if page is not None:
        check(page)
    if options.quick:
        vars(options).update(QUICK)
    if options.collectives:
        cases = itertools.product(options.rates, Operation, options.sizes)
        rows = [move(*case, options) for case in cases]
    else:
        rows = [train(rate_bps, options) for rate_bps in options.rates]
    if options.json:
        print(json.dumps({"rows": rows, "processors": os.cpu_count()}))
    elif options.collectives:
        print_rows(f"collectives on {options.hosts} hosts", rows)
    else:
        shown = tables(rows)
        if page is not None and not options.sharded:
            fill(page, shown)
        console().print(shown, markup=False, highlight=False)


def train(rate_bps: float, options: argparse.Namespace) -> Row:
    """Train on a testbed of this rate. Raises NetnsError, WorkerFailed."""
    load = os.getloadavg()[0]
    topology = star(options.hosts, link=Link("a", "b", rate_bps=rate_bps, delay_s=DELAY_S))
    with (
        netns.temporary(f"training-{os.getpid()}", topology, netns.Program(lanes=256)) as state,
        tempfile.TemporaryDirectory() as folder,
        opened(state) as fabric,
    ):
        given = (f"--{name}={getattr(options, name)}" for name in PASSED)
        command = (sys.executable, "-m", NAME, "--rank", folder, *given, *["--sharded"] * options.sharded)
        job = Job(name=NAMELESS, workers=options.hosts, command=command, slots=2 * WINDOW)
        run_one(fabric, LaunchSpec(job=job), WorkerOptions(on_output=to_stderr))
        ranks = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(options.hosts)]
    return {
        "rate_bps": rate_bps,
        "hosts": options.hosts,
        "parameter_bytes": ranks[0]["parameter_bytes"],
        "load": load,
        "samples_per_s": together(ranks),
        "paths": sorted({path for rank in ranks for path in rank["paths"]}),
    }


def together(ranks: Sequence[Row]) -> dict[str, list[float]]:
    """Return samples per second of all ranks: a turn took as long as its slowest rank."""
    return {
        way: [
            sum(rank["samples"] for rank in ranks) / max(times)
            for times in zip(*(rank["times_s"][way] for rank in ranks), strict=True)
        ]
        for way in ranks[0]["times_s"]
    }


def move(rate_bps: float, operation: Operation, size: int, options: argparse.Namespace) -> Row:
    """Measure a collective of `size` bytes on a testbed of this rate. Raises NetnsError, WorkerFailed."""
    times = RealAllreduce(
        labels={},
        workers=options.hosts,
        rate_bps=rate_bps,
        size_bytes=size,
        iterations=options.iterations,
        window=WINDOW,
        operation=operation,
        beside=tuple(options.libraries),
    ).run()
    taken_s = {name: median(found.times_s) for name, found in times.found.items()}
    moves_all = operation in (Operation.ALLREDUCE, Operation.BROADCAST)
    allowed_s = wire_s(size if moves_all else size // options.hosts * (options.hosts - 1), rate_bps)
    if around := [name for name, seconds in taken_s.items() if seconds < allowed_s]:
        raise RunFailed(
            f"{', '.join(around)} took less than {allowed_s:.3g} s, the least time that the links allow"
        )
    return {
        "operation": operation.value,
        "bytes": size,
        "rate_bps": rate_bps,
        "allowed_s": allowed_s,
        **{f"{name}_s": seconds for name, seconds in taken_s.items()},
        "allowed ÷ ina": allowed_s / taken_s["ina"],
        **{f"{name} ÷ ina": taken_s[name] / taken_s["ina"] for name in options.libraries},
        "load": times.load,
    }


def tables(rows: Sequence[Row]) -> str:
    """Return medians of the turns, and their ratios to gloo's: median, worst and best turn."""
    ways = list(rows[0]["samples_per_s"])
    lines = []
    for row in rows:
        speeds = row["samples_per_s"]
        ratios = (
            sorted(mine / theirs for mine, theirs in zip(speeds[way], speeds[GLOO], strict=True))
            for way in ways[1:]
        )
        lines.append(
            [
                f"{row['rate_bps'] / 1e6:g} Mb/s, {row['hosts']} hosts",
                *(f"{median(speeds[way]):.1f}" for way in ways),
                *(f"**{median(each):.2f}** ({each[0]:.2f}..{each[-1]:.2f})" for each in ratios),
                f"{row['parameter_bytes'] / 1e6:.1f} MB",
                f"{row['load']:.1f}",
            ]
        )
    heads = [*(f"{way}, samples/s" for way in ways), *(f"{way} ÷ {GLOO}" for way in ways[1:])]
    return markdown(["links", *heads, "gradients", "load"], lines)


def be_rank(options: argparse.Namespace) -> None:
    """Train as one rank, and write times, samples, bytes of parameters and the paths of collectives."""
    import torch
    import torch.distributed as dist

    import hostlib
    import hostlib.torch
    from examples import char_transformer

    torch.set_num_threads(1)
    hostlib.init()
    dist.init_process_group(
        "ina", init_method=f"file://{options.rank}/store", rank=hostlib.rank(), world_size=hostlib.size()
    )
    beside = dist.new_group(backend=GLOO)
    meeting = beside if options.sharded else None
    text, symbols = char_transformer.corpus()
    models = _sharded if options.sharded else _replicated
    trained = models(len(symbols), options.width, beside)
    times: dict[str, list[float]] = {way: [] for way in trained}
    for turn in range(options.turns + 1):
        for way, model in trained.items():
            dist.barrier(group=meeting)
            began = time.perf_counter()
            char_transformer.train(text, model, options.steps, turn, lambda step, loss, speed: None)
            if turn:  # the first pays for connections and buffers, and DDP makes its buckets anew
                times[way].append(time.perf_counter() - began)
    rank = {
        "times_s": times,
        "samples": options.steps * char_transformer.BATCH,
        "parameter_bytes": 4 * sum(each.numel() for each in next(iter(trained.values())).parameters()),
        "paths": sorted({path for by_path in hostlib.torch.paths().values() for path in by_path}),
    }
    (options.rank / f"{hostlib.rank()}.json").write_text(json.dumps(rank))
    trained.clear()
    dist.barrier(group=meeting)
    dist.destroy_process_group()
    hostlib.shutdown()


def _replicated(symbols: int, width: int, beside: Any) -> dict[str, torch.nn.Module]:
    """Return a transformer for each way to sum its gradients."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    import hostlib.torch
    from examples.char_transformer import Transformer

    made: dict[str, torch.nn.Module] = {}
    for way, numbers in ((GLOO, None), ("int32", "exponent"), ("block16", "block16")):
        torch.manual_seed(0)
        group = beside if numbers is None else None
        model = DistributedDataParallel(Transformer(symbols, width=width), process_group=group)
        if numbers is not None:
            state = hostlib.torch.BucketState(model, numbers=numbers)  # type: ignore[arg-type]  # one of two literals
            model.register_comm_hook(state, hostlib.torch.bucket_hook)
        made[way] = model
    return made


def _sharded(symbols: int, width: int, beside: Any) -> dict[str, torch.nn.Module]:
    """Return transformers whose blocks, and the rest together, are sharded over the ranks."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    from examples.char_transformer import Transformer

    made: dict[str, torch.nn.Module] = {}
    for way, group in ((GLOO, beside), ("ina", dist.group.WORLD)):
        torch.manual_seed(0)
        model = Transformer(symbols, width=width)
        mesh = DeviceMesh.from_group(group, "cpu", mesh_dim_names=("shard",))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        made[way] = fully_shard(model, mesh=mesh)
    return made


if __name__ == "__main__":
    main()
