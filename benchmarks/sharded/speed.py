"""Speed of sharded training on shaped links, beside gloo: FSDP2's samples per second, and its collectives.

``python -m benchmarks.sharded.speed [--rates 1e9] [--json]`` makes a testbed of network namespaces for each
rate, a rank on each of its hosts, and has ina and gloo take turns in the same processes on the same links.
Needs root and torch. ``--quick`` tries all of it in short.

A rank's link carries the shards of all other ranks, in one direction: up in a reduce-scatter, down in an
all-gather. What that takes at line rate, headers counted, is what the links allow.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fill import console
from benchmarks.pages.real import DELAY_S, RealAllreduce, missing, wire_s
from benchmarks.training import together
from bmv2_topos.harness import markdown
from bmv2_topos.testbeds import netns
from controller.vocabulary import Job, Link
from controller.vocabulary.catalog import star
from ina.bench.allreduce import Operation
from ina.runtime.jobs import JobEnd, run_jobs
from ina.runtime.spec import NAMELESS, LaunchSpec
from ina.runtime.testbed_fabric import opened

if TYPE_CHECKING:  # the command needs no torch to say what it needs
    import torch

GLOO, INA = "gloo", "ina"
WAYS: Final = (GLOO, INA)
OPERATIONS: Final = (Operation.REDUCE_SCATTER, Operation.ALL_GATHER)
HOSTS, RATES = 4, (1e9,)
WINDOW: Final = 1024
"""Packets in flight: 9 ms at 1 Gb/s, for which the scheduler may leave a host out."""
TURNS, STEPS, WIDTH = 9, 3, 192
MEGABYTES, ITERATIONS = 64, 7
QUICK: Final = {"turns": 1, "steps": 1, "width": 64, "megabytes": 4, "iterations": 1}


@dataclass(frozen=True, slots=True)
class Training:
    """FSDP2 on links of one rate."""

    rate_bps: float
    hosts: int
    parameter_bytes: int
    load: float
    """Processes that wanted a processor as the run began, averaged over a minute."""
    samples_per_s: Mapping[str, Sequence[float]]
    """Of all ranks together, by way, turn by turn."""
    paths: Sequence[str]
    """The ways that collectives of the training took with "ina"."""

    @property
    def ratio(self) -> float:
        """The median over turns of ina's speed by gloo's."""
        return statistics.median(self._ratios())

    def shown(self) -> list[str]:
        """Return the row of the table."""
        speeds = [f"{statistics.median(self.samples_per_s[way]):.1f}" for way in WAYS]
        ratios = self._ratios()
        ratio = f"**{self.ratio:.2f}** ({min(ratios):.2f}..{max(ratios):.2f})"
        links = f"{self.rate_bps / 1e6:g} Mb/s, {self.hosts} hosts"
        size = f"{self.parameter_bytes / 1e6:.1f} MB"
        return [links, size, *speeds, ratio, ", ".join(self.paths), f"{self.load:.1f}"]

    def _ratios(self) -> list[float]:
        mine, theirs = self.samples_per_s[INA], self.samples_per_s[GLOO]
        return [one / other for one, other in zip(mine, theirs, strict=True)]


@dataclass(frozen=True, slots=True)
class Moved:
    """A collective on links of one rate."""

    operation: str
    rate_bps: float
    hosts: int
    size_bytes: int
    """Of the arrays of all ranks together, where each has a shard."""
    allowed_s: float
    """What the links allow."""
    load: float
    ina_s: Sequence[float]
    gloo_s: Sequence[float]

    @property
    def share(self) -> float:
        """The share of what the links allow, by the median."""
        return self.allowed_s / statistics.median(self.ina_s)

    @property
    def ratio(self) -> float:
        """The median of gloo's times by that of ina's."""
        return statistics.median(self.gloo_s) / statistics.median(self.ina_s)

    def shown(self) -> list[str]:
        """Return the row of the table."""
        links = f"{self.rate_bps / 1e6:g} Mb/s, {self.hosts} hosts"
        times = [f"{1e3 * statistics.median(of):.1f}" for of in (self.ina_s, self.gloo_s)]
        best = f"{self.allowed_s / min(self.ina_s):.1%}"
        least = f"{1e3 * self.allowed_s:.1f}"
        size = f"{self.size_bytes >> 20} MiB"
        shares = [f"**{self.share:.1%}**", best, f"{self.ratio:.2f}"]
        return [links, self.operation, size, least, *times, *shares, f"{self.load:.1f}"]


def main() -> None:
    """Measure, and print tables or JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks.sharded.speed", description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, metavar="BPS", help="bits/s")
    parser.add_argument("--turns", type=int, default=TURNS, help="of each way to train")
    parser.add_argument("--steps", type=int, default=STEPS, help="of a turn")
    parser.add_argument("--width", type=int, default=WIDTH, help="size of the model; a multiple of 4")
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, help="MiB of the collectives' arrays")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of each collective")
    parser.add_argument("--quick", action="store_true", help="try all of it in short; no figures to keep")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rank", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        _be_rank(options)
        return
    if why := missing():
        raise SystemExit(f"benchmarks.sharded.speed: {why}")
    if options.quick:
        vars(options).update(QUICK)
    trained = [train(rate_bps, options) for rate_bps in options.rates]
    moved = [move(each, rate_bps, options) for rate_bps in options.rates for each in OPERATIONS]
    if options.json:
        rows = [asdict(row) | {"ratio": row.ratio} for row in trained]
        more = [asdict(row) | {"share": row.share, "ratio": row.ratio} for row in moved]
        print(json.dumps({"training": rows, "collectives": more, "processors": os.cpu_count()}))
        return
    heads = ["links", "parameters", "gloo, samples/s", "ina, samples/s", "ina ÷ gloo", "paths", "load"]
    console().print(markdown(heads, [row.shown() for row in trained]), markup=False, highlight=False)
    heads = [
        "links",
        "collective",
        "arrays",
        "links allow, ms",
        "ina, ms",
        "gloo, ms",
        "share of that",
        "best",
    ]
    heads += ["gloo's time ÷ ina's", "load"]
    console().print("\n" + markdown(heads, [row.shown() for row in moved]), markup=False, highlight=False)


