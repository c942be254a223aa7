"""One switch under control: its program, its jobs, its ordinary traffic.

Everything that a controller knows of a switch it reads from the switch, so that any number of
controllers can share one and none has to survive. What is read and then written is read and
written by one controller at a time (`controller.switches.target.Target.turn`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

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
from controller.memory import shared
from controller.switches import names, registrations
from controller.switches.checks import check_part
from controller.switches.entries import CounterCell, Entry, MulticastGroup, TableEntry
from controller.switches.holders import has_ended
from controller.switches.jobs import TABLES, Contents, Row, change_row, job_row, parse, supporting_rows
from controller.switches.leases import Watch
from controller.switches.model import Admission, Part, RegionChange, Registration, SwitchInfo
from controller.switches.outcomes import COLUMNS, OUTCOMES
from controller.switches.planning import Identity, choose_identity, plan
from controller.switches.reconcile import Action, Observed
from controller.switches.target import ProgramInfo, Target, find
from controller.vocabulary import Region

if TYPE_CHECKING:
    from controller.switches.programs import ProgramBundle

_SETTLED_MASK = (1 << 32) - 1  # of RegionChange.number


class Controller:
    """Admits jobs to the switch that `target` reaches, and removes them.

    `clock` gives wall-clock seconds, `rng` job ids; `leases` watches over those of jobs by `ticks_s`, a clock
    that does not go back. All are parameters for tests. Other controllers are waited for `turn_timeout_s`,
    `load_turn_timeout_s` at a switch without a program.
    """

    def __init__(
        self,
        target: Target,
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        ticks_s: Callable[[], float] = time.monotonic,
        turn_timeout_s: float = 10.0,
        load_turn_timeout_s: float = 60.0,
    ) -> None:
        self._target = target
        self._clock = clock
        self._rng = rng or random.Random()
        self._ticks_s = ticks_s
        self.leases = Watch(has_ended)
        """What has been seen of the leases of the jobs, each time that these were read."""
        self._turn_timeout_s = turn_timeout_s
        self._load_turn_timeout_s = load_turn_timeout_s
        self._program: ProgramInfo | None = None
        self._info: SwitchInfo | None = None
        self._baselines: dict[int, dict[str, int]] = {}

    def close(self) -> None:
        """Close the connection; jobs stay admitted."""
        self._target.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Address of the switch, ``host:port`` or ``unix:path``."""
        return self._target.address

    def turn(self) -> AbstractContextManager[None]:
        """Be the only controller that writes for the time of the block; within it only `apply` may be called.

        Raises NotPrimary if another one stays it.
        """
        return self._target.turn(timeout_s=self._turn_timeout_s)

    # ------------------------------------------------------------------ program

    def load(self, bundle: ProgramBundle, *, replace: bool = False) -> bool:
        """See to it that the switch runs this program; False if it did already.

        Raises, with nothing changed, OtherProgram if it runs another one that is not to be replaced, and
        ProgramMismatch if that one has jobs.
        """

        def refuse(running: ProgramInfo, entries: int) -> None:
            self._refuse_to_replace(running, entries, bundle, replace)

        self._program = self._info = None  # somebody else may have loaded another one
        if self._target.runs(bundle):
            return False
        # Who has its turn at a switch without a program is likely to load one, and a switch may compile it.
        is_empty = self._target.program() is None
        timeout_s = self._load_turn_timeout_s if is_empty else self._turn_timeout_s
        with self._target.turn(timeout_s=timeout_s):
            anew = self._target.load(bundle, refuse)
            if anew:
                self._baselines.clear()
        return anew

    def _refuse_to_replace(
        self, running: ProgramInfo, entries: int, bundle: ProgramBundle, replace: bool
    ) -> None:
        if names.JOB in running.tables:  # or it is not a program of ours, and has no jobs
            jobs = sum(isinstance(row, TableEntry) for row in self._target.read([names.JOB]))
            if jobs:
                raise ProgramMismatch(
                    f"the switch runs another program than '{bundle.name}' with these lanes, which serves"
                    f" {jobs} job{'' if jobs == 1 else 's'}; end them first, or run with the loaded"
                    " program"
                )
        if not replace:
            raise OtherProgram(
                f"the switch at {self.address} runs {_title(running)}, with {entries} table"
                f" {'entry' if entries == 1 else 'entries'}, and not"
                f" '{bundle.name}' with these lanes: its cookie is {running.cookie:#x}, and not"
                f" {bundle.cookie:#x}"
            )

    def has_program(self) -> bool:
        """Ask whether the switch runs any program. Raises SwitchError."""
        self._program = self._target.program()
        self._info = None
        return self._program is not None

    @property
    def program(self) -> ProgramInfo:
        """Objects of the loaded program. Raises NoProgram if there is none."""
        if self._program is None:
            self._program = self._target.program()
            if self._program is None:
                raise NoProgram(f"the switch at {self.address} has no program loaded")
        return self._program

    def info(self) -> SwitchInfo:
        """Capacity of the loaded program. Raises ProgramMismatch if it is not one for aggregation."""
        if self._info is None:
            try:
                self._info = _info(self.program)
            except UnknownName as error:
                raise ProgramMismatch(f"the loaded program is not one for aggregation: {error}") from error
        return self._info

    # ------------------------------------------------------------------ jobs

    def jobs(self) -> dict[int, Admission]:
        """Read the jobs that the switch serves now, whoever admitted them."""
        return self._contents().jobs

    def admit(
        self,
        part: Part,
        *,
        ports: Sequence[int] = (),
        identity: Identity | None = None,
        registration: Registration | None = None,
    ) -> Admission:
        """Give a job its slots, counters and table entries on this switch.

        Members, and an uplink, without a port get the lowest of `ports` that no job uses. Its counters
        start at zero. A job of several switches is given its `identity` (`fleet.Fleet.admit`).
        If its `registration` has a lease, it is to be renewed; jobs whose leases have been seen to run out
        are removed first (`leases`).

        Raises BadJob, OutOfMemory or OutOfRows if the job does not fit; ProgramMismatch if the switch's
        program is not for jobs of this mode; IdentityTaken; SwitchError if the switch fails or refuses.
        Whatever was written by then is taken back; what cannot be taken back, because the switch is
        gone, lets no packet in and is swept up by the next admission.
        """
        info = self.info()
        check_part(part, max_members=info.max_members)
        with self.turn():
            present = self._sweep()[0].jobs.values()
            identity = identity or self.choose_identity(present)
            admission = plan(part, identity, info=info, present=present, ports=ports)
            admission = replace(admission, registration=registration)
            opening, rows = job_row(admission), supporting_rows(admission)
            self._insert_all_or_none(rows)
            try:
                self._reset_counters(admission.counter_row)
                self._target.write("INSERT", [opening])
            except BaseException:
                self._delete_if_possible([opening, *rows])  # it may be in, and only the answer lost
                raise
        return admission

    def renew(self, admission: Admission, registration: Registration) -> None:
        """Register a job anew. Raises NoSuchJob if it is not there any more; SwitchError."""
        with self.turn():
            row = self._row_of(admission.job)
            if row.params["generation"] != admission.generation:
                raise NoSuchJob(f"job {admission.job} at {self.address} is another one by now")
            self._target.write("MODIFY", [replace(row, metadata=registrations.encode(registration))])

    def sweep(self) -> list[Admission]:
        """Look at the leases of all jobs, and remove those that nobody holds any more; return these.

        A lease runs out under one's eyes only: call it again and again. Raises SwitchError.
        """
        self.info()
        jobs = self._parsed(self._target.read([names.JOB])).jobs.values()
        if not any(map(self.leases.has_run_out, jobs)):
            return []
        with self.turn():
            return self._sweep()[1]

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
        with self.turn():
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
            self._target.write("INSERT", [change_row(moving)])
        return moving

    def settle(self, job: int) -> bool:
        """End a job's move to another region if no rank needs the old one any more; whether it is over.

        It takes two windows of packets from `resize` on, and a job that sends nothing does not move. True
        also if the job has not moved at all.

        Raises NoSuchJob; SwitchError.
        """
        with self.turn():
            found = self._find(self._contents(), job)
            if found.change is None:
                return True
            if not self.moved(found):
                return False
            there = replace(found, region=found.change.region)
            self._target.write("MODIFY", [job_row(there)])
            self._delete([change_row(found)])
        return True

    def moved(self, moving: Admission) -> bool:
        """Read whether `settle` would end the move that `resize` returned, which is quicker than to try."""
        return moving.change is None or self._settled(moving) != moving.change.number & _SETTLED_MASK

    def remove(self, job: int) -> None:
        """Take all that belongs to a job off the switch, its row in the job table first.

        Raises NoSuchJob.
        """
        with self.turn():
            found = self._find(self._contents(), job)
            self._delete([job_row(found)])
            # What its row held together are orphans now, incomplete jobs of others included.
            self._delete(self._contents().orphans)
        self._baselines.pop(found.counter_row, None)

    def counters(self, job: int) -> dict[str, int]:
        """Read how many packets of a job met which outcome since its admission. Raises NoSuchJob."""
        return self.row_counters(self._row_of(job).params["counter_row"])

    def row_counters(self, row: int) -> dict[str, int]:
        """Read a row of outcome counters; row 0 is for packets of no job."""
        cells = self._read_row(row)
        baseline = self._baselines.get(row, {})
        return {name: count - baseline.get(name, 0) for name, count in cells.items()}

    # ------------------------------------------------------------------ as a whole

    def observe(self) -> Observed:
        """Read all rows that jobs may have, and what the program is by now.

        Raises NoProgram, ProgramMismatch; SwitchError.
        """
        self._program = self._info = None  # the switch may have been started anew
        info = self.info()
        rows = self._read_rows()
        jobs = self._parsed(rows).jobs.values()
        settled: dict[int, int] = {}
        if names.SETTLED in self.program.counters:
            counter_rows = sorted({job.counter_row for job in jobs})
            counts = self._target.read_counter(names.SETTLED, counter_rows) if counter_rows else []
            settled = {row: count & _SETTLED_MASK for row, count in zip(counter_rows, counts, strict=True)}
        return Observed(info, rows, self._job_groups, settled)

    def apply(self, action: Action) -> None:
        """Carry out the writes of `controller.switches.reconcile` within `turn`. Raises SwitchError."""
        for write in action.writes:
            counters = next((each for each in write.entries if isinstance(each, CounterCell)), None)
            if counters is not None:
                self._reset_counters(counters.index // COLUMNS)
            elif write.kind == "DELETE":
                self._delete(write.entries)
            else:
                self._target.write(write.kind, write.entries)
        if action.verb == "remove" and action.admission is not None:
            self._baselines.pop(action.admission.counter_row, None)

    # ------------------------------------------------------------------ ordinary traffic

    def install(self, entries: Iterable[TableEntry | MulticastGroup]) -> None:
        """Write entries of `controller.switches.forwarding`, replacing those with the same match.

        Raises SwitchError; entries before the one that failed stay.
        """
        with self.turn():
            for entry in entries:
                if isinstance(entry, TableEntry) and entry.default:
                    self._target.write("MODIFY", [entry])
                    continue
                try:
                    self._target.write("INSERT", [entry])
                except Refused as error:
                    if [e.code for e in error.errors] != ["ALREADY_EXISTS"]:
                        raise
                    self._target.write("MODIFY", [entry])

    def set_ecn_threshold(self, depth: int) -> None:
        """Mark aggregation packets that find `depth` packets or more in their egress queue.

        Raises ValueError if the depth is negative or more than the switch can count; SwitchError.
        """
        highest = (1 << _width(self.program, names.SET_ECN, "depth")) - 1
        if not 0 <= depth <= highest:
            raise ValueError(f"a queue can be 0 to {highest} packets deep, not {depth}")
        self.install([TableEntry(names.ECN, {}, names.SET_ECN, {"depth": depth}, default=True)])

    def uninstall(self, entries: Iterable[TableEntry | MulticastGroup]) -> None:
        """Delete entries; those that are not there any more are left out. Raises SwitchError."""
        with self.turn():
            self._delete(list(entries))

    # ------------------------------------------------------------------ reading

    def _contents(self) -> Contents:
        self.info()  # or the tables are not ours
        return self._parsed(self._read_rows())

    def _parsed(self, rows: Sequence[Row]) -> Contents:
        contents = parse(rows, job_groups=self._job_groups)
        self.leases.look(contents.jobs.values(), self._ticks_s())
        return contents

    def _read_rows(self) -> list[Row]:
        moves = [names.CHANGE] if names.CHANGE in self.program.tables else []
        return self._target.read([*TABLES, *moves])

    @property
    def _job_groups(self) -> range:
        return range(1, _counter_rows(self.program))

    def _sweep(self) -> tuple[Contents, list[Admission]]:
        """Delete what belongs to nobody; return what is left, and the jobs whose leases had run out."""
        contents = self._contents()
        dead = [job for job in contents.jobs.values() if self.leases.has_run_out(job)]
        if dead:
            self._delete([job_row(admission) for admission in dead])
            contents = self._contents()
        if contents.orphans:
            self._delete(contents.orphans)
        return contents, dead

    def _settled(self, admission: Admission) -> int:
        """Read how many packets of a job's counter row have shown a move to be over, modulo 2**32."""
        (packets,) = self._target.read_counter(names.SETTLED, [admission.counter_row])
        return packets & _SETTLED_MASK

    def _row_of(self, job: int) -> TableEntry:
        """Read a job's row in the job table, and no other. Raises NoSuchJob."""
        self.info()
        row = self._target.read_row(names.JOB, {names.JOB_KEY: job})
        if row is None:
            raise self._no_such(job)
        return row

    def _no_such(self, job: int) -> NoSuchJob:
        return NoSuchJob(f"the switch at {self.address} has no job {job}")

    def _find(self, contents: Contents, job: int) -> Admission:
        if job not in contents.jobs:
            raise self._no_such(job)
        return contents.jobs[job]

    # ------------------------------------------------------------------ writing

    def _insert_all_or_none(self, rows: Sequence[Entry]) -> None:
        try:
            self._target.write("INSERT", rows)
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
            self._target.write("DELETE", rows)
        except Refused as error:
            if not error.errors or any(e.code != "NOT_FOUND" for e in error.errors):
                raise

    def _reset_counters(self, row: int) -> None:
        """Start a job's counters at zero, or remember where they stand if the switch cannot write them."""
        self._baselines.pop(row, None)
        zeros = [CounterCell(names.OUTCOMES, row * COLUMNS + column) for column in OUTCOMES.values()]
        try:
            self._target.write("MODIFY", zeros)
        except Refused:
            self._baselines[row] = self._read_row(row)

    def _read_row(self, row: int) -> dict[str, int]:
        cells = [row * COLUMNS + column for column in OUTCOMES.values()]
        return dict(zip(OUTCOMES, self._target.read_counter(names.OUTCOMES, cells), strict=True))


def _info(program: ProgramInfo) -> SwitchInfo:
    """Read off what a program offers. Raises UnknownName if it is not one for aggregation."""
    rooms = [find("table", table, program.tables) for table in (names.JOB, names.UPLINK)]
    return SwitchInfo(
        lanes=sum(name.startswith(names.LANE_REGISTERS) for name in program.registers),
        slots=find("register", names.SLOT_REGISTER, program.registers),
        jobs=min(*rooms, _counter_rows(program) - 1),
        max_members=_width(program, names.SET_MEMBER, "bitmap"),
        program="shared" if names.PRIORITY_REGISTER in program.registers else "exclusive",
    )


def _counter_rows(program: ProgramInfo) -> int:
    """Number of rows of outcome counters; row 0 is for packets of no job."""
    return find("counter", names.OUTCOMES, program.counters) // COLUMNS


def _width(program: ProgramInfo, action: str, param: str) -> int:
    """Width of a parameter of an action, bits."""
    return find(f"parameter of {action}", param, find("action", action, program.actions))


def _title(program: ProgramInfo) -> str:
    """Name a program for people."""
    try:
        info = _info(program)
    except UnknownName:
        tables = sorted(program.tables)
        listed = ", ".join(tables[:4]) + (", …" if len(tables) > 4 else "") or "none"
        return f"a program that is not for aggregation (tables: {listed})"
    return f"a program for {info.program} jobs with {info.lanes} values per packet"
