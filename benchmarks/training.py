"""Samples per second of training on shaped links, gradients summed by gloo, in the switch, in 16 bits there.

`python -m benchmarks.training --output docs/results` makes a testbed of network namespaces for each rate, and
has a rank on each of its hosts train a character-level transformer, all ways in turn. Needs root and torch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fill import check, fill
from benchmarks.pages.real import DELAY_S, missing
from bmv2_topos.harness import markdown
from bmv2_topos.testbeds import netns
from controller.vocabulary import Job, Link
from controller.vocabulary.catalog import star
from ina.runtime.jobs import JobEnd, run_jobs
from ina.runtime.spec import NAMELESS, LaunchSpec
from ina.runtime.testbed_fabric import opened

if TYPE_CHECKING:  # the page needs no torch
    import torch

GLOO, INT32, BLOCK16 = "gloo", "int32", "block16"
WAYS: Final = (GLOO, INT32, BLOCK16)
RATES: Final = (1e9, 1e8)
HOSTS: Final = 4
TURNS, STEPS, WIDTH = 7, 3, 192
SLOTS: Final = 2048
"""For 1024 packets in flight: 9 ms at 1 Gb/s, for which the scheduler may leave a host out."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """One rate: samples per second over all ranks, turn by turn, and bytes of the gradients."""

    rate_bps: float
    hosts: int
    gradient_bytes: int
    load: float
    """Processes that wanted a processor as the run began, averaged over a minute."""
    samples_per_s: dict[str, list[float]]


def main() -> None:
    """Train, print a table, and write a page on request."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, metavar="BPS", help="bits/s")
    parser.add_argument("--turns", type=int, default=TURNS, help="of each way")
    parser.add_argument("--steps", type=int, default=STEPS, help="of a turn")
    parser.add_argument("--width", type=int, default=WIDTH, help="size of the model; a multiple of 4")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write training.md and .json")
    parser.add_argument("--rank", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        _be_rank(options)
        return
    if why := missing():
        raise SystemExit(f"benchmarks.training: {why}")
    if options.output:
        check(options.output / "training.md")
    rows = [measure(rate_bps, options) for rate_bps in options.rates]
    if options.output:
        write(options.output, rows)
    print(tables(rows))


def measure(rate_bps: float, options: argparse.Namespace) -> Speeds:
    """Train on a testbed of that rate. Raises LiveError, WorkerFailed."""
    load = os.getloadavg()[0]
    name = f"training-{os.getpid()}"
    topology = star(options.hosts, link=Link("a", "b", rate_bps=rate_bps, delay_s=DELAY_S))
    state = netns.up(name, topology, netns.Program(lanes=256))
    try:
        with tempfile.TemporaryDirectory() as folder, opened(state) as fabric:
            given = [f"--{key}={getattr(options, key)}" for key in ("turns", "steps", "width")]
            command = [sys.executable, "-m", "benchmarks.training", "--rank", folder, *given]
            job = Job(name=NAMELESS, workers=options.hosts, command=tuple(command), slots=SLOTS)
            end = JobEnd(LaunchSpec(job=job))
            run_jobs(fabric, [end], on_output=_to_stderr)
            end.check()
            ranks = [json.loads((Path(folder) / f"{r}.json").read_text()) for r in range(options.hosts)]
    finally:
        netns.down(name)
    return Speeds(rate_bps, options.hosts, ranks[0]["gradient_bytes"], load, together(ranks))


def together(ranks: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Return samples per second of all ranks: a turn took as long as its slowest rank."""
    return {
        way: [
            sum(rank["samples"] for rank in ranks) / max(times)
            for times in zip(*(rank["times_s"][way] for rank in ranks), strict=True)
        ]
        for way in ranks[0]["times_s"]
    }


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
    models = {way: _model(way, len(symbols), options.width, beside) for way in WAYS}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(options.turns + 1):
        for way, model in models.items():
            dist.barrier()
            began = time.perf_counter()
            char_transformer.train(text, model, options.steps, turn, lambda step, loss, speed: None)
            if turn:  # the first pays for connections, and DDP makes its buckets anew
                times[way].append(time.perf_counter() - began)
    rank = {
        "times_s": times,
        "samples": options.steps * char_transformer.BATCH,
        "gradient_bytes": 4 * sum(each.numel() for each in models[GLOO].parameters()),
    }
    (options.rank / f"{hostlib.rank()}.json").write_text(json.dumps(rank))
    models.clear()
    dist.barrier()
    dist.destroy_process_group()
    hostlib.shutdown()


def _model(way: str, symbols: int, width: int, beside: Any) -> torch.nn.Module:
    """Return a model whose gradients are summed that way."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    import hostlib.torch
    from examples.char_transformer import Transformer

    torch.manual_seed(0)
    if way == GLOO:
        return DistributedDataParallel(Transformer(symbols, width=width), process_group=beside)
    model = DistributedDataParallel(Transformer(symbols, width=width))
    numbers = "exponent" if way == INT32 else "block16"
    model.register_comm_hook(
        hostlib.torch.BucketState(model, numbers=numbers),  # type: ignore[arg-type]  # one of two literals
        hostlib.torch.bucket_hook,
    )
    return model


def tables(rows: Sequence[Speeds]) -> str:
    """Return medians of the turns, and their ratio to gloo's, with that of the worst and of the best turn."""
    lines = []
    for row in rows:
        speeds = {way: statistics.median(row.samples_per_s[way]) for way in WAYS}
        lines.append(
            [
                f"{row.rate_bps / 1e6:g} Mb/s, {row.hosts} hosts",
                *(f"{speeds[way]:.1f}" for way in WAYS),
                *(_ratio(row.samples_per_s[way], row.samples_per_s[GLOO]) for way in (INT32, BLOCK16)),
                f"{row.gradient_bytes / 1e6:.1f} MB",
                f"{row.load:.1f}",
            ]
        )
    heads = ["links", *(f"{way}, samples/s" for way in WAYS)]
    return markdown([*heads, "int32 ÷ gloo", "block16 ÷ gloo", "gradients", "load"], lines)


def _ratio(mine: Sequence[float], theirs: Sequence[float]) -> str:
    ratios = sorted(one / other for one, other in zip(mine, theirs, strict=True))
    return f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f}..{ratios[-1]:.2f})"


def write(folder: Path, rows: Sequence[Speeds]) -> None:
    """Write the page's table, and the rows."""
    plain = [asdict(row) for row in rows]
    (folder / "training.json").write_text(json.dumps({"name": "training", "rows": plain}) + "\n")
    fill(folder / "training.md", tables(rows))


if __name__ == "__main__":
    main()
