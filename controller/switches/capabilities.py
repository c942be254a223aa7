"""What a switch program offers to jobs, read from its P4Info: programs are not recognised by their names.

The entries that a controller writes name tables, match fields, actions and parameters. So sample entries are
compared with the tables and actions of the program, which may have further tables and actions. Registers,
which no controller reads or writes, show what slots can do:

================  =======================================================  =================================
feature           P4Info has                                               meaning
================  =======================================================  =================================
slots             registers ``slot_psn`` and ``lane_0``, ``lane_1``, …     number of slots, values per packet
shared            ``slot_job``, or the table or the counter of moves       jobs share slots, and need a
                                                                           fallback server
preemption        ``slot_priority``                                        a packet can take another's slot
salted            ``slot_salt``                                            a packet that collided is hashed
                                                                           anew, and has no priority (ATP)
shards            the table ``lane_work``                                  contributions may have no lanes, as
                                                                           in a broadcast
================  =======================================================  =================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from controller.errors import ProgramMismatch
from controller.switches import names
from controller.switches.jobs import change_row, job_row, supporting_rows
from controller.switches.model import COLUMNS, Admission, Feature, Member, RegionChange, SwitchInfo, Uplink
from controller.switches.target import Entry, Lpm, Match, ProgramInfo, Range, TableEntry, TableInfo, Ternary
from controller.vocabulary import Region

_MAC, _IP = "02:00:00:00:00:01", "10.0.0.1"
_SAMPLE = Admission(
    job=1,
    counter_row=1,
    region=Region(0, 2),
    generation=1,
    group=1,
    members=(Member(0, 0, _MAC, _IP, 1),),
    fan_in=1,
    window=1,
    uplink=Uplink(1, _MAC, _IP),
    result_bitmap=1,
    change=RegionChange(1, Region(0, 2)),
)
_UNKNOWN = "for which the controller has no value"
_MAX_NAMED = 4


def capabilities(program: ProgramInfo, title: str) -> SwitchInfo:
    """Return the capacity that a program offers to jobs.

    Args:
        program: the objects of the program's P4Info.
        title: the program's name in errors, such as ``the program shared``.

    Raises ProgramMismatch, which names the missing part, if the program can serve no job at all.
    """
    lanes = _lanes(program)
    lacking = [
        *missing(program, (job_row(_SAMPLE), *supporting_rows(_SAMPLE))),
        *_absent("counter", program.counters, names.OUTCOMES),
        *_absent("register", program.registers, names.SLOT_REGISTER),
        *([] if lanes else [f"register '{names.LANE_REGISTERS}0'"]),
    ]
    if lacking:
        raise ProgramMismatch(f"{title} is not one for aggregation: it lacks {_listed(lacking)}")
    rows = program.counters[names.OUTCOMES] // COLUMNS
    moving = [
        *missing(program, [change_row(_SAMPLE)]),
        *_absent("counter", program.counters, names.SETTLED),
    ]
    shared = (
        names.JOB_REGISTER in program.registers
        or names.CHANGE in program.tables
        or names.SETTLED in program.counters
    )
    lacks = {
        Feature.PREEMPTION: _absent("register", program.registers, names.PRIORITY_REGISTER),
        Feature.MOVES: moving,
        Feature.SHARDS: [] if names.LANE_WORK in program.tables else [f"table '{names.LANE_WORK}'"],
    }
    return SwitchInfo(
        lanes=lanes,
        slots=program.registers[names.SLOT_REGISTER],
        jobs=min(program.tables[names.JOB].size, program.tables[names.UPLINK].size, rows - 1),
        max_members=program.actions[names.SET_MEMBER]["bitmap"],
        mode="shared" if shared else "exclusive",
        salted=names.SALT_REGISTER in program.registers,
        lacks={feature: _listed(what) for feature, what in lacks.items() if what},
        title=title,
        aligned=program.physical is not None,
    )


def missing(program: ProgramInfo, rows: Iterable[Entry]) -> list[str]:
    """Return the names of the tables, fields, actions and parameters that a program lacks for these entries.

    The result is empty if the program can hold all of them.
    """
    found = (each for row in rows if isinstance(row, TableEntry) for each in _missing_for(program, row))
    return list(dict.fromkeys(found))


def _missing_for(program: ProgramInfo, row: TableEntry) -> Iterator[str]:
    table = program.tables.get(row.table)
    if table is None:
        yield f"table '{row.table}'"
        return
    yield from _missing_keys(table, row)
    if row.action not in table.actions:
        yield f"action '{row.action}' in table '{row.table}'"
        return
    params = program.actions[row.action]
    yield from (f"parameter '{name}' of action '{row.action}'" for name in row.params if name not in params)
    for name in params:
        if name not in row.params:
            yield f"an action '{row.action}' without parameter '{name}', {_UNKNOWN}"


def _missing_keys(table: TableInfo, row: TableEntry) -> Iterator[str]:
    for name, value in row.match.items():
        kind = table.keys.get(name)
        if kind is None:
            yield f"match field '{name}' of table '{row.table}'"
        elif kind not in _kinds(value):
            wanted = " or ".join(_kinds(value))
            yield f"match field '{name}' of table '{row.table}' of kind {wanted} (it is {kind})"
    for name in table.keys:
        if name not in row.match:
            yield f"a table '{row.table}' without match field '{name}', {_UNKNOWN}"


def _kinds(value: Match) -> tuple[str, ...]:
    """Return the kinds of match fields that accept a value of this type."""
    match value:
        case Lpm():
            return ("lpm",)
        case Ternary():
            return ("ternary",)
        case Range():
            return ("range",)
        case _:
            return ("exact", "optional")


def _lanes(program: ProgramInfo) -> int:
    return sum(name.startswith(names.LANE_REGISTERS) for name in program.registers)


def _absent(kind: str, objects: Mapping[str, int], name: str) -> list[str]:
    return [] if name in objects else [f"{kind} '{name}'"]


def _listed(lacking: list[str]) -> str:
    more = len(lacking) - _MAX_NAMED
    named = ", ".join(lacking[:_MAX_NAMED])
    return f"{named} and {more} more" if more > 0 else named
