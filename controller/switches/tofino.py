"""A switch that runs a program for Tofino, seen as one that runs a program for v1model.

Controllers write and read rows of the v1model programs' tables (`controller.switches.jobs`). `TofinoTarget`
stores each of these rows on the switch. A job's row in the job table is written last: then the job gets its
rows in the program's own tables (`controller.switches.tofino_rows`). When the row in the job table is
deleted, the rows in the program's own tables are deleted first.

A row is stored as the metadata of an entry in the table of receivers, for a kind of packet that does not
exist. So all that a controller knows is read from the switch, as with v1model programs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from controller.switches import names
from controller.switches.jobs import TABLES, key_of, parse
from controller.switches.model import Admission
from controller.switches.programs import ProgramBundle
from controller.switches.target import (
    CounterCell,
    Entry,
    Kind,
    Match,
    MulticastGroup,
    ProgramInfo,
    RegisterCell,
    TableEntry,
    Target,
)
from controller.switches.tofino_rows import (
    BITMAPS,
    BRIDGE,
    COUNTER,
    EGRESS_PORT,
    EXITS,
    JOB_KEY,
    KIND_KEY,
    MEMBER,
    NEIGHBOUR,
    NEVER_USED,
    PART,
    RECEIVER,
    SELF_GROUP,
    SELF_PORT,
    SLOT_PSN,
    STRENGTH,
    rows,
)

_KEPT = {names.JOB: 8, names.MEMBER: 9, names.UPLINK: 10, names.RECEIVER: 11}
"""By v1model table, the kind of packet under which the table's rows are stored; no packet has this kind."""
_TABLE_OF = {kind: table for table, kind in _KEPT.items()}
_SECOND_KEY = {names.MEMBER: names.INGRESS_PORT, names.RECEIVER: names.REPLICA}
_BRIDGE = {
    names.FORWARD: ("Ingress.leaving.to_port", "port"),
    names.FLOOD: ("Ingress.leaving.to_group", "group"),
}


