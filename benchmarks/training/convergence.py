"""Losses of training through the switch beside gloo: the same data, the same seeds, other sums.

`python -m benchmarks.training.convergence --output docs/results` starts four ranks under torchrun, which
train both models with every way to sum and every seed, and writes page and plots. Needs torch and
matplotlib.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fill import asked, fill, option
from bmv2_topos.harness import markdown
from bmv2_topos.plots import draw_lines
from hostlib.wire.encodings import BLOCKS

if TYPE_CHECKING:  # the page needs no torch
    from torch import nn

GLOO, INT32, BLOCK16, FEEDBACK = "gloo", "int32", "block16", " with error feedback"
WAYS: Final = (GLOO, INT32, BLOCK16, *(f"{block}{FEEDBACK}" for block in BLOCKS))
DIGITS, TRANSFORMER = "digits", "transformer"
RANKS: Final = 4
SEEDS: Final = 5
EPOCHS, STEPS = 20, 100

Curve = Sequence[tuple[float, float]]
"""Epoch or step, and loss."""


@dataclass(frozen=True, slots=True)
class Training:
    """One training: the loss by epoch or step, the same on all ranks."""

    model: str
    way: str
    seed: int
    curve: Curve


def main() -> None:
    """Train, print a table, and write a page on request."""
    options = asked(
        __doc__.split("\n")[0],
        option("--seeds", type=int, default=SEEDS),
        option("--ranks", type=int, default=RANKS),
        option("--epochs", type=int, default=EPOCHS, help="of the digits"),
        option("--steps", type=int, default=STEPS, help="of the transformer; 10 or more"),
        option("--output", type=Path, metavar="DIR", help="write convergence.md and plots"),
        option("--rank", type=Path, help=argparse.SUPPRESS),
    )
    if options.rank:
        _be_rank(options)
        return
    rows = measure(options)
    if options.output:
        write(options.output, rows)
    print(tables(rows))


def measure(options: argparse.Namespace) -> list[Training]:
    """Train in processes of their own. Raises SystemExit if they fail."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(options.ranks)]
        given = [f"--{name}={getattr(options, name)}" for name in ("seeds", "epochs", "steps")]
        command = [
            sys.executable,
            *launch,
            "-m",
            "benchmarks.training.convergence",
            "--rank",
            str(file),
            *given,
        ]
        if subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode:
            raise SystemExit("benchmarks.training.convergence: a rank failed; it has said why")
        return [Training(**row) for row in json.loads(file.read_text())]


def _be_rank(options: argparse.Namespace) -> None:
    import torch.distributed as dist

    import hostlib.torch  # noqa: F401 - registers the backend

    dist.init_process_group("ina")
    beside = dist.new_group(backend="gloo")
    rows = []
    for way in WAYS:
        for seed in range(1, options.seeds + 1):
            for model, train in ((DIGITS, _digits), (TRANSFORMER, _transformer)):
                curve = train(_wrapper(way, beside), seed, options)
                rows.append({"model": model, "way": way, "seed": seed, "curve": curve})
    if dist.get_rank() == 0:
        options.rank.write_text(json.dumps(rows))
    dist.destroy_process_group()


def _wrapper(way: str, beside: Any) -> Callable[[nn.Module], Any]:
    """Return the function that wraps a model so that its gradients are summed this way."""
    from torch.nn.parallel import DistributedDataParallel

    import hostlib.torch

    def wrap(model: nn.Module) -> Any:
        if way == GLOO:
            return DistributedDataParallel(model, process_group=beside)
        wrapped = DistributedDataParallel(model)
        block = next((block for block in BLOCKS if block == way.removesuffix(FEEDBACK)), None)
        state = hostlib.torch.BucketState(
            wrapped, numbers=block or "exponent", error_feedback=way.endswith(FEEDBACK)
        )
        wrapped.register_comm_hook(state, hostlib.torch.bucket_hook)
        return wrapped

    return wrap


def _digits(wrap: Callable[[nn.Module], Any], seed: int, options: argparse.Namespace) -> Curve:
    from examples import torch_ddp

    return list(enumerate(torch_ddp.train(options.epochs, seed, wrap), 1))


def _transformer(wrap: Callable[[nn.Module], Any], seed: int, options: argparse.Namespace) -> Curve:
    import torch

    from examples import char_transformer

    text, symbols = char_transformer.corpus()
    torch.manual_seed(seed)
    model = wrap(char_transformer.Transformer(len(symbols), width=32))
    curve: list[tuple[float, float]] = []
    char_transformer.train(text, model, options.steps, seed, lambda step, loss, _: curve.append((step, loss)))
    return curve


def mean_curve(rows: Sequence[Training], model: str, way: str) -> Curve:
    """Return the mean over the seeds."""
    curves = [row.curve for row in rows if (row.model, row.way) == (model, way)]
    return [
        (points[0][0], statistics.fmean(loss for _, loss in points)) for points in zip(*curves, strict=True)
    ]


def last(rows: Sequence[Training], model: str, way: str) -> list[float]:
    """Return the last loss of each seed."""
    return [row.curve[-1][1] for row in rows if (row.model, row.way) == (model, way)]


def apart(rows: Sequence[Training], model: str, way: str) -> float:
    """Return how far a curve is from gloo's of the same seed, at any point of any seed."""
    curves: Mapping[tuple[str, int], Curve] = {(r.way, r.seed): r.curve for r in rows if r.model == model}
    seeds = sorted({seed for _, seed in curves})
    pairs = [zip(curves[way, seed], curves[GLOO, seed], strict=True) for seed in seeds]
    return max(abs(mine[1] - other[1]) for pair in pairs for mine, other in pair)


def tables(rows: Sequence[Training]) -> str:
    """Return a table of the last losses, and how far the curves are from gloo's."""
    lines = []
    for model in (DIGITS, TRANSFORMER):
        noise = statistics.stdev(last(rows, model, GLOO)) if len({row.seed for row in rows}) > 1 else 0.0
        for way in WAYS:
            losses = last(rows, model, way)
            cells = [f"{statistics.fmean(losses):.4f} ({min(losses):.4f}..{max(losses):.4f})"]
            lines.append([model, way, *cells, f"{apart(rows, model, way):.1e}", f"{noise:.1e}"])
    return markdown(["model", "sums", "last loss", "from gloo, at most", "seeds' deviation"], lines)


def write(folder: Path, rows: Sequence[Training]) -> None:
    """Write the page's tables, and the plots."""
    for model, x in ((DIGITS, "epoch"), (TRANSFORMER, "step")):
        lines = {way: mean_curve(rows, model, way) for way in WAYS}
        draw_lines(lines, folder / f"convergence-{model}.svg", x=x, y="loss, mean of the seeds", title=model)
    fill(folder / "convergence.md", tables(rows))


if __name__ == "__main__":
    main()
