"""The writes that make switches hold the desired jobs: a pure function. No I/O.

`reconcile` compares the jobs that should be on each switch with the rows that were read from it, and returns
actions in the order in which they must be applied, each with its writes and its reason in words. All
writes for jobs are decided here, whether a job is added, moved or removed. The function is

*idempotent*
    once its actions are applied, it returns none;
*minimal*
    correct rows are not written, and correct jobs are not changed;
*safe for running jobs*
    a job gets other slots by a move, never by being removed and admitted again; the move ends when no packet
    needs the old slots any more; a job gets a slot that another job holds only if the two jobs may share
    slots; obsolete rows are deleted first, at children before their parents; new rows are written last, at
    parents before their children; a job's row in the job table is written after all its other rows.

If the writes are interrupted, the next call continues from the rows that are there. A step that cannot be
taken yet is not an action but waits, with a reason: another job is still leaving the slots, or another
controller has rows in the way. Two jobs that exchange regions would wait for each other. So one of the two
first moves to an empty region, and meanwhile the fallback server does this job's work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from controller.errors import BadJob
from controller.switches import names
from controller.switches.jobs import (
    Contents,
    Key,
    Row,
    change_row,
    job_row,
    key_of,
    supporting_rows,
)
from controller.switches.layout import TreeAdmission
from controller.switches.model import COLUMNS, OUTCOMES, Admission, Feature, RegionChange, SwitchInfo
from controller.switches.target import CounterCell, Entry, Kind, MulticastGroup, TableEntry
from controller.vocabulary import Region
from controller.vocabulary.lists import by_key

EMPTY = Region(0, 0)
MOST_ENTRIES = 32 * COLUMNS
"""Maximum number of entries in one request; all counters of a job fit into one request."""

Verb = Literal["load", "remove", "clear", "settle", "repair", "move", "add"]


@dataclass(frozen=True, slots=True)
class SwitchState:
    """The rows of jobs read from a switch.

    `contents` has the jobs that the rows form. `job_groups` are the ids of multicast groups that only jobs
    use. `settled` maps the counter row of each job to the number of packets that have shown that a move is
    over, modulo 2**32. It is empty if these numbers were not read, because no move ends or begins.
    """

    info: SwitchInfo
    rows: Sequence[Row]
    contents: Contents = field(compare=False)
    job_groups: range
    settled: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Write:
    """Some entries, and the kind of update to apply to each of them, in unspecified order."""

    kind: Kind
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Action:
    """A step at a switch: its kind `verb`, and its writes, in order.

    ======  ====================================================================
    load    load the program (only `Fleet.reconcile` does that)
    remove  remove a job that should not be there
    clear   delete rows that belong to no job
    settle  end a job's move to other slots, which is over
    repair  write missing or wrong rows of a job that stays
    move    make a job move to other slots
    add     admit a job, with its counters at zero
    ======  ====================================================================

    `job` is 0 if the step concerns no job; `admission` is the job as the switch serves it after the step.
    """

    verb: Verb
    switch: str
    job: int
    why: str
    writes: tuple[Write, ...] = ()
    admission: Admission | None = None

    def __str__(self) -> str:
        job = f" job {self.job}" if self.job else ""
        return f"{self.verb}{job} at '{self.switch}': {self.why}"


@dataclass(frozen=True, slots=True)
class WaitingStep:
    """A step that cannot be taken yet, and the reason."""

    switch: str
    job: int
    why: str

    def __str__(self) -> str:
        return f"job {self.job} at '{self.switch}' waits: {self.why}"


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The actions to apply now, in order, and the steps that have to wait.

    `others` names switches with undesired jobs that stay because of their leases, which may expire later.
    """

    actions: tuple[Action, ...]
    waiting: tuple[WaitingStep, ...] = ()
    others: frozenset[str] = frozenset()


def per_switch(trees: Iterable[TreeAdmission]) -> dict[str, list[Admission]]:
    """Return the jobs' admissions by switch, as `reconcile` takes them."""
    return by_key(at for tree in trees for at in tree.switches.items())


def children_first(tree: TreeAdmission) -> list[tuple[str, Admission]]:
    """Return a job's switches and its admissions there, in the order in which the job is removed."""
    return sorted(tree.switches.items(), key=lambda at: _depth(at[1]), reverse=True)


def not_leased(job: Admission) -> bool:
    """Return whether a job has no lease: it may be removed, as no holder has promised to remove it."""
    return not job.leased


