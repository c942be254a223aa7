"""After each write for jobs on trees of switches, running jobs are safe. Without a switch."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller import Admission, Deployment, SwitchInfo, TreeAdmission, Uplink
from controller.switches.jobs import Key, Row, key_of, parse, supporting_rows
from controller.switches.layout import lay_out
from controller.switches.model import COLUMNS, OUTCOMES, RegionChange
from controller.switches.planning import Identity, plan
from controller.switches.reconcile import (
    Reconciliation,
    SwitchState,
    Write,
    children_first,
    in_few_writes,
    per_switch,
    reconcile,
)
from controller.switches.target import CounterCell, Entry, MulticastGroup, TableEntry
from tests import effort
from tests.controller.reconciling import SLOTS, all_rows, regions, shared_slots, slots_of
from tests.controller.trees import TREES, switch

INFO = SwitchInfo(32, SLOTS, 255, 32, mode="shared")
GROUPS = range(1, 256)
SWITCHES = ("root", "a", "b", "c")
SHAPES = (*TREES.values(), switch("root", 0, 1), switch("b", 0))
ROUNDS = 40
ALL = 1 << 30
FATES = ("stays", "stays", "stays", "comes", "goes")


@dataclass(frozen=True)
class Network:
    """Jobs that should be on some switches, and those that are there now."""

    desired: list[TreeAdmission]
    there: list[TreeAdmission]
    lost: list[tuple[str, Key]]
    """Rows of jobs that are there which some switch has lost."""


@st.composite
def networks(draw: st.DrawFn, fates: Sequence[str] = FATES) -> Network:
    planned: list[TreeAdmission] = []
    for number in range(1, 1 + draw(st.integers(1, 4))):
        fallback = Uplink(60 + number, "02:00:00:00:fb:01", "10.0.255.2")
        asked = Deployment(draw(st.sampled_from(SHAPES)), 8, mode="shared", fallback=fallback, window=4)
        switches = {}
        for name, part in lay_out(asked, max_members=32).items():
            present = [tree.switches[name] for tree in planned if name in tree.switches]
            part = replace(part, region=draw(regions()))
            switches[name] = plan(part, Identity(number, 100 + number), info=INFO, present=present, ports=())
        planned.append(TreeAdmission(switches))
    desired, there = [], []
    for tree in planned:
        fate = draw(st.sampled_from(fates))
        if fate != "goes":
            desired.append(tree)
        if fate != "comes":
            kept = {n: on for n, on in tree.switches.items() if draw(st.integers(0, 5))} or tree.switches
            there.append(TreeAdmission({name: draw(elsewhere(on)) for name, on in kept.items()}))
    rows = [(n, key_of(row)) for tree in there for n, on in tree.switches.items() for row in all_rows(on)]
    lost = draw(st.lists(st.sampled_from(rows), max_size=2)) if rows and draw(st.booleans()) else []
    return Network(desired, there, lost)


@st.composite
def elsewhere(draw: st.DrawFn, job: Admission) -> Admission:
    """Return the job with other slots, or on its way to some."""
    if job.transit or draw(st.booleans()):
        return job
    change = RegionChange(job.generation << 32, draw(regions())) if draw(st.booleans()) else None
    return replace(job, region=draw(regions()), change=change)


class Rows:
    """What switches hold."""

    def __init__(self, network: Network) -> None:
        self.at: dict[str, dict[Key, Row]] = {name: {} for name in SWITCHES}
        for tree in network.there:
            for name, job in tree.switches.items():
                self.at[name] |= {key_of(row): row for row in all_rows(job)}
        for name, key in network.lost:
            self.at[name].pop(key, None)
        self._jobs: dict[str, dict[int, Admission]] = {}
        self.settled = {name: dict.fromkeys(range(1, 9), 0) for name in SWITCHES}

    def observe(self) -> dict[str, SwitchState]:
        return {
            name: SwitchState(
                INFO,
                [*rows.values()],
                parse(rows.values(), job_groups=GROUPS),
                GROUPS,
                self.settled[name],
            )
            for name, rows in self.at.items()
        }

    def jobs(self, name: str) -> dict[int, Admission]:
        if name not in self._jobs:
            self._jobs[name] = parse(self.at[name].values(), job_groups=GROUPS).jobs
        return self._jobs[name]

    def write(self, name: str, write: Write, entry: Entry) -> None:
        if isinstance(entry, CounterCell):
            return
        assert isinstance(entry, TableEntry | MulticastGroup)
        key = key_of(entry)
        assert (key in self.at[name]) == (write.kind != "INSERT"), f"{write.kind} of {entry}"
        self._jobs.pop(name, None)
        if write.kind == "DELETE":
            del self.at[name][key]
        else:
            self.at[name][key] = entry

    def is_over(self, name: str, job: int) -> bool:
        """Return whether a job's move, if it moves, may end."""
        here = self.jobs(name)[job]
        if here.change is None or here.change.region == here.region:
            return here.change is not None
        return self.settled[name][here.counter_row] != here.change.number & 0xFFFFFFFF

    def let_moves_end(self) -> None:
        for name in SWITCHES:
            for job in self.jobs(name).values():
                if job.change is not None:
                    self.settled[name][job.counter_row] = (job.change.number + 1) & 0xFFFFFFFF


