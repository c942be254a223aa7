"""Speed of sharded training on shaped links, beside gloo: FSDP2's samples per second, and its collectives.

``python -m benchmarks.training.sharded.speed [--rates 1e9] [--json]`` makes a testbed of network namespaces
for each rate, a rank on each of its hosts, and has ina and gloo take turns in the same processes on the same
links. Needs root and torch. ``--quick`` tries all of it in short.

A rank's link carries the shards of all other ranks, in one direction: up in a reduce-scatter, down in an
all-gather. What that takes at line rate, headers counted, is what the links allow.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fill import console
from benchmarks.pages.real import RealAllreduce, missing, wire_s
from benchmarks.training import turns
from bmv2_topos.harness import markdown
from ina.bench.allreduce import Operation

if TYPE_CHECKING:  # the command needs no torch to say what it needs
    import torch

GLOO, INA = "gloo", "ina"
WAYS: Final = (GLOO, INA)
OPERATIONS: Final = (Operation.REDUCE_SCATTER, Operation.ALL_GATHER)
RATES: Final = (1e9,)
WINDOW: Final = 1024
"""Packets in flight: 9 ms at 1 Gb/s, for which the scheduler may leave a host out."""
TURNS: Final = 9
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
    parser = turns.parser("benchmarks.training.sharded.speed", __doc__ or "", rates=RATES, turns=TURNS)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, help="MiB of the collectives' arrays")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of each collective")
    parser.add_argument("--quick", action="store_true", help="try all of it in short; no figures to keep")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.rank:
        turns.be_rank(
            options, lambda symbols, beside: _models(symbols, options.width, beside), meet_by_gloo=True
        )
        return
    if why := missing():
        raise SystemExit(f"benchmarks.training.sharded.speed: {why}")
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
    ranks = turns.trained("benchmarks.training.sharded.speed", rate_bps, 2 * WINDOW, options)
    paths = sorted({path for rank in ranks for path in rank["paths"]})
    return Training(rate_bps, options.hosts, ranks[0]["parameter_bytes"], load, turns.together(ranks), paths)


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


def _models(symbols: int, width: int, beside: Any) -> dict[str, torch.nn.Module]:
    import torch.distributed as dist

    groups = {GLOO: beside, INA: dist.group.WORLD}
    return {way: _sharded(symbols, width, groups[way]) for way in WAYS}


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
