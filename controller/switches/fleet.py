"""The jobs on one or many switches: admission, moves and removal.

A `TreeAdmission` is a job's state on all its switches: it is admitted to all of them or to none. Everything
is read from the switches (`controller.switches.session`), so that several fleets can share switches, and
nothing is lost when a fleet ends. The function `controller.switches.reconcile.reconcile` decides all writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from controller.errors import (
    BadJob,
    ControllerError,
    NoProgram,
    NoSuchJob,
    ProgramMismatch,
    SwitchError,
    switch_in_errors,
)
from controller.switches import forwarding, names
from controller.switches.layout import BESIDE_WORKER, Deployment, TreeAdmission, lay_out
from controller.switches.model import OUTCOMES, Admission, Registration
from controller.switches.planning import Identity, plan
from controller.switches.programs import ProgramBundle
from controller.switches.reconcile import (
    Action,
    Reconciliation,
    SwitchState,
    WaitingStep,
    Write,
    children_first,
    in_few_writes,
    not_leased,
    per_switch,
    reconcile,
)
from controller.switches.session import SwitchSession
from controller.switches.target import CounterCell, Revision, TableEntry
from controller.vocabulary.lists import by_key

_Key = TypeVar("_Key")

_AT_ONCE = 8  # switches that load a program, or get rows, at the same time


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """Actions of `Fleet.reconcile`, steps that have to wait, and skipped switches, with the reasons."""

    actions: tuple[Action, ...]
    waiting: tuple[WaitingStep, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """True if no step has to wait and no switch was skipped."""
        return not self.waiting and not self.left_out

    def __str__(self) -> str:
        lines = [*map(str, self.actions), *map(str, self.waiting)]
        lines += [f"switch '{name}' is left out: {why}" for name, why in self.left_out.items()]
        return "\n".join(lines) or "nothing to do"


@dataclass(frozen=True, slots=True)
class _UnchangedSwitch:
    """A switch that needed no action when it was compared last.

    Attributes:
        wanted: The desired jobs there.
        observed: The rows that were there.
        revision: The switch's revision just before its rows were read; None: not known.
    """

    wanted: Sequence[Admission]
    observed: SwitchState
    revision: Revision | None

    @property
    def moves(self) -> bool:
        """Whether a job is moving to other slots; the end of the move changes no entry, and no revision."""
        return any(isinstance(row, TableEntry) and row.table == names.CHANGE for row in self.observed.rows)


class Fleet:
    """Controls several switches through their sessions; `controllers` maps switch names to sessions.

    Not thread-safe. Errors about one switch begin with its name.
    """

    def __init__(self, controllers: Mapping[str, SwitchSession]) -> None:
        self.controllers = dict(controllers)
        self._moving: dict[tuple[str, int], Admission] = {}
        """By switch and job id: jobs that are moving to another region there."""
        self._unchanged: dict[str, _UnchangedSwitch] = {}
        """The switches that needed no action when they were compared last."""
        self._desired: dict[str, dict[int, Admission]] = {}
        """By switch and job id: the jobs desired at the last comparison, plus the jobs that this fleet has
        admitted since, minus the jobs that it has removed since. A switch that has lost one of these gets it
        back at the next comparison, and no other job may be admitted in its place meanwhile."""
        self._as_desired = False
        """Whether the switches are known to have had these jobs, and no others, after the last write."""
        self._refused = False
        """Whether the last admission of several jobs failed; if so, the next jobs are admitted one by one."""
        self._counted: dict[tuple[str, int, int], tuple[Hashable, Mapping[str, int]]] = {}
        """For each switch, counter row and generation: the number of packets that the switch had received
        when the job's counts were last read, and these counts."""

    # ------------------------------------------------------------------ its switches

    def add(self, name: str, controller: SwitchSession) -> None:
        """Add a switch; to replace a switch with the same name, `drop` that one first."""
        self.controllers = {**self.controllers, name: controller}
        self._unchanged.pop(name, None)
        self._as_desired = False

    def drop(self, name: str) -> SwitchSession:
        """Forget a switch without changing its table rows; return the session with it, which stays open."""
        dropped = self.controllers[name]
        self.controllers = {each: at for each, at in self.controllers.items() if each != name}
        self._unchanged.pop(name, None)
        self._as_desired = False
        self._moving = {at: job for at, job in self._moving.items() if at[0] != name}
        return dropped

    # ------------------------------------------------------------------ admission

    def admit(
        self,
        deployment: Deployment,
        *,
        ports: Mapping[str, Sequence[int]] | None = None,
        identity: Identity | None = None,
        registration: Registration | None = None,
    ) -> TreeAdmission:
        """Admit a job to all switches of its tree, under one job id and generation.

        No other controller writes to these switches meanwhile. Jobs whose leases were seen to expire may be
        removed to make room.

        Args:
            deployment: The job's parts on the switches of its tree.
            ports: By switch, the ports for members and fallback servers without a port: each of these gets
                the lowest port that no job uses.
            identity: Job id and generation; None: chosen so that no job on these switches has them.
            registration: Metadata of the job's row; a lease in it must be renewed (`renew`).

        Raises:
            BadJob: the tree is invalid, or has a switch that is not in this fleet.
            OutOfMemory, OutOfRows: the job does not fit on a switch; nothing is written.
            ProgramMismatch: a switch's program does not serve jobs of this mode; nothing is written.
            IdentityTaken: another job on a switch has the identity; nothing is written.
            SwitchError: a switch failed or refused a write. Rows written before that are deleted again. Rows
                that cannot be deleted, because a switch is gone, admit no packets; the next admission to
                that switch deletes them.
        """
        switch_names = dict.fromkeys(switch.name for switch in deployment.root.walk())
        for name in switch_names:
            self._controller(name)
        planned: list[TreeAdmission] = []

        def decide(observed: Mapping[str, SwitchState]) -> Reconciliation:
            planned.append(self._plan(deployment, observed, ports or {}, identity, registration))
            return reconcile(per_switch(planned), observed, may_remove=self._has_expired)

        try:
            self._bring_about(switch_names, decide, moves=False)
        except BaseException:
            for tree in planned:  # the errors that this returns would hide the one that is raised
                self._take_away(tree)
            raise
        for name, job in planned[0].switches.items():
            self._desired.setdefault(name, {})[job.job] = job
        return planned[0]

    def _plan(
        self,
        deployment: Deployment,
        observed: Mapping[str, SwitchState],
        ports: Mapping[str, Sequence[int]],
        identity: Identity | None,
        registration: Registration | None,
    ) -> TreeAdmission:
        """Return the job of a deployment as `admit` admits it to switches in these states."""
        parts = lay_out(deployment, max_members=min(state.info.max_members for state in observed.values()))
        present = {
            name: [
                job
                for job in {**self._desired.get(name, {}), **state.contents.jobs}.values()
                if not self._has_expired(job)
            ]
            for name, state in observed.items()
        }
        if identity is None:
            everywhere = [job for jobs in present.values() for job in jobs]
            identity = self.controllers[deployment.root.name].choose_identity(everywhere)
        root, switches = observed[deployment.root.name].info, {}
        for name, part in parts.items():
            info = observed[name].info
            with switch_in_errors(name):
                planned = plan(part, identity, info=info, present=present[name], ports=ports.get(name, ()))
                if info.lanes != root.lanes:
                    raise ProgramMismatch(
                        f"the program is built for {info.lanes} values per packet, the program of switch"
                        f" '{deployment.root.name}' for {root.lanes}"
                    )
            switches[name] = replace(planned, registration=registration)
        return TreeAdmission(switches, deployment.beside and replace(deployment.beside, bitmap=BESIDE_WORKER))

    def remove(self, admission: TreeAdmission) -> None:
        """Remove a job from all its switches, children first; if this fails, call it again later.

        After all switches have been tried, raises the error of the uppermost switch that failed; NoSuchJob
        only if no switch has the job any more.
        """
        errors = self._take_away(admission)
        failed = [error for error in errors if not isinstance(error, NoSuchJob)]
        if failed or len(errors) == len(admission.switches):
            raise (failed or errors)[-1]

    def _take_away(self, tree: TreeAdmission) -> list[ControllerError]:
        """Delete all rows of a job, children first, whether or not it was admitted as a whole.

        Returns the errors of the switches that failed, in this order; NoSuchJob of a switch that did not have
        the job.
        """
        here = tree.job, tree.generation  # a later job of the same id has another generation
        drop = partial(reconcile, {}, may_remove=lambda job: (job.job, job.generation) == here)
        errors: list[ControllerError] = []
        for name, job in children_first(tree):
            self._moving.pop((name, job.job), None)
            try:
                done = self._bring_about([name], drop, moves=False)
                if all(action.verb != "remove" for action in done.actions):
                    with switch_in_errors(name):
                        raise self.controllers[name].no_such_job(job.job)
            except ControllerError as error:
                errors.append(error)
                self._as_desired = False
            self._desired.get(name, {}).pop(job.job, None)
        return errors

    def renew(self, admission: TreeAdmission, registration: Registration) -> None:
        """Replace a job's registration on all its switches. Raises NoSuchJob; SwitchError."""
        for name, on_switch in admission.switches.items():
            with switch_in_errors(name):
                self.controllers[name].renew(on_switch, registration)

    def check(self, admission: TreeAdmission) -> None:
        """Check that all switches of a job still have the job. Raises the errors of `SwitchSession.check`."""
        for name, on_switch in admission.switches.items():
            with switch_in_errors(name):
                self.controllers[name].check(on_switch)

    def sweep(self) -> dict[str, list[Admission]]:
        """Look at the leases of all jobs; remove, and return by switch, jobs whose leases have expired.

        Raises SwitchError.
        """
        swept: dict[str, list[Admission]] = {}
        for name, controller in self.controllers.items():
            swept[name] = []
            with switch_in_errors(name):
                over = any(map(controller.leases.has_expired, controller.watch_leases()))
            if over:
                drop = partial(reconcile, {}, may_remove=controller.leases.has_expired)
                done = self._bring_about([name], drop, moves=False).actions
                swept[name] += (each.admission for each in done if each.admission is not None)
        return swept

    def lease_wait_s(self) -> float | None:
        """Return the seconds after which the state of every lease is known: renewed, or expired.

        Returns None if it is known already. Call `sweep` repeatedly until then.
        """
        found = (controller.leases.lease_wait_s() for controller in self.controllers.values())
        return max((wait_s for wait_s in found if wait_s is not None), default=None)

    @property
    def moving(self) -> bool:
        """True if jobs are moving to other slots; `reconcile` ends moves that are over."""
        return bool(self._moving)

    # ------------------------------------------------------------------ reconciling

    def reconcile(
        self,
        desired: Iterable[TreeAdmission],
        *,
        program: ProgramBundle | None = None,
        may_remove: Callable[[Admission], bool] | None = None,
        revisions: Mapping[str, Revision] | None = None,
        doubtful: Collection[str] = (),
    ) -> ReconcileReport:
        """Make the switches hold these jobs and no others: read, decide, write, report.

        If there is nothing to do, nothing is written, and other controllers are not blocked. A switch that
        cannot be reached, or does not serve such jobs, is skipped, and the report says why. Call this again
        after an error (earlier writes stay), and while a step waits.

        Args:
            desired: All jobs that should be on the switches, as `admit` returned them, or with other slots.
                For a job that is moving, the desired region is the region to which it moves.
            program: The program for switches that have none.
            may_remove: Function that returns whether a job that is not desired may be removed. By default, a
                job may be removed if it has no lease, or if its lease was seen to expire.
            revisions: Revisions of the switches that report one, read just before. A switch with the same
                revision as when it needed no action is not read again.
            doubtful: Switches that seem to hang: they get 1 s to answer. A switch that did not answer the
                last call gets 1 s, too.

        Raises:
            BadJob: the switches cannot hold these jobs together (`controller.switches.reconcile`), or a job
                has a part on a switch that is not in this fleet.
            ControllerError: a switch failed, or another controller is its primary.
        """
        trees = list(desired)
        wanted = per_switch(trees)
        self._desired = {name: {job.job: job for job in jobs} for name, jobs in wanted.items()}
        self._as_desired = False
        for name in wanted:
            self._controller(name)
        if may_remove is None:
            may_remove = self._may_remove
        left_out: dict[str, str] = {}
        done: list[Action] = []
        revisions = revisions or {}
        for name in doubtful:
            self._controller(name).expect_silence()
        observed = self._observe(program, left_out, done, revisions)
        found = {
            name: _UnchangedSwitch(wanted.get(name, ()), each, revisions.get(name))
            for name, each in observed.items()
        }
        # A switch needs no action if its desired jobs and rows are unchanged since it last needed no action.
        resting = {name for name, each in found.items() if _same(self._unchanged.get(name), each)}
        resting -= {action.switch for action in done}
        wanted = {name: jobs for name, jobs in wanted.items() if name not in resting}
        observed = {name: each for name, each in observed.items() if name not in resting}
        self._moving = {at: job for at, job in self._moving.items() if at[0] not in observed}
        for name, each in observed.items():
            ours = {job.job for job in wanted.get(name, ())}
            on_way = (job for job in each.contents.jobs.values() if job.change and job.job in ours)
            self._moving |= {(name, job.job): job for job in on_way}
        decision = reconcile(wanted, observed, may_remove=may_remove)
        # Other controllers' jobs may have to go later, when their leases expire, although no row has changed.
        astir = {*decision.others, *(each.switch for each in (*done, *decision.actions))}
        astir |= {each.switch for each in decision.waiting}
        self._unchanged = {name: each for name, each in found.items() if name not in astir}
        self._as_desired = self._unchanged.keys() == found.keys() == self.controllers.keys()

        def again(now: Mapping[str, SwitchState]) -> Reconciliation:
            if any(observed[name] != each for name, each in now.items()):  # others have written there
                return reconcile(wanted, {**observed, **now}, may_remove=may_remove)
            return decision

        last = self._bring_about(
            {action.switch for action in decision.actions},
            again,
            loaded={action.switch for action in done if action.verb == "load"},
        )
        return ReconcileReport((*done, *last.actions), last.waiting, left_out)

    def _bring_about(
        self,
        switches: Collection[str],
        decide: Callable[[Mapping[str, SwitchState]], Reconciliation],
        *,
        moves: bool = True,
        loaded: Collection[str] = (),
    ) -> Reconciliation:
        """Be the only controller that writes to these switches: read, decide, write.

        All writes for jobs go this way, but for renewals.

        Turns are taken in the order of addresses, so that two fleets never wait for each other.

        Args:
            switches: The switches to take turns at.
            decide: Function that takes the states of these switches and returns what `reconcile` decides.
            moves: Whether to read which moves are over.
            loaded: Switches that have just got their program. Their counters are still zero if no other
                controller has written since.

        Returns:
            What was decided; an action at another switch is not applied, but waits.
        """
        observed: dict[str, SwitchState] = {}
        with contextlib.ExitStack() as turns:
            for name in sorted(switches, key=lambda name: self.controllers[name].address):
                with switch_in_errors(name):
                    turns.enter_context(self.controllers[name].turn())
                    observed[name] = self.controllers[name].observe(moves=moves)
            decision = decide(observed)
            fresh = {name for name in observed if name in loaded and self.controllers[name].undisturbed}
            here = [each for each in decision.actions if each.switch in observed]
            self._apply_actions(here, fresh)
        late = (
            WaitingStep(each.switch, each.job, "another controller has just written there")
            for each in decision.actions
            if each.switch not in observed
        )
        return replace(decision, actions=tuple(here), waiting=(*decision.waiting, *late))

    def _apply_actions(self, actions: Sequence[Action], fresh: Collection[str]) -> None:
        """Apply actions, within turns. The counters of `fresh` switches are still zero.

        Jobs are admitted last and together, which takes a few requests instead of several for each job.
        """
        if not actions:
            return
        as_desired, self._as_desired = self._as_desired, False
        adds = []
        for action in actions:
            if action.verb == "add":
                unzeroed = [each for each in action.writes if not isinstance(each.entries[0], CounterCell)]
                adds.append(replace(action, writes=tuple(unzeroed)) if action.switch in fresh else action)
                continue
            for write in action.writes:
                self._apply(action.switch, write)
            self._applied(action)
        one_by_one = [[(action.switch, write)] for action in adds for write in action.writes]
        stages = one_by_one if self._refused else in_few_writes(adds)
        self._refused = True
        for stage in stages:
            self._apply_stage(stage, at_once=bool(fresh))
        self._refused = False
        for action in adds:
            self._applied(action)
        self._as_desired = as_desired and {action.verb for action in actions} <= {"add", "remove", "clear"}

    def _apply_stage(self, stage: Sequence[tuple[str, Write]], *, at_once: bool) -> None:
        """Apply writes, in order for each switch; with `at_once`, to all switches in parallel.

        Raises the first error; with `at_once`, only after the writes to all switches have ended.
        """
        by_switch = by_key(stage)

        def apply(switch: str) -> None:
            for write in by_switch[switch]:
                self._apply(switch, write)

        if not at_once or len(by_switch) < 2:
            for switch, write in stage:
                self._apply(switch, write)
            return
        with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="admit") as threads:
            for done in [threads.submit(apply, switch) for switch in by_switch]:
                done.result()

    def _apply(self, switch: str, write: Write) -> None:
        with switch_in_errors(switch):
            self.controllers[switch].apply(write)

    def _applied(self, action: Action) -> None:
        self.controllers[action.switch].record_applied(action)
        if (job := action.admission) is None:
            return
        at = action.switch, action.job
        if action.verb == "move":
            self._moving[at] = job
        elif action.verb in ("remove", "settle", "add"):
            self._moving.pop(at, None)
        if action.verb == "remove":
            self._counted.pop((action.switch, job.counter_row, job.generation), None)

    def seems_reconciled(
        self, desired: Iterable[TreeAdmission], revisions: Mapping[str, Revision] | None = None
    ) -> bool:
        """Return whether `reconcile` would find nothing to do, as far as is known without reading all rows.

        A change of the desired jobs is noticed, and, without a request, a change of a switch in `revisions`.
        For any other switch with jobs, one job's row is read. It shows whether the switch answers, was
        restarted, or has lost this job. Changes of other rows by another process are not noticed.

        Args:
            desired: All jobs that should be there.
            revisions: Revisions of the switches that report one, read just before.
        """
        revisions = revisions or {}
        jobs_of = per_switch(desired)
        wanted = {name: {job.job: job for job in jobs} for name, jobs in jobs_of.items()}
        if not self._as_desired or {name: jobs for name, jobs in self._desired.items() if jobs} != wanted:
            return False
        try:
            for name, controller in self.controllers.items():
                if (revision := revisions.get(name)) is not None:
                    if name not in self._unchanged or self._unchanged[name].revision != revision:
                        return False
                elif jobs := wanted.get(name):
                    controller.check(next(reversed(jobs.values())))
        except ControllerError:
            return False
        return True

    def _observe(
        self,
        program: ProgramBundle | None,
        left_out: dict[str, str],
        done: list[Action],
        revisions: Mapping[str, Revision],
    ) -> dict[str, SwitchState]:
        """Read the switches that may have changed; first load `program` on switches without a program."""
        observed: dict[str, SwitchState] = {}
        empty: dict[str, SwitchSession] = {}
        for name, controller in self.controllers.items():
            rest, revision = self._unchanged.get(name), revisions.get(name)
            if rest is not None and revision is not None and rest.revision == revision and not rest.moves:
                observed[name] = rest.observed
                continue
            try:
                observed[name] = controller.observe()
            except NoProgram as error:
                if program is None:
                    left_out[name] = str(error)
                else:
                    empty[name] = controller
            except (SwitchError, ProgramMismatch) as error:
                left_out[name] = str(error)
        if empty:
            assert program is not None
            observed |= _load_all(empty, program, left_out, done)
        return observed

    def _may_remove(self, job: Admission) -> bool:
        return not_leased(job) or self._has_expired(job)

    def _has_expired(self, job: Admission) -> bool:
        return any(each.leases.has_expired(job) for each in self.controllers.values())

    # ------------------------------------------------------------------ reading

    def read(self) -> dict[int, TreeAdmission]:
        """Read the jobs that the switches serve, by job id; jobs on one switch are trees of one node.

        A tree that is not `whole` has a part on a switch that was not read, is being admitted or removed, or
        was left by a controller that died while doing that. If unconnected switches have two jobs of one id,
        the job with the higher generation is returned.
        """
        found: dict[tuple[int, int], dict[str, Admission]] = {}
        for name, controller in self.controllers.items():
            with switch_in_errors(name):
                jobs = controller.jobs()
            for admission in jobs.values():
                found.setdefault((admission.generation, admission.job), {})[name] = admission
        return {job: TreeAdmission(switches) for (_, job), switches in sorted(found.items())}

    def counters(self, admission: TreeAdmission) -> dict[str, dict[str, int]]:
        """Read, for each switch, the number of a job's packets with each outcome since the job's admission.

        Raises NoSuchJob if a switch no longer has the job.
        """
        found = {}
        for name, on_switch in admission.switches.items():
            with switch_in_errors(name):
                found[name] = self.controllers[name].counters(on_switch.job)
        return found

    def counters_of(
        self,
        jobs: Mapping[_Key, TreeAdmission],
        outcomes: Collection[str] = OUTCOMES,
        received: Mapping[str, Hashable] | None = None,
    ) -> dict[_Key, dict[str, dict[str, int]]]:
        """Read the number of packets of several jobs by job, switch and outcome; one request to each switch.

        The counts come from the jobs' counter rows, without a check that a switch still has the job.
        Switches that fail are left out.

        Args:
            jobs: The jobs.
            outcomes: The outcomes to read. Calls with `received` must all have the same `outcomes`.
            received: For each switch, the number of packets that it had received before this call. A switch
                whose number has not changed since an earlier call has counted nothing since then, and is not
                asked again.
        """
        received = received or {}
        at: dict[str, dict[_Key, Admission]] = {}
        found: dict[_Key, dict[str, dict[str, int]]] = {key: {} for key in jobs}
        for key, admission in jobs.items():
            for name, on_switch in admission.switches.items():
                before = self._counted.get((name, on_switch.counter_row, on_switch.generation))
                if before is not None and before[0] is not None and before[0] == received.get(name):
                    found[key][name] = dict(before[1])
                else:
                    at.setdefault(name, {})[key] = on_switch
        for name, admissions in at.items():
            with contextlib.suppress(ControllerError):
                rows = [on_switch.counter_row for on_switch in admissions.values()]
                counted = self._controller(name).rows_counters(rows, outcomes)
                for key, on_switch in admissions.items():
                    found[key][name] = counts = counted[on_switch.counter_row]
                    if name in received:
                        known = name, on_switch.counter_row, on_switch.generation
                        self._counted[known] = received[name], counts
        return found

    def refused(self) -> dict[str, dict[str, int]]:
        """Read, for each switch and outcome, the number of packets that belong to no job."""
        found = {}
        for name, controller in self.controllers.items():
            with switch_in_errors(name):
                found[name] = controller.row_counters(0)
        return found

    # ------------------------------------------------------------------ ordinary traffic

    def bridge(self, mac: str, ports: Mapping[str, int]) -> None:
        """Make switches send ordinary frames for a MAC address out of a port; `ports` has the port by switch.

        Raises SwitchError.
        """
        for name, port in ports.items():
            controller = self._controller(name)
            with switch_in_errors(name):
                controller.install([forwarding.bridge(mac, port)])

    def set_ecn_threshold(self, depth: int) -> None:
        """Make all switches mark packets that find `depth` packets or more in their egress queue."""
        for name, controller in self.controllers.items():
            with switch_in_errors(name):
                controller.set_ecn_threshold(depth)

    def _controller(self, switch: str) -> SwitchSession:
        if switch not in self.controllers:
            known = ", ".join(sorted(self.controllers))
            raise BadJob(f"switch '{switch}' is unknown; known are {known}")
        return self.controllers[switch]


def _load_all(
    controllers: Mapping[str, SwitchSession],
    program: ProgramBundle,
    left_out: dict[str, str],
    done: list[Action],
) -> dict[str, SwitchState]:
    """Load a program on several switches in parallel, because loading takes time; then read the switches.

    Adds to `left_out` each switch that could not be loaded or read, with the reason; and to `done` an action
    for each switch on which the program was loaded.
    """

    def load(controller: SwitchSession) -> tuple[bool, SwitchState]:
        return controller.load(program), controller.observe()

    observed = {}
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="load") as threads:
        loading = {name: threads.submit(load, controller) for name, controller in controllers.items()}
        for name, future in loading.items():
            try:
                anew, observed[name] = future.result()
            except (SwitchError, ProgramMismatch) as error:
                left_out[name] = str(error)
                continue
            if anew:
                why = f"it had no program, and runs '{program.name}' now"
                done.append(Action("load", name, 0, why))
    return observed


def _same(before: _UnchangedSwitch | None, now: _UnchangedSwitch) -> bool:
    return before is not None and (before.wanted, before.observed) == (now.wanted, now.observed)
