"""Train by FSDP2 and HSDP under torchrun, with gloo and through a switch that captures all packets.

``python -m benchmarks.training.sharded [--output docs/results]`` runs ``examples/torch_fsdp.py``, which is an
ordinary script but for the backend's name, and prints losses, the ways that calls took, and bytes on each
link.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.fill import asked, check, console, option, publish
from benchmarks.training.sharded.links import PACKET_BYTES, Captured, Group, Link, captured, least
from benchmarks.training.sharded.script import Call
from bmv2_topos.harness.rows import markdown
from ina.runtime.switch_process import EmbeddedSwitch

ROOT: Final = Path(__file__).parents[3]
SCRIPT: Final = ROOT / "examples" / "torch_fsdp.py"
NOTING: Final = Path(__file__).with_name("script.py")
TORCHRUN: Final = (sys.executable, "-m", "torch.distributed.run")
RANKS: Final = 4
PORTS: Final = range(1, 4 * RANKS + 1)
EPOCHS: Final = 2
REPLICAS: Final = {"FSDP2": 1, "HSDP": 2}
LIMIT_S: Final = 600
_LOSS = re.compile(r"loss (\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class Trained:
    """What one run of the script came to."""

    losses: tuple[float, ...]
    """Of each epoch."""
    noted: tuple[Mapping[str, Any], ...]
    """What each rank noted (`benchmarks.training.sharded.script`)."""

    @property
    def calls(self) -> list[list[Call]]:
        """The calls of each rank, as torch's dispatcher saw them."""
        return [
            [Call(**{**each, "ranks": tuple(each["ranks"])}) for each in rank["calls"]] for rank in self.noted
        ]

    @property
    def jobs(self) -> dict[int, Group]:
        """The groups of all ranks, by the number of their job in the switch."""
        groups = [group for rank in self.noted for group in rank["groups"]]
        return {group["job"]: tuple(group["ranks"]) for group in groups if group["job"]}

    @property
    def paths(self) -> list[str]:
        """The ways that calls of any rank and group took."""
        groups = [group for rank in self.noted for group in rank["groups"]]
        return sorted({path for group in groups for taken in group["paths"].values() for path in taken})


@dataclass(frozen=True, slots=True)
class Row:
    """The link of one rank, for the calls of one group."""

    training: str
    rank: int
    group: Group
    calls: int
    sums: int
    """Those of the calls that are sums for all ranks."""
    data: Link
    least: Link
    captured: Captured


def main() -> None:
    """Run the command."""
    given = asked(
        __doc__,
        option("--output", type=Path, help="folder of sharded.md and sharded.json"),
        option("--epochs", type=int, default=EPOCHS),
        prog="benchmarks.training.sharded",
    )
    if given.output is not None:
        check(given.output / "sharded.md")
    losses, rows = [], []
    for training, replicas in REPLICAS.items():
        gloo, ina, links = both(training, replicas, given.epochs)
        differ = max(abs(mine - other) for mine, other in zip(ina.losses, gloo.losses, strict=True))
        losses.append((training, ina.losses[-1], gloo.losses[-1], differ, ", ".join(ina.paths)))
        rows += links
    tables = f"{_losses(losses)}\n\n{_links(rows)}"
    console().print(tables, markup=False, highlight=False)
    if given.output is not None:
        publish(given.output, "sharded", tables, [as_row(row) for row in rows])


def both(
    training: str, replicas: int, epochs: int, torchrun: Sequence[str] = TORCHRUN
) -> tuple[Trained, Trained, list[Row]]:
    """Train with gloo and in the switch.

    Args:
        training: The row's name.
        replicas: Copies of the parameters, each in shards.
        epochs: Number of epochs.
        torchrun: The command that starts the ranks.

    Returns:
        The run with gloo; the run in the switch; its links.
    """
    gloo = _train(torchrun, "gloo", replicas, epochs, {})
    with TemporaryDirectory() as folder:
        ports = [word for port in PORTS for word in ("--port", f"{port}=udp:0")]
        with EmbeddedSwitch([*ports, "--pcap", folder, "--pcap-snap", "70", "--pcap-notes", ""]) as switch:
            ina = _train(torchrun, "ina", replicas, epochs, {"INA_SWITCH": switch.address})
        shown = captured(Path(folder), ina.jobs)
    return gloo, ina, [*_rows(training, gloo.calls, shown)]


def _train(
    torchrun: Sequence[str], backend: str, replicas: int, epochs: int, variables: Mapping[str, str]
) -> Trained:
    with TemporaryDirectory() as folder:
        options = ["--backend", backend, "--replicas", str(replicas), "--epochs", str(epochs)]
        done = subprocess.run(
            [
                *(*torchrun, "--nproc-per-node", str(RANKS)),
                *(str(NOTING), folder, str(SCRIPT), *options),
            ],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        if done.returncode:
            raise SystemExit(f"training with {backend} failed:\n{done.stdout}{done.stderr}")
        noted = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(RANKS)]
    return Trained(tuple(map(float, _LOSS.findall(done.stdout))), tuple(noted))


def _rows(
    training: str, calls: Sequence[Sequence[Call]], shown: Mapping[tuple[int, Group], Captured]
) -> Iterator[Row]:
    for rank in range(RANKS):
        data, packets = (least(calls[rank], rank, size) for size in (1, PACKET_BYTES))
        for group in packets:
            of_group = [call.what for call in calls[rank] if call.ranks == group]
            counts = len(of_group), of_group.count("all_reduce")
            yield Row(training, rank, group, *counts, data[group], packets[group], shown[rank, group])


def as_row(row: Row) -> dict[str, Any]:
    """Return a row of the page's JSON."""
    links = {"data": row.data, "least": row.least, "captured": row.captured.lanes}
    links |= {"again": row.captured.again, "packets": row.captured.packets}
    bytes_of = {f"{name}_{way}": getattr(link, way) for name, link in links.items() for way in ("up", "down")}
    counts = {"calls": row.calls, "sums": row.sums}
    return {"training": row.training, "rank": row.rank, "group": row.group, **counts, **bytes_of}


def _losses(losses: Sequence[tuple[str, float, float, float, str]]) -> str:
    rows = [
        [name, f"{mine:.6f}", f"{other:.6f}", f"{differ:.1e}", ways]
        for name, mine, other, differ, ways in losses
    ]
    return markdown(["training", "loss, ina", "gloo", "largest difference", "paths"], rows)


def _links(rows: Sequence[Row]) -> str:
    shown = [
        [
            *(row.training, str(row.rank), ", ".join(map(str, row.group)), str(row.calls), str(row.sums)),
            *(
                f"{getattr(link, way):,}"
                for way in ("up", "down")
                for link in (row.data, row.least, row.captured.lanes)
            ),
            f"{row.captured.again.up + row.captured.again.down:,}",
        ]
        for row in rows
    ]
    heads = [f"{way}: {name}" for way in ("up", "down") for name in ("data", "least", "captured")]
    return markdown(["training", "rank", "group", "calls", "sums", *heads, "again"], shown)


if __name__ == "__main__":
    main()