def place(job: Admission) -> tuple[int, ...]:
    return job.generation, job.counter_row, job.group, job.node


class Safety:
    """What must hold after every entry that is written, from the state that is there now on."""

    def __init__(self, network: Network, rows: Rows) -> None:
        self.rows = rows
        present = {name: rows.jobs(name) for name in SWITCHES}
        trees = {tree.job: tree.switches for tree in (*network.there, *network.desired)}
        self.right = {(n, job): supporting_rows(on) for job, tree in trees.items() for n, on in tree.items()}
        self.broken = {at for at in self.right if not self.is_whole(*at)}
        wanted = [(name, tree.job, on) for tree in network.desired for name, on in tree.switches.items()]
        self.ends = {(name, job): slots_of(on) for name, job, on in wanted}
        self.stays = {(n, job): place(present[n][job]) for n, job in self.ends if job in present[n]}
        self.trees = {
            job: tree for job, tree in trees.items() if len({job in present[name] for name in tree}) == 1
        }
        """Jobs of which all or nothing is there: they come parents first, and go children first."""
        self.shared = {name: shared_slots(present[name]) for name in SWITCHES}
        self.needs = {at: present[at[0]][at[1]].region for at in self.stays if not rows.is_over(*at)}
        """Slots that jobs keep, for the packets of before their moves."""
        self.before = {(name, job) for name in SWITCHES for job in present[name]}
        self.zero: set[tuple[str, int]] = set()

    def is_whole(self, name: str, job: int) -> bool:
        """Say whether a job's row, if it is there, has all others with it."""
        held = self.rows.at[name]
        return job not in self.rows.jobs(name) or all(
            held.get(key_of(row)) == row for row in self.right[name, job]
        )

    def look(self, name: str, entry: Entry) -> None:
        here = self.rows.jobs(name)
        if isinstance(entry, CounterCell):
            running = {job.counter_row for job in here.values()}
            assert entry.index // COLUMNS not in running, "counters of a job that is there"
            assert entry.packets == 0
            self.zero.add((name, entry.index))
        for job, on in here.items():
            assert (name, job) in self.broken or self.is_whole(name, job), "packets meet a part of the job"
            cells = {(name, on.counter_row * COLUMNS + column) for column in OUTCOMES.values()}
            assert (name, job) in self.before or cells <= self.zero, "it comes with counts of another job"
        for (at, job), where in self.stays.items():
            assert at != name or place(here[job]) == where, "a job that runs is never taken off"
        for (at, job), region in self.needs.items():
            assert at != name or here[job].region == region, "packets still need the old slots"
        for (a, b), slots in shared_slots(here).items():
            one, other = self.ends.get((name, a), set()), self.ends.get((name, b), set())
            assert one & other or slots <= self.shared[name].get((a, b), set()), f"jobs {a} and {b} share"
        for job, tree in self.trees.items():
            nodes = {on.node: at for at, on in tree.items() if not on.transit}
            for at, on in tree.items():
                if on.uplink is not None and not on.root and (above := nodes.get(on.uplink.node)):
                    assert job not in self.rows.jobs(at) or job in self.rows.jobs(above), "parents first"


