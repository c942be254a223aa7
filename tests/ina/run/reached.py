"""Switches of this process that may not answer, and a sum in packets through them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import count

import numpy as np

from bmv2_topos.testbeds.virtual.target import PipelineTarget
from controller.errors import Unreachable
from controller.switches.layout import TreeAdmission
from controller.switches.programs import ProgramBundle, objects
from controller.switches.target import Entry, Kind, Match, MulticastGroup, ProgramInfo, Revision, TableEntry
from controller.vocabulary import Topology
from hostlib import wire
from ina.run.switches.programs import bundle
from softswitch.compiler import p4info
from softswitch.engine.build import load
from softswitch.engine.cache import compile_once
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch

LANES = 32
PORTS = range(1, 9)


def never() -> None:
    """Do nothing between two writes."""


class Reached:
    """A target that may not answer.

    Attributes:
        switch: The switch itself.
        tables: Those that a controller writes.
        gone: It does not answer.
        torn: Entries of the next write that are written before it stops answering for that write; None: all.
        before_write: Called before each entry is written.
        revision: What it tells of itself.
    """

    def __init__(self, target: PipelineTarget, switch: Switch, tables: Sequence[str]) -> None:
        """Reach a switch by its target; `tables` are those that a controller writes."""
        self._target = target
        self.tables = tables
        self.switch = switch
        self.address = target.address
        self.restarts = 0
        self.undisturbed = False
        self.gone = False
        self.torn: int | None = None
        self.before_write: Callable[[], None] = never
        self._wiped = False
        self.revision = Revision(0, 0)

    def _here(self) -> PipelineTarget:
        if self.gone:
            raise Unreachable(f"{self.address} does not answer")
        return self._target

    def close(self) -> None:
        """Do nothing."""

    @contextmanager
    def turn(self, *, timeout_s: float) -> Iterator[None]:
        with self._here().turn(timeout_s=timeout_s):
            self.undisturbed, self._wiped = not self._wiped, False  # there is one daemon at a time
            yield

    def program(self) -> ProgramInfo | None:
        return self._here().program()

    def runs(self, bundle: ProgramBundle) -> bool:
        return True

    def load(self, bundle: ProgramBundle, replacing: Callable[[ProgramInfo, int], None]) -> bool:
        self._here()
        return False

    def write(self, kind: Kind, entries: Sequence[Entry]) -> None:
        target = self._here()
        left, self.torn = self.torn, None
        for number, entry in enumerate(entries):
            if number == left:
                raise Unreachable(f"{self.address} answers no more, after {number} of {len(entries)} entries")
            self.before_write()
            target.write(kind, [entry])
            self.revision = replace(self.revision, writes=self.revision.writes + 1)
        if left is not None:
            raise Unreachable(f"{self.address} answers no more, and has written all")

    def read(self, tables: Iterable[str]) -> list[TableEntry | MulticastGroup]:
        return self._here().read(tables)

    def read_row(self, table: str, match: Mapping[str, Match]) -> TableEntry | None:
        return self._here().read_row(table, match)

    def read_counter(self, counter: str, cells: Sequence[int]) -> list[int]:
        return self._here().read_counter(counter, cells)

    def wipe(self) -> None:
        """Lose all entries, as a switch that is started again."""
        self._target.write("DELETE", self._target.read(self.tables))
        self._wiped = True
        self.restarts += 1
        self.revision = Revision(self.revision.booted_ns + 1, 0)

    def again(self) -> None:
        """Be as new, for another world."""
        self.gone, self.torn, self.before_write = False, None, never
        self.wipe()


@cache
def program() -> ProgramBundle:
    """The program of all switches."""
    return bundle("shared", LANES)


@cache
def reached(name: str, slots: int) -> Reached:
    """A switch of this process, which lasts; `Reached.again` makes it as new."""
    switch = Switch({number: MemoryPort() for number in PORTS})
    pipeline = load(compile_once(program().device_config.decode(), name="shared"))
    switch.load(pipeline)
    target = PipelineTarget(name, switch, pipeline, objects(p4info(pipeline.program)), slots=slots)
    tables = [name for name, table in pipeline.program.tables.items() if not table.const_entries]
    return Reached(target, switch, [name for name in tables if name in target.program().tables])


MOST_HOPS = 1000
_NOW_US = count(1)
"""Of all switches, which last longer than a world."""
_FRAME = wire.packet_dtype(LANES, framed=True)


class WrongSum(AssertionError):
    """A sum that is not that of each member's gradient once."""


def summed(
    topology: Topology,
    switches: Mapping[str, Switch],
    served: Collection[str],
    admission: TreeAdmission,
    psn: int,
    works: Callable[[str, str], bool],
) -> bool:
    """Send a gradient from each member of a job; return whether their sum was completed.

    The sum is complete if every member has it, or the fallback server has all that it is made of. Member i
    sends 2 ** i, so that a sum says whose gradients it is of.

    Args:
        topology: How switches and servers are connected.
        switches: By name.
        served: The servers whose fallback servers serve the job.
        admission: The job, as its switches should serve it.
        psn: The packets' number.
        works: Returns whether the link between two nodes carries packets now.

    Raises WrongSum.
    """
    members = [
        (name, member, on)
        for name, on in admission.switches.items()
        for member in on.members
        if member.rank is not None
    ]
    results: list[int] = []
    at_server = 0
    going = []
    for number, (name, member, on) in enumerate(members):
        assert member.port is not None
        host = topology.ports[name][member.port].other(name)
        frame = np.zeros(1, _FRAME)
        prefix = _prefix(topology.mac(host), topology.ip(host), member.udp_port)
        frame.view(np.uint8)[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        frame["version_kind"] = wire.version_kind(wire.KIND_GRADIENT)
        frame["job"], frame["psn"], frame["epoch"] = on.job, psn, on.epoch
        frame["bitmap"], frame["fan_in"], frame["node"] = member.bitmap, on.fan_in, on.node
        frame["valid"] = frame["lanes"] = LANES
        frame["target"] = wire.TARGET_ALL
        frame["values"] = 1 << number
        if works(host, name):
            going.append((name, member.port, frame.tobytes()))
    for _ in range(MOST_HOPS):
        if not going:
            break
        name, port, data = going.pop(0)
        switches[name].inject(port, [data], next(_NOW_US))
        for out, link in topology.ports[name].items():
            for sent in switches[name].drain(out):
                other = link.other(name)
                if not works(name, other):
                    continue
                if other in switches:
                    there = next(n for n, back in topology.ports[other].items() if back is link)
                    going.append((other, there, sent))
                    continue
                packet = np.frombuffer(sent[: _FRAME.itemsize], _FRAME)[0]
                if packet["version_kind"] == wire.version_kind(wire.KIND_RESULT):
                    results.append(int(packet["values"][0]))
                elif other in served:
                    at_server += int(packet["values"][0])
    else:
        raise WrongSum(f"job {admission.job}: packets go round in circles")
    whole = (1 << len(members)) - 1
    if any(value != whole for value in results) or at_server > whole:
        raise WrongSum(
            f"job {admission.job}: want {whole:#b}, workers got {results}, the server {at_server:#b}"
        )
    return len(results) == len(members) or at_server == whole


@cache
def _prefix(mac: str, ip: str, port: int) -> bytes:
    ends = wire.Endpoints(mac, "02:00:00:00:ff:01", ip, "10.0.255.1", port)
    return wire.frame_prefix(ends, _FRAME.itemsize - wire.FRAME_PREFIX_BYTES)
