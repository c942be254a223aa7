"""Time of collectives of `torch.distributed`, ranks on this machine: the backend "ina" beside gloo.

``python -m benchmarks.training.torch_collectives [--ranks 4] [--megabytes 64 1] [--json]`` starts ranks by
torchrun, which make calls of both backends in turns, eight in a row. Before each call they meet: by a sum of
one number through the switch, or by a barrier of gloo, which they leave less together, and whose threads
still work at some ranks while others go on. A call's time is its slowest rank's own; and, as *all there*,
that from the moment when the last rank has begun. ``--quick`` tries all of it in short.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fill import asked, console, option
from bmv2_topos.harness.rows import markdown

if TYPE_CHECKING:  # the command itself needs no torch
    import torch

MEETINGS: Final = ("switch", "gloo")
BACKENDS: Final = ("ina", "gloo")
IN_A_ROW: Final = 8
"""Calls of a backend before the other's turn; the first does not count."""
ROUNDS, BYTES_OF_ROUNDS = 8, 64 << 20
"""Turns of each backend, fewer of arrays that need more than so many bytes for them."""
LIMIT_S: Final = 600


@dataclass(frozen=True, slots=True)
class Row:
    """A collective of one size, after one way to meet: milliseconds by backend, medians over calls."""

    operation: str
    size_bytes: int
    met_by: str
    slowest_ms: Mapping[str, float]
    """Of the slowest rank."""
    all_there_ms: Mapping[str, float]
    """From the moment when the last rank has begun."""

    @property
    def ratio(self) -> float:
        """Gloo's time by ina's."""
        return self.slowest_ms["gloo"] / self.slowest_ms["ina"]

    @property
    def all_there_ratio(self) -> float:
        """The same of what follows the last rank's begin."""
        return self.all_there_ms["gloo"] / self.all_there_ms["ina"]

    def shown(self) -> list[str]:
        """Return the row of the table."""
        slowest, all_there = (
            [f"{times[backend]:.2f}" for backend in BACKENDS]
            for times in (self.slowest_ms, self.all_there_ms)
        )
        head = [self.operation, f"{self.size_bytes / (1 << 20):g} MiB", self.met_by]
        return [*head, *slowest, f"**{self.ratio:.2f}**", *all_there, f"{self.all_there_ratio:.2f}"]


def main() -> None:
    """Run the command."""
    if "--rank" in sys.argv:
        return be_rank(Path(sys.argv[2]), int(sys.argv[3]), [int(size) for size in sys.argv[4:]])
    given = asked(
        __doc__.partition("\n")[0],
        option("--ranks", type=int, default=4),
        option("--megabytes", type=float, nargs="+", default=[64, 1], help="MiB of all shards"),
        option("--quick", action="store_true", help="try all of it in short; no figures to keep"),
        option("--json", action="store_true", help="print one JSON object"),
        prog="benchmarks.training.torch_collectives",
    )
    sizes = [int(each * (1 << 20)) // (4 * given.ranks) * 4 * given.ranks for each in given.megabytes]
    load = os.getloadavg()[0]
    rows = measured(given.ranks, 1 if given.quick else ROUNDS, sizes)
    if given.json:
        found = [asdict(row) | {"ratio": row.ratio, "all_there_ratio": row.all_there_ratio} for row in rows]
        print(json.dumps({"ranks": given.ranks, "load": load, "rows": found}))
        return None
    heads = ["collective", "size", "met by", "ina, ms", "gloo, ms", "ratio"]
    heads += ["ina, all there, ms", "gloo, all there, ms", "ratio, all there"]
    console().print(markdown(heads, [row.shown() for row in rows]), markup=False, highlight=False)
    console().print(f"{given.ranks} ranks, load {load:.1f}")
    return None


def measured(ranks: int, rounds: int, sizes: Sequence[int]) -> list[Row]:
    """Return the rows of all collectives. Raises SystemExit if ranks fail.

    Args:
        ranks: Number of ranks.
        rounds: Turns of each backend that count.
        sizes: Bytes of the arrays.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)),
                *(
                    "-m",
                    "benchmarks.training.torch_collectives",
                    "--rank",
                    folder,
                    str(rounds),
                    *map(str, sizes),
                ),
            ],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        if done.returncode:
            raise SystemExit(f"the ranks failed:\n{done.stdout}{done.stderr}")
        found = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(ranks)]
    return [_row(*each) for each in zip(*found, strict=True)]


def _row(*ranks: Mapping[str, object]) -> Row:
    """Return a row of what its ranks have noted: begin and end of each call by backend, one clock for all."""
    noted = [each["times_s"] for each in ranks]
    slowest, all_there = {}, {}
    for backend in BACKENDS:
        calls = list(zip(*(times[backend] for times in noted), strict=True))  # type: ignore[index]
        slowest[backend] = 1e3 * median(max(end - begin for begin, end in call) for call in calls)
        all_there[backend] = 1e3 * median(
            max(end for _, end in call) - max(begin for begin, _ in call) for call in calls
        )
    first = ranks[0]
    return Row(str(first["operation"]), int(str(first["size"])), str(first["met_by"]), slowest, all_there)


def be_rank(folder: Path, rounds: int, sizes: Sequence[int]) -> None:
    """Make the calls as one rank, and write when each began and ended."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("ina")
    gloo = dist.new_group(backend="gloo")
    groups = (("ina", None), ("gloo", gloo))
    number = torch.zeros(1)
    meet: dict[str, Callable[[], object]] = {
        "switch": lambda: dist.all_reduce(number),
        "gloo": lambda: dist.barrier(group=gloo),
    }
    found = []
    for size in sizes:
        whole, shard = torch.ones(size // 4), torch.ones(size // 4 // dist.get_world_size())
        turns = max(1, min(rounds, rounds * BYTES_OF_ROUNDS // size // IN_A_ROW))
        for (operation, call), met_by in product(_calls(whole, shard).items(), MEETINGS):
            times: dict[str, list[tuple[float, float]]] = {backend: [] for backend in BACKENDS}
            for turn, (backend, group), place in product(range(turns + 1), groups, range(IN_A_ROW)):
                whole.fill_(1.0)
                shard.fill_(1.0)
                meet[met_by]()
                began_s = time.perf_counter()
                call(group)
                if turn and place:
                    times[backend].append((began_s, time.perf_counter()))
            found.append({"operation": operation, "size": size, "met_by": met_by, "times_s": times})
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def _calls(whole: torch.Tensor, shard: torch.Tensor) -> dict[str, Callable[[Any], object]]:
    """Return the collectives of these tensors, each a function of the group; None: the default one."""
    import torch.distributed as dist

    return {
        "reduce-scatter": lambda group: dist.reduce_scatter_tensor(shard, whole, group=group),
        "all-gather": lambda group: dist.all_gather_into_tensor(whole, shard, group=group),
        "broadcast": lambda group: dist.broadcast(whole, 0, group=group),
        "allreduce": lambda group: dist.all_reduce(whole, group=group),
    }


if __name__ == "__main__":
    main()