def in_order(decision: Reconciliation, *, together: bool) -> Iterator[tuple[str, Write]]:
    """Yield the writes of a decision as a fleet carries them out."""
    adds = [action for action in decision.actions if action.verb == "add"]
    for action in decision.actions:
        if action.verb != "add":
            yield from ((action.switch, write) for write in action.writes)
    if together:
        for stage in in_few_writes(adds):
            yield from stage
    else:
        yield from ((action.switch, write) for action in adds for write in action.writes)


def carry_out(
    writes: Iterable[tuple[str, Write]], rows: Rows, safety: Safety, draw: random.Random, most: int = ALL
) -> int:
    """Apply at most so many entries; return how many more there might be.

    Entries of one write take effect in any order, and the last write may stop in its middle.
    """
    for name, write in writes:
        for entry in draw.sample(write.entries, len(write.entries))[:most]:
            rows.write(name, write, entry)
            safety.look(name, entry)
            most -= 1
    return most


@settings(max_examples=effort.cases(400), deadline=None)
@given(network=networks(), together=st.booleans(), left=st.integers(0, 40), seed=st.integers(0, 1 << 32))
def test_each_prefix_of_the_writes_is_safe_for_running_jobs_and_the_next_call_goes_on_from_it(
    network: Network, together: bool, left: int, seed: int
) -> None:
    rows, draw = Rows(network), random.Random(seed)
    desired = per_switch(network.desired)
    for _ in range(ROUNDS):
        decision = reconcile(desired, rows.observe())
        left = carry_out(in_order(decision, together=together), rows, Safety(network, rows), draw, left)
        if left == 0:
            left = ALL
            continue
        moving = any(job.change for name in SWITCHES for job in rows.jobs(name).values())
        if not decision.actions and not moving:
            break
        rows.let_moves_end()
    assert not decision.waiting
    wanted = {
        name: {key_of(row): row for job in jobs for row in all_rows(job)} for name, jobs in desired.items()
    }
    assert {name: held for name, held in rows.at.items() if held} == wanted


@settings(max_examples=effort.cases(200), deadline=None)
@given(
    network=networks(FATES[:-1]),
    together=st.booleans(),
    most=st.integers(0, 300),
    seed=st.integers(0, 1 << 32),
)
def test_each_prefix_of_an_admission_that_fails_and_of_its_roll_back_is_safe_for_running_jobs(
    network: Network, together: bool, most: int, seed: int
) -> None:
    """A fleet rolls an admission back as it removes a job: by `reconcile`, at one switch after the other."""
    tree = network.desired[0]
    others = [each for each in network.there if each.job != tree.job]
    network = Network([tree, *others], others, network.lost)
    rows, draw = Rows(network), random.Random(seed)
    safety = Safety(network, rows)
    decision = reconcile(per_switch([tree]), rows.observe(), may_remove=lambda job: False)
    carry_out(in_order(decision, together=together), rows, safety, draw, most)
    for name, at in children_first(tree):
        observed = {name: rows.observe()[name]}
        decision = reconcile({}, observed, may_remove=lambda job: job.generation == tree.generation)
        carry_out(in_order(decision, together=together), rows, safety, draw)
        assert not rows.at[name].keys() & {key_of(row) for row in all_rows(at)}
