"""Switches of this process that may not answer, write half of what they are told, or lose all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

from bmv2_topos.testbeds.virtual.target import PipelineTarget
from controller.errors import Unreachable
from controller.switches.programs import ProgramBundle, objects
from controller.switches.target import Entry, Kind, Match, MulticastGroup, ProgramInfo, Revision, TableEntry
from ina.runtime.programs import bundle
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