def reconcile(
    desired: Mapping[str, Iterable[Admission]],
    observed: Mapping[str, SwitchState],
    *,
    may_remove: Callable[[Admission], bool] = not_leased,
) -> Reconciliation:
    """Return the actions that make switches hold the desired jobs and no others that may be removed.

    Args:
        desired: By switch, the jobs that should be there. For a job that is moving, the desired region is the
            region to which it moves. A registration is written when its job is added, and later changed by
            its holder. So `reconcile` compares only whether a job has a registration, and not its content.
        observed: By switch, the rows that are there; switches that are only in `desired` are skipped.
        may_remove: Function that returns whether an undesired job, or a job whose id a desired job needs, may
            be removed. By default, a job may be removed if it has no lease.

    Raises:
        BadJob: a switch cannot hold the desired jobs: two jobs have one id, generation, counter row or
            group, a region exceeds the memory, or exclusive regions overlap.
    """
    switches = [
        _Switch(name, observed[name], list(desired.get(name, ())), may_remove) for name in sorted(observed)
    ]
    for switch in switches:
        switch.check()
    removed = [action for switch in switches for action in switch.remove()]
    removed.sort(key=lambda action: _depth(action.admission), reverse=True)
    actions = [*removed]
    actions += (action for switch in switches for action in switch.clear())
    actions += (action for switch in switches for action in switch.settle())
    actions += sorted(
        (action for switch in switches for action in switch.repair()),
        key=lambda action: _depth(action.admission),
    )
    actions += (action for switch in switches for action in switch.move())
    actions += _add(switches)
    waiting = tuple(each for switch in switches for each in switch.waiting)
    others = frozenset(switch.name for switch in switches if switch.has_others())
    return Reconciliation(tuple(actions), waiting, others)


def in_few_writes(adds: Iterable[Action]) -> list[list[tuple[str, Write]]]:
    """Return the writes of actions that admit jobs, by switch, in as few requests as their order allows.

    The result is a list of stages: first all supporting rows and counters, then the rows in the job table, at
    parents before their children. Within a stage only the order of writes to the same switch matters.
    """
    supporting: dict[tuple[str, Kind, type[Entry]], list[Entry]] = {}
    rows: dict[tuple[tuple[int, bool], str], list[Entry]] = {}
    for action in adds:
        *before, last = action.writes
        for write in before:
            cells = CounterCell if isinstance(write.entries[0], CounterCell) else TableEntry
            supporting.setdefault((action.switch, write.kind, cells), []).extend(write.entries)
        rows.setdefault((_depth(action.admission), action.switch), []).extend(last.entries)
    stages: dict[tuple[int, bool] | None, list[tuple[str, Kind, list[Entry]]]] = {
        None: [(switch, kind, entries) for (switch, kind, _), entries in supporting.items()]
    }
    for (depth, switch), entries in sorted(rows.items(), key=lambda i: i[0]):
        stages.setdefault(depth, []).append((switch, "INSERT", entries))
    return [
        [
            (switch, Write(kind, tuple(entries[at : at + MOST_ENTRIES])))
            for switch, kind, entries in stage
            for at in range(0, len(entries), MOST_ENTRIES)
        ]
        for stage in stages.values()
    ]


def _depth(job: Admission | None) -> tuple[int, bool]:
    """Return a sort key, parents before children: nodes are numbered from the root (`layout.lay_out`)."""
    assert job is not None
    return job.node, job.transit


def _add(switches: Sequence[_Switch]) -> Iterator[Action]:
    """Yield the admissions of each job to all switches that lack the job.

    A job that has to wait at one switch is admitted to no switch.
    """
    missing = by_key(((job.generation, job.job), switch) for switch in switches for job in switch.missing())
    for (_, number), places in sorted(missing.items()):
        reasons = {switch.name: switch.keeps_out(number) for switch in places}
        if not any(reasons.values()):
            places.sort(key=lambda switch: _depth(switch.desired[number]))
            yield from (switch.add(number) for switch in places)
            continue
        first = next(name for name, why in reasons.items() if why)
        for switch in places:
            why = reasons[switch.name] or f"it cannot be admitted to '{first}' yet"
            switch.waiting.append(WaitingStep(switch.name, number, why))


