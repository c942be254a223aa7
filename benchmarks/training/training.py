"""Samples per second of training on shaped links, gradients summed by gloo, in the switch, in 16 bits there.

`python -m benchmarks.training.training --output docs/results` makes a testbed of network namespaces for each
rate, and has a rank on each of its hosts train a character-level transformer, all ways in turn. Needs root
and torch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fill import check, fill
from benchmarks.pages.real import missing
from benchmarks.training import turns
from bmv2_topos.harness import markdown

if TYPE_CHECKING:  # the page needs no torch
    import torch

GLOO, INT32, BLOCK16 = "gloo", "int32", "block16"
WAYS: Final = (GLOO, INT32, BLOCK16)
RATES: Final = (1e9, 1e8)
TURNS: Final = 7
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
    parser = turns.parser("benchmarks.training.training", __doc__ or "", rates=RATES, turns=TURNS)
    parser.add_argument("--output", type=Path, metavar="DIR", help="write training.md and .json")
    options = parser.parse_args()
    if options.rank:
        turns.be_rank(options, lambda symbols, beside: _models(symbols, options.width, beside))
        return
    if why := missing():
        raise SystemExit(f"benchmarks.training.training: {why}")
    if options.output:
        check(options.output / "training.md")
    rows = [measure(rate_bps, options) for rate_bps in options.rates]
    if options.output:
        write(options.output, rows)
    print(tables(rows))


def measure(rate_bps: float, options: argparse.Namespace) -> Speeds:
    """Train on a testbed of that rate. Raises LiveError, WorkerFailed."""
    load = os.getloadavg()[0]
    ranks = turns.trained("benchmarks.training.training", rate_bps, SLOTS, options)
    return Speeds(rate_bps, options.hosts, ranks[0]["parameter_bytes"], load, turns.together(ranks))


def _models(symbols: int, width: int, beside: Any) -> dict[str, torch.nn.Module]:
    return {way: _model(way, symbols, width, beside) for way in WAYS}


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