class TofinoTarget:
    """The program and the rows of a `Target`: Tofino programs of this project look like its v1model programs.

    Calls are translated for the switch behind `target`. If the switch runs another kind of program, calls are
    passed on unchanged.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._physical: ProgramInfo | None = None
        self._program_read = False

    def program(self) -> ProgramInfo | None:
        """Return the description of the loaded program, or None if there is none."""
        found = self._target.program()
        self._physical = None if found is None else found.physical
        self._program_read = True
        return found

    def load(self, bundle: ProgramBundle, replacing: Callable[[ProgramInfo, int], None]) -> bool:
        """Make the switch run this program; see `Target.load`."""
        anew = self._target.load(bundle, replacing)
        self.program()
        return anew

    def write(self, kind: Kind, entries: Sequence[Entry]) -> None:
        """Insert, modify or delete entries, as `kind` says.

        Raises Refused; UnknownName; BadJob for a job that programs for Tofino cannot serve.
        """
        if not self._program_read:
            self.program()
        if self._physical is None:
            self._target.write(kind, entries)
            return
        touched = {
            _job(row): row.table == names.JOB
            for row in sorted(entries, key=lambda row: isinstance(row, TableEntry) and row.table == names.JOB)
            if isinstance(row, TableEntry) and row.table in _KEPT
        }
        if kind == "DELETE":
            for job, closes in touched.items():
                if closes:
                    self._put(job, ())
        self._target.write(kind, [_kept(entry) for entry in entries])
        for job, opens in touched.items():
            if not (kind == "DELETE" and opens):
                self._update(job, opens=kind == "INSERT" and opens)

    def read(self, tables: Iterable[str]) -> list[TableEntry | MulticastGroup]:
        """Read all entries of these tables except default entries, and all multicast groups."""
        if self._physical is None:
            return self._target.read(tables)
        wanted = set(tables)
        found: list[TableEntry | MulticastGroup] = []
        for row in self._target.read([RECEIVER]):
            if isinstance(row, MulticastGroup):
                found += [row] if row.id != SELF_GROUP else []
            elif (restored := _restored(row)) is not None and restored.table in wanted:
                found.append(restored)
        return found

    def read_row(self, table: str, match: Mapping[str, Match]) -> TableEntry | None:
        """Read the entry of a table with this match; None if there is none."""
        if self._physical is None or table not in _KEPT:
            return self._target.read_row(table, match)
        kept = self._target.read_row(RECEIVER, _kept_match(table, match))
        return None if kept is None else _restored(kept)

    def read_counter(self, counter: str, cells: Sequence[int]) -> list[int]:
        """Read the packet counts of some cells of a counter."""
        return self._target.read_counter(counter if self._physical is None else COUNTER, cells)

    # ------------------------------------------------------------------ jobs

    @property
    def _shared(self) -> bool:
        assert self._physical is not None
        return NEIGHBOUR in self._physical.tables

    def _update(self, job: int, *, opens: bool) -> None:
        """Update the program's own tables from a job's stored rows.

        `opens`: whether the job has just been admitted.
        """
        jobs = parse(self.read(TABLES), job_groups=range(0)).jobs
        admission = jobs.get(job)
        if admission is None:
            return
        wanted = rows(admission, shared=self._shared)
        if opens:
            self._prepare(admission, alone=len(jobs) == 1)
        self._put(job, wanted)

    def _put(self, job: int, wanted: Sequence[TableEntry]) -> None:
        tables = [MEMBER, EXITS, RECEIVER, *([NEIGHBOUR, PART] if self._shared else [])]
        found = {
            key_of(row): row
            for row in self._target.read(tables)
            if isinstance(row, TableEntry) and row.match[JOB_KEY] == job and _restored(row) is None
        }
        goal = {key_of(row): row for row in wanted}
        self._write_if_any("DELETE", [row for key, row in found.items() if key not in goal])
        self._write_if_any("MODIFY", [row for key, row in goal.items() if key in found and found[key] != row])
        self._write_if_any("INSERT", [row for key, row in goal.items() if key not in found])

    def _write_if_any(self, kind: Kind, entries: Sequence[Entry]) -> None:
        if entries:
            self._target.write(kind, entries)

    def _prepare(self, admission: Admission, *, alone: bool) -> None:
        """Clear sums of earlier jobs from the slots of a job that is being admitted.

        Slots that jobs share are cleared only if the job is `alone`: other jobs may have sums there.
        """
        cells = range(admission.region.offset, admission.region.end)
        if not self._shared:
            self._target.write("MODIFY", [RegisterCell(SLOT_PSN, cell, NEVER_USED) for cell in cells])
            return
        if not any(isinstance(row, MulticastGroup) and row.id == SELF_GROUP for row in self._target.read([])):
            self._target.write("INSERT", [MulticastGroup(SELF_GROUP, ((SELF_PORT, 0),))])
        if alone:
            for register in (STRENGTH, *BITMAPS):
                self._target.write("MODIFY", [RegisterCell(register, cell, 0) for cell in cells])


def _job(row: TableEntry) -> int:
    job = row.match[names.JOB_KEY]
    assert isinstance(job, int)
    return job


def _kept(entry: Entry) -> Entry:
    """Convert an entry of the v1model programs to the entry that the Tofino switch stores.

    A job's row becomes the metadata of an entry in the receiver table. A bridge row or a counter cell only
    gets the names of the Tofino program. Any other entry is returned unchanged.
    """
    match entry:
        case CounterCell():
            return replace(entry, counter=COUNTER)
        case TableEntry(table=names.BRIDGE):
            action, param = _BRIDGE[entry.action]
            return replace(entry, table=BRIDGE, action=action, params={param: entry.params[param]})
        case TableEntry(table=table) if table in _KEPT:
            stored = {
                "action": entry.action,
                "params": dict(entry.params),
                "metadata": entry.metadata.decode("latin-1"),
            }
            match = _kept_match(table, entry.match)
            return TableEntry(RECEIVER, match, "Egress.drop", metadata=json.dumps(stored).encode())
        case _:
            return entry


def _kept_match(table: str, match: Mapping[str, Match]) -> dict[str, Match]:
    second = _SECOND_KEY.get(table)
    return {
        JOB_KEY: match[names.JOB_KEY],
        EGRESS_PORT: match[second] if second else 0,
        KIND_KEY: _KEPT[table],
    }


def _restored(row: TableEntry) -> TableEntry | None:
    """Return the job's row that `_kept` stored in an entry; None if the entry stores none."""
    kind = row.match.get(KIND_KEY)
    table = _TABLE_OF.get(kind) if row.table == RECEIVER and isinstance(kind, int) else None
    if table is None:
        return None
    stored = json.loads(row.metadata)
    match = {names.JOB_KEY: row.match[JOB_KEY]}
    if (second := _SECOND_KEY.get(table)) is not None:
        match[second] = row.match[EGRESS_PORT]
    metadata = stored["metadata"].encode("latin-1")
    return TableEntry(table, match, stored["action"], stored["params"], metadata=metadata)
