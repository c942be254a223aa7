"""Train by FSDP2 and HSDP under torchrun, with gloo and through a switch that captures all packets.

``python -m benchmarks.training.sharded [--output docs/results]`` runs ``examples/torch_fsdp.py``, which is an
ordinary script but for the backend's name, and prints losses, the ways that calls took, and bytes on each
link.

Bytes of lanes on the link of each rank: the least that its calls need, and those of a capture.

Values travel in packets of `LANES` lanes of 4 bytes; the last packet of an array is filled up. *Data* are the
values alone, *least* those packets. Headers are not counted; each packet has one in each direction.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.fill import asked, check, console, fill, option
from benchmarks.training.sharded_script import Call
from bmv2_topos.harness.rows import markdown
from bmv2_topos.trace.captures import read_file
from bmv2_topos.trace.events import Event, events_of
from hostlib import wire
from ina.runtime.switch_process import EmbeddedSwitch

LANES = 256
PACKET_BYTES = 4 * LANES

Group = tuple[int, ...]
"""Ranks of a group, in the default group."""


@dataclass(frozen=True, slots=True)
class Link:
    """Bytes in both directions of one rank's link, for the calls of one group."""

    up: int = 0
    down: int = 0

    def __add__(self, other: Link) -> Link:
        """Return both together."""
        return Link(self.up + other.up, self.down + other.down)


def needed(call: Call, rank: int, packet_bytes: int = PACKET_BYTES) -> Link:
    """Return the least that a call needs on the link of a rank.

    Args:
        call: The call.
        rank: The rank, in the group.
        packet_bytes: Bytes of a packet, of which there are whole ones only; 1: the data alone.

    >>> needed(Call("all_gather", (0, 1, 2, 3), elements=4000, bytes_each=4), rank=1, packet_bytes=1)
    Link(up=4000, down=12000)
    """
    size = len(call.ranks)

    def packed(elements: int) -> int:
        return -(-elements * call.bytes_each // packet_bytes) * packet_bytes

    shard, whole = packed(call.elements // size), packed(call.elements)
    others = (size - 1) * shard
    match call.what:
        case "all_reduce":
            return Link(whole, whole)
        case "all_gather":
            return Link(shard, others)
        case "reduce_scatter":
            return Link(others, shard)
        case "broadcast":
            return Link(whole, 0) if rank == call.root else Link(0, whole)


def least(calls: Iterable[Call], rank: int, packet_bytes: int = PACKET_BYTES) -> dict[Group, Link]:
    """Return the bytes that a rank's calls need on its link, by group; for the arguments see `needed`."""
    links: dict[Group, Link] = defaultdict(Link)
    for call in calls:
        links[call.ranks] += needed(call, call.ranks.index(rank), packet_bytes)
    return dict(links)


@dataclass(frozen=True, slots=True)
class Captured:
    """What a capture shows of one rank's link, for one group."""

    lanes: Link
    """Bytes of lanes, each packet counted once."""
    again: Link
    """Bytes of lanes of packets that passed before in this direction, or of results that the rank does not
    take: it may get those with a repeated one."""
    packets: Link
    """Numbers of packets, with those that have no lanes."""


def captured(folder: Path, jobs: Mapping[int, Group]) -> dict[tuple[int, Group], Captured]:
    """Return the bytes and packets that captures of a switch show, by rank (in the default group) and group.

    Args:
        folder: A file for each port, which one rank of one job has.
        jobs: The groups by the number of their job in the switch.
    """
    found = {}
    for file in sorted(folder.glob("*.pcapng")):
        events = [event for event in events_of(read_file(file)) if event.inbound is not None]
        if events:
            group = jobs[events[0].job]
            bit = next(event.bitmap for event in events if event.inbound and event.kind == wire.KIND_GRADIENT)
            rank = bit.bit_length() - 1
            found[group[rank], group] = _of_port(events, rank)
    return found


def _of_port(events: Iterable[Event], rank: int) -> Captured:
    seen: set[tuple[bool | None, int]] = set()
    lanes: Counter[bool | None] = Counter()
    again: Counter[bool | None] = Counter()
    packets: Counter[bool | None] = Counter()
    for event in events:
        packets[event.inbound] += 1
        if event.lanes:
            first = (event.inbound, event.psn) not in seen and (event.inbound or _takes(event.target, rank))
            (lanes if first else again)[event.inbound] += 4 * event.lanes
            seen.add((event.inbound, event.psn))
    return Captured(*(Link(each[True], each[False]) for each in (lanes, again, packets)))


def _takes(target: int, rank: int) -> bool:
    """Return whether a rank takes the lanes of a result with this target."""
    return (rank == target & ~wire.TARGET_BUT) == (target & wire.TARGET_BUT == 0)


ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = ROOT / "examples" / "torch_fsdp.py"
NOTING: Final = Path(__file__).with_name("sharded_script.py")
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
    """What each rank noted (`benchmarks.training.sharded_script`)."""

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
        option("--output", type=Path, help="folder of sharded.md"),
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
        fill(given.output / "sharded.md", tables)


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
