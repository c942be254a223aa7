"""Effects: carry out the steps that lead to the desired state, on switches, servers and processes.

An effect can be interrupted at any point, and retried. A failed effect is retried at growing intervals. Until
it succeeds, users see its error as the reason why its jobs wait.
"""

from __future__ import annotations

import asyncio
import logging
import pwd
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from controller.core import Ended, Place, Run
from controller.errors import BadSpec, ControllerError, OutOfMemory, OutOfRows
from controller.policies.memory.regions import SlotStatus
from controller.switches.layout import TreeAdmission
from controller.switches.model import INA_UDP_PORT
from controller.vocabulary import Job
from hostlib.launch.launcher import account
from ina.errors import EngineError, RunError, RunnerGone, ServiceError
from ina.faults import fault_point
from ina.run.checks import FallbackJobs, Switches
from ina.run.launch.executor import Executor
from ina.run.launch.orders import ON_NO_SWITCH, RunOrder
from ina.run.launch.spec import LaunchSpec
from ina.run.ledger import Ledger
from ina.run.network import Network
from ina.run.records import Wiring
from ina.run.runs import Runs
from ina.run.steps import HeldRun, Resize, Stage, Start, Step, Stop, steps
from ina.run.switches.topology import has_slow_links
from ina.run.threads import Threads

BACK_OFF_S = (0.5, 15.0)
"""First and longest interval, in s, until a failed effect is retried."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failed effect.

    `why` is the error of the failed attempt, `again_s` the time of the next attempt, and `after_s` the time
    between these two attempts, in s.
    """

    why: str
    again_s: float
    after_s: float


