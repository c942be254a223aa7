"""The time of each packet of a script in the compiled program, in memory and without queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.engine.bench import FrameLoop
from softswitch.engine.build import load
from softswitch.engine.native import Members
from softswitch.engine.pipeline import Pipeline
from softswitch.engine.switch import Switch
from softswitch.stf.control import Control
from softswitch.stf.plane import EmbeddedPlane
from softswitch.stf.script import Packet, Statement

PASSES = 2000
TURNS = 5


@dataclass(frozen=True, slots=True)
class PacketTime:
    """A packet of a script: processor time in ns from parser to deparser, and the copies that left."""

    line: int
    port: int
    bytes: int
    ns: float
    copies: int


def packet_times(program: ir.Program, statements: Sequence[Statement]) -> list[PacketTime]:
    """Return the time of each packet of a script, with all of its entries and groups.

    Each is given to the program some thousand times, one after the other, and the fastest turn counts: so
    registers hold what the packet itself has left there, and everything is in the processor's caches. A
    resubmitted, recirculated or cloned packet is counted up to there. Raises ScriptError, NoCompiler.
    """
    pipeline = load(program, backend="compiled")
    with Switch({}) as switch:
        Control(program, EmbeddedPlane(switch, pipeline)).configure(statements)
        groups = switch.multicast_groups()
        packets = [statement for statement in statements if isinstance(statement, Packet)]
        return [_time(pipeline, groups, packet) for packet in packets]


def _time(pipeline: Pipeline, groups: dict[int, list[tuple[int, int]]], packet: Packet) -> PacketTime:
    _, verdict = pipeline.ingress(packet.data, packet.port)
    replicas: Members = groups.get(verdict.mcast_grp, ())
    frames = [(packet.data, packet.port)]
    loop = FrameLoop(pipeline, frames, replicas=replicas, number_offset=0, number_step=0)
    turns = [loop.run(PASSES) for _ in range(TURNS)]
    ns = min(turn.cpu_s for turn in turns) / PASSES * 1e9
    return PacketTime(packet.line, packet.port, len(packet.data), round(ns, 1), turns[-1].copies // PASSES)
