"""Control of one switch: its program, its rows of jobs, its ordinary traffic.

Which rows are written for jobs is decided elsewhere (`controller.switches.fleet`). All that a controller
knows of a switch is read from the switch, so that several controllers can share it, and nothing is lost when
a controller ends. A read followed by a write is done by one controller at a time
(`controller.switches.target.Target.turn`).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from controller.errors import (
    NoProgram,
    NoSuchJob,
    OtherOwner,
    OtherProgram,
    ProgramMismatch,
    Refused,
    SwitchRestarted,
)
from controller.switches import names
from controller.switches.jobs import (
    TABLES,
    Contents,
    ParseCache,
    Row,
    RowCache,
    encode_registration,
    key_of,
    parse,
)
from controller.switches.leases import LeaseWatch, Owner, has_ended, lives, owner_of
from controller.switches.model import COLUMNS, OUTCOMES, Admission, Registration, SwitchInfo
from controller.switches.planning import Identity, choose_identity
from controller.switches.programs import ProgramBundle, capabilities
from controller.switches.reconcile import MOST_ENTRIES, Action, SwitchState, Write
from controller.switches.target import (
    CounterCell,
    Entry,
    Kind,
    MulticastGroup,
    ProgramInfo,
    TableEntry,
    Target,
    find,
)
from controller.switches.tofino import TofinoTarget
from controller.vocabulary.errors import plural

_log = logging.getLogger("controller")

_SETTLED_MASK = (1 << 32) - 1  # of RegionChange.number


class SwitchSession:
    """A session with one switch: reads and writes the content of the switch that `target` reaches.

    `clock` returns wall-clock seconds, and `rng` draws job ids. `ticks_s` is a clock that does not go back;
    it measures leases. Tests replace these. `turn` waits at most `turn_timeout_s` for other controllers, or
    `load_turn_timeout_s` to load the first program of a switch.
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
        self._switch = target  # its connection, turns and restarts
        # its program and rows, with the names of the v1model programs, whatever program it runs
        self._target = TofinoTarget(target)
        self._clock = clock
        self._rng = rng or random.Random()
        self._ticks_s = ticks_s
        self.leases = LeaseWatch(has_ended)
        """The observed leases of the jobs, updated each time that the jobs are read."""
        self._turn_timeout_s = turn_timeout_s
        self._load_turn_timeout_s = load_turn_timeout_s
        self._program: ProgramInfo | None = None
        self._info: SwitchInfo | None = None
        self._baselines: dict[int, dict[str, int]] = {}
        self._before = ParseCache()
        self._row_cache = RowCache((*TABLES, names.CHANGE))
        self._last_generation: int | None = None
        self.owner: Owner | None = None
        """The owner whose mark the switch gets before the first write. A switch that has another owner's mark
        is not written. None: any switch is written, and none is marked."""
        self._owned = False
        self._kept = ExitStack()
        """The turn of `keep_turn`."""
        self._restarts: dict[int, int] = {}
        """By a job's generation: number of restarts of the switch observed before the job was admitted."""

    def close(self) -> None:
        """Close the connection; jobs stay admitted."""
        self._kept.close()
        self._switch.close()

    def expect_silence(self) -> None:
        """Limit the next call's wait for any answer to 1 s, because the switch seems to hang."""
        self._switch.expect_silence()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Address of the switch, ``host:port`` or ``unix:path``."""
        return self._switch.address

    def turn(self) -> AbstractContextManager[None]:
        """Be the only controller that writes during the block.

        A block within another block has no effect of its own. Raises NotPrimary if another controller stays
        primary.
        """
        return self._turn(self._turn_timeout_s)

    def keep_turn(self) -> None:
        """Be the only controller that writes from now on until `close`: one `turn` for all writes.

        This saves elections, for a switch that no other controller reaches. The switch's rows are then read
        once, and again only after a failed write. Raises NotPrimary.
        """
        self._kept.enter_context(self.turn())

    @property
    def undisturbed(self) -> bool:
        """True if no other controller can have written since this controller's last `turn`; else False.

        Valid only within `turn`.
        """
        return self._switch.undisturbed

    @contextmanager
    def _turn(self, timeout_s: float, *, take_over: bool = False) -> Iterator[None]:
        with ExitStack() as stack:
            undisturbed = self._row_cache.in_turn
            if not undisturbed:
                stack.enter_context(self._switch.turn(timeout_s=timeout_s))
                undisturbed = self._switch.undisturbed
                self._row_cache.begin(undisturbed=undisturbed)
                stack.callback(self._row_cache.end)
            if self.owner is not None and not (self._owned and undisturbed):
                self._mark(self.owner, take_over)
            yield

    # ------------------------------------------------------------------ its owner

    def claim(self, owner: Owner, *, take_over: bool = False) -> None:
        """Act for this owner from now on: mark the switch as the owner's, if its program can hold a mark.

        Raises SwitchError. Without `take_over`, raises OtherOwner if the switch has the mark of another
        owner, or the mark of another process of this owner, unless that owner or process is gone
        (`_is_left`).
        """
        self.owner, self._owned = owner, False
        with self._turn(self._turn_timeout_s, take_over=take_over):
            pass

    def check_owner(self, owner: Owner) -> None:
        """Raise OtherOwner or SwitchError if `claim` would; write nothing."""
        self.owner = owner
        program = self._target.program()
        if program is not None and names.BRIDGE in program.tables:
            self._marked(owner)

    def _marked(self, owner: Owner) -> TableEntry | None:
        """Return the mark on the switch. Raises OtherOwner for the mark of another owner that is not gone."""
        mark = owner.mark()
        row = self._target.read_row(mark.table, mark.match)
        found = None if row is None else owner_of(row)
        if found is not None and found != owner and (self._owned or not self._is_left(found)):
            self._owned = False
            raise OtherOwner(
                f"the switch at {self.address} belongs to {found.name} (id {found.id}); only one controller"
                " may decide on its jobs"
            )
        return row

    def _mark(self, owner: Owner, take_over: bool) -> None:
        """Make sure that the switch has the owner's mark; call within `turn`. Raises OtherOwner."""
        program = self._target.program()
        if program is None or names.BRIDGE not in program.tables:
            self._owned = program is not None  # it has no place for a mark
            return
        mark = owner.mark()
        row = self._target.read_row(mark.table, mark.match) if take_over else self._marked(owner)
        self._owned = False
        found = None if row is None else owner_of(row)
        if found != owner:
            if found is not None and found.id != owner.id:
                _log.warning("the switch at %s is taken over from %s", self.address, found.name)
            self._target.write("INSERT" if row is None else "MODIFY", [mark])
        self._owned = True

    def _is_left(self, owner: Owner) -> bool:
        """Return whether an owner is gone, so that its mark no longer counts.

        If `owner` is another process of this session's owner, it counts as gone unless the process is known
        to run.
        Any other owner counts as gone if its process is known to have ended, and every job on the switch has
        a lease.
        """
        assert self.owner is not None
        if owner.id == self.owner.id:
            return lives(owner.process) is not True
        rows = self._target.read([names.JOB]) if has_ended(owner.process) else []
        return has_ended(owner.process) and all(job.leased for job in self._parsed(rows).jobs.values())

    # ------------------------------------------------------------------ program

    def load(self, bundle: ProgramBundle, *, replace: bool = False, similar: bool = False) -> bool:
        """Make the switch run this program; return False if it already ran the program.

        Args:
            bundle: the program.
            replace: whether another program may be replaced.
            similar: whether another program may stay if it serves the same jobs (`SwitchInfo.covers`).

        Raises OtherProgram if the switch runs another program that may not be replaced, and ProgramMismatch
        if jobs are admitted to the other program. Nothing is changed then.
        """
        self._program = self._info = None  # another controller may have loaded another program
        if self._switch.runs(bundle):
            return False
        if similar and not replace and self._covers(bundle):
            _log.warning(
                "the switch at %s runs another program than '%s',"
                " which stays because it serves the same jobs",
                self.address,
                bundle.name,
            )
            return False
        # Another controller with a turn at a switch without a program probably loads one, which takes time.
        is_empty = self._target.program() is None
        timeout_s = self._load_turn_timeout_s if is_empty else self._turn_timeout_s
        with self._turn(timeout_s):
            self._row_cache.invalidate()
            anew = self._target.load(bundle, partial(self._refuse_to_replace, bundle, replace))
            if anew:
                self._baselines.clear()
        return anew

    def _covers(self, bundle: ProgramBundle) -> bool:
        try:
            return self.info().covers(bundle.offers())
        except ProgramMismatch:  # the switch may also run no program
            return False

    def _refuse_to_replace(
        self, bundle: ProgramBundle, replace: bool, running: ProgramInfo, entries: int
    ) -> None:
        what = f"the switch at {self.address} runs another program than '{bundle.name}'"
        # a program without our table of jobs has no jobs
        rows = self._target.read([names.JOB]) if names.JOB in running.tables else []
        if jobs := sum(isinstance(row, TableEntry) for row in rows):
            raise ProgramMismatch(
                f"{what} ({self._how_different(running, bundle)}), which serves {plural(jobs, 'job')};"
                " end them first, or run with the loaded program"
            )
        if not replace:
            raise OtherProgram(
                f"{what} ({self._how_different(running, bundle)}), with {entries} table"
                f" {'entry' if entries == 1 else 'entries'}"
            )

    def _how_different(self, running: ProgramInfo, wanted: ProgramBundle) -> str:
        try:
            offers = capabilities(running, self._title)
        except ProgramMismatch:
            offers = None
        cookies = f"its cookie is {running.cookie:#x}, not {wanted.cookie:#x}"
        return f"{_differences(offers, wanted)}; {cookies}"

    @property
    def _title(self) -> str:
        return f"the program of the switch at {self.address}"

    def has_program(self) -> bool:
        """Return whether the switch runs any program. Raises SwitchError."""
        self._program = self._target.program()
        self._info = None
        return self._program is not None

    @property
    def program(self) -> ProgramInfo:
        """The tables, actions, counters and registers of the loaded program.

        Raises NoProgram if there is none.
        """
        if self._program is None:
            self._program = self._target.program()
            if self._program is None:
                raise NoProgram(f"the switch at {self.address} has no program loaded")
        return self._program

    def info(self) -> SwitchInfo:
        """Return the loaded program's capacity. Raises ProgramMismatch if the program cannot aggregate."""
        if self._info is None:
            self._info = capabilities(self.program, self._title)
        return self._info

    # ------------------------------------------------------------------ jobs

    def jobs(self) -> dict[int, Admission]:
        """Read all jobs that the switch serves now, also jobs of other controllers."""
        self.info()  # or the tables are not ours
        return self._parsed(self._read_rows(), self._before).jobs

    def renew(self, admission: Admission, registration: Registration) -> None:
        """Replace a job's registration. Raises NoSuchJob if the job is not there any more; SwitchError."""
        with self.turn():
            row = self._row_of_the_same(admission)
            self._write("MODIFY", [replace(row, metadata=encode_registration(registration))])

    def check(self, admission: Admission) -> None:
        """Check that a job is still there; reads one row.

        Raises SwitchRestarted if the switch has lost the job in a restart; NoSuchJob; SwitchError.
        """
        unknown = f"the switch at {self.address} no longer knows job {admission.job}: it was restarted"
        try:
            self._row_of_the_same(admission)
        except Refused as error:
            if self._target.program() is None:
                raise SwitchRestarted(f"{unknown}, and has no program") from error
            raise
        except NoSuchJob as error:
            with self.turn():
                restarts = self._switch.restarts  # a turn shows it
            if restarts > self._restarts.get(admission.generation, restarts):
                raise SwitchRestarted(unknown) from error
            raise

    def _row_of_the_same(self, admission: Admission) -> TableEntry:
        row = self._row_of(admission.job)
        if row.params["generation"] != admission.generation:
            raise NoSuchJob(
                f"job {admission.job} at {self.address} has generation {row.params['generation']} now, not"
                f" {admission.generation}"
            )
        return row

    def watch_leases(self) -> list[Admission]:
        """Look at the leases of all jobs; return the jobs.

        The returned jobs have only the properties that are in the job table. A lease can expire only while it
        is watched: call this repeatedly. Raises SwitchError.
        """
        self.info()
        return [*self._parsed(self._target.read([names.JOB])).jobs.values()]

    def choose_identity(self, present: Iterable[Admission]) -> Identity:
        """Choose a job id that no present job has, and a generation higher than the last one chosen."""
        found = choose_identity(present, clock=self._clock, rng=self._rng, last=self._last_generation)
        self._last_generation = found.generation
        return found

    def has_moved(self, moving: Admission) -> bool:
        """Read whether a job's move to other slots is over, so that no packet needs the previous slots."""
        return moving.change is None or self._settled(moving) != moving.change.number & _SETTLED_MASK

    def counters(self, job: int) -> dict[str, int]:
        """Read how many of a job's packets had each outcome since its admission. Raises NoSuchJob."""
        return self.row_counters(self._row_of(job).params["counter_row"])

    def row_counters(self, row: int) -> dict[str, int]:
        """Read a row of outcome counters; row 0 is for packets that belong to no job."""
        return self.rows_counters([row])[row]

    def rows_counters(
        self, rows: Sequence[int], outcomes: Collection[str] = OUTCOMES
    ) -> dict[int, dict[str, int]]:
        """Read several rows of outcome counters in one request; return packets by row and outcome.

        Raises SwitchError.
        """
        self.info()  # or the counters are not ours
        return {
            row: {name: count - self._baselines.get(row, {}).get(name, 0) for name, count in cells.items()}
            for row, cells in self._read_counter_rows(rows, outcomes).items()
        }

    # ------------------------------------------------------------------ as a whole

    def observe(self, *, moves: bool = True) -> SwitchState:
        """Read all rows of jobs, the program that runs now and, with `moves`, which moves are over.

        Raises NoProgram, ProgramMismatch; SwitchError.
        """
        owner = None if self._row_cache.in_turn else self.owner  # a turn has checked the mark
        owned = self._owned
        if owner is not None and not owned:
            self.claim(owner)
        if self._row_cache.rows() is None:  # else no other controller has had a turn
            program, offers = self._program, self._info
            self._program = self._info = None  # the switch may have been started anew
            if self.program == program:
                self._info = offers
        info = self.info()
        if owner is not None and owned and names.BRIDGE in self.program.tables:
            self._marked(owner)  # it may have been taken over
        rows = self._read_rows()
        contents = self._parsed(rows, self._before)
        settled: dict[int, int] = {}
        if moves and names.SETTLED in self.program.counters:
            counter_rows = sorted({job.counter_row for job in contents.jobs.values()})
            counts = self._target.read_counter(names.SETTLED, counter_rows) if counter_rows else []
            settled = {row: count & _SETTLED_MASK for row, count in zip(counter_rows, counts, strict=True)}
        return SwitchState(info, rows, contents, self._job_groups, settled)

    def apply(self, write: Write) -> None:
        """Apply a write of `controller.switches.reconcile` within `turn`. Raises SwitchError."""
        cells = [each for each in write.entries if isinstance(each, CounterCell)]
        if cells:
            self._reset_counters(sorted({each.index // COLUMNS for each in cells}))
        elif write.kind == "DELETE":
            self._delete(write.entries)
        else:
            self._write(write.kind, write.entries)

    def record_applied(self, action: Action) -> None:
        """Record within `turn` that all writes of an action are applied."""
        if action.admission is not None:
            if action.verb == "remove":
                self._baselines.pop(action.admission.counter_row, None)
            elif action.verb == "add":
                self._restarts[action.admission.generation] = self._switch.restarts

    # ------------------------------------------------------------------ ordinary traffic

    def install(self, entries: Iterable[TableEntry | MulticastGroup]) -> None:
        """Write entries of `controller.switches.forwarding`; replace entries that have the same match.

        Raises SwitchError; UnknownName; ValueError for a wrong value. Entries that were written before the
        failing entry stay.
        """
        with self.turn():
            for entry in entries:
                if isinstance(entry, TableEntry) and entry.default:
                    self._write("MODIFY", [entry])
                    continue
                try:
                    self._write("INSERT", [entry])
                except Refused as error:
                    if [e.code for e in error.errors] != ["ALREADY_EXISTS"]:
                        raise
                    self._write("MODIFY", [entry])

    def update_entries(self, entries: Iterable[TableEntry], *, without: Iterable[TableEntry] = ()) -> int:
        """Write the entries that the switch lacks or has with other content; return the number written.

        Other entries of these tables stay, but entries with the match of an entry in `without` are deleted.
        Raises SwitchError.
        """
        wanted = list(entries)
        rows = self._target.read(sorted({each.table for each in wanted}))
        known = {key_of(row): row for row in rows if isinstance(row, TableEntry)}
        missing = [each for each in wanted if known.get(key_of(each)) != each]
        new = [each for each in missing if not each.default and key_of(each) not in known]
        if missing:
            try:
                with self.turn():
                    for at in range(0, len(new), MOST_ENTRIES):
                        self._write("INSERT", new[at : at + MOST_ENTRIES])
                changed = [each for each in missing if each not in new]
            except Refused:  # another controller has written some of them meanwhile
                changed = missing
            if changed:
                self.install(changed)
        if present := [known[key_of(each)] for each in without if key_of(each) in known]:
            self.uninstall(present)
        return len(missing)

    def set_ecn_threshold(self, depth: int) -> None:
        """Mark aggregation packets that find `depth` packets or more in their egress queue.

        Raises ValueError if the depth is negative or more than the switch can count; SwitchError.
        """
        parameters = find("action", names.SET_ECN, self.program.actions)
        highest = (1 << find(f"parameter of {names.SET_ECN}", "depth", parameters)) - 1
        if not 0 <= depth <= highest:
            raise ValueError(f"a queue of {depth} packets; want 0 to {highest}")
        self.install([TableEntry(names.ECN, {}, names.SET_ECN, {"depth": depth}, default=True)])

    def uninstall(self, entries: Iterable[TableEntry | MulticastGroup]) -> None:
        """Delete entries; missing entries are skipped. Raises SwitchError."""
        with self.turn():
            self._delete(list(entries))

    # ------------------------------------------------------------------ reading

    def _parsed(self, rows: Sequence[Row], before: ParseCache | None = None) -> Contents:
        contents = parse(rows, job_groups=self._job_groups, before=before)
        self.leases.look(contents.jobs.values(), self._ticks_s())
        return contents

    def _read_rows(self) -> list[Row]:
        """Return the rows of all jobs; within `turn`, rows that are known are not read again."""
        rows = self._row_cache.rows()
        if rows is None:
            moves = [names.CHANGE] if names.CHANGE in self.program.tables else []
            rows = self._target.read([*TABLES, *moves])
            self._row_cache.store(rows)
        return rows

    @property
    def _job_groups(self) -> range:
        return range(1, find("counter", names.OUTCOMES, self.program.counters) // COLUMNS)

    def _settled(self, admission: Admission) -> int:
        """Read from a job's counter row how many packets have shown that a move is over, modulo 2**32."""
        (packets,) = self._target.read_counter(names.SETTLED, [admission.counter_row])
        return packets & _SETTLED_MASK

    def _row_of(self, job: int) -> TableEntry:
        """Read a job's row in the job table, and no other. Raises NoSuchJob."""
        self.info()
        row = self._target.read_row(names.JOB, {names.JOB_KEY: job})
        if row is None:
            raise self.no_such_job(job)
        return row

    def no_such_job(self, job: int) -> NoSuchJob:
        """Return the error that says that a job is not there."""
        return NoSuchJob(f"the switch at {self.address} has no job {job}")

    # ------------------------------------------------------------------ writing

    def _write(self, kind: Kind, entries: Sequence[Entry]) -> None:
        try:
            self._target.write(kind, entries)
        except BaseException:
            self._row_cache.invalidate()  # some of it may be there, now or later
            raise
        self._row_cache.apply(kind, entries)

    def _delete(self, rows: Sequence[Entry]) -> None:
        if not rows:
            return
        try:
            self._write("DELETE", rows)
        except Refused as error:
            if not error.errors or any(e.code != "NOT_FOUND" for e in error.errors):
                raise

    def _reset_counters(self, rows: Sequence[int]) -> None:
        """Set jobs' counters to zero; if the switch refuses, record the counts, to subtract them later."""
        for row in rows:
            self._baselines.pop(row, None)
        zeros = [CounterCell(names.OUTCOMES, row * COLUMNS + at) for row in rows for at in OUTCOMES.values()]
        try:
            self._target.write("MODIFY", zeros)
        except Refused:
            self._baselines |= self._read_counter_rows(rows)

    def _read_counter_rows(
        self, rows: Sequence[int], outcomes: Collection[str] = OUTCOMES
    ) -> dict[int, dict[str, int]]:
        cells = [row * COLUMNS + OUTCOMES[name] for row in rows for name in outcomes]
        counts = iter(self._target.read_counter(names.OUTCOMES, cells))
        return {row: {name: next(counts) for name in outcomes} for row in rows}


def _differences(running: SwitchInfo | None, wanted: ProgramBundle) -> str:
    """Describe how a running program differs from the wanted one.

    `running` is None if the running program is not for aggregation.
    """
    try:
        offers = wanted.offers()
    except ProgramMismatch:
        offers = None
    if running is None or offers is None:
        return "only one of the two is for aggregation" if running or offers else "neither is for aggregation"
    found = []
    if running.mode != offers.mode:
        found.append(f"it is for {running.mode} jobs, not for {offers.mode} ones")
    if running.lanes != offers.lanes:
        found.append(f"its packets have {running.lanes} values, not {offers.lanes}")
    if running.salted != offers.salted:
        found.append(f"its slots are {'' if running.salted else 'not '}chosen by ATP's salted hash")
    if running.mode == offers.mode:
        found += [f"it lacks {what}" for each, what in running.lacks.items() if each not in offers.lacks]
    return "; ".join(found) or "it serves the same jobs, but is compiled from other source"
