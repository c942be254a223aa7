"""One switch under control: its program, its jobs, its ordinary traffic.

Everything that a controller knows of a switch it reads from the switch, so that any number of
controllers can share one and none has to survive. What is read and then written is read and
written by one controller at a time (`controller.p4runtime_shim.mastership`).
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from controller import names
from controller.checks import check_job
from controller.errors import (
    BadJob,
    ControllerError,
    NoProgram,
    NoSuchJob,
    OtherProgram,
    ProgramMismatch,
    Refused,
    RegionChanging,
    UnknownName,
)
from controller.jobs import TABLES, Contents, change_row, job_row, parse, supporting_rows
from controller.leases import run_out
from controller.memory import shared
from controller.model import Admission, Job, Lease, Region, RegionChange, SwitchInfo
from controller.outcomes import COLUMNS, OUTCOMES
from controller.p4runtime_shim.client import P4RuntimeClient
from controller.p4runtime_shim.codec import Codec
from controller.p4runtime_shim.rows import Cell, Entry, Group, Row
from controller.p4runtime_shim.tls import Tls
from controller.planning import Identity, choose_identity, plan
from controller.programs import ProgramBundle

_SETTLED_MASK = (1 << 32) - 1  # of RegionChange.number


class Controller:
    """Admits jobs to the switch that `client` is connected to, and removes them.

    `clock` gives wall-clock seconds, for leases too, `rng` job ids; both are parameters for tests.
    """

    def __init__(
        self,
        client: P4RuntimeClient,
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        turn_timeout_s: float = 10.0,
    ) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng or random.Random()
        self._turn_timeout_s = turn_timeout_s
        self._codec: Codec | None = None
        self._baselines: dict[int, dict[str, int]] = {}

    @classmethod
    def connect(cls, address: str, *, device_id: int = 0, tls: Tls | None = None) -> Self:
        """Connect to a P4Runtime server at ``host:port`` or ``unix:path``. Raises Unreachable."""
        return cls(P4RuntimeClient(address, device_id=device_id, tls=tls))

    def close(self) -> None:
        """Close the connection; jobs stay admitted."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where the switch is reached, ``host:port`` or ``unix:path``."""
        return self._client.address

    # ------------------------------------------------------------------ program

    def load(self, bundle: ProgramBundle, *, replace: bool = False) -> bool:
        """See to it that the switch runs this program; False if it did already.

        Raises, with nothing changed, OtherProgram if it runs another one that is not to be replaced, and
        ProgramMismatch if that one has jobs.
        """
        with self._client.mastership(timeout_s=self._turn_timeout_s):
            loaded = self._client.p4info()
            if loaded is not None and loaded == bundle.p4info:
                self._codec = Codec(loaded)
                return False
            if loaded is not None and loaded.ByteSize():
                self._refuse_to_replace(Codec(loaded), bundle, replace)
            self._client.load(bundle.p4info, bundle.device_config)
            self._codec = Codec(bundle.p4info)
            self._baselines.clear()
            return True

    def _refuse_to_replace(self, loaded: Codec, bundle: ProgramBundle, replace: bool) -> None:
        with contextlib.suppress(UnknownName):  # not a program of ours: it has no jobs
            running = len(self._client.read([loaded.all_rows(names.JOB)]))
            if running:
                raise ProgramMismatch(
                    f"the switch runs another program than '{bundle.name}' with these lanes, which serves"
                    f" {running} job{'' if running == 1 else 's'}; end them first, or run with the loaded"
                    " program"
                )
        if not replace:
            entries = sum(not e.table_entry.is_const for e in self._client.read([loaded.every_row()]))
            raise OtherProgram(
                f"the switch at {self.address} runs {_title(loaded)}, with {entries} table"
                f" {'entry' if entries == 1 else 'entries'}, and not"
                f" '{bundle.name}' with these lanes"
            )

    @property
    def codec(self) -> Codec:
        """Names and ids of the loaded program. Raises NoProgram if there is none."""
        if self._codec is None:
            p4info = self._client.p4info()
            if p4info is None or not p4info.tables:
                raise NoProgram(f"the switch at {self.address} has no program loaded")
            self._codec = Codec(p4info)
        return self._codec

    def info(self) -> SwitchInfo:
        """What the loaded program offers. Raises ProgramMismatch if it is not one for aggregation."""
        try:
            return _info(self.codec)
        except UnknownName as error:
            raise ProgramMismatch(f"the loaded program is not one for aggregation: {error}") from error

    # ------------------------------------------------------------------ jobs

    def jobs(self) -> dict[int, Admission]:
        """Read the jobs that the switch serves now, whoever admitted them."""
        return self._contents().jobs

    def admit(
        self,
        job: Job,
        *,
        ports: Sequence[int] = (),
        identity: Identity | None = None,
        lease: Lease | None = None,
    ) -> Admission:
        """Give a job its slots, counters and table entries.

        Members, and an uplink, without a port get the lowest of `ports` that no job uses. Its counters
        start at zero. A job of several switches is given its `identity` (`controller.tree.admit_tree`).
        With a `lease` it stays for as long as that is renewed; jobs whose leases ran out are removed first.

        Raises BadJob, OutOfMemory or OutOfRows if the job does not fit; ProgramMismatch if the switch's
        program is not for jobs of this mode; IdentityTaken; SwitchError if the switch fails or refuses.
        Whatever was written by then is taken back; what cannot be taken back, because the switch is
        gone, lets no packet in and is swept up by the next admission.
        """
        info = self.info()
        check_job(job, max_members=info.max_members)
        with self._client.mastership(timeout_s=self._turn_timeout_s):
            present = self._sweep().jobs.values()
            identity = identity or self.choose_identity(present)
            admission = plan(job, identity, info=info, present=present, ports=ports)
            admission = replace(admission, lease=lease)
            opening, rows = job_row(admission), supporting_rows(admission)
            self._insert_all_or_none(rows)
            try:
                self._reset_counters(admission.counter_row)
                self._client.write("INSERT", [self.codec.encode(opening)])
            except BaseException:
                self._delete_if_possible([opening, *rows])  # it may be in, and only the answer lost
                raise
        return admission

    def renew(self, admission: Admission, lease: Lease) -> None:
        """Give a job another lease. Raises NoSuchJob if it is not there any more; SwitchError."""
        with self._client.mastership(timeout_s=self._turn_timeout_s):
            found = self._find(self._contents(), admission.job)
            if found.generation != admission.generation:
                raise NoSuchJob(f"job {found.job} at {self.address} is another one by now")
            self._client.write("MODIFY", [self.codec.encode(job_row(replace(found, lease=lease)))])

    def choose_identity(self, present: Iterable[Admission]) -> Identity:
        """Choose a job id and a generation that none of the jobs present has."""
        return choose_identity(present, clock=self._clock, rng=self._rng)

    def resize(self, job: int, region: Region) -> Admission:
        """Have a shared job move to other slots.

        No packet is lost or sent again for it: sums that are under way end in the old region, and PSNs from
        about a window on use the new one. Until `settle` says that the move is over both regions are in use,
        so neither should be given to a job that is to have slots of its own.

        Raises NoSuchJob; RegionChanging while an earlier move is not settled; ProgramMismatch for an
        exclusive job, whose results its slots keep; BadJob if the region leaves the memory or the switch is
        one that the job only passes through.
        """
        info = self.info()
        if info.program != "shared":
            raise ProgramMismatch("an exclusive job keeps its slots for life; only shared jobs are resized")
        with self._client.mastership(timeout_s=self._turn_timeout_s):
            found = self._find(self._contents(), job)
            if found.transit:
                raise BadJob(f"job {job} only passes through the switch at {self.address}; it has no region")
            if found.change is not None:
                raise RegionChanging(
                    f"job {job} is still on its way from {found.region} to {found.change.region};"
                    " settle that first"
                )
            number = found.generation << 32 | self._settled(found)
            moving = replace(found, change=RegionChange(number, shared.place(info.slots, region)))
            self._client.write("INSERT", [self.codec.encode(change_row(moving))])
        return moving

    def settle(self, job: int) -> bool:
        """End a job's move to another region if no rank needs the old one any more; whether it is over.

        It takes two windows of packets from `resize` on, and a job that sends nothing does not move. True
        also if the job has not moved at all.

        Raises NoSuchJob; SwitchError.
        """
        with self._client.mastership(timeout_s=self._turn_timeout_s):
            found = self._find(self._contents(), job)
            if found.change is None:
                return True
            if self._settled(found) == found.change.number & _SETTLED_MASK:
                return False
            there = replace(found, region=found.change.region)
            self._client.write("MODIFY", [self.codec.encode(job_row(there))])
            self._delete([change_row(found)])
        return True

    def remove(self, job: int) -> None:
        """Take all that belongs to a job off the switch, its row in the job table first.

        Raises NoSuchJob.
        """
        with self._client.mastership(timeout_s=self._turn_timeout_s):
            found = self._find(self._contents(), job)
            self._delete([job_row(found)])
            # What its row held together are orphans now, incomplete jobs of others included.
            self._delete(self._contents().orphans)
        self._baselines.pop(found.counter_row, None)

    def counters(self, job: int) -> dict[str, int]:
        """Read how many packets of a job met which outcome since its admission. Raises NoSuchJob."""
        return self.row_counters(self._find(self._contents(), job).counter_row)

    def row_counters(self, row: int) -> dict[str, int]:
        """Read a row of outcome counters; row 0 is for packets of no job."""
        cells = self._read_row(row)
        baseline = self._baselines.get(row, {})
        return {name: count - baseline.get(name, 0) for name, count in cells.items()}

    # ------------------------------------------------------------------ ordinary traffic

    def install(self, entries: Iterable[Row | Group]) -> None:
        """Write entries of `controller.forwarding`, replacing those with the same match.

        Raises SwitchError; entries before the one that failed stay.
        """
        with self._client.mastership(timeout_s=self._turn_timeout_s):
            for entry in entries:
                encoded = [self.codec.encode(entry)]
                if isinstance(entry, Row) and entry.default:
                    self._client.write("MODIFY", encoded)
                    continue
                try:
                    self._client.write("INSERT", encoded)
                except Refused as error:
                    if [e.code for e in error.errors] != ["ALREADY_EXISTS"]:
                        raise
                    self._client.write("MODIFY", encoded)

    def set_ecn_threshold(self, depth: int) -> None:
        """Mark aggregation packets that find `depth` packets or more in their egress queue.

        Raises ValueError if the depth is negative or more than the switch can count; SwitchError.
        """
        highest = (1 << self.codec.param_width(names.SET_ECN, "depth")) - 1
        if not 0 <= depth <= highest:
            raise ValueError(f"a queue can be 0 to {highest} packets deep, not {depth}")
        self.install([Row(names.ECN, {}, names.SET_ECN, {"depth": depth}, default=True)])

    def uninstall(self, entries: Iterable[Row | Group]) -> None:
        """Delete entries; those that are not there any more are left out. Raises SwitchError."""
        with self._client.mastership(timeout_s=self._turn_timeout_s):
            self._delete(list(entries))

    # ------------------------------------------------------------------ reading

    def _contents(self) -> Contents:
        codec = self.codec
        self.info()  # or the tables are not ours
        shares = names.CHANGE in codec.table_names()
        tables = [codec.all_rows(table) for table in (*TABLES, *([names.CHANGE] if shares else []))]
        entities = self._client.read([*tables, codec.all_groups()])
        rows = [row for row in map(codec.decode, entities) if isinstance(row, Row | Group)]
        return parse(rows, job_groups=range(1, _counter_rows(codec)))

    def _sweep(self) -> Contents:
        """Delete what belongs to nobody, jobs whose leases ran out included; return what is left."""
        contents = self._contents()
        dead = run_out(contents.jobs.values(), int(self._clock() * 1000))
        if dead:
            self._delete([job_row(admission) for admission in dead])
            contents = self._contents()
        if contents.orphans:
            self._delete(contents.orphans)
        return contents

    def _settled(self, admission: Admission) -> int:
        """Read how many packets of a job's counter row have shown a move to be over, modulo 2**32."""
        wanted = self.codec.cell(names.SETTLED, admission.counter_row)
        cells = [c for c in map(self.codec.decode, self._client.read([wanted])) if isinstance(c, Cell)]
        return sum(cell.packets for cell in cells) & _SETTLED_MASK

    def _find(self, contents: Contents, job: int) -> Admission:
        if job not in contents.jobs:
            raise NoSuchJob(f"the switch at {self.address} has no job {job}")
        return contents.jobs[job]

    # ------------------------------------------------------------------ writing

    def _insert_all_or_none(self, rows: Sequence[Entry]) -> None:
        try:
            self._client.write("INSERT", [self.codec.encode(row) for row in rows])
        except Refused as error:
            failed = {e.position for e in error.errors} or set(range(len(rows)))
            self._delete_if_possible([row for i, row in enumerate(rows) if i not in failed])
            raise
        except BaseException:
            self._delete_if_possible(rows)
            raise

    def _delete_if_possible(self, rows: Sequence[Entry]) -> None:
        """Clean up after an error that is on its way already; a second one would hide it."""
        try:
            self._delete(rows)
        except ControllerError:
            return

    def _delete(self, rows: Sequence[Entry]) -> None:
        if not rows:
            return
        try:
            self._client.write("DELETE", [self.codec.encode(row) for row in rows])
        except Refused as error:
            if not error.errors or any(e.code != "NOT_FOUND" for e in error.errors):
                raise

    def _reset_counters(self, row: int) -> None:
        """Start a job's counters at zero, or remember where they stand if the switch cannot write them."""
        self._baselines.pop(row, None)
        zeros = [Cell(names.OUTCOMES, row * COLUMNS + column) for column in OUTCOMES.values()]
        try:
            self._client.write("MODIFY", [self.codec.encode(cell) for cell in zeros])
        except Refused:
            self._baselines[row] = self._read_row(row)

    def _read_row(self, row: int) -> dict[str, int]:
        codec = self.codec
        wanted = [codec.cell(names.OUTCOMES, row * COLUMNS + column) for column in OUTCOMES.values()]
        cells: dict[int, Any] = {}
        for cell in map(codec.decode, self._client.read(wanted)):
            if isinstance(cell, Cell):
                cells[cell.index - row * COLUMNS] = cell.packets
        return {name: cells.get(column, 0) for name, column in OUTCOMES.items()}


def _info(codec: Codec) -> SwitchInfo:
    """Read off what a program offers. Raises UnknownName if it is not one for aggregation."""
    return SwitchInfo(
        lanes=sum(name.startswith(names.LANE_REGISTERS) for name in codec.register_names()),
        slots=codec.register_size(names.SLOT_REGISTER),
        jobs=min(codec.table_size(names.JOB), codec.table_size(names.UPLINK), _counter_rows(codec) - 1),
        max_members=codec.param_width(names.SET_MEMBER, "bitmap"),
        program="shared" if names.PRIORITY_REGISTER in codec.register_names() else "exclusive",
    )


def _counter_rows(codec: Codec) -> int:
    """How many rows of outcome counters there are; row 0 is for packets of no job."""
    return codec.counter_size(names.OUTCOMES) // COLUMNS


def _title(codec: Codec) -> str:
    """Name a program for people."""
    try:
        info = _info(codec)
    except UnknownName:
        tables = sorted(codec.table_names())
        listed = ", ".join(tables[:4]) + (", …" if len(tables) > 4 else "") or "none"
        return f"a program that is not for aggregation (tables: {listed})"
    return f"a program for {info.program} jobs with {info.lanes} values per packet"
