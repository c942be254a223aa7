"""Time of a training step by DistributedDataParallel: gloo, the switch, the switch after local sums.

``python -m benchmarks.training.ddp_step [--ranks 4] [--megabytes 29] [--rounds 3]`` starts ranks by torchrun
on this machine, each backend in turn, and prints medians over rounds and steps, with the share of a step that
is not hidden behind backward. Times depend on the machine and its load; backends take turns, so ratios do
less.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.fill import asked, console, option
from bmv2_topos.harness.rows import markdown

LAYERS: Final = 4
WARM_UP, STEPS = 2, 6
LIMIT_S: Final = 300
BACKENDS: Final[Mapping[str, Mapping[str, str]]] = {
    "gloo": {"BACKEND": "gloo"},
    "ina": {"BACKEND": "ina", "INA_HIERARCHICAL": "0"},
    "ina, local ranks first": {"BACKEND": "ina", "INA_HIERARCHICAL": "1"},
}


@dataclass(frozen=True, slots=True)
class Times:
    """Medians of one run, seconds, of the slowest rank."""

    step_s: float
    alone_s: float
    """A step without communication."""


def main() -> None:
    """Run the command."""
    if "--rank" in sys.argv:
        return be_rank(int(sys.argv[2]), Path(sys.argv[3]))
    given = asked(
        __doc__,
        option("--ranks", type=int, default=4),
        option("--megabytes", type=int, default=29, help="of parameters (default: 29)"),
        option("--rounds", type=int, default=3),
        prog="benchmarks.training.ddp_step",
    )
    runs: dict[str, list[Times]] = {name: [] for name in BACKENDS}
    for _ in range(given.rounds):
        for name, times in runs.items():
            times.append(_run(given.ranks, given.megabytes, BACKENDS[name]))
    load = os.getloadavg()[0]
    console().print(table(runs), markup=False, highlight=False)
    console().print(f"{given.ranks} ranks, {given.megabytes} MB, {given.rounds} rounds, load {load:.1f}")
    return None


def table(runs: Mapping[str, Sequence[Times]]) -> str:
    """Return the medians over rounds, beside the first backend's."""
    first = median(each.step_s for each in next(iter(runs.values())))
    rows = []
    for name, times in runs.items():
        step, alone = median(each.step_s for each in times), median(each.alone_s for each in times)
        least, most = (1e3 * end(each.step_s for each in times) for end in (min, max))
        spread = f"{least:.0f} to {most:.0f}"
        rows.append([name, f"{1e3 * step:.0f}", spread, f"{1e3 * alone:.0f}", f"{first / step:.2f}"])
    return markdown(["backend", "step, ms", "rounds", "without communication, ms", "gloo's time / its"], rows)


def _run(ranks: int, megabytes: int, variables: Mapping[str, str]) -> Times:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)),
                *("-m", "benchmarks.training.ddp_step", "--rank", str(megabytes), folder),
            ],
            env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        if done.returncode:
            raise SystemExit(f"training failed:\n{done.stdout}{done.stderr}")
        found = [json.loads(path.read_text()) for path in Path(folder).iterdir()]
    return Times(max(each["step_s"] for each in found), max(each["alone_s"] for each in found))


def be_rank(megabytes: int, folder: Path) -> None:
    """Train as one rank, and write medians."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group(os.environ["BACKEND"])
    width = int((megabytes * (1 << 20) / 4 / LAYERS) ** 0.5)
    layers = [torch.nn.Linear(width, width) for _ in range(LAYERS)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(8, width)

    def step() -> float:
        begun_s = time.perf_counter()
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        return time.perf_counter() - begun_s

    def timed() -> float:
        return median([step() for _ in range(WARM_UP + STEPS)][WARM_UP:])

    with model.no_sync():
        alone_s = timed()
    found = {"alone_s": alone_s, "step_s": timed()}
    (folder / str(dist.get_rank())).write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