class _Switch:
    """The expected rows of a switch once the actions so far are applied."""

    def __init__(
        self,
        name: str,
        observed: SwitchState,
        desired: list[Admission],
        may_remove: Callable[[Admission], bool],
    ) -> None:
        self.name = name
        self.info = observed.info
        self.desired = {job.job: _arrived(job) for job in desired}
        self.waiting: list[WaitingStep] = []
        self._all_desired = desired
        self._observed = observed
        self._may_remove = may_remove
        self._jobs = dict(observed.contents.jobs)
        self._supporting = {number: supporting_rows(job) for number, job in self.desired.items()}
        """By job id: the rows of each desired job that depend neither on the job's region nor on its
        registration."""
        self._wanted = {key_of(row) for rows in self._supporting.values() for row in rows}
        self._wanted |= {key_of(job_row(job)) for job in self.desired.values()}
        self._groups = {row.id: row for row in observed.rows if isinstance(row, MulticastGroup)}
        self._job_entries: Mapping[object, list[TableEntry]] = by_key(
            (row.match[names.JOB_KEY], row) for row in observed.rows if isinstance(row, TableEntry)
        )
        self._keyed: dict[object, dict[Key, TableEntry]] = {}
        """By job id: the job's entries. Added when a job's entries are needed, because most jobs stay
        unchanged."""

    def has_others(self) -> bool:
        """Return True if the switch has jobs that are not desired."""
        return not self._jobs.keys() <= self.desired.keys()

    def check(self) -> None:
        """Raise BadJob if the switch cannot hold the desired jobs."""
        for what in ("job", "generation", "counter_row", "group"):
            found = [getattr(job, what) for job in self._all_desired]
            if twice := [each for each, times in Counter(found).items() if times > 1]:
                title = what.replace("job", "job id").replace("_", " ")
                raise BadJob(f"switch '{self.name}': two desired jobs have the {title} {min(twice)}")
        for job in self.desired.values():
            if job.region.offset < 0 or job.region.size < 0 or job.region.end > self.info.slots:
                raise BadJob(
                    f"switch '{self.name}': the {_slots(job.region)} of job {job.job} exceed the memory; want"
                    f" slots below {self.info.slots}"
                )
            if not 1 <= job.counter_row <= self.info.jobs or job.group not in self._observed.job_groups:
                raise BadJob(
                    f"switch '{self.name}': job {job.job} has counter row {job.counter_row} and group"
                    f" {job.group}; want 1 to {self.info.jobs}"
                )
            for other in self.desired.values():
                if self._exclusive and other.job < job.job and other.region.overlaps(job.region):
                    raise BadJob(
                        f"switch '{self.name}': exclusive jobs {other.job} and {job.job} have common slots"
                    )

    @property
    def _exclusive(self) -> bool:
        return self.info.mode == "exclusive"

    # ------------------------------------------------------------------ removals

    def remove(self) -> Iterator[Action]:
        for number, here in sorted(self._jobs.items()):
            want = self.desired.get(number)
            if want is None:
                why = "it is not wanted here"
            elif want.generation != here.generation:
                why = f"it has generation {here.generation}, and {want.generation} is wanted"
            elif _place(want) != _place(here):
                why = f"it is {_place_text(here)}, and should be {_place_text(want)}"
            else:
                continue
            ours = want is not None and want.generation == here.generation
            if not ours and not self._may_remove(here):
                continue
            del self._jobs[number]
            rows = dict(self._of(number))
            row = rows.pop(key_of(job_row(here)))
            rest: list[Row] = [row for key, row in rows.items() if key not in self._wanted]
            group = self._groups.get(here.group)
            if (
                group
                and here.group not in self._wanted
                and all(job.group != here.group for job in self._jobs.values())
            ):
                rest.append(group)
            writes = self._write(("DELETE", [row]), ("DELETE", rest))
            yield Action("remove", self.name, number, why, writes, here)

    def clear(self) -> Iterator[Action]:
        orphans = [row for row in self._observed.contents.orphans if key_of(row) not in self._wanted]
        if orphans:
            why = f"{len(orphans)} rows belong to no job"
            yield Action("clear", self.name, 0, why, self._write(("DELETE", orphans)))

    # ------------------------------------------------------------------ present jobs

    def settle(self) -> Iterator[Action]:
        for number, here, want in self._present():
            change = here.change
            if change is None:
                continue
            if change.region != here.region and not self._moved(here):
                if change.region != want.region:
                    why = f"it is moving to {_slots(change.region)}, and to {_slots(want.region)} after that"
                    self.waiting.append(WaitingStep(self.name, number, why))
                continue
            settled = self._jobs[number] = replace(here, region=change.region, change=None)
            old, row = (self._of(number)[key_of(each)] for each in (change_row(here), job_row(here)))
            params = {**row.params, "offset": change.region.offset, "size": change.region.size}
            moved_row = [replace(row, params=params)] if change.region != here.region else []
            writes = self._write(("MODIFY", moved_row), ("DELETE", [old]))
            why = f"no packet needs {_slots(here.region)} any more"
            yield Action("settle", self.name, number, why, writes, settled)

    def _moved(self, here: Admission) -> bool:
        assert here.change is not None
        return self._settled(here) != here.change.number & 0xFFFF_FFFF

    def _settled(self, here: Admission) -> int:
        return self._observed.settled.get(here.counter_row, 0)

    def repair(self) -> Iterator[Action]:
        for number, here, want in self._present():
            keeps_region = not want.transit
            current, wanted = here.registration, want.registration
            goal = replace(
                want,
                region=here.region if keeps_region else want.region,
                change=here.change if keeps_region else None,
                registration=wanted if (wanted is None) != (current is None) else current,
            )
            rows = [*self._supporting[number]]
            if goal.change is not None:
                rows.append(change_row(goal))
            new, wrong = self._differing(rows)
            job = self._differing([job_row(goal)])[1]
            right = {key_of(row) for row in (job_row(goal), *rows)}
            extra = [row for key, row in self._of(number).items() if key not in right]
            if not (new or wrong or job or extra):
                continue
            counts = {"missing": len(new), "wrong": len(wrong) + len(job), "too many": len(extra)}
            why = "of its rows " + ", ".join(f"{count} are {what}" for what, count in counts.items() if count)
            self._jobs[number] = goal
            writes = self._write(("INSERT", new), ("MODIFY", wrong), ("MODIFY", job), ("DELETE", extra))
            yield Action("repair", self.name, number, why, writes, goal)

    def move(self) -> Iterator[Action]:
        blocked: dict[int, list[int]] = {}
        for number, here, want in self._present():
            if want.transit or here.change is not None or here.region == want.region:
                continue
            if self._exclusive:
                why = (
                    f"it has {_slots(here.region)}, which an exclusive job keeps until it ends;"
                    f" {_slots(want.region)} need a new job"
                )
                self.waiting.append(WaitingStep(self.name, number, why))
            elif (lacks := self.info.lacks.get(Feature.MOVES)) is not None:
                why = f"it keeps {_slots(here.region)}: {self.info.title} lacks {lacks}, which moves need"
                self.waiting.append(WaitingStep(self.name, number, why))
            elif others := self._holders(want):
                blocked[number] = others
            else:
                yield self._move(number, want.region, f"its {_slots(here.region)} should be")
        while loop := _circle(blocked):
            number = min(loop)
            del blocked[number]
            others_text = " and ".join(str(each) for each in sorted(loop) if each != number)
            yield self._move(number, EMPTY, f"it exchanges slots with job {others_text}, and first has")
        for number, others in blocked.items():
            why = f"job {others[0]} still has some of {_slots(self.desired[number].region)}"
            self.waiting.append(WaitingStep(self.name, number, why))

    def _move(self, number: int, region: Region, why: str) -> Action:
        here = self._jobs[number]
        change = RegionChange(here.generation << 32 | self._settled(here), region)
        moving = self._jobs[number] = replace(here, change=change)
        writes = self._write(("INSERT", [change_row(moving)]))
        return Action("move", self.name, number, f"{why} {_slots(region)}", writes, moving)

    def _holders(self, want: Admission) -> list[int]:
        """Return the jobs that hold slots of `want`'s desired region and may not share slots with `want`."""
        found = []
        for number, other in sorted(self._jobs.items()):
            if number == want.job:
                continue
            goal = self.desired.get(number)
            if goal is None or goal.generation != other.generation:  # another controller's
                shares = not self._exclusive
            else:
                shares = goal.region.overlaps(want.region)
            held = [other.region] if other.change is None else [other.region, other.change.region]
            if not shares and any(each.overlaps(want.region) for each in held):
                found.append(number)
        return found

    def _present(self) -> Iterator[tuple[int, Admission, Admission]]:
        """Yield the desired jobs that the switch has: id, admission as it is, admission as it should be."""
        for number, want in sorted(self.desired.items()):
            here = self._jobs.get(number)
            if here is not None and here.generation == want.generation:
                yield number, here, want

    # ------------------------------------------------------------------ additions

    def missing(self) -> list[Admission]:
        return [
            want
            for number, want in self.desired.items()
            if (here := self._jobs.get(number)) is None or here.generation != want.generation
        ]

    def keeps_out(self, number: int) -> str | None:
        """Return the reason why a job cannot be admitted yet, or None."""
        want = self.desired[number]
        for other in self._jobs.values():
            if other.job == number:
                return f"another controller's job has this id (generation {other.generation})"
            if other.generation == want.generation:
                return f"job {other.job} has its generation"
            if other.counter_row == want.counter_row:
                return f"job {other.job} has its counter row, {want.counter_row}"
            if other.group == want.group:
                return f"job {other.job} has its multicast group, {want.group}"
        if others := self._holders(want):
            return f"job {others[0]} has some of {_slots(want.region)}"
        return None

    def add(self, number: int) -> Action:
        want = self._jobs[number] = self.desired[number]
        new, wrong = self._differing(self._supporting[number])
        first = want.counter_row * COLUMNS
        zeros = [CounterCell(names.OUTCOMES, first + column) for column in OUTCOMES.values()]
        writes = self._write(
            ("MODIFY", wrong), ("INSERT", new), ("MODIFY", zeros), ("INSERT", [job_row(want)])
        )
        return Action("add", self.name, number, "it is not there", writes, want)

    # ------------------------------------------------------------------ rows

    def _of(self, number: object) -> dict[Key, TableEntry]:
        """Return the known entries of a job id, which `_write` updates."""
        if number not in self._keyed:
            self._keyed[number] = {key_of(row): row for row in self._job_entries.get(number, ())}
        return self._keyed[number]

    def _differing(self, rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
        """Return the rows that the switch lacks, and the rows that it has with other content."""
        new, wrong = [], []
        for row in rows:
            if isinstance(row, MulticastGroup):
                known: Row | None = self._groups.get(row.id)
            else:
                known = self._of(row.match[names.JOB_KEY]).get(key_of(row))
            if known is None:
                new.append(row)
            elif not _same(known, row):
                wrong.append(row)
        return new, wrong

    def _write(self, *writes: tuple[Kind, Sequence[Entry]]) -> tuple[Write, ...]:
        """Apply writes to the known rows, and return the writes that have entries."""
        for kind, entries in writes:
            for entry in entries:
                if isinstance(entry, MulticastGroup) and kind == "DELETE":
                    del self._groups[entry.id]
                elif isinstance(entry, MulticastGroup):
                    self._groups[entry.id] = entry
                elif isinstance(entry, TableEntry) and kind == "DELETE":
                    del self._of(entry.match[names.JOB_KEY])[key_of(entry)]
                elif isinstance(entry, TableEntry):
                    self._of(entry.match[names.JOB_KEY])[key_of(entry)] = entry
        return tuple(Write(kind, tuple(entries)) for kind, entries in writes if entries)


def _same(a: Row, b: Row) -> bool:
    if isinstance(a, MulticastGroup) and isinstance(b, MulticastGroup):
        return sorted(a.replicas) == sorted(b.replicas)
    return a == b


def _arrived(job: Admission) -> Admission:
    """Return the job as it is once its move is over."""
    return job if job.change is None else replace(job, region=job.change.region, change=None)


def _place(job: Admission) -> tuple[int, int, int, bool]:
    """Return the numbers that identify a job in slots, counters and packets; they are fixed while it runs."""
    return job.counter_row, job.group, job.node, job.transit


def _place_text(job: Admission) -> str:
    passes = " as a forwarding switch" if job.transit else ""
    return f"at node {job.node}{passes} with counter row {job.counter_row} and group {job.group}"


def _slots(region: Region) -> str:
    return f"slots {region.offset} to {region.end - 1}" if region.size else "no slots"


def _circle(waits_for: Mapping[int, Sequence[int]]) -> list[int] | None:
    """Return jobs that wait for each other in a circle, None if there is none."""
    try:
        TopologicalSorter(waits_for).prepare()
    except CycleError as error:
        loop: list[int] = error.args[1]
        return loop[:-1]  # the last one is the first one again
    return None
