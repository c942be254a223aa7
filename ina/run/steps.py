"""Held runs, and the next steps that lead from them to the desired state. No I/O.

A held run may have workers, or entries on switches and fallback servers. It is stored before the first effect
on it, and removed after the last one, so that no run is forgotten if the daemon dies. The steps are computed
again after every change, so that earlier desired states need not be stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.core import Desired, Place, Run
from controller.switches.layout import TreeAdmission
from controller.vocabulary import Region
from ina.run.launch.files import record_of
from ina.run.launch.orders import ON_NO_SWITCH

_TREE = ("root", "parents", "aggregators")

Stage = Literal["preparing", "running", "stopping"]


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A run that holds GPUs: its workers are being started, are running, or are being stopped.

    Attributes:
        run: The run, as the core desired it when it was started, with the jobs' places as last sent to the
            switches.
        stage: Whether the run is being prepared, runs, or is being stopped.
        over: The jobs whose workers have ended.
        busy: Whether an effect on the run is in progress. No other effect on the run begins before its end.
        admissions: By job, the entries that the job's switches should have.
        udp_ports: By job, the UDP port on each of the job's servers.
        before: By job, the number of iterations that the job had completed before this run was started.
        unreadable: Why the run must be stopped and started again: its runner is of another version; "": it is
            of this version.
    """

    run: Run
    stage: Stage = "preparing"
    over: frozenset[str] = frozenset()
    busy: bool = False
    admissions: Mapping[str, TreeAdmission] = field(default_factory=dict)
    udp_ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    before: Mapping[str, float] = field(default_factory=dict)
    unreadable: str = ""

    def of_switches(self) -> dict[str, TreeAdmission]:
        """Return the admissions that switches should have, by job.

        Jobs that have ended, and jobs that need no switch, are missing.
        """
        return {
            name: admission
            for name, admission in self.admissions.items()
            if name not in self.over and admission.job != ON_NO_SWITCH
        }


def held_run(found: dict[str, Any]) -> HeldRun:
    """Convert the stored form of a held run, written by this or an earlier version, to a `HeldRun`."""
    if "places" in found:  # version 4, or earlier
        found["run"]["places"] = found.pop("places")
    if "busy" not in found:  # version 3, or earlier
        for place in found["run"]["places"].values():
            place["tree"] = place["tree"] and dict(zip(_TREE, place["tree"], strict=True))
            regions = place["regions"].items()
            place["regions"] = {switch: {"offset": first, "size": size} for switch, (first, size) in regions}
        found["admissions"] = {
            job: {"beside": switches.pop("", None), "switches": switches}
            for job, switches in found["admissions"].items()
        }
    return record_of(HeldRun, found)


@dataclass(frozen=True, slots=True)
class Start:
    """A step: admit the jobs of a run to their switches, and start their workers."""

    run: Run


@dataclass(frozen=True, slots=True)
class Stop:
    """A step: end the workers of the run `number`, and remove its jobs from their switches."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Resize:
    """A step: move a running job to the slots of `place`, or change its maximum of packets in flight."""

    number: int
    job: str
    place: Place


Step = Start | Stop | Resize


def steps(desired: Desired, held: Mapping[int, HeldRun]) -> list[Step]:
    """Return the steps that are possible now: stops first, then moves to other slots, then starts.

    Runs that must stop may use GPUs of a new run, or still have workers of its jobs. The new run can start
    only after they have released these GPUs and ended these workers. If a job of a run gets other servers or
    another tree, the run is stopped, and started again there. If a job of a group must end, the group is
    stopped, and started again without that job. O(runs · GPUs).
    """
    wanted = {run.number: run for run in desired.runs}
    stops: list[Step] = []
    moves: list[Step] = []
    leaving: set[int] = set()  # GPUs
    elsewhere: set[str] = set()  # jobs with workers in a run that must stop
    for number, hold in held.items():
        why = _why_stopped(wanted.get(number), hold)
        if hold.stage == "stopping":
            why = why or hold.unreadable or "its start or its end was interrupted"
        if why is not None:
            leaving.update(hold.run.gpus)
            elsewhere.update(set(hold.run.jobs) - hold.over)
        if hold.busy:
            continue
        if why is not None:
            stops.append(Stop(number, why))
        elif hold.stage == "running":
            moves += [
                Resize(number, name, place)
                for name, place in wanted[number].places.items()
                if name not in hold.over and _memory(place) != _memory(hold.run.places[name])
            ]
    starts: list[Step] = [
        Start(run)
        for number, run in wanted.items()
        if number not in held and not leaving.intersection(run.gpus) and not elsewhere.intersection(run.jobs)
    ]
    return [*stops, *moves, *starts]


def _memory(place: Place) -> tuple[Mapping[str, Region], int]:
    return place.regions, place.in_flight


def _why_stopped(run: Run | None, hold: HeldRun) -> str | None:
    if run is None:
        return "it is no longer scheduled to run"
    if gone := sorted(set(hold.run.jobs) - hold.over - set(run.jobs)):  # cancelled, or late
        return f"job {gone[0]!r} is no longer scheduled to run"
    for name, new in run.places.items():
        old = hold.run.places.get(name)
        if name in hold.over or old is None:
            continue
        if new.servers != old.servers:
            return f"job {name!r} moves to {', '.join(new.servers)}"
        if (new.tree, new.fallback) != (old.tree, old.fallback):
            return f"job {name!r} gets another tree"
    return None
