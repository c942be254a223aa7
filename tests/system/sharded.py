"""FSDP2 and HSDP under torchrun, with gloo and through a switch that captures all packets.

Bytes of lanes on the link of each rank: the least that its calls need, and those of a capture. Values travel
in packets of `LANES` lanes of 4 bytes; the last packet of an array is filled up. Headers are not counted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bmv2_topos.trace.captures import read_file
from bmv2_topos.trace.events import Event, events_of
from hostlib import wire
from ina.run.switches.switch_process import EmbeddedSwitch
from tests.system.attached import udp_block
from tests.system.command import ROOT, TORCHRUN
from tests.system.workers.sharded_script import Call

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


def needed(call: Call, rank: int) -> Link:
    """Return the bytes of whole packets that a call needs on the link of a rank (in the group), at least."""
    size = len(call.ranks)

    def packed(elements: int) -> int:
        return -(-elements * call.bytes_each // PACKET_BYTES) * PACKET_BYTES

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


def least(calls: Iterable[Call], rank: int) -> dict[Group, Link]:
    """Return the bytes that a rank's calls need on its link, by group."""
    links: dict[Group, Link] = defaultdict(Link)
    for call in calls:
        links[call.ranks] += needed(call, call.ranks.index(rank))
    return dict(links)


def captured(folder: Path, jobs: Mapping[int, Group]) -> dict[tuple[int, Group], Link]:
    """Return the bytes that captures of a switch show, by rank (in the default group) and group.

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


def _of_port(events: Iterable[Event], rank: int) -> Link:
    """Return the bytes of lanes, each packet counted once; a rank may get others' with a repeated result."""
    seen: set[tuple[bool | None, int]] = set()
    lanes: Counter[bool | None] = Counter()
    for event in events:
        if event.lanes:
            if (event.inbound, event.psn) not in seen and (event.inbound or _takes(event.target, rank)):
                lanes[event.inbound] += 4 * event.lanes
            seen.add((event.inbound, event.psn))
    return Link(lanes[True], lanes[False])


def _takes(target: int, rank: int) -> bool:
    """Return whether a rank takes the lanes of a result with this target."""
    return (rank == target & ~wire.TARGET_BUT) == (target & wire.TARGET_BUT == 0)


SCRIPT: Final = ROOT / "examples" / "torch_fsdp.py"
NOTING: Final = Path(__file__).parent / "workers" / "sharded_script.py"
RANKS: Final = 4
PORTS: Final = range(1, 4 * RANKS + 1)
LIMIT_S: Final = 600
_LOSS = re.compile(r"loss (\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class Trained:
    """What one run of the script came to."""

    losses: tuple[float, ...]
    """Of each epoch."""
    noted: tuple[Mapping[str, Any], ...]
    """What each rank noted (`sharded_script`)."""

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

    rank: int
    group: Group
    sums: int
    """Calls that are sums for all ranks."""
    least: Link
    captured: Link


def both(replicas: int, epochs: int) -> tuple[Trained, Trained, list[Row]]:
    """Train with gloo and in the switch.

    Args:
        replicas: Copies of the parameters, each in shards.
        epochs: Number of epochs.

    Returns:
        The run with gloo; the run in the switch; its links.
    """
    gloo = _train("gloo", replicas, epochs, {})
    with TemporaryDirectory() as folder, udp_block() as base:
        ports = [f"--port={port}=udp:0:{base + port}" for port in PORTS]
        with EmbeddedSwitch([*ports, "--pcap", folder, "--pcap-snap", "70", "--pcap-notes", ""]) as switch:
            ina = _train("ina", replicas, epochs, {"INA_SWITCH": switch.address})
        shown = captured(Path(folder), ina.jobs)
    return gloo, ina, [*_rows(gloo.calls, shown)]


def _train(backend: str, replicas: int, epochs: int, variables: Mapping[str, str]) -> Trained:
    with TemporaryDirectory() as folder:
        options = ["--backend", backend, "--replicas", str(replicas), "--epochs", str(epochs)]
        done = subprocess.run(
            [
                *(*TORCHRUN, "--nproc-per-node", str(RANKS)),
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


def _rows(calls: Sequence[Sequence[Call]], shown: Mapping[tuple[int, Group], Link]) -> Iterator[Row]:
    for rank in range(RANKS):
        for group, needs in least(calls[rank], rank).items():
            sums = [call.what for call in calls[rank] if call.ranks == group].count("all_reduce")
            yield Row(rank, group, sums, needs, shown[rank, group])
