"""Trainings that take turns in the same ranks, on the shaped links of a testbed of network namespaces.

`trained` makes the testbed, on each of whose hosts a rank runs the calling module again, with ``--rank DIR``;
there `be_rank` trains the character-level transformer, all ways in turn, and writes what it noted into the
folder. Needs root and torch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.pages.real import DELAY_S, to_stderr
from bmv2_topos.testbeds import netns
from controller.vocabulary import Job, Link
from controller.vocabulary.catalog import star
from ina.runtime.jobs import run_jobs
from ina.runtime.launch import JobRun
from ina.runtime.run import FabricLauncher
from ina.runtime.spec import NAMELESS, LaunchSpec
from ina.runtime.testbed_fabric import opened

if TYPE_CHECKING:  # the commands need no torch to say what they need
    import torch


def parser(prog: str, doc: str, *, rates: Sequence[float], turns: int) -> argparse.ArgumentParser:
    """Return a parser of the options that all have; `doc` describes the command by its first line."""
    made = argparse.ArgumentParser(prog=prog, description=doc.partition("\n")[0])
    made.add_argument("--hosts", type=int, default=4)
    made.add_argument("--rates", type=float, nargs="+", default=rates, metavar="BPS", help="bits/s")
    made.add_argument("--turns", type=int, default=turns, help="of each way to train")
    made.add_argument("--steps", type=int, default=3, help="of a turn")
    made.add_argument("--width", type=int, default=192, help="size of the model; a multiple of 4")
    made.add_argument("--rank", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    return made


def trained(module: str, rate_bps: float, slots: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train on a testbed of that rate; return what each rank noted. Raises LiveError, WorkerFailed."""
    name = f"{module.rpartition('.')[2]}-{os.getpid()}"
    topology = star(options.hosts, link=Link("a", "b", rate_bps=rate_bps, delay_s=DELAY_S))
    with (
        netns.standing(name, topology, netns.Program(lanes=256)) as state,
        tempfile.TemporaryDirectory() as folder,
        opened(state) as fabric,
    ):
        given = [f"--{key}={getattr(options, key)}" for key in ("turns", "steps", "width")]
        command = [sys.executable, "-m", module, "--rank", folder, *given]
        job = Job(name=NAMELESS, workers=options.hosts, command=tuple(command), slots=slots)
        end = JobRun(LaunchSpec(job=job))
        run_jobs(FabricLauncher(fabric), [end], on_output=to_stderr)
        end.check()
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(options.hosts)]


def together(ranks: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Return samples per second of all ranks: a turn took as long as its slowest rank."""
    return {
        way: [
            sum(rank["samples"] for rank in ranks) / max(times)
            for times in zip(*(rank["times_s"][way] for rank in ranks), strict=True)
        ]
        for way in ranks[0]["times_s"]
    }


def be_rank(
    options: argparse.Namespace,
    models: Callable[[int, Any], Mapping[str, torch.nn.Module]],
    *,
    meet_by_gloo: bool = False,
) -> None:
    """Train as one rank, and write times, samples, bytes of parameters and paths that collectives took.

    Args:
        options: Those of the command.
        models: Returns a model for each way; given the number of symbols, and a group of gloo of all ranks.
        meet_by_gloo: Whether ranks meet before a turn by that group, not in the switch.
    """
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
    meeting = beside if meet_by_gloo else None
    text, symbols = char_transformer.corpus()
    trained = dict(models(len(symbols), beside))
    times: dict[str, list[float]] = {way: [] for way in trained}
    for turn in range(options.turns + 1):
        for way, model in trained.items():
            dist.barrier(group=meeting)
            began = time.perf_counter()
            char_transformer.train(text, model, options.steps, turn, lambda step, loss, speed: None)
            if turn:  # the first pays for connections and buffers, and DDP makes its buckets anew
                times[way].append(time.perf_counter() - began)
    taken = hostlib.torch.paths()
    rank = {
        "times_s": times,
        "samples": options.steps * char_transformer.BATCH,
        "parameter_bytes": 4 * sum(each.numel() for each in next(iter(trained.values())).parameters()),
        "paths": sorted({path for by_path in taken.values() for path in by_path}),
    }
    (options.rank / f"{hostlib.rank()}.json").write_text(json.dumps(rank))
    trained.clear()
    dist.barrier(group=meeting)
    dist.destroy_process_group()
    hostlib.shutdown()