class Effects:
    """Applies the core's desired state. All calls must be made in the thread of the service's loop.

    Args:
        ledger: The desired and the held state.
        testbed: The name of the testbed whose hosts run the workers; "": workers do not run in a testbed.
        network: Admits jobs to switches.
        executor: Starts and stops runs.
        fallback_jobs: Assigns jobs to fallback servers.
        blocking: Threads for blocking calls.
        runs: Records how a run's jobs ended.
        switches: Compares the switches with the desired state, when an effect requests it.
    """

    def __init__(
        self,
        ledger: Ledger,
        testbed: str,
        network: Network,
        executor: Executor,
        fallback_jobs: FallbackJobs,
        blocking: Threads,
        runs: Runs,
        switches: Switches,
    ) -> None:
        self._ledger = ledger
        self._testbed = testbed
        self._network = network
        self._executor = executor
        self._fallback_jobs = fallback_jobs
        self._blocking = blocking
        self._runs = runs
        self._switches = switches
        self.troubles: dict[tuple[int, type[Step]], Trouble] = {}
        """Failed effects, by the number of the run and the kind of step."""
        self._clearing: set[int] = set()
        """Numbers of runs that an earlier controller has left, and that are being ended. A new run with such
        a number starts only afterwards."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._granted: dict[int, Mapping[str, int]] = {}
        """By run, the maximum number of packets in flight that was last sent to each of the run's jobs. It is
        empty after a restart of the daemon, which therefore sends all maxima again."""

    @property
    def next_s(self) -> float:
        """Time of the next attempt of a failed effect; infinite if there is none."""
        return min((each.again_s for each in self.troubles.values()), default=float("inf"))

    def why(self) -> dict[str, str]:
        """Return, for each job of a run with a failed effect, the error of that effect."""
        if not self.troubles:  # called for every job that a user looks at
            return {}
        return {
            name: each.why
            for run in self._ledger.desired().runs
            for (number, _), each in self.troubles.items()
            if number == run.number
            for name in run.jobs
        }

    def carry_out(self) -> None:
        """Begin the effects of all steps that are possible now.

        Do nothing if neither the desired nor the held state can have changed since the last call.
        """
        ledger = self._ledger
        if not ledger.stirred:
            return
        now_s = ledger.now_s
        desired = ledger.desired()
        found = steps(desired, ledger.holds)
        known = ledger.holds.keys() | {run.number for run in desired.runs}
        self.troubles = {key: each for key, each in self.troubles.items() if key[0] in known}
        for step in found:
            number = step.run.number if isinstance(step, Start) else step.number
            trouble = self.troubles.get((number, type(step)))
            if (trouble is None or trouble.again_s <= now_s) and number not in self._clearing:
                self._begin(number, step)
        if moved := {step.number for step in found if isinstance(step, Resize)}:
            ledger.keep(*moved)  # one write for all
            self._switches.check_soon()
        self._send_granted()
        ledger.stirred = bool(found)  # to find a failed step again

    def _send_granted(self) -> None:
        """Send each runner the maximum numbers of packets in flight of its jobs, if these have changed."""
        holds = self._ledger.holds
        self._granted = {number: limits for number, limits in self._granted.items() if number in holds}
        for number, hold in holds.items():
            granted = {name: place.in_flight for name, place in hold.run.places.items()}
            if hold.stage == "running" and self._granted.get(number) != granted:
                self._granted[number] = granted
                self.spawn(self._grant(number, granted))

    async def _grant(self, number: int, granted: Mapping[str, int]) -> None:
        try:
            await self._blocking.runs(lambda: self._executor.grant(number, granted))
            fault_point("granted")
        except OSError as error:  # sent again at the next division of memory
            _log.warning(
                "run %d: cannot set the new limits of its jobs' packets in flight: %s", number, error
            )
            self._granted.pop(number, None)

    def again(self, number: int) -> None:
        """Make the failed effects of a run due now, so that the loop retries them."""
        for key in [key for key in self.troubles if key[0] == number]:
            self.troubles[key] = replace(self.troubles[key], again_s=0.0)

    def close(self) -> None:
        """Cancel all effects."""
        for task in self._tasks:
            task.cancel()

    def spawn(self, effect: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task, concurrently with the loop."""
        task = asyncio.get_running_loop().create_task(effect)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def clear(self, number: int) -> None:
        """End a run of an earlier controller, and remove the run's files; retry until this succeeds.

        The run is not one of the held runs.
        """
        after_s = BACK_OFF_S[0]
        self._clearing.add(number)
        while True:
            try:
                await self._blocking.runs(lambda: self._executor.stop(number))
                fault_point("stray stopped")
                await self._blocking.runs(lambda: self._executor.forget(number))
                fault_point("stray forgotten")
                self._clearing.discard(number)
                self._ledger.stirred = True
                self._ledger.woken.set()
                return
            except (EngineError, RunnerGone, OSError) as error:
                _log.warning(
                    "run %d, left over from an earlier controller, cannot be ended: %s; trying again in %g s",
                    number,
                    error,
                    after_s,
                )
                await asyncio.sleep(after_s)
                after_s = min(2 * after_s, BACK_OFF_S[1])

    # ------------------------------------------------------------------ start of a run

    def _begin(self, number: int, step: Step) -> None:
        ledger = self._ledger
        match step:
            case Start(run):
                ports = self._udp_ports(run)
                before = {name: ledger.latest.get(name, 0.0) for name in run.jobs}
                ledger.holds[number] = HeldRun(run, busy=True, udp_ports=ports, before=before)
                self.spawn(self._effect(number, Start, partial(self._start, number, ledger.wiring)))
            case Stop(_, why):
                ledger.set(number, stage="stopping", busy=True)
                self.spawn(self._effect(number, Stop, partial(self._stop, number, why)))
            case Resize(_, job, place):
                hold = ledger.holds[number]
                admissions = dict(hold.admissions)
                if job in admissions:
                    admissions[job] = self._network.resized(admissions[job], place)
                run = replace(hold.run, places={**hold.run.places, job: place})
                ledger.set(number, run=run, admissions=admissions)

    def _udp_ports(self, run: Run) -> dict[str, tuple[int, ...]]:
        """Choose a UDP port for each server of each job of a run; return each job's ports by the job's id.

        Each port is the lowest port above `INA_UDP_PORT` that no other job uses on that server.
        """
        used: dict[str, set[int]] = {}
        for hold in self._ledger.holds.values():
            for name, ports in hold.udp_ports.items():
                for host, port in zip(hold.run.places[name].hosts, ports, strict=True):
                    used.setdefault(host, set()).add(port)
        found = {}
        for name, place in run.places.items():
            chosen = []
            for host in place.hosts:
                taken = used.setdefault(host, set())
                port = next(p for p in range(INA_UDP_PORT + 1, 1 << 16) if p not in taken)
                taken.add(port)
                chosen.append(port)
            found[name] = tuple(chosen)
        return found

    # ------------------------------------------------------------------ execution

    async def _effect(
        self, number: int, kind: type[Step], effect: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Execute the effect of a step; if it fails, record its error and the time of the next attempt."""
        ledger = self._ledger
        try:
            await effect()
        except (ControllerError, RunError, ServiceError, OSError) as error:
            before = self.troubles.get((number, kind))
            after_s = min(2 * before.after_s, BACK_OFF_S[1]) if before else BACK_OFF_S[0]
            self.troubles[number, kind] = Trouble(str(error), ledger.now_s + after_s, after_s)
            level = logging.INFO if isinstance(error, OutOfMemory | OutOfRows) else logging.WARNING
            _log.log(level, "run %d: %s; trying again in %g s", number, error, after_s)
            self._switches.check_soon()  # a switch may be gone
            if number in ledger.holds:
                ledger.set(number, busy=False)
        else:
            self.troubles.pop((number, kind), None)
        ledger.stirred = True
        ledger.woken.set()

    async def _start(self, number: int, wiring: Wiring) -> None:
        ledger = self._ledger
        stage: Stage = "stopping"  # on an error, what was done is undone, and the start retried
        try:
            ledger.keep(number)
            await self._blocking.switches(lambda: self._admit(number, wiring))
            ledger.keep(number)
            hold = ledger.holds[number]
            fault_point("admitted")
            await self._fallback_jobs.serve(hold)
            order = self._order(hold)
            await self._blocking.runs(lambda: self._executor.start(order))
            fault_point("started")
            self._granted[number] = {job.name: job.in_flight for job in order.jobs}
            stage = "running"
        except BadSpec as error:
            ledger.record([Ended(ledger.now_s, name, str(error)) for name in ledger.holds[number].run.jobs])
        finally:
            ledger.set(number, stage=stage, busy=False)
            ledger.keep(number)

    def _admit(self, number: int, wiring: Wiring) -> None:
        holds = self._ledger.holds
        for name in holds[number].run.places:
            # in this thread, in which the switches are compared: the next comparison must have it; nothing
            # else changes a busy hold
            holds[number] = replace(
                hold := holds[number],
                admissions={
                    **hold.admissions,
                    name: self._network.admit(self._ledger.submitted[name], hold, wiring),
                },
            )
            fault_point("one admitted")

    async def _stop(self, number: int, why: str) -> None:
        ledger = self._ledger
        ledger.keep(number)
        await self._blocking.runs(lambda: self._executor.stop(number))
        fault_point("stopped")
        self._runs.take_ends(number, stopping=True)
        hold = ledger.holds[number]
        self._count_again(hold, why)
        ledger.set(number, over=frozenset(hold.run.jobs))  # switches must have no entries of it
        await self._blocking.switches(lambda: self._remove(hold.admissions.values()))
        fault_point("removed")
        await self._fallback_jobs.serve(hold)
        ledger.remove_hold(number)
        await self._blocking.runs(lambda: self._executor.forget(number))
        fault_point("forgotten")
        del ledger.holds[number]  # last, as a run of this number may start from now on

    def _count_again(self, hold: HeldRun, why: str) -> None:
        """Record that workers of a run's jobs are restarted in the same run, such as with another tree.

        Record this only for jobs whose workers have not ended, and that the core still wants in the run.
        """
        ledger, run = self._ledger, hold.run
        wanted = next((each.jobs for each in ledger.desired().runs if each.number == run.number), ())
        active = hold.admissions.keys() - hold.over
        names = [name for name in run.jobs if name in wanted and name in active]
        if names and self._executor.status(run.number) is not None:
            ledger.start_again({name: hold.admissions[name].epoch for name in names}, why)

    def _remove(self, admissions: Collection[TreeAdmission]) -> None:
        for admission in admissions:
            try:
                self._network.remove(admission)
            except ControllerError as error:
                _log.warning(
                    "job %d cannot be removed from a switch, and stays on it until the switch answers: %s",
                    admission.job,
                    error,
                )
            fault_point("one removed")

    def _order(self, hold: HeldRun) -> RunOrder:
        """Return the order to start a run. Raises BadSpec if a job's user does not exist any more."""
        run = hold.run
        jobs = []
        for name, offset in zip(run.jobs, run.offsets, strict=True):
            submitted, place = self._ledger.submitted[name], hold.run.places[name]
            job = submitted.job
            machines = tuple(
                tuple(rank for rank, server in enumerate(place.servers) if server == host)
                for host in place.hosts
            )
            jobs.append(
                LaunchSpec(
                    job=Job(
                        name=name,
                        workers=job.workers,
                        command=_command(job),
                        congestion=job.congestion,
                        numbers=job.numbers,
                        priority=job.priority,
                    ),
                    machines=machines,
                    # ranks of a machine sum there
                    hierarchical=hold.admissions[name].job == ON_NO_SWITCH or len(machines) < job.workers,
                    places=place.hosts,
                    offset=offset,
                    logs=str(self._ledger.logs(submitted)),
                    granted=_granted(place),
                    in_flight=place.in_flight,
                    driver=bool(job.extra.get("driver")),
                )
            )
        return RunOrder(
            run.number,
            self._testbed,
            self._network.offers,
            tuple(jobs),
            hold.admissions,
            paced=self._network.paced or has_slow_links(self._ledger.topology),
        )


def _granted(place: Place) -> int:
    """Return the number of exclusive slots that a job has at `place`, summed over all switches."""
    own = place.standing is SlotStatus.GRANTED
    return sum(region.size for region in place.regions.values()) if own else 0


def _command(job: Job) -> tuple[str, ...]:
    """Return the command that runs a worker of a job, in the job's folder and as the job's user.

    The command is () if another launcher starts the workers. Raises BadSpec if the user does not exist any
    more.
    """
    if job.command is None:
        return ()
    folder, user = job.extra.get("folder"), job.extra.get("user")
    command = job.command if folder is None else ("env", "-C", str(folder), f"PWD={folder}", *job.command)
    if user is None:
        return command
    try:
        entry = pwd.getpwnam(str(user))
    except KeyError:
        raise BadSpec(f"there is no user {user!r} on this machine any more") from None
    return (
        *("setpriv", "--reuid", str(entry.pw_uid), "--regid", str(entry.pw_gid), "--init-groups"),
        *("--inh-caps=-all", "--no-new-privs"),
        *("env", "-u", "TMPDIR", *(f"{name}={text}" for name, text in account(entry).items())),
        *command,
    )
