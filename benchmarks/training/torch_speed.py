"""Times of torch's all_reduce, and of a step of DistributedDataParallel, beside those of gloo.

``ina run -np 4 -- python -m benchmarks.training.torch_speed`` sums by "ina" and by gloo in turns, in the same
processes. The model of the step has 29 MB of parameters; "no_sums" is the time of the same step by itself,
which every library needs. ``--turns 1`` makes a short trial.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hostlib.torch  # noqa: F401 - registers the backend
from benchmarks.fill import option, parse_options, print_rows

SIZES: Final = {64 << 20: 5, 1 << 20: 60, 4 << 10: 200}
"""Bytes of a tensor, and the number of its sums in a turn."""
WIDTH: Final = 1350
STEPS: Final = 4
"""Steps in a turn, and samples of a rank in a step."""


def main() -> None:
    """Measure as one rank; rank 0 prints the table."""
    options = parse_options(__doc__, option("--turns", type=int, default=7, help="turns of each library"))
    torch.set_num_threads(1)
    dist.init_process_group("ina")
    groups = {"ina": None, "gloo": dist.new_group(backend="gloo")}
    rows: list[dict[str, object]] = []
    for size, sums in SIZES.items():
        ways = {name: partial(_sum, torch.randn(size // 4), group) for name, group in groups.items()}
        times = _medians(ways, options.turns, sums, groups["gloo"])
        rows.append({"call": f"all_reduce of {size >> 10:,} KiB", **times, "no_sums_s": None})
    models: dict[str, torch.nn.Module] = {
        name: DistributedDataParallel(_model(), process_group=group) for name, group in groups.items()
    }
    inputs = torch.randn(STEPS, WIDTH)
    steps = {name: partial(_step, model, inputs) for name, model in {**models, "no_sums": _model()}.items()}
    rows.append({"call": "step of DDP", **_medians(steps, options.turns, STEPS, groups["gloo"])})
    if dist.get_rank() == 0:
        print_rows(f"torch, {dist.get_world_size()} ranks", rows)
    dist.destroy_process_group()


def _sum(tensor: torch.Tensor, group: Any) -> float:
    began = time.perf_counter()
    dist.all_reduce(tensor, group=group)
    took_s = time.perf_counter() - began
    tensor.mul_(1 / dist.get_world_size())  # otherwise it grows without end
    return took_s


def _model() -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)))


def _step(model: torch.nn.Module, inputs: torch.Tensor) -> float:
    began = time.perf_counter()
    model.zero_grad()
    model(inputs).square().mean().backward()
    return time.perf_counter() - began


def _medians(
    ways: Mapping[str, Callable[[], float]], turns: int, calls: int, group: Any
) -> dict[str, object]:
    """Return the speed of "ina" relative to gloo's, and the median time of each way in s."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(turns + 1):
        for way, call in ways.items():
            for _ in range(calls):
                dist.barrier(group=group)
                took_s = call()
                if turn:  # the first pays for connections and buffers, and DDP makes its buckets anew
                    times[way].append(took_s)
    found = {f"{way}_s": median(each) for way, each in times.items()}
    return {"times_gloo": found["gloo_s"] / found["ina_s"], **found}


if __name__ == "__main__":
    main()