def train(rate_bps: float, options: argparse.Namespace) -> Training:
    """Train on a testbed of that rate. Raises LiveError, WorkerFailed."""
    load = os.getloadavg()[0]
    name = f"sharded-{os.getpid()}"
    topology = star(options.hosts, link=Link("a", "b", rate_bps=rate_bps, delay_s=DELAY_S))
    state = netns.up(name, topology, netns.Program(lanes=256))
    try:
        with tempfile.TemporaryDirectory() as folder, opened(state) as fabric:
            given = [f"--{key}={getattr(options, key)}" for key in ("turns", "steps", "width")]
            command = [sys.executable, "-m", "benchmarks.sharded.speed", "--rank", folder, *given]
            job = Job(name=NAMELESS, workers=options.hosts, command=tuple(command), slots=2 * WINDOW)
            end = JobEnd(LaunchSpec(job=job))
            run_jobs(fabric, [end], on_output=_to_stderr)
            end.check()
            ranks = [json.loads((Path(folder) / f"{r}.json").read_text()) for r in range(options.hosts)]
    finally:
        netns.down(name)
    paths = sorted({path for rank in ranks for path in rank["paths"]})
    return Training(rate_bps, options.hosts, ranks[0]["parameter_bytes"], load, together(ranks), paths)


def move(operation: Operation, rate_bps: float, options: argparse.Namespace) -> Moved:
    """Measure a collective on a testbed of that rate. Raises LiveError, WorkerFailed."""
    size = options.megabytes << 20
    times = RealAllreduce(
        labels={},
        workers=options.hosts,
        rate_bps=rate_bps,
        size_bytes=size,
        iterations=options.iterations,
        window=WINDOW,
        operation=operation,
    ).run()
    others = size // options.hosts * (options.hosts - 1)
    allowed_s = wire_s(others, rate_bps)
    found = (allowed_s, times.load, tuple(times.ina_s), tuple(times.gloo_s))
    return Moved(operation.value, rate_bps, options.hosts, size, *found)


def _to_stderr(spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
    sys.stderr.buffer.write(data)


def _be_rank(options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    import hostlib
    import hostlib.torch
    from examples import char_transformer

    torch.set_num_threads(1)
    hostlib.init()
    store = f"file://{options.rank}/store"
    dist.init_process_group("ina", init_method=store, rank=hostlib.rank(), world_size=hostlib.size())
    beside = dist.new_group(backend="gloo")
    text, symbols = char_transformer.corpus()
    models = {
        way: _sharded(len(symbols), options.width, beside if way == GLOO else dist.group.WORLD)
        for way in WAYS
    }
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(options.turns + 1):
        for way, model in models.items():
            dist.barrier(group=beside)
            began = time.perf_counter()
            char_transformer.train(text, model, options.steps, turn, lambda step, loss, speed: None)
            if turn:  # the first pays for connections and buffers
                times[way].append(time.perf_counter() - began)
    taken = hostlib.torch.paths()
    rank = {
        "times_s": times,
        "samples": options.steps * char_transformer.BATCH,
        "parameter_bytes": 4 * sum(each.numel() for each in models[GLOO].parameters()),
        "paths": sorted({path for by_path in taken.values() for path in by_path}),
    }
    (options.rank / f"{hostlib.rank()}.json").write_text(json.dumps(rank))
    models.clear()
    dist.barrier(group=beside)
    dist.destroy_process_group()
    hostlib.shutdown()


def _sharded(symbols: int, width: int, group: Any) -> torch.nn.Module:
    """Return a transformer whose blocks, and the rest together, are sharded over a group's ranks."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    from examples.char_transformer import Transformer

    torch.manual_seed(0)
    model = Transformer(symbols, width=width)
    mesh = DeviceMesh.from_group(group, "cpu", mesh_dim_names=("shard",))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


if __name__ == "__main__":
    main()
